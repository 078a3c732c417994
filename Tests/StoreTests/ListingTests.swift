import Cryptography
import SimulatedDisk
import Testing

@testable import Store

/// Visiting an inbox without loading it.
@Suite struct ListingTests {
    private let disk: SimulatedDisk
    private let store: Store
    private let row: RowID

    init() throws {
        disk = try makeHome()
        store = try openHome(disk)
        row = try store.createRow()
    }

    private func fill(_ numbers: ClosedRange<Int>, at expiry: Int64 = start + hour) throws {
        for number in numbers { try store.put(row, number, at: expiry, "text \(number)") }
        try store.commitNow()
    }

    private func visited(_ count: Int = .max, from place: UInt64 = 0, now: Int64 = start) throws -> (
        ids: [Bytes16], places: [UInt64]
    ) {
        var found: (ids: [Bytes16], places: [UInt64]) = ([], [])
        guard count > 0 else { return found }
        try store.visit(row, from: place, now: now) { place, message in
            found.ids.append(message.id)
            found.places.append(place)
            return found.ids.count < count
        }
        return found
    }

    private func places(_ count: Int, from place: UInt64 = 0, now: Int64 = start) throws -> [UInt64] {
        var found: [UInt64] = []
        try store.visitBack(row, from: place, now: now, opens: false) { place, _ in
            found.append(place)
            return found.count < count
        }
        return found
    }

    @Test func `a visit opens one message at a time, and none after the last wanted one`() throws {
        try fill(1...1_000)
        try store.checkpointNow()
        #expect(try visited(1).ids.count == 1)
        let before = disk.operations
        #expect(try visited(3).ids == (1...3).map { messageID($0) })
        #expect(disk.operations - before == 3)
        let middle = try #require(try store.place(row, of: messageID(500)))
        #expect(try visited(2, from: middle + 1).ids == [501, 502].map { messageID($0) })
        #expect(disk.operations - before == 5)
        // The sealed payload contains neither places nor identifiers.
        let newest = try places(4)
        #expect(newest == (997...1_000).reversed().compactMap { try? store.place(row, of: messageID($0)) })
        let digits = Hex.encode(messageID(7).bytes).utf8.map { UInt8(Character(UnicodeScalar($0)).hexDigitValue ?? 99) }
        #expect(try store.messageIDs(row, beginningWith: digits, limit: 9, now: start) == [messageID(7)])
        #expect(disk.operations - before == 5)
    }

    @Test func `a message keeps its place through updates and new expiries, and later messages follow it`() throws {
        try fill(1...3)
        let places = try visited().places
        #expect(places == places.sorted() && Set(places).count == 3)
        try store.update(row, id: messageID(1), payload: text("changed"))
        try store.reschedule(row, id: messageID(2), tier: .sixHours, expiresAt: start + 5 * hour)
        try store.commitNow()
        #expect(try visited().places == places)
        #expect(try visited().ids == (1...3).map { messageID($0) })
        let next = try store.nextPlace(row)
        #expect(next > places[2])
        try store.append(
            row, id: messageID(4), tier: .oneHour, expiresAt: start + hour, payload: text("far"), notBefore: next + 100)
        try store.put(row, 5, at: start + hour, "farther")
        try store.commitNow()
        #expect(try visited().ids.suffix(2) == [messageID(4), messageID(5)])
        #expect(try store.place(row, of: messageID(4)) == next + 100)
        let again = try openHome(disk.durableCopy())
        #expect(try again.place(row, of: messageID(4)) == next + 100)
        #expect(try again.nextPlace(row) == next + 102)
    }

    @Test func `the remaining messages keep their order and places after most are erased`() throws {
        try fill(1...400)
        let before = try visited()
        let left = [0, 199] + Array(390..<400)
        for number in 1...400 where !left.contains(number - 1) { try store.erase(row, id: messageID(number)) }
        try store.commitNow()
        #expect(try visited().ids == left.map { before.ids[$0] })
        #expect(try visited().places == left.map { before.places[$0] })
        #expect(try places(20) == left.reversed().map { before.places[$0] })
        try fill(401...401)
        #expect(try visited().ids.suffix(2) == [400, 401].map { messageID($0) })
    }

    @Test func `due and hidden messages are neither visited nor found`() throws {
        try fill(1...2, at: start + 1_000)
        try fill(3...4)
        try store.append(
            row, id: messageID(5), tier: .oneHour, expiresAt: start + hour, payload: text("hidden"), isHidden: true)
        #expect(try visited(now: start + 1_000).ids == [messageID(3), messageID(4)])
        #expect(try places(9, now: start + 1_000).count == 2)
        #expect(try store.place(row, of: messageID(5)) == nil && store.place(row, of: messageID(6)) == nil)
        // The identifiers begin with their numbers and all end in the same bytes.
        #expect(
            try store.messageIDs(row, beginningWith: [], limit: 9, now: start + 1_000) == [3, 4].map { messageID($0) })
        #expect(try store.messageIDs(row, beginningWith: [0], limit: 3, now: start) == (1...3).map { messageID($0) })
        #expect(try store.messageIDs(row, beginningWith: [0, 4, 0], limit: 9, now: start) == [messageID(4)])
        #expect(try store.messageIDs(row, beginningWith: [0, 1], limit: 9, now: start + 1_000).isEmpty)
        #expect(try store.messageIDs(row, beginningWith: [0, 5], limit: 9, now: start).isEmpty)
        for digits in [[16], [UInt8](repeating: 0, count: 33)] as [[UInt8]] {
            #expect(try store.messageIDs(row, beginningWith: digits, limit: 9, now: start).isEmpty)
        }
        try store.scheduleDestruction(of: row, at: start + 500)
        #expect(try visited(now: start + 500).ids.isEmpty && places(9, now: start + 500).isEmpty)
        #expect(try store.messageIDs(row, beginningWith: [], limit: 9, now: start + 500).isEmpty)
    }

    @Test func `a visit shows neither messages erased nor messages added while it runs`() throws {
        try fill(1...4)
        var seen: [Bytes16] = []
        try store.visit(row, now: start) { _, message throws(StoreError) in
            seen.append(message.id)
            if message.id == messageID(2) {
                try store.erase(row, id: messageID(3))
                try store.append(row, id: messageID(9), tier: .oneHour, expiresAt: start + hour, payload: text("late"))
            }
            return true
        }
        #expect(seen == [1, 2, 4].map { messageID($0) })
        #expect(throws: StoreError.unknownMessage) {
            try store.visit(row, now: start) { _, _ throws(StoreError) in throw .unknownMessage }
        }
    }

    @Test func `a visit of hidden records gives their sizes and opens none`() throws {
        #expect(try !store.hasHidden(row))
        try fill(1...2)
        #expect(try !store.hasHidden(row))
        for number in 3...5 {
            try store.append(
                row, id: messageID(number), tier: .oneHour, expiresAt: start + hour,
                payload: [UInt8](repeating: 1, count: number * 1_000), isHidden: true)
        }
        try store.commitNow()
        #expect(try store.hasHidden(row))
        let before = disk.operations
        var sizes: [Bytes16: Int] = [:]
        try store.visitHidden(row) { id, byteCount in
            sizes[id] = byteCount
            return true
        }
        #expect(sizes == [messageID(3): 3_000, messageID(4): 4_000, messageID(5): 5_000])
        var count = 0
        try store.visitHidden(row) { _, _ in
            count += 1
            return false
        }
        #expect(count == 1 && disk.operations == before)
    }

    @Test func `the store tells the next expiry, the next destruction and the next task apart`() throws {
        #expect(store.nextExpiry == nil && store.nextTask == nil)
        try fill(1...1, at: start + 3_000)
        #expect(store.nextTask == start + GroupCommit.checkpointDelay)
        #expect(store.nextDestruction == start + 3_000, "the journal keeps nothing by itself")
        try store.checkpointNow()
        #expect(store.nextExpiry == start + 3_000 && store.nextTask == start + 10_000)
        #expect(store.nextDeadline == start + 3_000)
        store.reap(hide: start + 3_000, destroy: start + 3_000)
        #expect(store.nextExpiry == nil && store.nextTask == start + 10_000 && store.nextDeadline == start + 10_000)
        #expect(store.nextDestruction == nil, "the bucket is empty")
        store.lock()
        #expect(store.nextDestruction == start + 10_000, "of a bucket a locked store knows the end")
    }
}
