import Foundation
import Glibc
import Testing

/// Rows of `Expectations.md` that no other suite shows.
@Suite("Expectations", .script) struct ExpectationTests {
    @Test func `A setter that runs twice changes nothing the second time, and a getter shows the value`() throws {
        try withRoom { ann, bob, _ in
            let card = try bob.card()
            for _ in 0..<2 {
                try ann.ok("peer", "add", "bob", card)
                try ann.ok("peer", "set", "bob", "invitations=refuse")
                try ann.ok("peer", "block", "bob")
                try ann.ok("lifetime", "policy", "room", "accept-up-to:6h")
                try ann.ok("lifetime", "policy", "--default", "refuse")
                try ann.ok("lifetime", "cap", "room", "7d")
                try ann.ok("conversation", "alias", "room", "den")
                try ann.ok("conversation", "rename", "den", "cellar")
                try ann.ok("conversation", "lock", "den")
                try ann.ok("conversation", "set", "den", "read-receipts=on")
                try ann.ok("conversation", "profile", "den", "anna")
                try ann.ok("conversation", "alias", "den", "room")
            }
            let peers = try ann.ok("peer", "list")
            #expect(peers.lines.count == 1 && peers["invitations"].string == "refuse" && peers["blocked"].bool == true)
            #expect(try ann.ok("lifetime", "policy", "room")["policy"].string == "accept-up-to:6h")
            #expect(try ann.ok("lifetime", "policy", "--default")["policy"].string == "refuse")
            #expect(try ann.ok("lifetime", "cap", "room")["cap"].string == "7d")
            let shown = try ann.ok("conversation", "show", "room")
            #expect(shown["alias"].string == "room" && shown["name"].string == "cellar" && shown["locked"].bool == true)
            #expect(shown["profile"].string == "anna" && shown["readReceipts"].bool == true)
            #expect(try ann.ok("conversation", "set", "room", "read-receipts")["value"].string == "on")
            #expect(try ann.ok("conversation", "set", "--default", "read-receipts")["value"].string == "off")
            #expect(try ann.ok("conversation", "profile", "room")["profile"].string == "anna")
            try eventually("the other side sees the profile") {
                try bob.ok("conversation", "show", "room")["members"][0]["profile"].string == "anna"
            }
        }
    }

    @Test func `No sent content changes the lifetime in force or a policy`() throws {
        try withRoom(lifetime: "1d") { ann, bob, _ in
            try ann.ok("lifetime", "policy", "room", "accept-up-to:7d")
            func terms(_ node: TestNode) throws -> [String?] {
                let shown = try node.ok("lifetime", "show", "room")
                return [
                    shown["lifetime"].string, shown["state"].string, shown["agreement"]["id"].string,
                    try node.ok("lifetime", "policy", "room")["policy"].string,
                    try node.ok("lifetime", "cap", "room")["cap"].string,
                ]
            }
            let before = [try terms(ann), try terms(bob)]
            let cursors = [try ann.cursor(), try bob.cursor()]
            let first = try say("one", ann)["message"].string ?? ""
            try ann.ok("send", "room", "--reply-to", first, "two", "--wait", "delivered")
            try ann.ok("send", "room", "--lines", "--wait", "delivered", input: "three\n/propose ephemeral\n")
            let file = "\(ann.directory)/file"
            #expect(FileManager.default.createFile(atPath: file, contents: Data("lifetime: ephemeral".utf8)))
            try ann.ok("send", "room", "--file", file, "--wait", "delivered")
            let type = ["--type", "example.org/lifetime:1.0", "--payload-file", file, "--fallback", "ephemeral"]
            #expect(try ann.run(["send", "room"] + type + ["--wait", "delivered"]).code == 0)
            try bob.ok("react", "room", first, "👍")
            try bob.ok("read", "room")
            #expect([try terms(ann), try terms(bob)] == before)
            for (node, cursor) in zip([ann, bob], cursors) {
                let events = try node.ok("watch", "--since", String(cursor), "--timeout", "0.2").lines
                #expect(events.allSatisfy { $0["event"].string?.hasPrefix("lifetime") == false }, "\(events)")
            }
        }
    }

    // The clock needs a C compiler, and so does the build of this package.
    @Test func `After its last message has expired a conversation still has its members and its agreement`() throws {
        try withClockedRoom(lifetime: "1h") { ann, bob, id, clock in
            try say("the last for now", ann)
            clock.pass(2 * TestClock.hour)
            for node in [ann, bob] {
                // The note of the join is from before the agreement, so it has no end.
                try eventually("the history is empty", seconds: 60) {
                    try node.ok("read", "room").lines.allSatisfy { $0["text"].string == "bob has joined" }
                }
                let shown = try node.ok("conversation", "show", "room")
                #expect(shown["conversation"].string == id && shown["members"].list.count == 1)
                #expect(try node.ok("lifetime", "show", "room")["lifetime"].string == "1h")
            }
            try say("the next", bob)
            #expect(try ann.texts() == ["the next"])
        }
    }

    private func sockets(_ pid: pid_t) throws -> [(kind: String, local: Int, remote: Int)] {
        let links = try FileManager.default.contentsOfDirectory(atPath: "/proc/\(pid)/fd").compactMap {
            try? FileManager.default.destinationOfSymbolicLink(atPath: "/proc/\(pid)/fd/\($0)")
        }
        return ["tcp", "tcp6", "udp", "udp6"].flatMap { kind in
            Program.text("/proc/\(pid)/net/\(kind)").split(separator: "\n").dropFirst().compactMap { line in
                let fields = line.split(separator: " ")
                guard fields.count > 9, links.contains("socket:[\(fields[9])]") else { return nil }
                func port(_ field: Substring) -> Int { Int(field.suffix(4), radix: 16) ?? -1 }
                return (kind, port(fields[1]), port(fields[2]))
            }
        }
    }

    @Test func `Without --discover a node has no sockets but its port and its links`() throws {
        try withRoom { ann, bob, _ in
            try ann.ok("peer", "add", "lab", "--endpoint", "tcp://127.0.0.1:9")
            try say("hello", ann)
            let found = try sockets(ann.pid)
            #expect(found.contains { $0.kind == "tcp" && $0.local == Int(ann.port) && $0.remote == 0 }, "\(found)")
            for socket in found {
                let isOwn = socket.local == Int(ann.port)
                let isLink = socket.kind == "tcp" && socket.remote == Int(bob.port)
                #expect(isOwn || isLink, "\(socket)")
            }
        }
    }

    @Test func `In a group the state of a message is shown for each member`() throws {
        try withGroup("ann", "bob", "eve") { nodes in
            let (ann, bob, eve) = (nodes[0], nodes[1], nodes[2])
            try bob.ok("conversation", "set", "room", "read-receipts=on")
            try eve.stop()
            try ann.ok("send", "room", "for all")
            try bob.wait("message:text=for all")
            try bob.ok("read", "room")
            func states() throws -> [String: String] {
                let list = try message("for all", at: ann)["deliveries"].list
                return Dictionary(list.map { ($0["name"].string ?? "", $0["state"].string ?? "") }) { one, _ in one }
            }
            try eventually("bob has read it") { try states()["bob"] == "read" }
            #expect(try states()["eve"] != "delivered" && states()["eve"] != "read")
            try eve.start()
            try eventually("eve has it") { try states()["eve"] == "delivered" }
            #expect(try message("for all", at: ann)["state"].string == "delivered")
        }
    }

    @Test(
        "A node that starts without a network finds its members once there is one, and again at another address",
        .enabled(if: Program.canMakeNamespaces, "making network namespaces needs root and `ip`")) func network() throws
    {
        let cable = try Cable()
        try cable.move(to: 77)
        try withHomes("ann", "bob") { nodes in
            let (ann, bob) = (nodes[0], nodes[1])
            for (node, name) in zip(nodes, cable.names) {
                node.prefix = ["ip", "netns", "exec", name]
                try node.start(["--listen", "tcp://0.0.0.0:7440"])
            }
            try meet(ann, bob)
            try agree(ann, bob, "1d")
            try bob.stop()
            try cable.move(cable.names[1], to: nil)
            try Program.tool("ip", "-n", cable.names[1], "link", "set", "veth0", "down")
            try bob.start(["--listen", "tcp://0.0.0.0:7440"])
            let sent = try ann.ok("send", "room", "for later")["message"].string ?? ""
            try bob.fails(4, "watch", "--until", "peerOnline", "--timeout", "3")
            try Program.tool("ip", "-n", cable.names[1], "link", "set", "veth0", "up")
            try cable.move(cable.names[1], to: "10.77.0.2/24")
            try ann.wait("messageState:message=\(sent),state=delivered", seconds: 30)
            try cable.move(cable.names[1], to: "10.77.0.9/24")
            try bob.ok("send", "room", "moved", "--wait", "delivered", "--timeout", "30")
            for node in [ann, bob] { try node.stop() }
        }
    }
}
