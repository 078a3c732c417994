import Foundation
import Glibc
import Testing

@Suite("Spoken codes", .script) struct CodeTests {
    private func withNodes(_ body: (_ ann: TestNode, _ bob: TestNode, _ place: String) throws -> Void) throws {
        try withPair { ann, bob in
            try ann.ok("conversation", "create", "--name", "room", "--as", "ann")
            try body(ann, bob, String((ann.listen ?? "").dropFirst("tcp://".count)))
        }
    }

    private func open(_ ann: TestNode) throws -> (command: Background, code: String) {
        let command = try Background(ann, ["invite", "create", "room", "--code"])
        return (command, try #require(try command.line()["code"].string))
    }

    private func other(_ code: String) -> String {
        let parts = code.split(separator: "-")
        return "\(parts[0])-\(parts[1])-\(parts[2] == "zoo" ? "zone" : "zoo")"
    }

    @Test func `A spoken code leads to a conversation, and its creator is told that it was used`() throws {
        try withNodes { ann, bob, place in
            let (command, code) = try open(ann)
            let joined = try bob.ok("join", code.uppercased(), "--at", place, "--as", "bob", "--timeout", "90")
            #expect(joined["state"].string == "ready" && joined["name"].string == "room")
            #expect(try command.line(1)["outcome"].string == "taken")
            #expect(command.end() == 0)
            try ann.wait("memberJoined")
            try ann.wait("codeEnded:outcome=taken", in: "room")
            try say("from the first to the second", ann)
            try say("and back", bob)
            let again = try bob.fails(7, "join", code, "--at", place)
            #expect(again.kind == "notFound")
            // Neither code nor words are on a disk or in a log.
            for node in [ann, bob] {
                let words = code.split(separator: "-").dropFirst().joined(separator: "-")
                #expect(node.files(holding: code).isEmpty && node.files(holding: words).isEmpty)
                #expect(!Program.text(node.log).contains(words))
            }
            // A wrong guess voids a code: both sides are told, and the right words then fail.
            let before = try ann.ok("invite", "list", "room").lines.count
            let (second, next) = try open(ann)
            #expect(try bob.fails(2, "join", other(next), "--at", place).kind == "refused")
            #expect(try second.line(1)["outcome"].string == "wrongGuess")
            #expect(second.end() == 2)
            #expect(try bob.fails(7, "join", next, "--at", place).kind == "notFound")
            #expect(try bob.ok("join", "list").lines.isEmpty)
            #expect(try ann.ok("invite", "list", "room").lines.count == before)
            try ann.wait("codeEnded:outcome=wrongGuess", in: "room")
        }
    }

    @Test("Ctrl-C revokes the code; --no-wait leaves it open until it is revoked, alone or with all invites")
    func revocation() throws {
        try withNodes { ann, bob, place in
            let (command, code) = try open(ann)
            command.signal(SIGINT)
            #expect(command.end() == -SIGINT)
            try ann.wait("codeEnded:outcome=revoked", in: "room")
            #expect(try bob.fails(7, "join", code, "--at", place).kind == "notFound")
            for arguments in [["room", "CODE"], ["room"]] {
                let left = try ann.ok("invite", "create", "room", "--code", "--no-wait")["code"].string ?? ""
                #expect(try ann.show("invite", "list", "room").output.contains("code \(left), open until"))
                let cursor = try ann.cursor()
                let revoke = ["invite", "revoke"] + arguments.map { $0 == "CODE" ? left : $0 }
                #expect(try ann.run(revoke).code == 0)
                try ann.wait("codeEnded:outcome=revoked", in: "room", after: cursor)
                #expect(try ann.show("invite", "list", "room").output.isEmpty)
                #expect(try bob.fails(7, "join", left, "--at", place).kind == "notFound")
            }
            let last = try ann.ok("invite", "create", "room", "--code", "--no-wait")["code"].string ?? ""
            // Its words may be separate arguments.
            let words = last.split(separator: "-").map(String.init)
            #expect(try bob.run(["join"] + words + ["--at", place, "--as", "bob"])["state"].string == "ready")
        }
    }

    @Test("A code suffices if the invite's addresses are wrong: the creator is dialled where it was reached")
    func wrongAddresses() throws {
        try withHomes { ann, bob in
            try ann.configure(["advertise": ["tcp://127.0.0.1:1"]])
            for node in [ann, bob] { try node.start() }
            try ann.ok("conversation", "create", "--name", "room", "--as", "ann")
            let code = try ann.ok("invite", "create", "room", "--code", "--no-wait")
            #expect(code["endpoints"][0].string == "tcp://127.0.0.1:1")
            let place = String((ann.listen ?? "").dropFirst("tcp://".count))
            let joined = try bob.ok("join", code["code"].string ?? "", "--at", place, "--as", "bob", "--timeout", "90")
            #expect(joined["state"].string == "ready")
            for node in [ann, bob] { try node.stop() }
        }
    }

    @Test("A node without an open code treats a greeting as garbage; with one, a silent client does not spend it")
    func strangers() throws {
        try withNodes { ann, bob, place in
            let garbage: [UInt8] = [0x63, 0, 7] + [UInt8](repeating: 9, count: 14)
            for first in [garbage, [0x4d] + garbage.dropFirst(), [0x00] + garbage.dropFirst()] {
                let stranger = try LoopbackClient(host: ann.host, port: ann.port)
                try stranger.send(first)
                #expect(stranger.readAll().isEmpty)
            }
            let (command, code) = try open(ann)
            let slot = UInt8(code.split(separator: "-")[0]) ?? 0
            var silent: [LoopbackClient] = []
            for _ in 0..<3 {
                let stranger = try LoopbackClient(host: ann.host, port: ann.port)
                try stranger.send([0x63, 0, slot] + garbage.dropFirst(3))
                silent.append(stranger)
            }
            // An invalid share gets no answer.
            let wrong = try LoopbackClient(host: ann.host, port: ann.port)
            try wrong.send([0x63, 0, slot] + garbage.dropFirst(3) + [UInt8](repeating: 0, count: 32))
            #expect(wrong.readAll().isEmpty)
            #expect(try bob.ok("join", code, "--at", place, "--as", "bob")["state"].string == "ready")
            #expect(command.end() == 0)
            for stranger in silent { #expect(stranger.readAll().isEmpty) }
        }
    }
}

@Suite(
    "Spoken codes on one network", .script,
    .enabled(if: Program.canMakeNamespaces, "making network namespaces needs root and `ip`")) struct LanCodeScenarios
{
    @Test func `Without --at the machine with the code is found; its socket is open only while a code is`() throws {
        try withMachines { cable, ann, bob in
            try ann.ok("conversation", "create", "--name", "room", "--as", "ann")
            #expect(try !cable.isListening())
            let code = try ann.ok("invite", "create", "room", "--code", "--no-wait")["code"].string ?? ""
            try eventually("the group is joined") { try cable.isListening() }
            #expect(try !cable.isListening(1))
            let slot = Int(code.split(separator: "-")[0]) ?? 0
            let nobody = try bob.fails(5, "join", "\(slot % 99 + 1)-harvest-lamp")
            #expect(nobody.kind == "unreachable" && "\(nobody)".contains("--at"))
            #expect(try bob.ok("join", code, "--as", "bob")["state"].string == "ready")
            try say("found", ann)
            try eventually("the group is left") { try !cable.isListening() }
            // A node without discovery does not look.
            try bob.restart(["--listen", "tcp://0.0.0.0:7440", "--discover", "off"])
            #expect("\(try bob.fails(5, "join", code))".contains("off"))
        }
    }
}
