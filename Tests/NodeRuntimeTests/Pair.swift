import Messaging
import NIOCore
import NIOPosix
import NodeRuntime
import SimulatedDisk
import Store

/// Two nodes with the conversation `tea`, made by `ann`, linked over the loopback, on simulated disks.
final class Pair: Sendable {
    let disks = (ann: SimulatedDisk(), bob: SimulatedDisk())
    private let group = MultiThreadedEventLoopGroup(numberOfThreads: 1)
    let ann: Node
    let bob: Node

    private static let home = "/home"

    init() async throws {
        for disk in [disks.ann, disks.bob] { try disk.makeHome(Self.home) }
        var nodes: [Node] = []
        for disk in [disks.ann, disks.bob] { nodes.append(try await Self.node(disk, group.next())) }
        (ann, bob) = (nodes[0], nodes[1])
        for node in nodes { try await node.start(passphrase: nil) }
        _ = try await ann.createConversation(name: "tea", profile: nil).get()
        let slug = try await ann.invite("tea", lifetime: .hour, singleUse: true).get().slug
        var linked: [EventLoopFuture<Event.Kind>] = []
        for node in nodes { linked.append(await node.next { if case .peerOnline = $0 { true } else { false } }) }
        _ = try await bob.join(slug, profile: nil)
        for one in linked { _ = try await one.get() }
    }

    private static func node(_ disk: SimulatedDisk, _ loop: any EventLoop) async throws -> Node {
        try await Node.quiet(home: home, on: disk, loop, listen: [Endpoint(host: "127.0.0.1", port: 0)]) {
            $0.datagrams = nil
        }
    }

    /// A node without a network, in the home of one of the two.
    func node(on disk: SimulatedDisk) async throws -> Node {
        try await Node.quiet(home: Self.home, on: disk, group.next()) { $0.datagrams = nil }
    }

    func agree(_ lifetime: Lifetime) async throws {
        let proposed = await bob.next { if case .lifetimeProposed = $0 { true } else { false } }
        let agreed = await ann.next { if case .lifetimeAgreed = $0 { true } else { false } }
        try await ann.propose("tea", LifetimeTerms(lifetime))
        guard case .lifetimeProposed(_, _, let proposal) = try await proposed.get() else { return }
        try await bob.accept("tea", only: proposal).get()
        _ = try await agreed.get()
    }

    func end() async throws {
        await ann.stop()
        await bob.stop()
        try await group.shutdownGracefully()
    }
}

extension Node {
    func next(_ isMeant: @escaping @Sendable (Event.Kind) -> Bool) -> EventLoopFuture<Event.Kind> {
        let promise = loop.makePromise(of: Event.Kind.self)
        let watcher = watch { entry in if isMeant(entry.event.kind) { promise.succeed(entry.event.kind) } }
        promise.futureResult.whenComplete { _ in self.assumeIsolated { $0.unwatch(watcher) } }
        return promise.futureResult
    }
}

/// Values that may leave the node's loop.
extension Node {
    func record(of text: String) throws(NodeError) -> ConversationRecord { try conversation(text).record }

    func conversationIDs() throws(NodeError) -> [ConversationID] {
        try conversations().map { conversation in
            switch conversation {
            case .asleep(let summary): summary.conversation
            case .awake(let machine): machine.conversation
            }
        }
    }

    func outboxMessages() throws(NodeError) -> [Messaging.MessageID] { try outbox().map(\.entry.message) }
}

extension Node {
    func rename(_ text: String, to name: String) throws(NodeError) {
        try command(text) { machine, turn throws(CommandError) in try machine.rename(name, &turn) }
    }

    func setLocked(_ text: String, _ isLocked: Bool) throws(NodeError) {
        try command(text) { machine, turn throws(CommandError) in try machine.setLocked(isLocked, &turn) }
    }
}
