import Cryptography
import Glibc
import SimulatedDisk
import Testing

@testable import Store

@Suite struct ReschedulingTests {
    private func home() throws -> (disk: SimulatedDisk, store: Store, row: RowID) {
        let (disk, store, row) = try makeRow()
        for number in 1...3 { try store.put(row, number, .thirtyDays, at: start + 700 * hour, "text \(number)") }
        try store.checkpointNow()
        return (disk, store, row)
    }

    /// Number of bytes that are zero now and were not before.
    private func erasedCount(_ before: [String: [UInt8]], _ after: [String: [UInt8]]) -> Int {
        before.reduce(0) { sum, entry in
            guard let now = after[entry.key], now.count >= entry.value.count else { return sum }
            return sum + zip(entry.value, now).count { $0 != 0 && $1 == 0 }
        }
    }

    private func segments(_ disk: SimulatedDisk) -> [String: [UInt8]] {
        disk.files().filter { $0.key.hasSuffix(".seg") }
    }

    @Test func `a message moved with a new payload is written once`() throws {
        let (disk, store, row) = try home()
        func byteCount() -> Int { segments(disk).reduce(0) { $0 + $1.value.count } }
        let before = byteCount()
        try store.reschedule(row, id: messageID(1), tier: .oneHour, expiresAt: start + hour, payload: text("text 9"))
        try store.checkpointNow()
        let once = byteCount() - before
        #expect(try store.get(row, 1, now: start) == "text 9")
        try store.reschedule(row, id: messageID(2), tier: .oneHour, expiresAt: start + hour)
        try store.checkpointNow()
        #expect(byteCount() - before == 2 * once, "as many bytes as without one")
        try store.reschedule(row, id: messageID(2), tier: .oneHour, expiresAt: start + hour, payload: text("text 8"))
        try store.commitNow()
        #expect(try store.get(row, 2, now: start) == "text 8")
        let again = try store.reopened()
        #expect(try again.get(row, 1, now: start) == "text 9" && again.get(row, 2, now: start) == "text 8")
        again.close()
    }

    @Test(arguments: [
        (Tier.oneHour, start + 9_000), (.sevenDays, start + 100 * hour), (.thirtyDays, start + 710 * hour),
    ]) func `a move to another expiry keeps the place, and its commit overwrites the old ciphertext`(
        tier: Tier, expiry: Int64
    ) throws {
        var (disk, store, row) = try home()
        try store.update(row, id: messageID(2), payload: text("text 2, changed"))
        try store.checkpointNow()
        let before = segments(disk)
        try store.reschedule(row, id: messageID(2), tier: tier, expiresAt: expiry)
        #expect(try store.get(row, 2, now: start) == "text 2, changed")
        #expect(erasedCount(before, segments(disk)) == 0)
        try store.commitNow()
        #expect(erasedCount(before, segments(disk)) > 150)
        for _ in 0..<2 {
            let listed = try store.list(row, now: start)
            #expect(listed.map(\.id) == [1, 2, 3].map { messageID($0) })
            #expect(listed[1].expiresAt == expiry && listed[1].payload == text("text 2, changed"))
            #expect(try store.list(row, now: start).count == 3)
            #expect(try store.get(row, 2, now: expiry) == nil)
            store = try store.reopened()
        }
        let report = store.reap(hide: expiry, destroy: expiry)
        #expect(report.expired.map(\.id).contains(messageID(2)))
        #expect(try store.contains(row, id: messageID(2)) == false)
        #expect(store.damage.isEmpty)
    }

    @Test func `a message moves to another expiry within one bucket and file, too`() throws {
        let (disk, store, row) = try home()
        let before = segments(disk)
        try store.reschedule(row, id: messageID(1), tier: .thirtyDays, expiresAt: start + 700 * hour - 5)
        try store.reschedule(row, id: messageID(1), tier: .thirtyDays, expiresAt: start + 700 * hour - 7)
        try store.commitNow()
        #expect(segments(disk).count == 1 && erasedCount(before, segments(disk)) > 60)
        let again = try store.reopened()
        #expect(try again.list(row, now: start).map(\.expiresAt) == [-7, 0, 0].map { start + 700 * hour + $0 })
    }

    @Test func `a hidden record stays hidden when it moves, and unknown or due ones do not move`() throws {
        let (_, store, row) = try home()
        try store.append(
            row, id: messageID(9), tier: .thirtyDays, expiresAt: start + 700 * hour, payload: text("part"),
            isHidden: true)
        try store.reschedule(row, id: messageID(9), tier: .oneHour, expiresAt: start + hour)
        try store.commitNow()
        #expect(try store.get(row, 9, now: start) == "part")
        #expect(try store.list(row, now: start).count == 3)
        #expect(throws: StoreError.unknownMessage) {
            try store.reschedule(row, id: messageID(8), tier: .oneHour, expiresAt: start + hour)
        }
        try store.reschedule(row, id: messageID(9), tier: .oneHour, expiresAt: start + 5_000)
        try store.commitNow()
        store.reap(hide: start + 5_000, destroy: start)
        #expect(throws: StoreError.unknownMessage) {
            try store.reschedule(row, id: messageID(9), tier: .oneHour, expiresAt: start + hour)
        }
    }

    @Test(arguments: 1...12) func `a failed commit of a move leaves one version, the old or the new`(operation: Int)
        throws
    {
        let (disk, store, row) = try home()
        try store.reschedule(row, id: messageID(2), tier: .oneHour, expiresAt: start + hour)
        disk.with { $0.fault = .init(at: $0.operations + operation, code: EIO, isLasting: false) }
        _ = try? store.commitNow()
        disk.with { $0.fault = nil }
        #expect(try store.list(row, now: start).map(\.id) == [1, 2, 3].map { messageID($0) })
        #expect(try store.get(row, 2, now: start) == "text 2")
        store.reap(hide: start + 2_000, destroy: start + 2_000)
        #expect(try store.get(row, 2, now: start) == "text 2")
        let expiry = try store.list(row, now: start)[1].expiresAt
        let again = try store.reopened()
        let listed = try again.list(row, now: start)
        #expect(listed.map(\.id) == [1, 2, 3].map { messageID($0) } && listed[1].payload == text("text 2"))
        #expect(listed[1].expiresAt == expiry)
    }

    @Test func `an interrupted move is completed when the inbox is read`() throws {
        let (disk, store, row) = try home()
        let old = try #require(segments(disk).first)
        try store.reschedule(row, id: messageID(2), tier: .oneHour, expiresAt: start + hour)
        try store.commitNow()
        store.close()
        // A power cut between writing the new version and erasing the old one.
        disk.replace(old.key, with: old.value)
        let again = try openHome(disk)
        #expect(try again.list(row, now: start).map(\.expiresAt) == [700, 1, 700].map { start + $0 * hour })
        again.reap(hide: start, destroy: start)
        #expect(erasedCount([old.key: old.value], segments(disk)) > 60)
        again.close()
        let last = try openHome(disk, now: start + hour)
        #expect(try last.list(row, now: start).map(\.id) == [messageID(1), messageID(3)])
    }
}
