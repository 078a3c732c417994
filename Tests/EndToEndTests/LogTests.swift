import Foundation
import Glibc
import Testing

@Suite("The log", .script) struct LogTests {
    private struct Line: CustomStringConvertible {
        let level: String
        let text: String
        let fields: [String: String]

        /// `TIME LEVEL mayfly: key=value … [NodeRuntime] text`
        init?(_ line: some StringProtocol) {
            let parts = line.split(separator: " ", maxSplits: 2)
            guard parts.count == 3, let end = parts[2].range(of: "[NodeRuntime] ") else { return nil }
            level = String(parts[1])
            text = String(parts[2][end.upperBound...])
            let pairs = parts[2][..<end.lowerBound].split(separator: " ").compactMap { word -> (String, String)? in
                let pair = word.split(separator: "=", maxSplits: 1)
                return pair.count == 2 ? (String(pair[0]), String(pair[1])) : nil
            }
            fields = Dictionary(pairs) { one, _ in one }
        }

        var description: String { "\(level) \(text) \(fields)" }
    }

    private func lines(_ node: TestNode) -> [Line] {
        Program.text(node.log).split(separator: "\n").compactMap { Line($0) }
    }

    private func expect(
        _ text: String, _ fields: [String: String] = [:], of client: String?, at node: TestNode,
        location: SourceLocation = #_sourceLocation
    ) {
        func isThere() -> Bool {
            lines(node).contains { line in
                "\(line.level) \(line.text)" == text && line.fields["client"] == client
                    && fields.allSatisfy { line.fields[$0.key] == $0.value }
            }
        }
        do { try eventually("\(text) \(fields) in the log of \(node.name)", seconds: 20) { isThere() } } catch {
            Issue.record("\(error)\n\(Program.text(node.log))", sourceLocation: location)
        }
    }

    private func client(_ node: TestNode) throws -> String {
        try #require(try node.ok("conversation", "show", "room")["inbox"].string)
    }

    @Test("At info the log tells the fate of each conversation by clientId, at debug also of links, dials and sleep")
    func debug() throws {
        try withHomes { ann, bob in
            for node in [ann, bob] { try node.start(["--log-level", "debug"]) }
            try meet(ann, bob)
            let clients = (ann: try client(ann), bob: try client(bob))
            let cursor = try ann.cursor()
            try ann.ok("lifetime", "propose", "room", "1h")
            try bob.wait("lifetimeProposed:ours=false")
            try bob.ok("lifetime", "reject", "room")
            try ann.wait("lifetimeRejected", after: cursor)
            try agree(ann, bob, "1d")
            try say("a text that is in no log", ann)
            try ann.ok("lock")
            try ann.ok("unlock")
            try ann.ok("inbox", "sleep", "room")
            try ann.ok("inbox", "wake", "room")
            try ann.wait("peerOnline", after: cursor)
            try ann.ok("explode", "room", "--in", "1h", "--force")
            try bob.wait("explosionScheduled")
            try ann.ok("explode", "room", "--force")
            try ann.wait("deletionReceipt")
            try ann.ok("conversation", "create", "--name", "other")
            let other = try ann.ok("conversation", "show", "other")
            let void = try ann.invite("other")
            try ann.ok("invite", "revoke", "other")
            try bob.fails(2, "join", void, "--timeout", "90")
            try ann.ok("conversation", "leave", "other", "--force")
            for (text, client, node, fields) in [
                ("info conversation created", clients.ann, ann, [:]),
                ("info member joined", clients.ann, ann, ["members": "2"]), ("info join began", clients.bob, bob, [:]),
                ("info joined", clients.bob, bob, ["members": "2"]),
                ("info agreement began", clients.ann, ann, ["lifetime": "1d", "automatic": "false"]),
                ("info agreement began", clients.bob, bob, ["lifetime": "1d", "automatic": "false"]),
                ("info explosion scheduled", clients.ann, ann, [:]),
                ("info explosion scheduled", clients.bob, bob, [:]), ("info exploded", clients.ann, ann, [:]),
                ("info exploded", clients.bob, bob, [:]),
                ("info explosion confirmed", clients.ann, ann, ["confirmed": "1", "of": "1"]),
                ("info locked", nil, ann, [:]), ("info unlocked", nil, ann, [:]),
                ("debug join admitted", clients.ann, ann, [:]), ("debug link up", clients.ann, ann, ["path": "direct"]),
                ("debug link down", clients.ann, ann, ["path": "direct"]),
                ("debug lifetime proposed", clients.ann, ann, ["lifetime": "1h", "ours": "true"]),
                ("debug proposal rejected", clients.ann, ann, [:]),
                ("debug acknowledgements", clients.bob, bob, ["sent": "1", "received": "0"]),
                ("debug acknowledgements", clients.ann, ann, ["sent": "0", "received": "1"]),
                ("debug member online", clients.bob, bob, [:]), ("debug inbox asleep", clients.ann, ann, [:]),
                ("debug inbox awake", clients.ann, ann, ["reason": "userInteraction"]),
                ("info conversation left", other["inbox"].string, ann, [:]),
            ] as [(String, String?, TestNode, [String: String])] { expect(text, fields, of: client, at: node) }
            let failed = try #require(lines(bob).first { $0.text == "join failed" })
            #expect(failed.level == "info" && failed.fields["kind"] == "generic_failure", "\(failed)")
            #expect(failed.fields["client"].map { $0 != clients.bob } == true)
            #expect(lines(ann).contains { $0.text == "link up" && ["tcp", "udp"].contains($0.fields["transport"]) })
            #expect(lines(ann).filter { $0.text == "link down" }.allSatisfy { $0.fields["reason"] != nil })
            #expect(lines(ann).allSatisfy { $0.level != "trace" })
            #expect(clients.ann != clients.bob)
            // CanaryTests searches for all other secrets.
            for node in [ann, bob] {
                let ports = [ann, bob].map { ":\($0.port)" }
                for hidden in [ann.host, bob.host, "127.0.0.1"] + ports {
                    #expect(!Program.text(node.log).contains(hidden))
                }
            }
            for node in [ann, bob] { try node.stop() }
        }
    }

    @Test("A failed dial is logged with its kind") func dials() throws {
        try withHomes { ann, bob in
            for node in [ann, bob] { try node.start(["--log-level", "debug"]) }
            try meet(ann, bob)
            let own = try client(ann)
            try bob.stop(seenBy: ann, kills: true)
            expect("debug member offline", of: own, at: ann)
            expect("debug dial failed", ["kind": "refused"], of: own, at: ann)
            let port = ":\(bob.listen?.split(separator: ":").last ?? "?")"
            #expect(!Program.text(ann.log).contains(port) && !Program.text(ann.log).contains(bob.host))
        }
    }

    @Test("A refusing rendezvous node is logged by its number, once, without its name") func rendezvous() throws {
        try withPair(["--log-level", "info"]) { ann, bob in
            let card = try bob.card()
            try ann.ok("peer", "add", "the-hub", card)
            try ann.ok("peer", "set", "the-hub", "rendezvous=on")
            expect("notice rendezvous node", ["number": "1"], of: nil, at: ann)
            let lines = lines(ann).filter { $0.text == "rendezvous node" }
            #expect(lines.count == 1, "\(lines)")
            #expect(!Program.text(ann.log).contains("the-hub"))
        }
    }
}
