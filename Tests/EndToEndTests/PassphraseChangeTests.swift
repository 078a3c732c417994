import Foundation
import Glibc
import Testing

@Suite("Passphrase changes", .script) struct PassphraseChangeTests {
    private static let old = "correct horse battery staple"
    private static let new = "another horse altogether"

    @Test("Change, drop and set work without a node, on a running and on a locked one; the old passphrase is refused")
    func everyState() throws {
        try withProtected { ann, right, wrong in
            let next = try ann.secret(Self.new, "next")
            func change(_ old: String, _ new: String) throws -> Answer {
                try ann.run(["passphrase", "change", "--passphrase-file", old, "--new-passphrase-file", new])
            }
            func expect(isLocked: Bool, _ protection: String) throws {
                let status = try ann.ok("status")
                #expect(status["locked"].bool == isLocked && status["protection"].string == protection, "\(status)")
                #expect(ann.files().contains("key") == (protection == "key file"))
                if !isLocked { #expect(try ann.ok("conversation", "list")["name"].string == "room") }
            }
            let refused = try change(wrong, next)
            #expect(refused.code == 1 && refused.message.contains("passphrase"), "\(refused)")
            try ann.start(["--passphrase-file", right])
            try ann.ok("conversation", "create", "--name", "room")
            #expect(try change(wrong, next).message == refused.message)
            let changed = try change(right, next)
            #expect(changed.code == 0 && changed["protection"].string == "passphrase", "\(changed)")
            #expect(["in-place", "best-effort", "ram"].contains(changed["erasure"].string ?? ""))
            try ann.fails(1, "unlock", "--passphrase-file", right)
            #expect(try change(right, next).code == 1)
            try expect(isLocked: false, "passphrase")
            ann.crash()
            #expect(try ann.tryStart(["--passphrase-file", right])?.code == 1)
            try ann.start()
            #expect(try change(next, right).code == 0)
            try expect(isLocked: true, "passphrase")
            try ann.fails(1, "unlock", "--passphrase-file", next)
            try ann.ok("unlock", "--passphrase-file", right)
            #expect(try ann.ok("passphrase", "drop", "--passphrase-file", right)["protection"].string == "key file")
            try ann.restart(kills: true)
            try expect(isLocked: false, "key file")
            let key = ann.contents("key")
            try ann.ok("passphrase", "set", "--new-passphrase-file", next)
            try expect(isLocked: false, "passphrase")
            try ann.ok("lock")
            try ann.fails(1, "unlock", "--passphrase-file", wrong)
            try ann.stop()
            #expect(try change(next, right).code == 0)
            try ann.ok("passphrase", "drop", "--passphrase-file", right)
            #expect(ann.contents("key").count == 32 && ann.contents("key") != key)
            let set = try ann.ok("passphrase", "set", "--new-passphrase-file", next)
            #expect(set["protection"].string == "passphrase")
            try ann.start(["--passphrase-file", next])
            try expect(isLocked: false, "passphrase")
            for text in ["horse", Self.old, Self.new] {
                #expect(ann.files(holding: text).isEmpty && !Program.text(ann.log).contains(text))
            }
        }
    }

    @Test func `An impossible change is refused before anything is asked or written, running or not`() throws {
        try withProtected { ann, right, wrong in
            let next = try ann.secret(Self.new, "next")
            let empty = try ann.secret("\n", "empty")
            let long = try ann.secret(String(repeating: "x", count: 4_097), "long")
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
                    (64, "\(empty) is empty", ["drop", "--passphrase-file", empty]),
                    (1, "is a directory", ["drop", "--passphrase-file", ann.directory]),
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
            let passphrases = [("", "empty"), ("a", "the old one"), (String(repeating: "x", count: 4_097), "longer")]
            let answers = try ann.rpc(
                passphrases.map { ("passphrase.change", ["passphrase": "a", "newPassphrase": $0.0]) })
            for (answer, (_, words)) in zip(answers, passphrases) {
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
            try ann.start(["--passphrase-file", try ann.secret(Self.new, "next")])
        }
    }

    @Test func `kill -9 during a change of the keystore leaves exactly one of two passphrases valid`() throws {
        try withProtected { ann, right, _ in
            let next = try ann.secret(Self.new, "next")
            try ann.start(["--passphrase-file", right])
            try ann.ok("conversation", "create", "--name", "room")
            let before = ann.contents("keystore")
            let command = ["passphrase", "change", "--passphrase-file", right, "--new-passphrase-file", next]
            let child = try Child([Program.mayfly] + command + ["--home", ann.home])
            while ann.contents("keystore") == before, child.isRunning {}
            ann.crash()
            let isAcknowledged = child.wait(seconds: 60) == 0
            try ann.start()
            #expect(try ann.ok("status")["locked"].bool == true)
            let first = try ann.run(["unlock", "--passphrase-file", next])
            if isAcknowledged { #expect(first.code == 0, "\(first)") }
            let (winner, loser) = first.code == 0 ? (next, right) : (right, next)
            try ann.restart(kills: true)
            try ann.fails(1, "unlock", "--passphrase-file", loser)
            try ann.ok("unlock", "--passphrase-file", winner)
            #expect(try ann.ok("conversation", "list")["name"].string == "room")
            try ann.stop()
        }
    }
}
