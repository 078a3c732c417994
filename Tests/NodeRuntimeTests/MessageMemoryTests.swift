import Messaging
import Testing

@testable import NodeRuntime

@Suite("Known messages") struct KnownMessagesTests {
    private var random = Randomness.seeded(1)

    private mutating func names(_ count: Int) -> [MessageID] { (0..<count).map { _ in MessageID.random(&random) } }

    @Test mutating func `a forgotten message is always known, a stored one only when the disk is not asked`() {
        var known = KnownMessages(budget: MessageMemory())
        let ids = names(2)
        known.insert(ids[0], isStored: false)
        known.insert(ids[1], isStored: true)
        #expect(known.contains(ids[0], orStored: false) && known.contains(ids[0], orStored: true))
        #expect(!known.contains(ids[1], orStored: false) && known.contains(ids[1], orStored: true))
    }

    @Test mutating func `above the limit for all inboxes an inbox drops its own oldest message`() {
        let memory = MessageMemory(knownLimit: 6, knownOwnCount: 2)
        var known = [KnownMessages(budget: memory), KnownMessages(budget: memory)]
        let ids = names(10)
        for id in ids[..<3] { known[0].insert(id, isStored: false) }
        for id in ids[3...] { known[1].insert(id, isStored: false) }
        // A flood of one inbox evicts nothing of another.
        #expect(known.map(\.count) == [3, 3] && memory.knownCount == 6)
        for (index, id) in ids.enumerated() {
            #expect(known[0].contains(id, orStored: false) == (index < 3))
            #expect(known[1].contains(id, orStored: false) == (index >= 7))
        }
    }

    @Test mutating func `an inbox always has room for some messages, however many others hold`() {
        let memory = MessageMemory(knownLimit: 3, knownOwnCount: 2)
        var (full, other) = (KnownMessages(budget: memory), KnownMessages(budget: memory))
        let ids = names(8)
        for id in ids[..<5] { full.insert(id, isStored: false) }
        for id in ids[5...] { other.insert(id, isStored: false) }
        #expect(full.count == 3 && other.count == 2)
        #expect(ids[6...].allSatisfy { other.contains($0, orStored: false) })
    }

    @Test mutating func `a repeated message keeps its place in the order`() {
        var known = KnownMessages(budget: MessageMemory(knownLimit: 2, knownOwnCount: 2))
        let ids = names(3)
        for id in [ids[0], ids[1], ids[0], ids[2]] { known.insert(id, isStored: false) }
        #expect(ids.map { known.contains($0, orStored: false) } == [false, true, true])
    }

    @Test mutating func `a removed inbox leaves no known messages, and its ids may come again`() {
        let memory = MessageMemory(knownLimit: 4, knownOwnCount: 2)
        var (gone, other) = (KnownMessages(budget: memory), KnownMessages(budget: memory))
        let ids = names(4)
        for id in ids[..<3] { gone.insert(id, isStored: id == ids[1]) }
        other.insert(ids[3], isStored: false)
        gone.removeAll()
        #expect(memory.knownCount == 1 && gone.count == 0 && other.contains(ids[3], orStored: false))
        for id in ids[..<3] { #expect(!gone.contains(id, orStored: true)) }
        for id in ids[..<3] { gone.insert(id, isStored: false) }
        #expect(memory.knownCount == 4 && ids[..<3].allSatisfy { gone.contains($0, orStored: false) })
    }

    @Test mutating func `a refusal of the disk drops known stored messages, so the disk is asked again`() {
        let memory = MessageMemory()
        var known = KnownMessages(budget: memory)
        let ids = names(2)
        known.insert(ids[0], isStored: true)
        known.insert(ids[1], isStored: false)
        known.removeStored()
        #expect(!known.contains(ids[0], orStored: true) && known.contains(ids[1], orStored: false))
        #expect(memory.knownCount == 1)
    }
}

@Suite("Known reactions") struct KnownReactionsTests {
    private var random = Randomness.seeded(1)
    private let now = Timestamp(milliseconds: 1_800_000_000_000)

    private mutating func names(_ count: Int) -> [MessageID] { (0..<count).map { _ in MessageID.random(&random) } }

    @Test mutating func `reactions are known by their message, in order of arrival, each once`() {
        var known = KnownReactions()
        let (targets, ids) = (names(2), names(4))
        for index in [0, 1, 2, 0, 3] { known.insert(ids[index], at: targets[index % 2], expiresAt: nil) }
        #expect(known[targets[0]] == [ids[0], ids[2]] && known[targets[1]] == [ids[1], ids[3]])
        known.remove(ids[0])
        known.remove(ids[0])
        #expect(known[targets[0]] == [ids[2]] && known.count == 3)
        known.removeAll(at: targets[1])
        #expect(known[targets[1]].isEmpty && known.count == 1)
        known.remove(ids[2])
        #expect(known.count == 0 && known[targets[0]].isEmpty)
    }

    @Test mutating func `reactions to unknown messages evict the oldest reactions and take no more room`() {
        var known = KnownReactions(limit: 8)
        let (mine, ids) = (names(1)[0], names(100))
        known.insert(ids[0], at: mine, expiresAt: nil)
        for id in ids[1..<8] { known.insert(id, at: names(1)[0], expiresAt: nil) }
        #expect(known[mine] == [ids[0]])
        for id in ids[8...] { known.insert(id, at: names(1)[0], expiresAt: nil) }
        #expect(known.count == 8 && known[mine].isEmpty)
        // Removed reactions free their room.
        for id in ids[92..<96] { known.remove(id) }
        known.insert(ids[0], at: mine, expiresAt: nil)
        #expect(known.count == 5)
        for id in names(3) { known.insert(id, at: mine, expiresAt: nil) }
        #expect(known.count == 8 && known[mine].count == 4)
    }

    @Test mutating func `only the newest reactions to one message are known`() {
        var known = KnownReactions()
        let (target, ids) = (names(1)[0], names(KnownReactions.limitAtOne + 10))
        for id in ids { known.insert(id, at: target, expiresAt: nil) }
        #expect(known[target] == Array(ids[10...]) && known.count == KnownReactions.limitAtOne)
    }

    @Test mutating func `each reaction is dropped at its own expiry`() {
        var known = KnownReactions()
        let (target, ids) = (names(1)[0], names(3))
        known.insert(ids[0], at: target, expiresAt: now + 2_000)
        known.insert(ids[1], at: target, expiresAt: nil)
        known.insert(ids[2], at: target, expiresAt: now + 1_000)
        #expect(known.wakeAt == now + 1_000)
        known.expire(now: now + 999)
        #expect(known.count == 3)
        known.expire(now: now + 1_000)
        #expect(known[target] == [ids[0], ids[1]] && known.wakeAt == now + 2_000)
        known.expire(now: now + .day)
        #expect(known[target] == [ids[1]] && known.wakeAt == nil)
    }
}
