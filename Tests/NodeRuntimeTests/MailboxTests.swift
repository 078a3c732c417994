import Foundation
import Messaging
import NIOCore
import NIOPosix
import SimulatedDisk
import Store
import Testing

@testable import NodeRuntime

/// A ``Pair`` and `hub`, the mailbox that both use, in one directory of the real disk, where `peers.json` is.
private final class Household: Sendable {
    private let directory = FileManager.default.temporaryDirectory.path + "/" + UUID().uuidString
    private let group = MultiThreadedEventLoopGroup(numberOfThreads: 1)
    let hub: Node
    let pair: Pair

    init() async throws {
        try FileManager.default.createDirectory(atPath: directory, withIntermediateDirectories: true)
        let disk = SimulatedDisk()
        try disk.makeHome(below: directory)
        let hub = try await Pair.start(directory, disk, group.next()) { $0.isMailbox = true }
        self.hub = hub
        pair = try await Pair(home: directory, on: group) { ann, bob in
            for (name, node) in [("ann", ann), ("bob", bob)] {
                try await hub.addPeer(name, node.card())
                try await node.addPeer("hub", hub.card())
                try await node.useMailbox("hub")
            }
        }
        // They agree on a day with a mailbox, and exchange boxes and keys.
        let terms = LifetimeTerms(.oneDay, mailbox: .disk)
        try await pair.agree(terms)
        let schedule = SliceSchedule(terms)
        for (node, other) in [(pair.ann, pair.bob), (pair.bob, pair.ann)] {
            try await node.eventually("the member can be mailed, with keys up to the horizon") { node in
                // A node's output is flushed before its loop does something else.
                if other.assumeIsolated({ !$0.shell.output.isFlushed }) { Issue.record("a frame waits at its sender") }
                guard let machine = node.core.machine.conversations.first,
                    let member = machine.currentMembers.first?.key,
                    let last = machine.record.mailbox.outgoing[member]?.slices?.last
                else { return false }
                let now = node.services.now
                return machine.isMailable(member, now: now) && last + 1 >= schedule.last(at: now)
            }
        }
    }

    func node(_ disk: SimulatedDisk, peers: PeersFile) async throws -> Node {
        try await Pair.start(directory, disk, group.next(), peers: peers)
    }

    func end() async throws {
        await hub.stop()
        try await group.shutdownGracefully()
        try FileManager.default.removeItem(atPath: directory)
    }
}

extension Node {
    /// Waits until a condition holds, checked after each pass of the loop. The limit only names what never happens.
    func eventually(_ what: String, _ isTrue: @escaping @Sendable (isolated Node) -> Bool) async throws {
        let promise = loop.makePromise(of: Void.self)
        let deadline = NIODeadline.now() + .minutes(5)
        @Sendable func look() {
            if self.assumeIsolated({ isTrue($0) }) { return promise.succeed(()) }
            if NIODeadline.now() > deadline { return promise.fail(NeverHappened(what: what)) }
            loop.scheduleTask(in: .milliseconds(2)) { look() }
        }
        loop.execute { look() }
        try await promise.futureResult.get()
    }

    fileprivate func addPeer(_ name: String, _ card: ContactCard) throws {
        _ = try peers.add(name, card: card.description, endpoints: [])
    }

    fileprivate func useMailbox(_ name: String) throws { try peers.setMailbox(name, true) }

    fileprivate func peersFile() throws -> PeersFile { try peers.file() }

    fileprivate func keptKinds() -> [SlotKind] {
        (core.machine.contact?.mailbox.records ?? []).flatMap { record in
            shell.keptBoxes.slots(of: record.box)?.slots.map(\.kind) ?? []
        }
    }

    fileprivate func filledBoxes() -> Set<BoxID> {
        Set((core.machine.contact?.mailbox.records ?? []).map(\.box)).filter {
            shell.keptBoxes.slots(of: $0)?.slots.isEmpty == false
        }
    }

    private struct NeverHappened: Error { let what: String }
}

@Suite("Mailboxes") struct MailboxTests {
    @Test func `a text that a sender mails after its home was restored from an old copy arrives`() async throws {
        let house = try await Household()
        let (ann, bob) = (house.pair.ann, house.pair.bob)
        let peers = (ann: try await ann.peersFile(), bob: try await bob.peersFile())
        await bob.stop()
        await ann.stop()
        let copy = house.pair.disks.ann.copy()
        let hub = house.hub
        // One is online at a time, so that everything goes through the mailbox.
        func run<Result: Sendable>(_ disk: SimulatedDisk, _ peers: PeersFile, _ body: (Node) async throws -> Result)
            async throws -> Result
        {
            let node = try await house.node(disk, peers: peers)
            let result = try await body(node)
            await node.stop()
            return result
        }
        func mail(_ text: String, _ disk: SimulatedDisk) async throws -> Messaging.MessageID {
            try await run(disk, peers.ann) { ann in
                let sent = try #require(try await ann.send("tea", texts: [text]) { _ in }.first).get()
                try await ann.eventually("the text is mailed") { node in
                    node.message(sent.message, client: sent.client)?.message.state == .mailed
                }
                return sent.message
            }
        }
        let first = try await mail("before the copy was put back", house.pair.disks.ann)
        let bobsBox = await hub.filledBoxes()
        try await run(house.pair.disks.bob, peers.bob) { bob in
            try await bob.eventually("bob has emptied his box, and put something into ann's") { _ in
                hub.assumeIsolated { !$0.filledBoxes().isEmpty && $0.filledBoxes().isDisjoint(with: bobsBox) }
            }
        }
        try await run(house.pair.disks.ann, peers.ann) { ann in
            try await ann.eventually("the first text is delivered") { node in
                let isTaken = hub.assumeIsolated { $0.filledBoxes().isEmpty }
                return isTaken
                    && node.inboxes.all.contains {
                        $0.archive.read(first, now: node.services.now)?.message.state == .delivered
                    }
            }
        }
        let late = try await mail("after the copy was put back", copy)
        try await run(house.pair.disks.bob, peers.bob) { bob in
            try await bob.eventually("the late text has come") { node in
                node.inboxes.all.contains { $0.archive.contains(late) }
            }
        }
        try await house.end()
    }

    @Test("a mailbox forgets what waits for an exploded conversation, and keeps the owner's answer") func exploded()
        async throws
    {
        let house = try await Household()
        let (ann, bob) = (house.pair.ann, house.pair.bob)
        let peers = try await bob.peersFile()
        await bob.stop()
        let mailed = await ann.next { if case .messageState(_, .mailed, _) = $0 { true } else { false } }
        _ = try #require(try await ann.send("tea", texts: ["never read"]) { _ in }.first).get()
        _ = try await mailed.get()
        _ = try await ann.explode("tea")
        try await house.hub.eventually("the hub keeps both") { Set($0.keptKinds()) == [.disk, .notice] }
        await ann.stop()
        let again = try await house.node(house.pair.disks.bob, peers: peers)
        try await house.hub.eventually("only the answer is left") { $0.keptKinds() == [.notice] }
        try await again.eventually("the link that no box needs is closed") { node in
            node.core.machine.conversations.isEmpty && node.shell.ownMailbox.standing?.standing == .unused
        }
        await again.stop()
        try await house.end()
    }
}
