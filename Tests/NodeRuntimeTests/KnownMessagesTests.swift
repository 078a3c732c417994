import Crypto
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
