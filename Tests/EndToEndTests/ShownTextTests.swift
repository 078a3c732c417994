import ArgumentParser
import Messaging
import Testing

@testable import Program

@Suite("Shown text", .script) struct ShownTextTests {
    @Test func `No terminal control character is left in a text or in the name of a file`() {
        #expect(safe("a\u{1b}b\u{9b}c\nd\te") == "a?b?c d    e")
        #expect(safe("a\u{2028}b\u{2029}c") == "a b c")
        let directions =
            "\u{61c}\u{200e}\u{200f}\u{202a}\u{202b}\u{202c}\u{202d}\u{202e}\u{2066}\u{2067}\u{2068}\u{2069}"
        #expect(safe("a\(directions)b") == "ab")
        #expect(Attachment.safeName("a\(directions)") == "a____________")
        // Their neighbours are ordinary characters, and so are joiners.
        for text in ["\u{61b}", "\u{200d}", "\u{2010}", "\u{2027}", "\u{202f}", "\u{206a}", "👩‍💻"] {
            #expect(safe(text) == text)
        }
    }

    @Test(
        "A time shows its distance, from an hour on in two units",
        arguments: [
            (500, "(now)"), (-89_000, "(89 s ago)"), (2_700_000, "(in 45 min)"), (3_599_980, "(in 1 h 0 m)"),
            (5_399_990, "(in 1 h 30 m)"), (-5_400_000, "(1 h 30 m ago)"), (129_600_000, "(in 1 d 12 h)"),
        ]) func distance(_ milliseconds: Int64, _ expected: String)
    {
        let now = Timestamp(milliseconds: 1_800_000_000_000)
        #expect(shown(now + milliseconds, now: now).hasSuffix(expected))
    }

    @Test(
        "A usage error says what is expected",
        arguments: [
            ("explode C --at 2027-03-28T02:30:00", "a time zone, which is missing: 2027-03-28T02:30:00Z for"),
            ("explode C --at noon", "expected a date, a time and a time zone such as 2026-"),
            ("explode C --at 2001-01-01T00:00:00Z", "in the past"), ("explode C --in 0s", "in the future"),
            ("explode C --in 1h --at 2099-01-01T00:00:00Z", "only one"), ("explode C --timeout 1", "requires --wait"),
            ("explode C --in 2", "expected a time with its unit: 30m"), ("explode C --timeout 1x", "90s"),
            ("invite create C --expires-in x", "90s"), ("lifetime propose C 1d --unopened x", "90s"),
            ("join S --timeout x", "90s"), ("peer ping N --timeout x", "90s"), ("send C hi --timeout x", "90s"),
            ("react C 1 x --timeout x", "90s"), ("watch --timeout soon", "90s"), ("netcheck --timeout x", "90s"),
            ("run --session-grace x", "90s"), ("run --capacity 10001", "from 1 to 10000"),
            ("init --capacity 0", "from 1 to 10000"), ("read C --last 0", "at least 1"),
            ("watch --since -1", "expected 0, or the `cursor`"), ("read C --unread --last 1", "be combined with"),
            ("watch --only nonsense", "messageState"), ("watch --until nonsense", "messageState"),
            ("send C hi --wait posted", "mailed"), ("lifetime propose C 1d --timer later", "read"),
            ("lifetime propose C 1d --mailbox floppy", "ram"), ("join mayfly:join/abc extra", "'extra'"),
            ("lifetime policy C accept-up-to:1d:no", "7d:disk"), ("lifetime cap C 2d", "30d or none"),
            ("invite create C --no-wait", "requires --code"), ("invite create C --code --single-use", "--code"),
            ("conversation alias C", "--remove"), ("conversation alias C x --remove", "either"),
            ("read C --last -1", "at least 1"), ("watch --timeout -1", "--timeout"),
            ("send C hi --wait sent --timeout -1", "--timeout"), ("join S --timeout -1", "--timeout"),
            ("peer ping N --timeout -1", "--timeout"), ("invite create C --expires-in -1h", "--expires-in"),
            ("explode C --in -5m", "--in"), ("run --session-grace -1", "--session-grace"),
            ("run --capacity -1", "from 1 to 10000"), ("init --capacity -1", "from 1 to 10000"),
            ("lifetime propose C 1d --unopened -1m", "--unopened"),
        ]) func usage(_ line: String, _ expected: String) throws
    {
        let words = line.split(separator: " ").map(String.init)
        let message = Mayfly.message(for: try #require(throws: (any Error).self) { try Mayfly.parseAsRoot(words) })
        #expect(message.contains(expected) && !message.contains("Missing value"), "\(message)")
    }

    @Test("A gap is printed, whatever is awaited or named", arguments: ["--only", "--until"]) func gap(_ option: String)
        throws
    {
        let command = try WatchCommand.parse([option, "message"])
        #expect(command.isShown(.gap) && !command.isShown(.exploded))
    }

    @Test func `An id is shown by its first 12 digits, a UUID by its first group`() {
        #expect(short("bb468449b10425cc6d2fc8a9b9521cc2") == "bb468449b104" && short("-") == "-")
        #expect(short("54ed47c2-4873-4af8-963b-9ff92870b366") == "54ed47c2")
    }

    @Test func `A word is quoted if a shell would read more than a word`() {
        #expect(quoted("room-1.a/b") == "room-1.a/b")
        #expect(quoted("my room $(x)") == "'my room $(x)'")
        #expect(quoted("it's") == #"'it'\''s'"#)
        #expect(quoted("") == "''")
        #expect(quoted("a\nb\t\u{1b}[1m'\\") == #"$'a\012b\011\033[1m\'\\'"#)
        #expect(quoted("/home/\u{202e}é") == #"$'/home/\342\200\256é'"#)
    }

    @Test(
        "A path with control characters is printed so that a shell restores it",
        arguments: ["a\nb", "tab\there", "\u{1b}]0;x\u{7}", "\u{202e}gpj.exe", "it's \\n $(x) `y`\u{9b}", "\u{2028}8"])
    func escapes(_ word: String) throws {
        #expect(safe(quoted(word)) == quoted(word), "it can be shown as it is")
        #expect(try Program.tool("bash", "-c", "printf %s \(quoted(word))") == word)
    }

    @Test func `Suggested commands name the given home, and can be pasted`() throws {
        try withHome { ann in
            func told(_ arguments: String...) throws -> String {
                try Program.run([Program.mayfly] + arguments, in: ann.directory).errors
            }
            let other = "\(ann.directory)/the other"
            let made = try told("init", "--listen", ann.anyPort, "--home", other)
            #expect(made == "start it with `mayfly run --home '\(other)'`\n")
            let odd = try Program.run(
                [Program.mayfly, "init", "--listen", ann.anyPort, "--home", "\(ann.directory)/a\n\u{1b}b"],
                in: ann.directory)
            #expect(odd.output.contains("/a ?b\n") && !odd.output.contains("\u{1b}"), "\(odd)")
            let node = try ann.check("node")
            #expect(node["hint"].string == "start it with `mayfly run --home \(ann.home)`")
            try ann.start()
            for (name, shown) in [("r2", "r2"), ("my room $(x)", "'my room $(x)'")] {
                let created = try told("conversation", "create", "--name", name, "--home", ann.home)
                #expect(created == "invite members with `mayfly invite create \(shown) --home \(ann.home)`\n")
            }
            for name in ["-f", "a`mayfly stop"] {
                let created = try told("conversation", "create", "--name=\(name)", "--home", ann.home)
                #expect(!created.contains(name) && created.contains("invite create "), "\(created)")
            }
        }
    }
}
