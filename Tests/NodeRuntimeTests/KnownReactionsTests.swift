import Crypto
import Messaging
import Testing

@testable import NodeRuntime

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
