import Adversary
import Cryptography
import Foundation
import Messaging
import NIOCore
import NIOPosix
import SimulatedDisk
import Store
import Synchronization
import Testing

@testable import NodeRuntime

/// Slots and boxes that a mailbox has confirmed as kept or as removed.
private struct BoxPromise: Sendable {
    struct Slot: Hashable, Sendable {
        let box: BoxID
        let id: SlotID
    }

    /// Bodies of slots that were answered `stored`, and of answers whose slots were `discarded`.
    var kept: [Slot: [UInt8]] = [:]
    var gone: Set<Slot> = []
    /// Requested and unanswered: either state is allowed.
    var open: Set<Slot> = []
    /// Granted boxes; a box that is being dropped is in neither set.
    var boxes: Set<BoxID> = []
    var droppedBoxes: Set<BoxID> = []

    /// Confirmed slots that are missing in `found`.
    func missing(of box: BoxID, in found: Set<SlotID>) -> Set<SlotID> {
        Set(kept.keys.filter { $0.box == box }.map(\.id)).subtracting(found)
    }
}

extension Node {
    fileprivate func keptBoxes() -> Set<BoxID> { Set((core.machine.contact?.mailbox.records ?? []).map(\.box)) }

    /// Slots of a box, and whether the disk refused none of them.
    fileprivate func given(_ box: BoxID) -> (slots: Set<SlotID>, isWhole: Bool) {
        guard let given = shell.keptBoxes.slots(of: box) else { return ([], false) }
        return (Set(given.slots.map(\.id)), given.isWhole)
    }

    fileprivate func keptBody(of id: SlotID, in box: BoxID) -> [UInt8]? { shell.keptBoxes.body(of: id, in: box) }
}

/// Cuts the power of a mailbox at each call of the file system, while an owner and a member use it over real links.
/// Starts it again on each possible state of the disk, and compares the boxes with the mailbox's answers so far.
@Suite("Power cuts at a mailbox") struct MailboxPowerCutTests {
    /// All moments and many outcomes: `make crash`.
    private static let isCampaign = ProcessInfo.processInfo.environment["MAYFLY_CAMPAIGN"] != nil
    private static let home = "/home"

    private final class Moments: Sendable {
        let promise = Mutex(BoxPromise())
        let all = Mutex<[(disk: SimulatedDisk, promise: BoxPromise)]>([])

        func change(_ body: (inout sending BoxPromise) -> Void) { promise.withLock { body(&$0) } }
    }

    private struct Users {
        let owner: BoxOwner
        let moments: Moments
        let link: HostileLink
        let member: HostileLink
        private let tags: [SlotTag] = (0..<64).map { SlotTag(unchecked: [UInt8](repeating: UInt8($0), count: 32)) }

        init(_ owner: BoxOwner, _ moments: Moments) throws {
            (self.owner, self.moments) = (owner, moments)
            link = try owner.link(from: Source(1))
            member = try owner.link(from: Source(2))
        }

        private func body(_ number: Int, _ size: Int) -> [UInt8] {
            [UInt8](repeating: UInt8(number), count: SlotSize.byteCounts[size])
        }

        private func answer(on link: HostileLink, _ isMeant: (MailboxAnswer) -> Bool) throws {
            while let frame = try link.receive() {
                if case .mailboxAnswer(let answer) = frame, isMeant(answer) { return }
            }
            throw Failure("the mailbox has closed a link")
        }

        func claim(_ labels: [BoxLabel]) throws {
            try owner.hold(labels, over: link)
            moments.change { for label in labels { $0.boxes.insert(owner.box(label)) } }
        }

        func drop(_ labels: [BoxLabel]) throws {
            let boxes = Set(labels.map(owner.box))
            moments.change { promise in
                promise.boxes.subtract(boxes)
                let slots = promise.kept.keys.filter { boxes.contains($0.box) }
                promise.open.formUnion(slots)
                for slot in slots { promise.kept[slot] = nil }
            }
            try link.send(.mailboxRequest(.drop(labels)))
            // The answer to this list comes after the commit of the drop.
            let other = moments.promise.withLock { $0.boxes }.sorted()[0]
            try link.send(.mailboxRequest(.list(other)))
            try answer(on: link) { if case .slots(other, _) = $0 { true } else { false } }
            moments.change { $0.droppedBoxes.formUnion(boxes) }
        }

        func put(_ number: Int, _ kind: SlotKind = .disk, size: Int = 0, into label: BoxLabel) throws {
            let slot = BoxPromise.Slot(box: owner.box(label), id: SlotID(tags[number]))
            let body = body(number, kind == .notice ? 0 : size)
            moments.change { $0.open.insert(slot) }
            let keeping: SlotKeeping = kind == .notice ? .fortyFiveDays : .oneDay
            let put = SlotPut(id: slot.id, kind: kind, keeping: keeping, body: body)
            try member.send(.mailboxRequest(.put(slot.box, put)))
            try answer(on: member) { if case .put(slot.box, slot.id, .stored) = $0 { true } else { false } }
            moments.change { promise in
                promise.open.remove(slot)
                promise.kept[slot] = body
            }
        }

        func discard(_ numbers: [Int], in label: BoxLabel, answer receipt: [UInt8] = []) throws {
            let shown = numbers.map { tags[$0] }
            try end(numbers, in: label, by: .discard(owner.box(label), shown, answer: receipt), receipt)
        }

        func purge(_ numbers: [Int], in label: BoxLabel, isWhole: Bool = false) throws {
            let ids = numbers.map { SlotID(tags[$0]) }
            try end(numbers, in: label, by: .purge(owner.box(label), isWhole ? [] : ids), [])
        }

        /// Until the answer either state of the slots is allowed.
        private func end(_ numbers: [Int], in label: BoxLabel, by request: MailboxRequest, _ receipt: [UInt8]) throws {
            let slots = numbers.map { BoxPromise.Slot(box: owner.box(label), id: SlotID(tags[$0])) }
            moments.change { promise in
                for slot in slots {
                    promise.kept[slot] = nil
                    promise.open.insert(slot)
                }
            }
            try link.send(.mailboxRequest(request))
            try answer(on: link) { if case .discarded = $0 { true } else { false } }
            moments.change { promise in
                for slot in slots {
                    promise.open.remove(slot)
                    if receipt.isEmpty { promise.gone.insert(slot) } else { promise.kept[slot] = receipt }
                }
            }
        }
    }

    private static func label(_ number: UInt8) -> BoxLabel {
        BoxLabel(unchecked: [UInt8](repeating: number, count: BoxLabel.byteCount))
    }

    private static func use(_ users: Users) throws {
        try users.claim([label(1), label(2)])
        for number in 0..<6 { try users.put(number, size: number % 3, into: label(1)) }
        try users.put(6, size: 3, into: label(1))
        for number in 10..<13 { try users.put(number, into: label(2)) }
        try users.put(20, .notice, into: label(1))
        try users.discard([0, 1], in: label(1))
        try users.discard([20], in: label(1), answer: [UInt8](repeating: 7, count: 200))
        try users.purge([2], in: label(1))
        try users.claim([label(3)])
        try users.put(30, into: label(3))
        try users.drop([label(2)])
        try users.put(7, into: label(1))
        try users.discard([3, 4, 5, 6, 7], in: label(1))
        try users.put(8, into: label(1))
        try users.purge([30], in: label(3), isWhole: true)
    }

    /// - Returns: each moment at which the power may fail, and the mailbox's answers by then.
    private func moments(_ group: MultiThreadedEventLoopGroup, _ change: (inout SimulatedDisk.State) -> Void = { _ in })
        async throws -> (peers: PeersFile, all: [(disk: SimulatedDisk, promise: BoxPromise)])
    {
        let disk = SimulatedDisk()
        try disk.makeHome(Self.home)
        let listen = [Messaging.Endpoint(host: "127.0.0.1", port: 0)]
        let identity = makeIdentity()
        let card = ContactCard(
            key: identity.publicKey, routingSecret: randomBytes(ContactCard.routingSecretByteCount),
            endpoints: [Messaging.Endpoint(host: "127.0.0.1", port: 9)])
        let peers = PeersFile(peers: [PeersFile.Peer(name: "owner", contact: card, endpoints: nil)])
        let node = try await Node.quiet(home: Self.home, on: disk, group.next(), listen: listen, peers: peers) {
            $0.isMailbox = true
        } _: {
            $0.datagrams = nil
        }
        try await node.start(passphrase: nil)
        let day = UInt32(Date().timeIntervalSince1970 / 86_400)
        let owner = BoxOwner(identity, mailbox: try await node.card(), day: day)
        let moments = Moments()
        disk.with(change)
        disk.observe { disk in
            let promise = moments.promise.withLock { $0 }
            moments.all.withLock { $0.append((disk, promise)) }
        }
        try await NIOThreadPool.singleton.runIfActive { try Self.use(Users(owner, moments)) }
        disk.observe(nil)
        let last = (disk.snapshot(), moments.promise.withLock { $0 })
        await node.stop()
        return (peers, moments.all.withLock { $0 } + [last])
    }

    /// Starts the mailbox on a remaining state of the disk.
    /// - Returns: the broken promises.
    private func check(
        _ disk: SimulatedDisk, _ promise: BoxPromise, _ peers: PeersFile, _ group: MultiThreadedEventLoopGroup
    ) async throws -> [String] {
        let node = try await Node.quiet(home: Self.home, on: disk, group.next(), peers: peers) {
            $0.isMailbox = true
        } _: { _ in
        }
        try await node.unlock(passphrase: nil)
        var broken: [String] = []
        let boxes = await node.keptBoxes()
        for box in promise.boxes where !boxes.contains(box) { broken.append("a box that was granted is lost") }
        for box in promise.droppedBoxes where boxes.contains(box) { broken.append("a box that was dropped is there") }
        for (slot, body) in promise.kept {
            let found = await node.keptBody(of: slot.id, in: slot.box)
            if found != body { broken.append("a slot that was stored is lost, or has other bytes") }
        }
        for box in boxes {
            let found = await node.given(box).slots
            if !promise.missing(of: box, in: found).isEmpty { broken.append("a slot that was stored is lost") }
            for slot in found.map({ BoxPromise.Slot(box: box, id: $0) }) {
                if promise.kept[slot] != nil || promise.open.contains(slot) { continue }
                let isGone = promise.gone.contains(slot)
                broken.append(isGone ? "a slot that was discarded is there" : "a slot is there that nobody has put")
            }
        }
        await node.stop()
        return broken
    }

    private func run(
        _ group: MultiThreadedEventLoopGroup, limit: Int, every step: Int,
        _ change: (inout SimulatedDisk.State) -> Void = { _ in }
    ) async throws -> (moments: Int, states: Int, broken: Set<String>) {
        let (peers, moments) = try await moments(group, change)
        var (states, broken) = (0, Set<String>())
        for index in stride(from: 0, to: moments.count, by: step) {
            let (disk, promise) = moments[index]
            let outcomes = Outcomes(of: disk)
            for choice in outcomes.choices(limit: limit, seed: UInt64(index)) {
                states += 1
                let found = try await check(outcomes.disk(choice), promise, peers, group)
                for one in found { broken.insert("\(one) (moment \(index) of \(moments.count))") }
            }
        }
        return (moments.count, states, broken)
    }

    @Test(
        "a power cut leaves all slots that the mailbox has confirmed, and none that it has discarded",
        .timeLimit(.minutes(60))) func everyCall() async throws
    {
        let group = MultiThreadedEventLoopGroup(numberOfThreads: 1)
        let isCampaign = Self.isCampaign
        let run = try await run(group, limit: isCampaign ? 64 : 3, every: isCampaign ? 1 : 3)
        #expect(run.broken.isEmpty)
        #expect(run.moments > 50)
        if isCampaign { print("power cuts at a mailbox: \(run.moments) moments, \(run.states) states") }
        try await group.shutdownGracefully()
    }

    @Test func `a commit that is acknowledged before its barrier is found`() async throws {
        let group = MultiThreadedEventLoopGroup(numberOfThreads: 1)
        let run = try await run(group, limit: 2, every: 3) { $0.skipsBarriersOf = "journal" }
        #expect(run.broken.contains { $0.hasPrefix("a slot that was stored is lost") })
        try await group.shutdownGracefully()
    }

    /// The disk refuses one call while the mailbox starts and reads its boxes.
    @Test("a box is marked incomplete when the disk refuses one call, and is complete a little later")
    func refusedOnce() async throws {
        let group = MultiThreadedEventLoopGroup(numberOfThreads: 1)
        let (peers, moments) = try await moments(group)
        let (disk, promise) = try #require(moments.last)
        var (late, damaged, calls) = (0, 0, 0)
        for call in 0... {
            let copy = disk.snapshot()
            let clock = Mutex(Milliseconds(Date().timeIntervalSince1970 * 1_000))
            let node = try await Node.quiet(home: Self.home, on: copy, group.next(), peers: peers) {
                $0.isMailbox = true
            } _: {
                $0.realtime = { clock.withLock { $0 } }
                $0.boottime = { clock.withLock { $0 } }
            }
            let first = copy.operations
            copy.with { $0.fault = SimulatedDisk.Fault(at: first + call, code: EIO, isLasting: false) }
            let isUnlocked = (try? await node.unlock(passphrase: nil)) != nil
            for box in promise.boxes where isUnlocked {
                let (found, isWhole) = await node.given(box)
                late += isWhole ? 0 : 1
                // Without the contact inbox the node does not know its boxes.
                guard await node.keptBoxes().contains(box), isWhole else { continue }
                #expect(promise.missing(of: box, in: found).isEmpty, "call \(call)")
            }
            calls = copy.operations - first
            copy.with { $0.fault = nil }
            for _ in 0..<3 where isUnlocked {
                clock.withLock { $0 += 3 * .second }
                await node.reapNow()
            }
            // A page of the columns is read again at the next start. Until then its slots are missing and reported as
            // damage.
            let isDamaged = await node.status().damage.contains { $0.contains("columns.slots") }
            damaged += isDamaged ? 1 : 0
            for box in promise.boxes where isUnlocked {
                let (found, isWhole) = await node.given(box)
                #expect(isWhole || isDamaged, "call \(call)")
                #expect(!isWhole || promise.missing(of: box, in: found).isEmpty, "call \(call)")
            }
            await node.stop()
            if call > calls { break }
        }
        #expect(late > damaged && damaged < 4 && calls > 10)
        try await group.shutdownGracefully()
    }
}
