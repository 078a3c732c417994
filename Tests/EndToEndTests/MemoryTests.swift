import Cryptography
import Foundation
import Glibc
import Store
import Testing

@Suite("The memory of a node", .script) final class MemoryTests {
    /// Two nodes with readable memory in the conversation `room`, and all texts ever sent there.
    private final class Room {
        let ann: TestNode
        let bob: TestNode
        let clock: TestClock
        let image = MemoryImage(mark: "zq" + UUID().uuidString.lowercased().prefix(8))
        private(set) var count = 0
        /// A `watch` of bob's that runs as long as the room.
        private var watcher: Background?

        init(_ directory: String) throws {
            clock = try TestClock(in: directory)
            ann = TestNode(name: "ann", directory: directory)
            bob = TestNode(name: "bob", directory: directory)
            let opening = try MemoryImage.openingLibrary(in: directory)
            for node in nodes {
                node.prefix = clock.prefix(loading: [opening])
                try node.initialise()
                try node.start()
            }
            try meet(ann, bob)
        }

        var nodes: [TestNode] { [ann, bob] }

        /// A new text: every third is short enough for inline storage, the others have characters that JSON escapes.
        func text() -> String {
            defer { count += 1 }
            let start = image.mark + String(format: "-%02d", count)
            return count % 3 == 0 ? start : start + " \"said\"\n" + String(repeating: "ab", count: count * 20)
        }

        /// Texts both ways, a reply and a file, read by `watch` at one side and by `read` at both.
        func talk() throws {
            watcher = try Background(bob, ["watch", "room"])
            for number in 0..<20 { try say(text(), number % 3 == 2 ? bob : ann) }
            let last = try ann.ok("read", "room").json["message"].string ?? ""
            try bob.ok("send", "room", text(), "--reply-to", last, "--wait", "delivered", "--timeout", "90")
            let path = "\(ann.directory)/file.txt"
            try Data(String(repeating: text(), count: 200).utf8).write(to: URL(fileURLWithPath: path))
            try ann.ok("send", "room", text(), "--file", path, "--wait", "delivered", "--timeout", "90")
            try FileManager.default.removeItem(atPath: path)
            for node in nodes { #expect(try node.texts().count >= 22) }
        }

        /// Commands of one connected client, like a script's `mayfly rpc`.
        func talk(over client: PersistentClient) throws {
            for text in [text(), text() + String(repeating: "y", count: 20_000), text()] {
                try client.call("send", ["conversation": "room", "text": text])
            }
            try client.call("read", ["conversation": "room"])
        }

        /// No text is in the memory of these nodes, now or within ten seconds.
        func expectNothing(in nodes: [TestNode], _ when: String, at location: SourceLocation = #_sourceLocation) throws
        {
            for node in nodes {
                var found = try image.findings(in: node)
                let end = ContinuousClock.now + .seconds(10)
                while !found.isEmpty, ContinuousClock.now < end {
                    usleep(100_000)
                    found = try image.findings(in: node)
                }
                let texts = Set(found)
                #expect(
                    found.isEmpty, "\(when): \(found.count) copies of \(texts.count) of \(count) texts at \(node.name)",
                    sourceLocation: location)
            }
        }
    }

    private func withRoom(lifetime: String?, _ body: (Room) throws -> Void) throws {
        try withDirectory { directory in
            let room = try Room(directory)
            defer { for node in room.nodes { node.crash() } }
            if let lifetime { try agree(room.ann, room.bob, lifetime) }
            try body(room)
            for node in room.nodes { try node.stop() }
        }
    }

    enum End: CaseIterable { case reading, expiry, lock, leaving }

    @Test(
        "No text is in a node's memory once it is read, has expired, or the node is locked or has left",
        arguments: End.allCases) func ended(_ end: End) throws
    {
        let lifetimes: [End: String] = [.reading: "1d", .expiry: "1h", .lock: "1d"]
        try withRoom(lifetime: lifetimes[end]) { room in
            try room.talk()
            switch end {
            case .reading: break
            case .expiry:
                room.clock.pass(TestClock.hour + 60)
                for node in room.nodes { try eventually("the end") { try node.texts().isEmpty } }
            case .lock: for node in room.nodes { try node.ok("lock") }
            case .leaving:
                try room.bob.ok("conversation", "leave", "room", "--force")
                try room.ann.ok("conversation", "close", "room")
            }
            try room.expectNothing(in: room.nodes, "\(end)")
        }
    }

    @Test func `After an explosion no text is in either node's memory, stored or not`() throws {
        try withRoom(lifetime: nil) { room in
            // In memory only: proves that the search finds texts.
            try room.talk()
            for node in room.nodes { #expect(Set(try room.image.findings(in: node)).count >= 20) }
            try agree(room.ann, room.bob, "1d")
            try room.talk()
            let client = try PersistentClient(room.ann)
            try room.talk(over: client)
            try room.ann.ok("explode", "room", "--force")
            try room.bob.wait("exploded")
            try room.expectNothing(in: room.nodes, "exploded")
            client.end()
        }
    }

    /// The secret keys of all inboxes, read from a copy of a home (Store.md).
    private func identityKeys(of node: TestNode) throws -> [[UInt8]] {
        let copy = "\(node.directory)/copy-\(UUID().uuidString.prefix(8))"
        try Program.tool("cp", "-a", node.home, copy)
        defer { try? FileManager.default.removeItem(atPath: copy) }
        let store = try Store.open(home: copy, now: 0)
        defer { store.close() }
        try store.unlock(passphrase: nil)
        return try store.liveRows().map { row in try store.secret(row, label: "identity key 0").withBytes { Array($0) }
        }
    }

    private func eventuallyGone(_ keys: [[UInt8]], from node: TestNode) throws {
        // The stack is overwritten 100 ms later; a running handshake ends after ten seconds.
        try eventually("no identity key is in the memory of \(node.name)", seconds: 20) {
            try keys.allSatisfy { try MemoryImage.count(of: $0, in: node) == 0 }
        }
    }

    @Test("A lock removes the identity keys from memory; links stay, contents wait, and the unlock restores everything")
    func keys() throws {
        try withRoom(lifetime: "1d") { room in
            let (ann, bob) = (room.ann, room.bob)
            // The keys of the room, the contact inbox and the unused inbox.
            let keys = try identityKeys(of: bob)
            #expect(keys.count == 3)
            for key in keys { #expect(try MemoryImage.count(of: key, in: bob) > 0) }
            try say("before", ann)
            try bob.ok("lock")
            try eventuallyGone(keys, from: bob)
            // The link is unchanged: a message arrives, and is reported as stored once it is.
            let sent = try ann.ok("send", "room", "meanwhile")
            try bob.wait("message", after: try bob.cursor() - 1)
            #expect(try ann.run(["outbox", "list"]).output.contains(sent["message"].string ?? "?"))
            try bob.ok("unlock")
            try eventually("what has waited is delivered") { try ann.ok("outbox", "list").lines.isEmpty }
            for key in keys { #expect(try MemoryImage.count(of: key, in: bob) > 0) }
            try say("after", ann)
            try say("and back", bob)
            #expect(try ann.texts() == ["before", "meanwhile", "after", "and back"])
        }
    }
}

/// A client that stays connected to the control socket: `mayfly rpc`.
final class PersistentClient {
    private let child: Child
    private let input: Descriptor
    private let output: Descriptor
    private var number = 0

    init(_ node: TestNode) throws {
        let paths = ["in", "out"].map { "\(node.directory)/\(UUID().uuidString.prefix(8)).\($0)" }
        for path in paths { guard mkfifo(path, 0o600) == 0 else { throw HarnessError("mkfifo: \(errno)") } }
        input = try Descriptor(paths[0], O_RDWR)
        output = try Descriptor(paths[1], O_RDWR | O_NONBLOCK)
        child = try Child([Program.mayfly, "rpc", "--home", node.home], input: input, output: output)
    }

    @discardableResult func call(_ method: String, _ parameters: [String: Any]) throws -> JSON {
        number += 1
        let request: [String: Any] = ["jsonrpc": "2.0", "id": number, "method": method, "params": parameters]
        let line = Array(try JSONSerialization.data(withJSONObject: request)) + [0x0A]
        guard write(input.number, line, line.count) == line.count else { throw HarnessError("write: \(errno)") }
        var text: [UInt8] = []
        let end = ContinuousClock.now + .seconds(60)
        while text.last != 0x0A {
            guard ContinuousClock.now < end else { throw HarnessError("\(method) was not answered") }
            var polled = pollfd(fd: output.number, events: Int16(POLLIN), revents: 0)
            poll(&polled, 1, 100)
            var chunk = [UInt8](repeating: 0, count: 65_536)
            let count = Glibc.read(output.number, &chunk, chunk.count)
            if count > 0 { text += chunk[..<count] }
        }
        let answer = JSON(line: String(decoding: text, as: UTF8.self)) ?? JSON(value: nil)
        guard answer["error"].isNull, !answer["result"].isNull else { throw HarnessError("\(method): \(answer)") }
        return answer["result"]
    }

    func end() {
        child.signal(SIGTERM)
        _ = child.wait(seconds: 10)
    }

    deinit { end() }
}
