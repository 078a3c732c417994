import Foundation
import Glibc
import Testing

@Suite("Commands for people", .script) struct PeopleTests {
    private static func onTerminal(_ node: TestNode, _ arguments: String...) -> [String] {
        ["/usr/bin/env", "TZ=Asia/Kolkata", Program.mayfly] + arguments + ["--home", node.home]
    }

    @Test func `On a terminal a message is shown with a handle and local time, and the handle takes it back`() throws {
        try withRoom(lifetime: "1d") { ann, bob, _ in
            try say("first", ann)
            try say("second", ann)
            let id = try message("first", at: bob)["message"].string ?? ""
            let handle = String(id.prefix(4))
            let terminal = try PseudoTerminal()
            let read = try terminal.child(Self.onTerminal(bob, "read", "room"))
            try terminal.expect("\(handle)")
            try terminal.expect("second")
            #expect(read.wait(seconds: 30) == 0)
            // 5 h 30 min ahead of UTC, and never close to a full hour, so that it differs from whole offsets.
            let sent = try #require(try message("first", at: bob)["sentAt"].time)
            var calendar = Calendar(identifier: .gregorian)
            calendar.timeZone = try #require(TimeZone(secondsFromGMT: 19_800))
            let date = Date(timeIntervalSince1970: Double(sent) / 1_000)
            let parts = calendar.dateComponents([.hour, .minute], from: date)
            let clock = String(format: "%02d:%02d", parts.hour ?? -1, parts.minute ?? -1)
            // Half a minute may pass on a busy machine.
            let lines = ["1d 0h left", "23h 59m left"].map { "\(handle)  \(clock)  ann  first  [\($0)]" }
            #expect(lines.contains { terminal.text.contains($0) }, "\(terminal.text)")
            #expect(!terminal.text.contains("Z  ann"))
            // A pipe has UTC and no handle.
            let piped = try bob.show("read", "room")
            #expect(piped.output.contains("Z  ann  first  [expires ") && !piped.output.contains(handle), "\(piped)")

            try bob.ok("send", "room", "an answer", "--reply-to", handle, "--wait", "delivered")
            #expect(try message("an answer", at: ann)["replyTo"].string == id)
            try bob.ok("react", "room", handle, "👍", "--wait", "delivered")
            #expect(try message("first", at: ann)["reactions"].list.count == 1)
        }
    }

    @Test(
        "@1 is the newest message, on the disk or in memory, and a handle beyond the last is refused",
        arguments: ["1d", nil]) func fromTheEnd(lifetime: String?) throws
    {
        try withRoom(lifetime: lifetime) { ann, bob, _ in
            let before = try bob.ok("read", "room").lines.count
            for text in ["one", "two", "three"] { try say(text, ann) }
            let ids = try bob.ok("read", "room").lines.suffix(3).map { $0["message"].string ?? "" }
            for (name, index) in [("@1", 2), ("@2", 1), ("@3", 0), ("~2", 1)] {
                let later = try bob.ok("read", "room", "--since", name).lines.map { $0["message"].string }
                #expect(later == ids.dropFirst(index + 1).map { $0 }, "\(name)")
            }
            try bob.ok("send", "room", "answer", "--reply-to", "@2", "--wait", "delivered")
            #expect(try message("answer", at: bob)["replyTo"].string == ids[1])
            let count = try bob.ok("read", "room").lines.count
            #expect(count == before + 4)
            #expect(try bob.ok("read", "room", "--since", "@\(count)").lines.count == count - 1)
            for wrong in ["@\(count + 1)", "@0", "@", "@x", "@-1", "~"] {
                try bob.fails(7, "read", "room", "--since", wrong)
                try bob.fails(7, "send", "room", "x", "--reply-to", wrong)
            }
        }
    }

    @Test("`read --follow` shows old and new messages of both sides, and ends with the conversation") func follow()
        throws
    {
        try withRoom { ann, bob, _ in
            try say("before", ann)
            let later = try Background(bob, ["read", "room", "--since", "@1", "--follow"])
            // This reader shows only what comes after its start; another one reads the rest.
            try eventually("the start") {
                try say("start", ann)
                return try !bob.texts().isEmpty && !later.lines.isEmpty
            }
            let following = try Background(bob, ["read", "room", "--last", "1", "--follow"])
            try eventually("the last message") { !following.lines.isEmpty }
            try say("theirs", ann)
            try say("ours", bob)
            try ann.ok("send", "room", "--lines", "--wait", "delivered", input: "many\nat\nonce\n")
            for reader in [later, following] {
                try eventually("what came") {
                    reader.lines.compactMap { $0["text"].string }.suffix(5) == ["theirs", "ours", "many", "at", "once"]
                }
            }
            #expect(try bob.ok("conversation", "list")["unread"].integer == 0)
            try ann.ok("explode", "room", "--force")
            #expect(following.end() == 3)
            #expect(following.lines.last?["error"]["kind"].string == "expired", "\(following.lines)")
        }
    }

    @Test("`read --follow` goes on when its newest message is gone, and ends with the node or when we leave")
    func followExpired() throws {
        try withRoom { ann, bob, _ in
            let following = try Background(bob, ["read", "room", "--follow"])
            func texts() -> [String] { following.lines.compactMap { $0["text"].string } }
            for shown in [["one"], ["one", "two"]] {
                try say(shown[shown.count - 1], ann)
                try eventually("it is shown, once") { texts().suffix(shown.count) == shown[...] }
                // Messages in memory only are dropped when the conversation is closed here.
                try bob.ok("conversation", "close", "room")
                try bob.wait("peerOnline", after: try bob.cursor() - 1)
            }
            try bob.stop()
            #expect(following.end() == 8)
            try bob.start()
            let again = try Background(bob, ["read", "room", "--follow"])
            try bob.wait("peerOnline")
            try say("three", ann)
            try eventually("the third") { again.lines.contains { $0["text"].string == "three" } }
            try bob.ok("conversation", "leave", "room", "--force")
            #expect(again.end() == 7)
        }
    }

    /// MessageArchiveTests show what counts.
    @Test func `Unread messages are counted, also asleep and after a crash, and reading clears the count`() throws {
        try withRoom(lifetime: "1d") { ann, bob, _ in
            func count() throws -> Int64? { try bob.ok("conversation", "list")["unread"].integer }
            for node in [ann, bob] { try node.ok("lifetime", "policy", "room", "accept-up-to:1d") }
            for text in ["one", "two", "three"] { try say(text, ann) }
            try say("mine", bob)
            #expect(try count() == 3)
            let table = try bob.show("conversation", "list")
            #expect(table.output.contains("UNREAD") && table.output.contains("  3  "), "\(table)")
            // A search for unread messages, a sleep and a restart read nothing.
            try bob.ok("inbox", "sleep", "room")
            #expect(try count() == 3)
            try bob.restart(kills: true)
            #expect(try count() == 3)
            try bob.wait("lifetimeAgreed")
            try bob.ok("read", "room", "--last", "1")
            #expect(try count() == 0)
            // The state saved at the fall asleep has none unread: after a crash it must not count.
            try bob.ok("inbox", "sleep", "room")
            try say("after the sleep", ann)
            for kills in [true, false] {
                try bob.restart(kills: kills)
                #expect(try count() == 1)
                try bob.wait("lifetimeAgreed")
            }
            // A watcher reads what it shows.
            let cursor = try bob.cursor()
            let watching = try Background(bob, ["watch", "room", "--only", "message", "--since", String(cursor)])
            try say("watched", ann)
            try eventually("the event") { watching.lines.contains { $0["text"].string == "watched" } }
            #expect(try count() == 1)
            watching.stop()
        }
    }

    @Test func `On a terminal commands ask, fit the screen, and a lock clears the texts shown`() throws {
        try withRoom { ann, bob, _ in
            func open(_ node: TestNode, _ arguments: [String]) throws -> (PseudoTerminal, Child) {
                let terminal = try PseudoTerminal(size: (80, 24))
                return (terminal, try terminal.child([Program.mayfly] + arguments + ["--home", node.home]))
            }
            let (question, proposal) = try open(ann, ["lifetime", "propose", "room", "1d"])
            try question.expect("[Y/n] ")
            try question.type("\n")
            #expect(proposal.wait(seconds: 60) == 0)
            #expect(try ann.ok("lifetime", "show", "room")["renewed"].bool == true)
            try ann.ok("config", "set", "name")
            let (named, creation) = try open(ann, ["conversation", "create", "--name", "tea"])
            try named.expect("Your name, as others see it (Enter for none): ")
            try named.type("zoe\n")
            #expect(creation.wait(seconds: 60) == 0)
            #expect(try ann.ok("config", "show")["name"].string == "zoe")
            try bob.ok("conversation", "profile", "room", "漢字")
            try ann.wait("profileChanged:profile=漢字")
            // A name of two characters and four columns.
            let piped = try ann.show("conversation", "members", "room").output.split(separator: "\n")
            #expect(piped[0].hasPrefix("NAME  MEMBER") && piped[1].hasPrefix("漢字  "), "\(piped)")
            let (table, members) = try open(ann, ["conversation", "members", "room"])
            try table.expect("out")
            #expect(members.wait(seconds: 60) == 0)
            #expect(table.text.split(separator: "\r\n").allSatisfy { $0.count <= 80 }, "\(table.text)")
            try say("secret", ann)
            let readers = try [["read", "room", "--follow"], ["chat", "room", "--plain"]].map { try open(bob, $0) }
            for (terminal, _) in readers { try terminal.expect("secret") }
            let locked = try bob.show("lock")
            #expect(locked.errors.contains("this home has a key file and no passphrase"), "\(locked)")
            for (terminal, _) in readers { try terminal.expect("\u{1B}[2J") }
            #expect(readers[0].1.wait(seconds: 60) == 6)
            try readers[1].0.expect("`mayfly unlock` opens it")
            readers[1].1.signal(SIGTERM)
            _ = readers[1].1.wait(seconds: 60)
        }
    }

    @Test func `The progress of a file stays on one row of the terminal`() throws {
        try withRoom(lifetime: "1d") { ann, bob, _ in
            let name = String(repeating: "漢", count: 30)
            try bob.ok("conversation", "profile", "room", name)
            try ann.wait("profileChanged:profile=\(name)")
            let path = "\(ann.directory)/file"
            try Data(count: 16 << 20).write(to: URL(fileURLWithPath: path))
            let terminal = try PseudoTerminal(size: (40, 24))
            // Bob receives nothing until the command follows his progress.
            kill(bob.pid, SIGSTOP)
            defer { kill(bob.pid, SIGCONT) }
            let sending = try terminal.child([
                Program.mayfly, "send", "room", "--file", path, "--wait", "delivered", "--home", ann.home,
            ])
            try terminal.expect("reading 100 %")
            kill(bob.pid, SIGCONT)
            try terminal.expect("\rsending to \(String(repeating: "漢", count: 13))…\u{1B}[K")
            try terminal.expect("\r\u{1B}[Kmessage ")
            #expect(sending.wait(seconds: 60) == 0)
        }
    }

    @Test func `An invite is read from standard input, and empty input is an error`() throws {
        try withPair { ann, bob in
            let slug = try inviteToRoom(ann)
            try bob.fails(64, "join", "-", input: " \n")
            try bob.fails(64, "join", "-", input: "mayfly:join/nonsense\n")
            let joined = try bob.ok("join", "-", "--timeout", "90", input: "\u{FEFF}\(slug)\r\nand more\n")
            #expect(joined["state"].string == "ready")
        }
    }

    @Test(
        "A common mistake is answered with the line to type",
        arguments: [
            (["send", "room", "hi", "there"], "mayfly send room 'hi there'"),
            (["send", "room", "it's", "me", "--wait", "sent"], "mayfly send room 'it'\\''s me'"),
            (["send", "room", "-x"], "mayfly send room -- -x"),
            (["send", "room", "-x", "y"], "mayfly send room -- '-x y'"),
            (["send", "room", "-x", "--home", "/nowhere"], "mayfly send room --home /nowhere -- -x"),
            (["--json", "send", "room", "hi"], "mayfly send room hi --json"),
            (["--home", "/nowhere", "read", "room"], "mayfly read room --home /nowhere"),
            (["--home=/nowhere", "status"], "mayfly status '--home=/nowhere'"),
        ]) func mistakes(arguments: [String], cure: String) throws
    {
        try withDirectory { directory in
            let answer = try Program.run([Program.mayfly] + arguments, in: directory)
            #expect(answer.code == 64, "\(answer)")
            #expect(
                (answer.errors + answer.output.replacingOccurrences(of: "\\\\", with: "\\")).contains(cure), "\(answer)"
            )
        }
    }
}
