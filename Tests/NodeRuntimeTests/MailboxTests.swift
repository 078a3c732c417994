import Crypto
import Foundation
import Messaging
import NIOCore
import NIOPosix
import SimulatedDisk
import Store
import Testing

@testable import NodeRuntime

/// `ann` and `bob` with a conversation called `tea`, and `hub`, a mailbox that bob uses: over the loopback, on disks of the
/// test's and by a clock of the test's.
private final class Household: Sendable {
    /// `peers.json` is a file of this machine's, whatever the disk is.
    private let directory = FileManager.default.temporaryDirectory.path + "/" + UUID().uuidString
    let disks = (ann: SimulatedDisk(), bob: SimulatedDisk(), hub: SimulatedDisk())
    let group = MultiThreadedEventLoopGroup(numberOfThreads: 1)
    let hub: Node

    init() async throws {
        let directory = directory
        try FileManager.default.createDirectory(atPath: directory, withIntermediateDirectories: true)
        for disk in [disks.ann, disks.bob, disks.hub] {
            for parent in directory.indices.dropFirst().filter({ directory[$0] == "/" }) {
                try disk.makeDirectory(String(directory[..<parent]), in: nil)
            }
            try Store.create(
                home: directory,
                protection: .keyFile,
                passphrase: nil,
                fileSystem: disk,
                journal: SimulatedDisk.journalByteCount
            )
        }
        hub = try await Self.node(directory, disks.hub, group.next()) { $0.isMailbox = true }
        try await hub.start(passphrase: nil)
    }

    private static func node(
        _ home: String,
        _ disk: SimulatedDisk,
        _ loop: any EventLoop,
        peers: PeersFile = PeersFile(),
        _ options: (inout Node.Options) -> Void = { _ in }
    ) async throws -> Node {
        try await Node.quiet(
            home: home,
            on: disk,
            loop,
            listen: [Endpoint(host: "127.0.0.1", port: 0)],
            peers: peers,
            options
        ) {
            $0.datagrams = nil
        }
    }

    func node(_ disk: SimulatedDisk, peers: PeersFile = PeersFile()) async throws -> Node {
        let node = try await Self.node(directory, disk, group.next(), peers: peers)
        try await node.start(passphrase: nil)
        return node
    }

    func end() async throws {
        await hub.stop()
        try await group.shutdownGracefully()
        try FileManager.default.removeItem(atPath: directory)
    }
}

extension Node {
    /// Waits until something holds, looking at it after each pass of the loop.
    func eventually(_ what: String, _ isTrue: @escaping @Sendable (isolated Node) -> Bool) async throws {
        let promise = loop.makePromise(of: Void.self)
        let deadline = NIODeadline.now() + .seconds(30)
        @Sendable func look() {
            if self.assumeIsolated({ isTrue($0) }) { return promise.succeed(()) }
            if NIODeadline.now() > deadline { return promise.fail(NeverHappened(what: what)) }
            loop.scheduleTask(in: .milliseconds(2)) { look() }
        }
        loop.execute { look() }
        try await promise.futureResult.get()
    }

    private struct NeverHappened: Error { let what: String }
}

@Suite("Mailboxes") struct MailboxTests {
    @Test("two that are never online together talk through a mailbox, both ways")
    func neverTogether() async throws {
        let house = try await Household()
        var ann = try await house.node(house.disks.ann)
        var bob = try await house.node(house.disks.bob)
        for (name, node) in [("ann", ann), ("bob", bob)] {
            _ = try await house.hub.addPeer(name, card: node.card().description, endpoints: [])
            _ = try await node.addPeer("hub", card: house.hub.card().description, endpoints: [])
            try await node.setMailbox("hub", true)
        }
        _ = try await ann.createConversation(name: "tea", profile: nil).get()
        let slug = try await ann.invite("tea", lifetime: .hour, singleUse: true).get().slug
        let linked = await ann.next { if case .peerOnline = $0 { true } else { false } }
        _ = try await bob.join(slug, profile: nil)
        _ = try await linked.get()
        let proposed = await bob.next { if case .lifetimeProposed = $0 { true } else { false } }
        let agreed = await ann.next { if case .lifetimeAgreed = $0 { true } else { false } }
        try await ann.propose("tea", LifetimeTerms(.oneDay, mailbox: .disk))
        guard case .lifetimeProposed(_, _, let proposal) = try await proposed.get() else { return }
        try await bob.accept("tea", only: proposal).get()
        _ = try await agreed.get()
        for node in [ann, bob] {
            try await node.eventually("the member can be mailed") { node in
                let machine = node.core.machine.conversations.first
                return machine?.currentMembers.first.map { machine!.isMailable($0.key, now: node.services.now) }
                    ?? false
            }
        }
        let peers = (ann: try await ann.peersFile(), bob: try await bob.peersFile())
        await bob.stop()
        let mailed = await ann.next { if case .messageState(_, .mailed, _) = $0 { true } else { false } }
        let sent = try #require(try await ann.send("tea", texts: ["while you were away"]) { _ in }.first).get()
        _ = try await mailed.get()
        #expect(try await #require(ann.message(sent.message, client: sent.client)).message.state == .mailed)
        await ann.stop()
        bob = try await house.node(house.disks.bob, peers: peers.bob)
        try await bob.eventually("the message has come") { node in
            node.core.inboxes.all.contains { $0.archive.contains(sent.message) }
        }
        let back = try #require(try await bob.send("tea", texts: ["an answer"]) { _ in }.first).get()
        try await bob.eventually("the answer is mailed") { node in
            node.message(back.message, client: back.client)?.message.state == .mailed
        }
        await bob.stop()
        ann = try await house.node(house.disks.ann, peers: peers.ann)
        try await ann.eventually("the answer has come, and the acknowledgement") { node in
            node.core.inboxes.all.contains { $0.archive.contains(back.message) }
                && node.message(sent.message, client: sent.client)?.message.state == .delivered
        }
        await ann.stop()
        try await house.end()
    }
}
