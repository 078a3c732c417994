import CCountingHeap
import Control
import Cryptography
import FoundationEssentials
import Glibc
import Logging
import Messaging
import NIOCore
import NIOPosix
import NodeRuntime
import Store

/// `make allocations`: heap allocations per stored message at the sender, the receiver and the control socket, and per
/// idle tick with 10,000 inboxes. Fails above the limits, which only go down.
///
///     allocations [DIRECTORY]
@main enum Allocations {
    /// Allocations per message in the release build: the last lowered figure plus a twentieth.
    private static let limits: [(name: String, limit: Double)] = [
        ("sender", 13.0), ("receiver", 3.7), ("control socket", 2.1),
    ]
    /// Allocations per idle tick, independent of the number of inboxes.
    private static let tickLimit = 1.0
    private static let inboxes = 10_000
    private static let messages = 4_096
    private static let batch = 32
    private static let inFlight = 256
    private static let text = String(repeating: "mayfly ", count: 29).prefix(200)

    static func main() async throws {
        let parent = CommandLine.arguments.dropFirst().first ?? "/tmp"
        var template = Array("\(parent)/mayfly-allocations-XXXXXX".utf8CString)
        guard mkdtemp(&template) != nil else { throw Failure("mkdtemp in \(parent)") }
        let directory = String(decoding: template.dropLast().map { UInt8(bitPattern: $0) }, as: UTF8.self)
        defer { try? FileManager.default.removeItem(atPath: directory) }
        let pair = try await Pair(directory)
        let (sender, receiver) = try await pair.measure()
        try await pair.end()
        let control = try await controlSocket(home: directory)
        var isOver = false
        for (figure, (name, limit)) in zip([sender, receiver, control], limits) {
            isOver = isOver || figure > limit
            let word = figure <= limit ? "met" : "MISSED"
            print("allocations of a stored message, \(name): \(figure), limit \(limit): \(word)")
        }
        let (tick, microseconds) = try await idleTick("\(directory)/cat")
        let isMet = tick <= tickLimit && microseconds <= 50
        print(
            "allocations of an idle tick, \(inboxes) inboxes: \(tick), limit \(tickLimit):", isMet ? "met" : "MISSED",
            "(\(microseconds) us, limit 50)")
        if isOver || !isMet { exit(1) }
    }

    /// Allocations and processor time per idle tick in a row, so that waking the thread from sleep is not included.
    private static func idleTick(_ home: String) async throws -> (blocks: Double, microseconds: Double) {
        let group = MultiThreadedEventLoopGroup(numberOfThreads: 1)
        let node = try await Pair.node(home, group.next())
        try await node.start(passphrase: nil)
        for number in 0..<inboxes { _ = try await node.createConversation(name: "c\(number)", profile: nil).get() }
        let ticks = 1_000
        // A tick within ten seconds writes the summaries of new inboxes.
        try await Task.sleep(for: .seconds(11))
        let (blocks, nanoseconds) = try await node.loop.submit {
            node.assumeIsolated { node in
                for _ in 0..<ticks { node.reapNow() }
                let before = (heap_allocations_of_this_thread(), threadTime())
                for _ in 0..<ticks { node.reapNow() }
                return (heap_allocations_of_this_thread() - before.0, threadTime() - before.1)
            }
        }.get()
        await node.stop()
        try await group.shutdownGracefully()
        return (Double(blocks) / Double(ticks), Double(nanoseconds) / 1_000 / Double(ticks))
    }

    private static func threadTime() -> Int {
        var time = timespec()
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time)
        return time.tv_sec * 1_000_000_000 + time.tv_nsec
    }

    struct Failure: Error, CustomStringConvertible {
        let description: String
        init(_ description: String) { self.description = description }
    }

    private static func count(_ loop: any EventLoop) async throws -> UInt64 {
        try await loop.submit { heap_allocations_of_this_thread() }.get()
    }

    /// The control socket with a service that answers at once.
    private static func controlSocket(home: String) async throws -> Double {
        let group = MultiThreadedEventLoopGroup(numberOfThreads: 2)
        let loop = group.next()
        var router = ControlRouter()
        router.on(RPCMethod<SendParams, SendResult>.send) { call in
            let sent = SentMessage(message: HexID(1, 2), state: .delivered, stored: true)
            let texts = call.params.texts ?? []
            call.succeed(SendResult(results: texts.map { _ in TextOutcome(sent) }))
        }
        let server = try await ControlServer.start(home: home, on: loop, later: { $0() }, service: router).get()
        let client = try ControlClient(home: home)
        let texts = [String](repeating: String(repeating: "mayfly ", count: 28), count: batch)
        let params = JSONValue(of: SendParams(conversation: "tea", texts: texts, wait: .delivered))
        for _ in 0..<8 { _ = try client.call("send", params) }
        let before = try await count(loop)
        for _ in 0..<64 { _ = try client.call("send", params) }
        let after = try await count(loop)
        try await server.close().get()
        try await group.shutdownGracefully()
        return Double(after - before) / Double(64 * texts.count)
    }

    private struct Pair {
        private let group = MultiThreadedEventLoopGroup(numberOfThreads: 2)
        private let ann: Node
        private let bob: Node

        init(_ directory: String) async throws {
            ann = try await Self.node("\(directory)/ann", group.next())
            bob = try await Self.node("\(directory)/bob", group.next())
            for node in [ann, bob] { try await node.start(passphrase: nil) }
            _ = try await ann.createConversation(name: "tea", profile: nil).get()
            let slug = try await ann.invite("tea", lifetime: .hour, singleUse: true).get().slug
            var linked: [EventLoopFuture<Messaging.Event.Kind>] = []
            for node in [ann, bob] {
                linked.append(await node.next { if case .peerOnline = $0 { true } else { false } })
            }
            _ = try await bob.join(slug, profile: nil)
            for one in linked { _ = try await one.get() }
            let proposed = await bob.next { if case .lifetimeProposed = $0 { true } else { false } }
            let agreed = await ann.next { if case .lifetimeAgreed = $0 { true } else { false } }
            try await ann.propose("tea", LifetimeTerms(.oneDay))
            guard case .lifetimeProposed(_, _, let proposal) = try await proposed.get() else { return }
            try await bob.accept("tea", only: proposal).get()
            _ = try await agreed.get()
        }

        static func node(_ home: String, _ loop: any EventLoop) async throws -> Node {
            try Store.create(home: home, protection: .keyFile, passphrase: nil)
            var options = Node.Options(home: home, version: "allocations")
            options.listen = [Endpoint(host: "127.0.0.1", port: 0)]
            options.datagrams = false
            options.discover = .off
            options.mapPorts = false
            return try await loop.submit { [options] in
                try Node(
                    options, configuration: NodeConfiguration(name: nil, listen: [], advertise: []), peers: PeersFile(),
                    loop: loop, log: Logger(label: "allocations", factory: { _ in SwiftLogNoOpLogHandler() }))
            }.get()
        }

        func measure() async throws -> (sender: Double, receiver: Double) {
            let texts = [String](repeating: String(text), count: batch)
            // The first batch grows the tables.
            try await ann.deliver(messages, texts: texts, inFlight)
            let before = (try await count(ann.loop), try await count(bob.loop))
            try await ann.deliver(messages, texts: texts, inFlight)
            let after = (try await count(ann.loop), try await count(bob.loop))
            return (Double(after.0 - before.0) / Double(messages), Double(after.1 - before.1) / Double(messages))
        }

        func end() async throws {
            await ann.stop()
            await bob.stop()
            try await group.shutdownGracefully()
        }
    }
}

extension Node {
    fileprivate func next(_ isMeant: @escaping @Sendable (Messaging.Event.Kind) -> Bool) -> EventLoopFuture<
        Messaging.Event.Kind
    > {
        let promise = loop.makePromise(of: Messaging.Event.Kind.self)
        let watcher = watch { entry in if isMeant(entry.event.kind) { promise.succeed(entry.event.kind) } }
        promise.futureResult.whenComplete { _ in self.assumeIsolated { $0.unwatch(watcher) } }
        return promise.futureResult
    }

    /// Sends `count` messages, `inFlight` at a time, until the other node has stored all.
    fileprivate func deliver(_ count: Int, texts: [String], _ inFlight: Int) async throws {
        let delivery = Delivery(count, texts, inFlight, loop.makePromise(of: Void.self))
        let watcher = delivery.begin(self)
        try await delivery.done.futureResult.get()
        unwatch(watcher)
    }
}

private final class Delivery: @unchecked Sendable {
    // @unchecked: every mutable property is confined to the node's loop.

    let done: EventLoopPromise<Void>
    private let count: Int
    private let texts: [String]
    private let inFlight: Int
    private var sent = 0
    private var delivered = 0

    init(_ count: Int, _ texts: [String], _ inFlight: Int, _ done: EventLoopPromise<Void>) {
        (self.count, self.texts, self.inFlight, self.done) = (count, texts, inFlight, done)
    }

    func begin(_ node: isolated Node) -> UInt64 {
        let watcher = node.watch { [self, unowned node] entry in node.assumeIsolated { happened(entry, $0) } }
        send(node)
        return watcher
    }

    private func send(_ node: isolated Node) {
        while sent < count, sent - delivered + texts.count <= inFlight {
            do {
                let made = try node.send("tea", texts: texts) { [done] refused in
                    if let error = refused.values.first { done.fail(error) }
                }
                for one in made { _ = try one.get() }
            } catch { return done.fail(error) }
            sent += texts.count
        }
    }

    private func happened(_ entry: EventLog.Entry, _ node: isolated Node) {
        guard case .messageState(_, .delivered, _) = entry.event.kind else { return }
        delivered += 1
        if delivered == count { return done.succeed() }
        send(node)
    }
}
