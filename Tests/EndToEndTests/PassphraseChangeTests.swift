import Foundation
import Glibc
import Testing

@Suite("Passphrase changes", .script) struct PassphraseChangeTests {
    private static let old = "correct horse battery staple"
    private static let new = "another horse altogether"

    private func file(_ text: String, _ name: String, _ node: TestNode) -> String {
        let path = "\(node.directory)/\(name)"
        _ = FileManager.default.createFile(
            atPath: path, contents: Data(text.utf8), attributes: [.posixPermissions: 0o600])
        return path
    }

    private func expectNoTrace(_ node: TestNode) {
        for text in ["horse", Self.old, Self.new] {
            #expect(node.files(holding: text).isEmpty && !Program.text(node.log).contains(text))
        }
    }

    @Test("On a running node the old passphrase is refused after a change, the new one opens, also after a restart")
    func running() throws {
        try withProtected { ann, right, wrong in
            let next = file(Self.new + "\n", "next", ann)
            try ann.start(["--passphrase-file", right])
            try ann.ok("conversation", "create", "--name", "room")
            let refused = try ann.fails(1, "unlock", "--passphrase-file", wrong)
            let change = ["passphrase", "change", "--new-passphrase-file", next, "--passphrase-file"]
            let same = try ann.run(change + [wrong])
            #expect(same.code == 1 && same.message == refused.message, "\(same)")
            try ann.ok("unlock", "--passphrase-file", right)
            let changed = try ann.run(change + [right])
            #expect(changed.code == 0 && changed["protection"].string == "passphrase", "\(changed)")
            #expect(["in-place", "best-effort", "ram"].contains(changed["erasure"].string ?? ""))
            #expect(try ann.ok("conversation", "list")["name"].string == "room")
            try ann.fails(1, "unlock", "--passphrase-file", right)
            #expect(try ann.run(change + [right]).code == 1)
            try ann.ok("lock")
            try ann.fails(1, "unlock", "--passphrase-file", right)
            try ann.fails(6, "conversation", "list")
            try ann.ok("unlock", "--passphrase-file", next)
            #expect(try ann.ok("conversation", "list")["name"].string == "room")
            ann.crash()
            #expect(try ann.tryStart(["--passphrase-file", right])?.code == 1)
            try ann.start(["--passphrase-file", next])
            #expect(try ann.ok("conversation", "list")["name"].string == "room")
            expectNoTrace(ann)
        }
    }

    @Test("Change, drop and set work without a node, on a running and on a locked one, which stays locked")
    func everyState() throws {
        try withProtected { ann, right, wrong in
            let next = file(Self.new, "next", ann)
            let refused = try ann.fails(
                1, "passphrase", "change", "--passphrase-file", wrong, "--new-passphrase-file", next)
            #expect(refused.message.contains("passphrase"))
            try ann.ok("passphrase", "change", "--passphrase-file", right, "--new-passphrase-file", next)
            #expect(try ann.tryStart(["--passphrase-file", right])?.code == 1)
            #expect(try ann.ok("passphrase", "drop", "--passphrase-file", next)["protection"].string == "key file")
            #expect(ann.files().contains("key"))
            try ann.start()
            #expect(try ann.ok("status")["locked"].bool == false)
            #expect(try ann.ok("status")["protection"].string == "key file")
            let key = ann.contents("key")
            try ann.ok("passphrase", "set", "--new-passphrase-file", next)
            #expect(!ann.files().contains("key"))
            #expect(try ann.ok("status")["protection"].string == "passphrase")
            try ann.ok("lock")
            try ann.fails(1, "unlock", "--passphrase-file", wrong)
            try ann.ok("unlock", "--passphrase-file", next)
            try ann.ok("passphrase", "drop", "--passphrase-file", next)
            #expect(ann.contents("key").count == 32 && ann.contents("key") != key)
            try ann.restart(kills: true)
            #expect(try ann.ok("status")["locked"].bool == false)
            try ann.stop()
            #expect(
                try ann.ok("passphrase", "set", "--new-passphrase-file", right)["protection"].string == "passphrase")
            #expect(!ann.files().contains("key"))
            try ann.start()
            try ann.ok("passphrase", "change", "--passphrase-file", right, "--new-passphrase-file", next)
            #expect(try ann.ok("status")["locked"].bool == true)
            try ann.fails(1, "unlock", "--passphrase-file", right)
            try ann.ok("unlock", "--passphrase-file", next)
            expectNoTrace(ann)
        }
    }

    @Test func `An impossible change is refused before anything is asked or written, running or not`() throws {
        try withProtected { ann, right, wrong in
            let next = file(Self.new, "next", ann)
            let empty = file("\n", "empty", ann)
            let long = file(String(repeating: "x", count: 4_097), "long", ann)
            let binary = "\(ann.directory)/binary"
            try Data([0xFF, 0xFE, 0x31]).write(to: URL(fileURLWithPath: binary))
            let keystore = ann.contents("keystore")
            for isRunning in [false, true] {
                if isRunning { try ann.start() }
                let cases: [(Int32, String, [String])] = [
                    (1, "already", ["set", "--new-passphrase-file", next]),
                    (64, "empty", ["change", "--passphrase-file", right, "--new-passphrase-file", empty]),
                    (64, "longer", ["change", "--passphrase-file", right, "--new-passphrase-file", long]),
                    (64, "UTF-8", ["change", "--passphrase-file", right, "--new-passphrase-file", binary]),
                    (64, "empty", ["drop", "--passphrase-file", empty]),
                    (64, "the old one", ["change", "--passphrase-file", right, "--new-passphrase-file", right]),
                    (64, "no terminal", ["change", "--passphrase-file", right]),
                    (64, "no terminal", ["change", "--new-passphrase-file", next]),
                    (1, "cannot read", ["change", "--passphrase-file", right, "--new-passphrase-file", "/no/such"]),
                    (1, "does not open", ["change", "--passphrase-file", wrong, "--new-passphrase-file", next]),
                    (1, "does not open", ["drop", "--passphrase-file", wrong]),
                ]
                for (code, words, command) in cases {
                    let answer = try ann.run(["passphrase"] + command)
                    #expect(answer.code == code && answer.message.contains(words), "\(answer)")
                }
                #expect(ann.contents("keystore") == keystore)
            }
            // A direct client of the socket gets the same answer.
            let requests: [(String, String)] = [
                (#"{"passphrase":"a","newPassphrase":""}"#, "empty"),
                (#"{"passphrase":"a","newPassphrase":"a"}"#, "the old one"),
                (#"{"passphrase":"a","newPassphrase":"\#(String(repeating: "x", count: 4_097))"}"#, "longer"),
            ]
            for (params, words) in requests {
                let request = #"{"jsonrpc":"2.0","id":1,"method":"passphrase.change","params":\#(params)}"# + "\n"
                let answer = try ann.run(["rpc"], input: request)
                #expect(answer["error"]["message"].string?.contains(words) == true, "\(answer)")
            }
            try ann.stop()
            let bob = TestNode(name: "bob", directory: ann.directory)
            try bob.initialise()
            for command in [["change", "--new-passphrase-file", next], ["drop"]] {
                let answer = try bob.run(["passphrase"] + command + ["--passphrase-file", right])
                #expect(answer.code == 1 && answer.message.contains("key file"), "\(answer)")
            }
            let nowhere = TestNode(name: "nobody", directory: ann.directory)
            try nowhere.fails(8, "passphrase", "set", "--new-passphrase-file", next)
        }
    }

    @Test("On a terminal the new passphrase is asked for twice, hidden; two different answers change nothing")
    func terminal() throws {
        try withProtected { ann, right, _ in
            let keystore = ann.contents("keystore")
            func attempt(_ first: String, _ second: String) throws -> (Int32?, String) {
                let terminal = try PseudoTerminal()
                let child = try terminal.child([
                    "setsid", "--ctty", Program.mayfly, "passphrase", "change", "--home", ann.home,
                ])
                for (question, answer) in [
                    ("\nPassphrase: ", Self.old), ("New passphrase: ", first), ("Repeat the new passphrase: ", second),
                ] {
                    try terminal.expect(question.trimmingCharacters(in: .newlines))
                    try eventually("nothing is shown", seconds: 30) { !terminal.shows }
                    try terminal.type(answer + "\n")
                }
                let code = child.wait(seconds: 120)
                try terminal.expect(code == 0 ? "protected" : "differ")
                #expect(terminal.shows)
                return (code, terminal.text)
            }
            let (refused, _) = try attempt("one", "two")
            #expect(refused == 1 && ann.contents("keystore") == keystore)
            let (code, text) = try attempt(Self.new, Self.new)
            #expect(code == 0 && !text.contains("horse"))
            #expect(try ann.tryStart(["--passphrase-file", right])?.code == 1)
            try ann.start(["--passphrase-file", file(Self.new, "next", ann)])
        }
    }

    @Test func `kill -9 during a change of the keystore leaves exactly one of two passphrases valid`() throws {
        try withProtected { ann, right, _ in
            let next = file(Self.new, "next", ann)
            try ann.start(["--passphrase-file", right])
            try ann.ok("conversation", "create", "--name", "room")
            let before = ann.contents("keystore")
            let command = ["passphrase", "change", "--passphrase-file", right, "--new-passphrase-file", next]
            let child = try Child([Program.mayfly] + command + ["--home", ann.home])
            while ann.contents("keystore") == before, child.isRunning {}
            ann.crash()
            let isAcknowledged = child.wait(seconds: 60) == 0
            try expectOneOpens(ann, right, next, isAcknowledged: isAcknowledged)
        }
    }
}

/// After a change that may have been interrupted.
func expectOneOpens(_ ann: TestNode, _ old: String, _ new: String, isAcknowledged: Bool) throws {
    try ann.start()
    #expect(try ann.ok("status")["locked"].bool == true)
    let first = try ann.run(["unlock", "--passphrase-file", new])
    if isAcknowledged { #expect(first.code == 0, "\(first)") }
    if first.code != 0 { try ann.ok("unlock", "--passphrase-file", old) }
    #expect(try ann.ok("conversation", "list")["name"].string == "room")
    let (winner, loser) = first.code == 0 ? (new, old) : (old, new)
    try ann.restart(kills: true)
    try ann.fails(1, "unlock", "--passphrase-file", loser)
    try ann.ok("unlock", "--passphrase-file", winner)
    #expect(try ann.ok("conversation", "list")["name"].string == "room")
    try ann.stop()
}
