import Foundation
import Testing

@Suite("Hooks", .script) struct HookTests {
    @Test("A hook gets the event, the clientId, the cursor and the time, and nothing that only members may know")
    func privacy() throws {
        try withHomes { ann, bob in
            try ann.setHooks([
                (
                    ["message", "memberJoined"],
                    // In one write: two hooks may run at once.
                    #"read -r line; echo "IN $line ARGS $# $2 $(env | tr '\n' ' ')" >> "$1""#
                )
            ])
            for node in [ann, bob] { try node.start() }
            let id = try meet(ann, bob)
            let secret = "the kettle is behind the door"
            try bob.ok("send", "room", secret, "--wait", "delivered", "--timeout", "90")
            try eventually("the three hooks") { (try ann.ok("status"))["hooks"]["done"].integer == 3 }
            let text = ann.told
            let shown = try ann.ok("conversation", "show", "room")
            let inbox = try #require(shown["inbox"].string)
            let lines = text.split(separator: "\n").compactMap { line -> JSON? in
                guard line.hasPrefix("IN "), let end = line.range(of: " ARGS ") else { return nil }
                return JSON(line: line[line.index(line.startIndex, offsetBy: 3)..<end.lowerBound])
            }
            // "bob has joined" is a message, too.
            #expect(lines.compactMap { $0["event"].string }.sorted() == ["memberJoined", "message", "message"])
            for line in lines {
                #expect(line.keys == ["event", "inbox", "cursor", "at"])
                #expect(line["inbox"].string == inbox && line["cursor"].integer != nil && line["at"].time != nil)
            }
            #expect(text.contains("ARGS 2 a b;$HOME"), "no shell reads the command")
            #expect(text.contains("MAYFLY_EVENT=message") && text.contains("MAYFLY_INBOX=\(inbox)"))
            let peer = try #require(shown["members"][0]["member"].string)
            let port = try #require(bob.listen)
            for hidden in [secret, id, peer, port, "kettle", "room", "bob"] {
                let environment = text.replacingOccurrences(of: ann.directory, with: "")
                #expect(!environment.contains(hidden), "a hook was told \(hidden)")
            }
            #expect(try ann.ok("read", inbox).lines.contains { $0["text"].string == secret })
        }
    }

    @Test("Hooks that fail, print, or cannot be started are counted and logged by exit code, without other effect")
    func failing() throws {
        try withHomes { ann, bob in
            try ann.setHooks([
                (["message"], "echo printed-by-the-hook; echo printed-by-the-hook >&2; exit 7"),
                (["message"], "kill -USR1 $$"), (["message"], "exit 0"),
            ])
            let third = "\(ann.directory)/ann-hook-2"
            for node in [ann, bob] { try node.start() }
            chmod(third, 0o722)
            try meet(ann, bob)
            try bob.ok("send", "room", "hello", "--wait", "delivered", "--timeout", "90")
            // "bob has joined" is a message, too.
            try eventually("three failures of each") { (try ann.ok("status"))["hooks"]["failed"].integer == 6 }
            // Each failure is counted before it is logged.
            try eventually("their reasons in the log") {
                let log = Program.text(ann.log)
                return ["exit code 7", "signal 10", "others can change"].allSatisfy { log.contains($0) }
            }
            #expect(!Program.text(ann.log).contains("printed-by-the-hook"))
            chmod(third, 0o700)
            try bob.ok("send", "room", "again", "--wait", "delivered", "--timeout", "90")
            try eventually("one success") { (try ann.ok("status"))["hooks"]["done"].integer == 1 }
            try eventually("all three of the second message") {
                let hooks = try ann.ok("status")["hooks"]
                return hooks["failed"].integer == 8 && hooks["running"].integer == 0
            }
            #expect(try zombies(of: ann) == [])
        }
    }

    /// Ended children that the node has not reaped. All processes are searched, because the kernel lists the children
    /// of each thread separately.
    private func zombies(of node: TestNode) throws -> [String] {
        try FileManager.default.contentsOfDirectory(atPath: "/proc").filter { pid in
            guard Int(pid) != nil else { return false }
            // After the name, which may hold any character: the state and the parent.
            let fields = Program.text("/proc/\(pid)/stat").split(separator: ")").last?.split(separator: " ") ?? []
            return fields.count > 1 && fields[0] == "Z" && fields[1] == String(node.pid)
        }
    }

    @Test("At most four hooks run, 256 wait, the rest is dropped and counted; the node goes on, and its stop ends them")
    func bounded() throws {
        try withHomes { ann, bob in
            try ann.setHooks([(["message"], "echo started >> \"$1\"; exec sleep 1000")])
            for node in [ann, bob] { try node.start() }
            try meet(ann, bob)
            let begin = ContinuousClock.now
            for index in 0..<4 { try bob.ok("send", "room", "first \(index)") }
            try eventually("four running") {
                let hooks = try ann.ok("status")["hooks"]
                // Not four at once if the first ends before the last has begun.
                return hooks["running"].integer == 4 || hooks["failed"].integer ?? 0 > 0
            }
            _ = try bob.rpc((0..<300).map { ("send", ["conversation": "room", "text": "m\($0)"]) })
            try eventually("all 304 messages") { try ann.texts().count == 304 }
            func counts() throws -> [Int64] {
                let hooks = try ann.ok("status")["hooks"]
                return ["running", "queued", "dropped", "failed"].map { hooks[$0].integer ?? 0 }
            }
            // On a slow machine the first hooks have ended after 30 s, and others have taken their place.
            func isSlow() -> Bool { ContinuousClock.now - begin >= .seconds(30) }
            try eventually("four run, 256 wait, and the others are counted") {
                let now = try counts()
                return now == [4, 256, 45, 0] || isSlow() && now[0] == 4 && now[1] <= 256 && now.reduce(0, +) == 305
            }
            try say("not blocked", ann)
            let failed = try Int(counts()[3])
            try ann.stop()
            #expect(Program.text(ann.log).contains("a hook timed out and was ended"))
            // Failed and running hooks, and their successors before the stop.
            let started = ann.told.split(separator: "\n").count
            #expect(isSlow() ? (4...failed + 8).contains(started) : started == 4, "\(started) after \(failed)")
        }
    }

    @Test func `A hook that ignores SIGTERM is killed with its children`() throws {
        try withHome { ann in
            try ann.setHooks([
                (["locked"], "trap '' TERM; sleep 1000 & echo $! >> \"$1\"; echo $$ >> \"$1\"; sleep 1000; sleep 1000")
            ])
            try ann.start()
            try ann.ok("lock")
            try eventually("the hook") { ann.told.split(separator: "\n").count == 2 }
            try ann.stop()
            for line in ann.told.split(separator: "\n") {
                let pid = try #require(pid_t(line))
                // A killed process ends a moment later. It may stay a zombie of the process that inherits it.
                try eventually("the end of \(pid)") {
                    let state = Program.text("/proc/\(pid)/stat")
                    return state.isEmpty || state.contains(") Z ")
                }
            }
        }
    }

    @Test func `doctor names the unsafe program of a hook`() throws {
        try withHome { ann in
            try ann.setHooks([(nil, "exit 0")])
            let program = "\(ann.directory)/ann-hook-0"
            #expect(try ann.check("hook")["state"].string == "ok")
            for (mode, words) in [(mode_t(0o777), "others can change"), (0o600, "not executable")] {
                chmod(program, mode)
                let answer = try ann.fails(1, "doctor")
                #expect(answer.output.contains(words), "\(answer)")
                #expect(try ann.check("hook")["hint"].string != nil)
            }
            unlink(program)
            #expect(try ann.check("hook")["state"].string == "failed")
        }
    }
}
