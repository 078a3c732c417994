import Foundation
import Glibc
import Testing

@Suite("Reload", .script) struct ReloadTests {
    private func strings(_ value: JSON) -> [String] { value.list.compactMap(\.string) }

    private func listening(_ node: TestNode) throws -> [String] { strings(try node.ok("status")["listen"]) }

    @Test(
        "An edited config.json takes effect at once, and the answer names the changes; without an edit there are none")
    func settings() throws {
        try withPair { ann, bob in
            let nothing = try ann.ok("config", "reload")
            for list in ["changed", "pending", "overridden"] { #expect(strings(nothing[list]).isEmpty, "\(nothing)") }
            try meet(ann, bob)
            try ann.configure([
                "policy": "refuse", "cap": "1d", "readReceipts": true, "capacity": 7, "name": "desk",
                "attachmentByteCount": 1_000, "storage": ["bytesPerInbox": 1_000_000],
                "advertise": ["tcp://desk.example.org:7440"], "rendezvous": ["serve": true, "users": 3],
            ])
            let file = ann.contents("config.json")
            let changed = try ann.ok("config", "reload")
            let names: Set = [
                "policy", "cap", "readReceipts", "capacity", "name", "attachmentByteCount", "storage", "advertise",
                "rendezvous",
            ]
            #expect(Set(strings(changed["changed"])) == names, "\(changed)")
            #expect(strings(changed["pending"]).isEmpty && strings(changed["overridden"]).isEmpty)
            #expect(ann.contents("config.json") == file)
            #expect(try ann.ok("lifetime", "policy", "--default")["policy"].string == "refuse")
            let card = try ann.ok("peer", "card")
            #expect(card["name"].string == "desk")
            #expect(strings(card["endpoints"]) == ["tcp://desk.example.org:7440"], "\(card)")
            #expect(try ann.ok("status")["rendezvous"]["usersMax"].integer == 3)
            let large = "\(ann.directory)/large"
            try Data(count: 1_001).write(to: URL(fileURLWithPath: large))
            #expect(try ann.run(["send", "room", "--file", large]).message.contains("larger than 1000"))
            // A removed setting returns to its default.
            try ann.configure(["rendezvous": nil, "cap": nil])
            #expect(Set(strings(try ann.ok("config", "reload")["changed"])) == ["cap", "rendezvous"])
            #expect(try ann.ok("status")["rendezvous"].isNull)
        }
    }

    @Test func `Log level and hooks are reloaded; command-line options and start-time settings are not`() throws {
        try withNode { ann in
            try ann.ok("conversation", "create", "--name", "quiet")
            try ann.configure(["logLevel": "info"])
            #expect(strings(try ann.ok("config", "reload")["changed"]) == ["logLevel"])
            try ann.ok("conversation", "create", "--name", "loud")
            try eventually("the log says so, of the second alone") {
                Program.text(ann.log).components(separatedBy: "conversation created").count == 2
            }
            #expect(try ann.ok("status")["hooks"].isNull)
            try ann.setHooks([(["locked"], #"echo locked >> "$1""#)])
            #expect(strings(try ann.ok("config", "reload")["changed"]) == ["hooks"])
            try ann.ok("lock")
            try eventually("the hook was started") { ann.told == "locked\n" }
            try ann.ok("unlock")
            try ann.configure(["hooks": nil, "discover": "lan", "udp": false, "mapPorts": true])
            let mixed = try ann.ok("config", "reload")
            #expect(strings(mixed["changed"]) == ["hooks"], "\(mixed)")
            #expect(Set(strings(mixed["pending"])) == ["discover", "udp", "mapPorts"], "\(mixed)")
            #expect(try ann.ok("status")["hooks"].isNull)
            // The settings stay pending until the next start.
            #expect(Set(strings(try ann.ok("config", "reload")["pending"])) == ["discover", "udp", "mapPorts"])
            #expect(try ann.ok("status")["discovery"].isNull && ann.ok("status")["portMappings"].isNull)
            try ann.configure(["discover": nil, "udp": nil, "mapPorts": nil])
            #expect(strings(try ann.ok("config", "reload")["pending"]).isEmpty)
            try ann.restart(["--listen", ann.anyPort, "--log-level", "error", "--capacity", "3"])
            try ann.configure(["listen": ["tcp://127.0.0.1:1"], "logLevel": "debug", "capacity": 9, "policy": "refuse"])
            let held = try ann.ok("config", "reload")
            #expect(strings(held["changed"]) == ["policy"], "\(held)")
            #expect(Set(strings(held["overridden"])) == ["listen", "logLevel", "capacity"], "\(held)")
        }
    }

    @Test("Listeners come, go and move without the end of a link; a taken port refuses the whole file") func listeners()
        throws
    {
        try withPair { ann, bob in
            func reload(_ listen: [String]) throws -> [String] {
                try ann.configure(["listen": listen])
                #expect(strings(try ann.ok("config", "reload")["changed"]) == ["listen"])
                return try listening(ann)
            }
            let first = try #require(try listening(ann).first)
            let taken = try #require(try listening(bob).first)
            let wide = first.replacingOccurrences(of: ann.host, with: "0.0.0.0")
            try meet(ann, bob)
            let cursor = try bob.cursor()
            let both = try reload([ann.anyPort, "tcp://[::1]:0"])
            #expect(both.count == 2 && both.first == first && both.last?.hasPrefix("tcp://[::1]:") == true, "\(both)")
            try say("with two", bob)
            #expect(try reload([ann.anyPort]) == [first])
            // The same two again: the ports are free.
            #expect(Set(try reload([both[1], ann.anyPort])) == Set(both))
            try say("with one of them", bob)
            #expect(try !bob.events(after: cursor).contains { $0["event"].string == "peerOffline" })
            for listen in [wide, first] { #expect(try reload([listen]) == [listen]) }
            // The first is free only once the current listener is closed, which is opened again.
            try ann.configure(["listen": [wide, taken], "policy": "refuse"])
            let refused = try ann.fails(1, "config", "reload")
            #expect(refused.message.contains("in use"), "\(refused)")
            #expect(try listening(ann) == [first])
            #expect(try ann.ok("lifetime", "policy", "--default")["policy"].string == "ask")
            try bob.restart()
            try bob.wait("peerOnline")
            for wrong in ["tcp://192.0.2.1:0", "tcp://nobody.invalid:1"] {
                try ann.configure(["listen": [first, wrong]])
                #expect(try ann.run(["config", "reload"]).code == 1)
                #expect(try listening(ann) == [first])
            }
        }
    }

    @Test func `A file with a mistake is refused as a whole, with its line, and the node keeps its settings`() throws {
        try withNode { ann in
            let right = ann.contents("config.json")
            let mistakes = [
                ("{\n\"advertise\":[],\n\"listen\":[],\n\"policy\":\"sometimes\"}", "line 4", "policy"),
                ("{\n\"advertise\":[],\"policy\":\"refuse\",\n\"listen\":[],\"lisen\":[]}", "line 3", "lisen"),
            ]
            for (text, line, words) in mistakes {
                try ann.replace("config.json", with: text)
                let refused = try ann.fails(1, "config", "reload")
                #expect(refused.message.contains(line) && refused.message.contains(words), "\(refused)")
                #expect(String(decoding: ann.contents("config.json"), as: UTF8.self) == text)
            }
            try ann.replace("config.json", with: right)
            try ann.configure(["policy": "refuse"])
            try ann.replace("peers.json", with: "{\n\"peers\": [\n{ \"nam\": 1 } ] }")
            let refused = try ann.fails(1, "config", "reload")
            #expect(refused.message.contains("peers.json, line 3"), "\(refused)")
            #expect(try ann.ok("lifetime", "policy", "--default")["policy"].string == "ask")
            #expect(try listening(ann).count == 1)
            try ann.replace("peers.json", with: "{ \"peers\": [ { \"name\": \"lab\" } ] }")
            #expect(Set(strings(try ann.ok("config", "reload")["changed"])) == ["policy", "peers"])
            #expect(try ann.ok("peer", "list")["name"].string == "lab")
            try ann.stop()
            try ann.fails(8, "config", "reload")
        }
    }

    @Test func `SIGHUP from a terminal stops a foreground node, but not under nohup or a service manager`() throws {
        try withHome { ann in
            let command = [Program.mayfly, "run", "--home", ann.home]
            // nohup(1) leaves a file in its working directory.
            let nohup = ["env", "-C", ann.directory, "nohup"]
            for (before, stops) in [([], true), (nohup, false), (["env", "NOTIFY_SOCKET=/no/socket"], false)] {
                let terminal = try PseudoTerminal()
                let child = try terminal.child(["setsid", "--ctty"] + before + command)
                if before == nohup {
                    try eventually("it serves") { try ann.run(["status"]).code == 0 }
                } else {
                    try terminal.expect("ready")
                }
                let policy = try ann.ok("lifetime", "policy", "--default")["policy"].string == "ask" ? "refuse" : "ask"
                try ann.configure(["policy": policy])
                child.signal(SIGHUP)
                if stops {
                    #expect(child.wait(seconds: 60) == 0)
                    #expect(access("\(ann.home)/control.sock", F_OK) != 0)
                } else {
                    try eventually("it has taken over the file") {
                        try ann.ok("lifetime", "policy", "--default")["policy"].string == policy
                    }
                    try ann.ok("stop")
                    #expect(child.wait(seconds: 60) == 0)
                }
            }
        }
    }

    @Test("SIGHUP without a terminal reloads the files; the log and the service manager are told, also of a refusal")
    func hangup() throws {
        try withHome { ann in
            let manager = try ServiceManagerSocket("\(ann.directory)/notify")
            ann.prefix = ["setsid", "env", "NOTIFY_SOCKET=\(manager.path)"]
            try ann.start()
            #expect(manager.next() == "READY=1\nMAINPID=\(ann.pid)")
            var before = timespec()
            clock_gettime(CLOCK_MONOTONIC, &before)
            try ann.configure(["policy": "refuse", "udp": false])
            kill(ann.pid, SIGHUP)
            let began = manager.next().split(separator: "\n").map(String.init)
            #expect(began.first == "RELOADING=1" && began.count == 2, "\(began)")
            let time = Int(began.last?.dropFirst("MONOTONIC_USEC=".count) ?? "") ?? 0
            #expect(time >= before.tv_sec * 1_000_000 && time < (before.tv_sec + 600) * 1_000_000)
            #expect(manager.next() == "READY=1")
            try eventually("it is logged") { Program.text(ann.log).contains("changed=policy pending=udp") }
            #expect(try ann.ok("lifetime", "policy", "--default")["policy"].string == "refuse")
            try ann.replace("config.json", with: "{\n\"listen\": 7 }")
            kill(ann.pid, SIGHUP)
            #expect(manager.next().hasPrefix("RELOADING=1\n"))
            #expect(manager.next() == "READY=1")
            try eventually("it is logged") { Program.text(ann.log).contains("file=config.json line=2") }
            #expect(try ann.ok("lifetime", "policy", "--default")["policy"].string == "refuse")
            try ann.stop()
            #expect(manager.next() == "STOPPING=1")
        }
    }
}
