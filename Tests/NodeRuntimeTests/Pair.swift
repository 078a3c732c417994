import Messaging
import NIOCore
import NIOPosix
import NodeRuntime
import SimulatedDisk
import Store

/// Two nodes with the conversation `tea`, made by `ann`, linked over the loopback, on simulated disks.
final class Pair: Sendable {
    let disks = (ann: SimulatedDisk(), bob: SimulatedDisk())
    private let home: String
    private let group: MultiThreadedEventLoopGroup
    let ann: Node
    let bob: Node

    /// - Parameter prepare: what the two do before they make the conversation.
    init(
        home: String = "/home", on group: MultiThreadedEventLoopGroup = MultiThreadedEventLoopGroup(numberOfThreads: 1),
        _ prepare: (Node, Node) async throws -> Void = { _, _ in }
    ) async throws {
        (self.home, self.group) = (home, group)
        for disk in [disks.ann, disks.bob] { try disk.makeHome(below: home) }
        ann = try await Self.start(home, disks.ann, group.next())
        bob = try await Self.start(home, disks.bob, group.next())
        try await prepare(ann, bob)
        _ = try await ann.createConversation(name: "tea", profile: nil).get()
        let slug = try await ann.invite("tea", lifetime: .hour, singleUse: true).get().slug
        var linked: [EventLoopFuture<Event.Kind>] = []
        for node in [ann, bob] { linked.append(await node.next { if case .peerOnline = $0 { true } else { false } }) }
        _ = try await bob.join(slug, profile: nil)
        for one in linked { _ = try await one.get() }
    }

    static func start(
        _ home: String, _ disk: SimulatedDisk, _ loop: any EventLoop, peers: PeersFile = PeersFile(),
        _ options: (inout Node.Options) -> Void = { _ in }
    ) async throws -> Node {
        let listen = [Endpoint(host: "127.0.0.1", port: 0)]
        let node = try await Node.quiet(home: home, on: disk, loop, listen: listen, peers: peers, options) {
            $0.datagrams = nil
        }
        try await node.start(passphrase: nil)
        return node
    }

    /// A node without a network, in the home of one of the two.
    func node(on disk: SimulatedDisk) async throws -> Node {
        try await Node.quiet(home: home, on: disk, group.next()) { $0.datagrams = nil }
    }

    func agree(_ lifetime: Lifetime) async throws { try await agree(LifetimeTerms(lifetime)) }

    func agree(_ terms: LifetimeTerms) async throws {
        let proposed = await bob.next { if case .lifetimeProposed = $0 { true } else { false } }
        let agreed = await ann.next { if case .lifetimeAgreed = $0 { true } else { false } }
        try await ann.propose("tea", terms)
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

extension SimulatedDisk {
    /// A home in a directory that may be deep.
    func makeHome(below path: String) throws {
        for parent in path.indices.dropFirst().filter({ path[$0] == "/" }) {
            try makeDirectory(String(path[..<parent]), in: nil)
        }
        try makeHome(path)
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
