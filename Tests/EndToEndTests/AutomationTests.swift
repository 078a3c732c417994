import Foundation
import Testing

@Suite("Automation", .script) struct AutomationTests {
    @Test("The schema lists every command, method, field, event and exit code, and the node knows every method")
    func schema() throws {
        try withNode { ann in
            let schema = try ann.ok("schema")
            let methods = schema["methods"].list
            let names = methods.compactMap { $0["name"].string }
            #expect(Set(names).count == names.count && names.count > 40)
            #expect(methods.allSatisfy { $0["summary"].string?.isEmpty == false })
            // Each method is answered, never with "unknown" or "not supported". Methods that end the node come last.
            // A field outside of the schema is refused.
            let served = names.filter { !["stop", "lock", "unlock", "reap"].contains($0) }
            for answer in try ann.rpc(served.map { ($0, ["no such field": 1]) }) {
                #expect(answer["error"]["code"].integer == -32602, "\(answer)")
            }
            // Every command has its method, and every method its command.
            func verbs(_ command: JSON, _ path: [String]) -> [String] {
                let below = command["subcommands"].list.filter { $0["commandName"].string != "help" }
                if below.isEmpty { return [path.joined(separator: ".")] }
                return below.flatMap { verbs($0, path + [$0["commandName"].string ?? ""]) }
            }
            let commands = Set(verbs(schema["commands"], []))
            let local: Set = [
                "init", "run", "rpc", "doctor", "watch", "join.with", "explode.now", "read", "send", "save",
                "gateway-helper", "confine", "chat", "config.show", "config.set",
            ]
            // `send --file` and `save` use the attachment methods, a chunk at a time.
            let steps =
                names.filter { $0.hasPrefix("attachment.") } + [
                    "subscribe", "unsubscribe", "schema", "join", "explode", "invite.code", "invite.outcome",
                ]
            for name in names where !steps.contains(name) {
                #expect(commands.contains(name), "no command for the method \(name)")
            }
            for command in commands.subtracting(local) {
                #expect(names.contains(command), "no method for the command \(command)")
            }
            // Each command of the chat has one of the shell.
            let help = try ann.show("chat", "--help").output
            let named = help.split(separator: "\n").filter { $0.hasPrefix("  /") }.compactMap { line in
                line.components(separatedBy: "mayfly ").dropFirst().first?.split(separator: " ").prefix {
                    $0.allSatisfy(\.isLowercase)
                }.joined(separator: ".")
            }
            #expect(named.count > 15, "\(help)")
            for name in named {
                #expect(commands.contains { $0 == name || $0.hasPrefix(name + ".") }, "no command \(name) for the chat")
            }
            let codes = Set(schema["failures"].list.compactMap { $0["exitCode"].integer })
            #expect(codes == [1, 64, 2, 3, 4, 5, 6, 7, 8])
            let events = """
                message messageState messageExpired lifetimeProposed lifetimeAgreed lifetimeRejected lifetimeReset \
                memberJoined memberLeft joinRequested joinFailed exploded explosionScheduled deletionReceipt \
                peerOnline peerOffline inboxAwake inboxAsleep locked unlocked
                """
            for event in events.components(separatedBy: " ") {
                #expect(schema["events"].list.contains { $0.string == event }, "\(event)")
                #expect(!schema["eventFields"][event].list.isEmpty)
            }
        }
    }

    @Test func `The fields of events and results are those of the schema`() throws {
        try withRoom(lifetime: "1d") { ann, bob, _ in
            try say("one", ann)
            try ann.ok("lock")
            try ann.ok("unlock")
            try bob.ok("conversation", "leave", "room", "--force")
            try ann.wait("memberLeft")
            try ann.ok("explode", "room", "--force")
            let schema = try ann.ok("schema")
            for node in [ann, bob] {
                let events = try node.ok("watch", "--since", "0", "--timeout", "0.2").lines
                #expect(events.count > 5)
                for event in events {
                    let known = Set(schema["eventFields"][event["event"].string ?? ""].list.compactMap(\.string))
                    #expect(event.keys.isSubset(of: known), "\(event)")
                }
            }
            func fields(_ method: String) -> Set<String> {
                let found = schema["methods"].list.first { $0["name"].string == method }
                return Set(found?["result"].list.compactMap { $0["name"].string } ?? [])
            }
            #expect(try ann.ok("status").json.keys.isSubset(of: fields("status")))
            #expect(try ann.ok("peer", "card").json.keys.isSubset(of: fields("peer.card")))
        }
    }

    @Test func `Each of several watchers gets every event, and one that resumes with its cursor misses none`() throws {
        try withRoom { ann, bob, _ in
            let watchers = try (0..<3).map { _ in
                try Background(
                    bob,
                    ["watch", "--since", "0", "--only", "joined,message", "--until", "message:text=m19"] + [
                        "--timeout", "300",
                    ])
            }
            // Past events are shown at once, so a line proves that the watcher watches.
            try eventually("three watchers") { watchers.allSatisfy { !$0.lines.isEmpty } }
            for index in 0..<20 { try ann.ok("send", "room", "m\(index)", "--wait", "delivered", "--timeout", "90") }
            for watcher in watchers {
                #expect(watcher.end() == 0)
                #expect(watcher.lines.compactMap { $0["text"].string } == (0..<20).map { "m\($0)" })
                #expect(watcher.lines.allSatisfy { $0["event"].string != "gap" })
            }
            let awaited = try bob.ok("watch", "--since", "0", "--until", "message:text=m19", "--timeout", "90").lines
            #expect(awaited.map { $0["text"].string } == ["m19"], "without --only the awaited event alone")
            let middle = try #require(watchers[0].lines.first { $0["text"].string == "m9" }?["cursor"].integer)
            let rest = try bob.ok("watch", "room", "--since", String(middle), "--timeout", "0.3").lines
            #expect(rest.compactMap { $0["text"].string } == (10..<20).map { "m\($0)" })
        }
    }

    @Test func `A watcher with --reconnect goes on after a restart and misses no event that the node kept`() throws {
        try withRoom(lifetime: "1d") { ann, bob, _ in
            let watcher = try Background(bob, ["watch", "room", "--only", "message", "--since", "0", "--reconnect"])
            func texts() -> [String] {
                watcher.lines.filter { $0["from"].string != "system" }.compactMap { $0["text"].string }
            }
            try ann.ok("send", "room", "before", "--wait", "delivered", "--timeout", "90")
            try eventually("the watcher has the first") { texts() == ["before"] }
            try bob.stop()
            try ann.ok("send", "room", "meanwhile")
            try bob.start()
            try eventually("the watcher has the second") { texts() == ["before", "meanwhile"] }
            try bob.restart(kills: true)
            try ann.ok("send", "room", "after", "--wait", "delivered", "--timeout", "90")
            try eventually("the watcher has the third") { texts() == ["before", "meanwhile", "after"] }
            watcher.signal(SIGINT)
            #expect(watcher.end() == 128 + SIGINT)
            let gaps = watcher.lines.filter { $0["event"].string == "gap" }
            #expect(gaps.count == 1 && gaps[0]["lost"].isNull, "only the crash leaves a gap: \(gaps)")
        }
        try withHomes("ann") { nodes in
            let early = try Background(nodes[0], ["watch", "--since", "0", "--until", "unlocked", "--reconnect"])
            try nodes[0].start()
            try nodes[0].ok("lock")
            try nodes[0].ok("unlock")
            #expect(early.end() == 0)
            let ended = try Background(nodes[0], ["watch", "--since", "0", "--until", "exploded"])
            try nodes[0].stop()
            #expect(ended.end() == 8)
            try nodes[0].fails(4, "watch", "--until", "exploded", "--reconnect", "--timeout", "0.5")
        }
    }

    @Test func `Wrong usage gives an error object with --json, and a hint names the given home`() throws {
        try withHome { ann in
            for arguments in [
                ["frobnicate"], ["peer", "frobnicate"], ["send"], ["watch", "--nonsense"], ["join"],
                ["lifetime", "propose", "room", "2h"],
            ] {
                let answer = try Program.run([Program.mayfly] + arguments + ["--json"], in: ann.directory)
                #expect(answer.code == 64, "\(answer)")
                #expect(answer.kind == "usage" && answer.lines.count == 1, "\(answer)")
                #expect(answer.json["error"]["hint"].string?.hasPrefix("see `mayfly help") == true, "\(answer)")
                let values = arguments.last == "2h" ? "following: ephemeral, 1h, 6h, 1d, 7d, 30d" : ""
                #expect(values.isEmpty || answer.message.hasSuffix(values), "\(answer)")
            }
            let hint = try ann.fails(8, "peer", "list").json["error"]["hint"].string
            #expect(hint == "start it with `mayfly run --home \(ann.home)`", "\(hint ?? "none")")
            let short = try Program.run(
                ["env", "MAYFLY_HOME=\(ann.home)", Program.mayfly, "peer", "list", "--json"], in: ann.directory)
            #expect(short.json["error"]["hint"].string == "start it with `mayfly run`")
        }
    }

    @Test func `Text that is not UTF-8 is refused, not changed`() throws {
        try withNode { ann in
            try ann.ok("conversation", "create", "--name", "room")
            func run(_ script: String) throws -> Answer {
                try Program.run(["bash", "-c", script, "bash", Program.mayfly, ann.home], in: ann.directory)
            }
            let refused = try run(#""$1" send room $'caf\xe9' --json --home "$2""#)
            #expect(refused.code == 64 && refused.kind == "usage", "\(refused)")
            #expect(refused.message == "argument 3 is not UTF-8 text", "\(refused)")
            #expect(refused.json["error"]["hint"].string?.contains("standard input") == true)
            #expect(try ann.texts().isEmpty)
            for name in ["MAYFLY_HOME", "XDG_STATE_HOME", "HOME"] {
                let answer = try run("env -u HOME \(name)=$'/tmp/caf\\xe9' \"$1\" status --json")
                #expect(answer.code == 64 && answer.message == "\(name) is not UTF-8 text", "\(answer)")
            }
            let answer = try run(#"MAYFLY_PASSPHRASE_FILE=$'caf\xe9' "$1" init --home "$2/new" --json"#)
            #expect(answer.code == 64 && answer.message == "MAYFLY_PASSPHRASE_FILE is not UTF-8 text", "\(answer)")
        }
    }

    @Test func `The service manager is told when the node is ready and when it stops`() throws {
        try withHome { ann in
            let manager = try ServiceManagerSocket("\(ann.directory)/notify")
            ann.prefix = ["env", "NOTIFY_SOCKET=\(manager.path)"]
            try ann.start()
            #expect(manager.next() == "READY=1\nMAINPID=\(ann.pid)")
            try ann.stop()
            #expect(manager.next() == "STOPPING=1")
            // An unread socket or an invalid path does not keep the node from running.
            for wrong in ["/nowhere/at/all", "@mayfly-nobody", "relative", ""] {
                ann.prefix = ["env", "NOTIFY_SOCKET=\(wrong)"]
                try ann.start()
                try ann.stop()
            }
        }
    }

    @Test func `Watchdog pings are sent, never block the node, and only come from the watched process`() throws {
        try withHome { ann in
            let manager = try ServiceManagerSocket("\(ann.directory)/notify")
            let variables = ["env", "NOTIFY_SOCKET=\(manager.path)", "WATCHDOG_USEC=50000"]
            ann.prefix = variables
            try ann.start()
            #expect(manager.next() == "READY=1\nMAINPID=\(ann.pid)")
            for _ in 0..<5 { #expect(manager.next() == "WATCHDOG=1") }
            manager.fill()
            for _ in 0..<20 { #expect(try ann.run(["status"]).code == 0) }
            try ann.stop()
            manager.drain()
            ann.prefix = variables + ["WATCHDOG_PID=1"]
            try ann.start()
            #expect(manager.next() == "READY=1\nMAINPID=\(ann.pid)")
            try ann.stop()
            #expect(manager.next() == "STOPPING=1")
        }
    }

    @Test("Without --home and MAYFLY_HOME the node lives in $XDG_STATE_HOME/mayfly, else in ~/.local/state/mayfly")
    func defaultHome() throws {
        try withDirectory { directory in
            for (state, parent) in [
                ("\(directory)/state", "\(directory)/state"),
                // A relative path is ignored.
                ("state", "\(directory)/user/.local/state"),
            ] {
                let variables = ["env", "XDG_STATE_HOME=\(state)", "HOME=\(directory)/user"]
                func run(_ arguments: String...) throws -> Answer {
                    try Program.run(variables + [Program.mayfly] + arguments + ["--json"], in: directory)
                }
                let ann = TestNode(name: "mayfly", directory: directory, parent: parent)
                defer { ann.crash() }
                let made = try run("init", "--name", "ann", "--listen", ann.anyPort)
                #expect(made.code == 0 && made["home"].string == ann.home, "\(made)")
                #expect(try run("status").code == 8)
                try ann.start()
                #expect(try run("status")["pid"].integer == Int64(ann.pid))
                let second = try run("run")
                #expect(second.code == 1 && second.message.contains(String(ann.pid)), "\(second)")
                // The environment comes last.
                let named = try Program.run(
                    variables + ["MAYFLY_HOME=\(directory)", Program.mayfly, "status", "--json"], in: directory)
                #expect(named.code != 0 && named["pid"].isNull, "\(named)")
                try ann.stop()
            }
        }
    }

    @Test("MAYFLY_PASSPHRASE_FILE is where init, run and unlock read the passphrase, unless an option is given")
    func passphraseFile() throws {
        try withDirectory { directory in
            let ann = TestNode(name: "ann", directory: directory)
            defer { ann.crash() }
            let (right, wrong) = (try ann.secret("correct horse\n", "right"), try ann.secret("incorrect\n", "wrong"))
            func run(_ file: String, _ arguments: String...) throws -> Answer {
                let command = ["env", "MAYFLY_PASSPHRASE_FILE=\(file)", Program.mayfly] + arguments
                return try Program.run(command + ["--json", "--home", ann.home], in: directory)
            }
            let made = try run(right, "init", "--name", "ann", "--listen", ann.anyPort)
            #expect(made.code == 0 && made["protection"].string == "passphrase", "\(made)")
            ann.prefix = ["env", "MAYFLY_PASSPHRASE_FILE=\(wrong)"]
            let failure = try #require(try ann.tryStart())
            #expect(failure.code == 1 && failure.message.contains("passphrase"), "\(failure)")
            ann.prefix = ["env", "MAYFLY_PASSPHRASE_FILE=\(right)"]
            try ann.start()
            #expect(try ann.ok("status")["locked"].bool == false)
            try ann.ok("lock")
            #expect(try run(wrong, "unlock").code == 1)
            #expect(try ann.ok("status")["locked"].bool == true)
            #expect(try run(wrong, "unlock", "--passphrase-file", right).code == 0)
            try ann.ok("lock")
            #expect(try run(right, "unlock").code == 0)
            #expect(try ann.ok("status")["locked"].bool == false)
            try ann.stop()
        }
    }

    @Test func `A passphrase is read from a systemd credential`() throws {
        try withDirectory { directory in
            let credentials = "\(directory)/credentials"
            mkdir(credentials, 0o700)
            let ann = TestNode(name: "ann", directory: directory)
            defer { ann.crash() }
            try ann.initialise(["--passphrase-file", try ann.secret("correct horse", "credentials/mayfly-passphrase")])
            ann.prefix = ["env", "CREDENTIALS_DIRECTORY=\(credentials)"]
            try ann.start()
            #expect(try ann.ok("status")["locked"].bool == false)
            try ann.stop()
        }
    }
}

/// The socket of a service manager (sd_notify(3)).
final class ServiceManagerSocket {
    let path: String
    private let descriptor: Int32

    init(_ path: String) throws {
        self.path = path
        descriptor = socket(AF_UNIX, Int32(SOCK_DGRAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0)
        let isBound = withAddress { bind(descriptor, $0, $1) == 0 }
        try #require(isBound)
    }

    deinit { close(descriptor) }

    private func withAddress<Value>(_ body: (UnsafePointer<sockaddr>, socklen_t) -> Value) -> Value {
        var address = sockaddr_un()
        address.sun_family = sa_family_t(AF_UNIX)
        withUnsafeMutableBytes(of: &address.sun_path) { $0.copyBytes(from: path.utf8) }
        return withUnsafePointer(to: &address) { pointer in
            pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                body($0, socklen_t(MemoryLayout<sockaddr_un>.size))
            }
        }
    }

    func next(within milliseconds: Int32 = 20_000) -> String {
        var polled = pollfd(fd: descriptor, events: Int16(POLLIN), revents: 0)
        guard poll(&polled, 1, milliseconds) == 1 else { return "nothing" }
        var bytes = [UInt8](repeating: 0, count: 512)
        return String(decoding: bytes[..<max(0, recv(descriptor, &bytes, bytes.count, 0))], as: UTF8.self)
    }

    func fill() {
        let sender = socket(AF_UNIX, Int32(SOCK_DGRAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0)
        defer { close(sender) }
        while withAddress({ sendto(sender, "x", 1, Int32(MSG_DONTWAIT), $0, $1) }) > 0 {}
    }

    func drain() { while next(within: 0) != "nothing" {} }
}
