import Messaging
import Primitives
import Testing

@testable import NodeRuntime

@Suite("Known messages") struct KnownMessagesTests {
    private var random = Randomness.seeded(1)

    private mutating func names(_ count: Int) -> [MessageID] { (0..<count).map { _ in MessageID.random(&random) } }
    private mutating func client() -> ClientID { ClientID.generate(&random) }

    @Test mutating func `what was forgotten is known; what is on the disk only where the disk cannot be asked`() {
        var known = KnownMessages()
        let (one, other) = (client(), client())
        let ids = names(2)
        known.insert(ids[0], one, isStored: false)
        known.insert(ids[1], one, isStored: true)
        #expect(known.contains(ids[0], one, orStored: false) && known.contains(ids[0], one, orStored: true))
        #expect(!known.contains(ids[1], one, orStored: false) && known.contains(ids[1], one, orStored: true))
        for id in ids { #expect(!known.contains(id, other, orStored: true)) }
    }

    @Test mutating func `the oldest goes first, of all inboxes together`() {
        var known = KnownMessages(limit: 4)
        let clients = [client(), client()]
        let ids = names(10)
        for (index, id) in ids.enumerated() { known.insert(id, clients[index % 2], isStored: false) }
        #expect(known.count == 4)
        for (index, id) in ids.enumerated() {
            #expect(known.contains(id, clients[index % 2], orStored: false) == (index >= 6))
        }
    }

    @Test mutating func `one that comes again keeps its place`() {
        var known = KnownMessages(limit: 2)
        let one = client()
        let ids = names(3)
        for id in [ids[0], ids[1], ids[0], ids[2]] { known.insert(id, one, isStored: false) }
        #expect(ids.map { known.contains($0, one, orStored: false) } == [false, true, true])
    }

    @Test mutating func `of an inbox that is gone nothing is left, and its numbers may come again`() {
        var known = KnownMessages(limit: 4)
        let (gone, other) = (client(), client())
        let ids = names(6)
        for id in ids[..<3] { known.insert(id, gone, isStored: id == ids[1]) }
        known.insert(ids[3], other, isStored: false)
        known.removeAll(gone)
        #expect(known.count == 1 && known.contains(ids[3], other, orStored: false))
        for id in ids[..<3] { #expect(!known.contains(id, gone, orStored: true)) }
        // What was removed has left its room, and what comes after it goes in order.
        for id in [ids[0], ids[4], ids[5]] { known.insert(id, gone, isStored: false) }
        #expect(known.count == 4)
        known.insert(ids[1], gone, isStored: false)
        #expect(!known.contains(ids[3], other, orStored: false))
        #expect([0, 1, 4, 5].allSatisfy { known.contains(ids[$0], gone, orStored: false) })
    }

    @Test mutating func `after the disk has refused something it is asked again`() {
        var known = KnownMessages()
        let one = client()
        let ids = names(2)
        known.insert(ids[0], one, isStored: true)
        known.insert(ids[1], one, isStored: false)
        known.removeStored(one)
        #expect(!known.contains(ids[0], one, orStored: true) && known.contains(ids[1], one, orStored: false))
    }
}
