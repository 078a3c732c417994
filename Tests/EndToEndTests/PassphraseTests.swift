import Foundation
import Glibc
import Testing

/// A node with the passphrase `right`, which `file` contains.
func withProtected(_ body: (_ ann: TestNode, _ file: String, _ wrong: String) throws -> Void) throws {
    try withDirectory { directory in
        let ann = TestNode(name: "ann", directory: directory)
        defer { ann.crash() }
        let file = try ann.secret("correct horse battery staple\n", "right")
        let wrong = try ann.secret("incorrect\n", "wrong")
        let made = try ann.ok("init", "--listen", ann.anyPort, "--name", "ann", "--passphrase-file", file)
        #expect(made["protection"].string == "passphrase")
        #expect(!ann.files().contains("key"))
        try body(ann, file, wrong)
    }
}

@Suite("Passphrase", .script) struct PassphraseTests {
    @Test("Without the passphrase the node starts locked: every command fails with exit code 6 until the unlock")
    func locked() throws {
        try withProtected { ann, file, wrong in
            try ann.start()
            #expect(try ann.ok("status")["locked"].bool == true)
            try eventually("its log says so") { Program.text(ann.log).contains("locked") }
            let commands = """
                conversation list, conversation create, conversation show x, read x, send x y, invite create x, \
                invite list x, join list, lifetime show x, lifetime propose x 1d, explode x --force, outbox list, \
                inbox list, peer card, conversation leave x --force, conversation lock x, outbox cancel x, \
                explode status x
                """
            for command in commands.components(separatedBy: ", ") {
                let answer = try ann.run(command.components(separatedBy: " "))
                #expect(answer.code == 6 && answer.kind == "locked", "\(answer)")
            }
            let refused = try ann.fails(1, "unlock", "--passphrase-file", wrong)
            #expect(refused.message.contains("passphrase"), "\(refused)")
            #expect(try ann.ok("status")["locked"].bool == true)
            try ann.ok("unlock", "--passphrase-file", file)
            try ann.wait("unlocked")
            #expect(try ann.ok("status")["locked"].bool == false)
            try ann.ok("conversation", "create", "--name", "room")
            try ann.ok("lock")
            try ann.fails(6, "conversation", "list")
            try ann.ok("unlock", "--passphrase-file", file)
            #expect(try ann.fails(1, "unlock", "--passphrase-file", wrong).message == refused.message)
            #expect(try ann.ok("conversation", "list")["name"].string == "room")
            try ann.stop()
            let failure = try #require(try ann.tryStart(["--passphrase-file", wrong]))
            #expect(failure.code == 1)
            #expect(failure.message.contains("passphrase"), "\(failure)")
            let missing = try #require(try ann.tryStart(["--passphrase-file", "\(wrong).not"]))
            #expect(missing.code == 1)
            try ann.start(["--passphrase-file", file])
            #expect(try ann.ok("conversation", "list")["name"].string == "room")
            for text in ["correct horse", "incorrect"] {
                #expect(ann.files(holding: text).isEmpty && !Program.text(ann.log).contains(text))
            }
        }
    }

    @Test func `Ephemeral messages are delivered to a locked node; a stop reports how many are lost`() throws {
        try withRoom { ann, bob, _ in
            try ann.ok("lock")
            for text in ["one", "two"] { try say(text, bob) }
            #expect(try ann.ok("stop")["forgotten"].integer == 2)
        }
    }

    @Test func `An interrupted init that is repeated with another passphrase is refused and writes nothing`() throws {
        try withProtected { ann, file, wrong in
            func again(_ file: String) throws -> Answer {
                try ann.run(["init", "--listen", ann.anyPort, "--name", "ann", "--passphrase-file", file])
            }
            // The state after a kill before the configuration was written.
            for name in ["config.json", "peers.json"] { unlink("\(ann.home)/\(name)") }
            let refused = try again(wrong)
            #expect(refused.code == 1 && refused.message.contains("another passphrase"), "\(refused)")
            #expect(refused["error"]["hint"].string?.isEmpty == false)
            #expect(!ann.files().contains("config.json") && !ann.files().contains("peers.json"))
            #expect(try again(file).code == 0)
            try ann.start(["--passphrase-file", file])
        }
    }

    @Test func `A signal, Ctrl-C or Ctrl-Z at the prompt restores the terminal and has its usual effect`() throws {
        try withProtected { ann, _, _ in
            try ann.start()
            let unlock = [Program.mayfly, "unlock", "--home", ann.home]
            for number in [SIGTERM, SIGHUP, SIGQUIT] {
                let terminal = try PseudoTerminal()
                let child = try terminal.child(["setsid", "--ctty"] + unlock)
                try terminal.expect("Passphrase: ")
                try eventually("nothing is shown", seconds: 30) { !terminal.shows }
                child.signal(number)
                #expect(child.wait(seconds: 30) == -number)
                #expect(terminal.shows)
            }
            let interrupted = try PseudoTerminal()
            let child = try interrupted.child(["setsid", "--ctty"] + unlock)
            try interrupted.expect("Passphrase: ")
            try interrupted.type("\u{3}")
            #expect(child.wait(seconds: 30) == 1)
            try interrupted.expect("interrupted")
            #expect(interrupted.shows)
            // A stopped command shows what is typed, and repeats its prompt when it goes on.
            let terminal = try PseudoTerminal()
            let script = #"set -m; "$@"; echo stopped; read -r line; echo "it was $line"; fg; echo "ended with $?""#
            let shell = try terminal.child(["setsid", "--ctty", "bash", "-c", script, "bash"] + unlock)
            try terminal.expect("Passphrase: ")
            try terminal.type("\u{1A}")
            try terminal.expect("stopped")
            #expect(terminal.shows)
            try terminal.type("another line\n")
            try terminal.expect("it was another line")
            try terminal.expect("Passphrase: ")
            try eventually("nothing is shown", seconds: 30) { !terminal.shows }
            try terminal.type("correct horse battery staple\n")
            try terminal.expect("ended with 0")
            #expect(!terminal.text.contains("horse"))
            #expect(shell.wait(seconds: 30) == 0)
            #expect(try ann.ok("status")["locked"].bool == false)
        }
    }

    @Test("`run` on a terminal asks without echo, again after a wrong passphrase, and gives up after three")
    func runAsks() throws {
        try withProtected { ann, _, _ in
            let run = ["setsid", "--ctty", Program.mayfly, "run", "--home", ann.home]
            func answer(_ text: String, _ terminal: PseudoTerminal) throws {
                try terminal.expect("Passphrase: ")
                try eventually("nothing is shown", seconds: 30) { !terminal.shows }
                try terminal.type(text + "\n")
            }
            let terminal = try PseudoTerminal()
            let node = try terminal.child(run)
            try answer("incorrect", terminal)
            try terminal.expect("the passphrase does not open the keystore")
            try answer("correct horse battery staple", terminal)
            try terminal.expect("ready")
            #expect(try ann.ok("status")["locked"].bool == false)
            #expect(!terminal.text.contains("correct"))
            try ann.ok("stop")
            #expect(node.wait(seconds: 30) == 0)
            let second = try PseudoTerminal()
            let refused = try second.child(run)
            for _ in 1...3 { try answer("nothing", second) }
            #expect(refused.wait(seconds: 60) == 1)
            #expect(second.shows)
        }
    }

    @Test func `A command that holds a passphrase leaves no core dump`() throws {
        try withDirectory { directory in
            let pipe = "\(directory)/pipe"
            guard mkfifo(pipe, 0o600) == 0 else { throw HarnessError("mkfifo: \(errno)") }
            // Open for writing, so that the command waits for the end of the passphrase.
            let writer = try Descriptor(pipe, O_RDWR)
            let text = Array("correct horse".utf8)
            #expect(write(writer.number, text, text.count) == text.count)
            let script = #"cd "$1" && ulimit -S -c "$(ulimit -H -c)" && shift && exec "$@""#
            let command = [Program.mayfly, "init", "--home", "home", "--passphrase-file", "pipe"]
            let child = try Child(["bash", "-c", script, "bash", directory] + command)
            func reads() -> Bool {
                var left: Int32 = 0
                return ioctl(writer.number, UInt(FIONREAD), &left) == 0 && left == 0
            }
            try eventually("it has read some of it") { reads() }
            let limits = Program.text("/proc/\(child.pid)/limits").split(separator: "\n")
            let core = limits.first { $0.hasPrefix("Max core file size") }?.split(separator: " ") ?? []
            #expect(core.dropFirst(4).prefix(2) == ["0", "0"], "\(core)")
            child.signal(SIGABRT)
            #expect(child.wait(seconds: 60) == -SIGABRT)
            #expect(try FileManager.default.contentsOfDirectory(atPath: directory) == ["pipe"])
        }
    }
}
