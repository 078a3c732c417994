import Cryptography
import SimulatedDisk
import Testing

@testable import Store

/// Explosions, sleeping inboxes and unlocks must cost the same for any amount of data.
@Suite struct ScaleTests {
    private func fill(_ store: Store, _ row: RowID, _ count: Int, at expiry: Int64 = start + hour) throws {
        for number in 1...count { try store.put(row, number, at: expiry, "text \(number)") }
        try store.saveState(row, text("state"))
        try store.checkpointNow()
    }

    private func segments(_ disk: SimulatedDisk) -> [String: [UInt8]] {
        disk.files().filter { $0.key.hasSuffix(".seg") }
    }

    @Test func `an explosion takes as many operations for a thousand messages as for one`() throws {
        var operations: Set<Int> = []
        for count in [1, 1_000] {
            let (disk, store, row) = try makeRow()
            try fill(store, row, count)
            let before = disk.operations
            try store.destroyRow(row)
            operations.insert(disk.operations - before)
            #expect(store.liveRows().isEmpty && segments(disk).count == 1)
            #expect(throws: StoreError.unknownRow) { try store.list(row, now: start) }
            #expect(store.nextDeadline == start + 1)
            store.reap(hide: start + 1, destroy: start + 1)
            #expect(segments(disk).isEmpty && store.grid.segments.isEmpty && !store.hasRemains)
            #expect(store.nextDeadline == start + hour && store.damage.isEmpty)
        }
        #expect(operations.count == 1)
    }

    @Test func `256 messages for 256 new buckets take few disk operations, also with gaps among the key pages`() throws
    {
        let (disk, store, row) = try makeRow()
        for number in 1...40 {
            let tier: Tier = number % 2 == 0 ? .oneHour : .thirtyDays
            try store.put(row, number, tier, at: start + Int64(number) * tier.bucketWidth, "text")
        }
        store.reap(hide: start + hour, destroy: start + hour)
        for day in 1...2 {
            let ends = (1...256).map { start + Int64(day) * 24 * hour + Int64($0) * Tier.oneHour.bucketWidth }
            let before = disk.operations
            try store.prepareColumns(.oneHour, ends)
            for (number, end) in ends.enumerated() { try store.put(row, 1_000 * day + number, at: end, "text") }
            #expect(disk.operations - before <= 10)
        }
        try store.commitNow()
        let again = try store.reopened()
        #expect(try again.damage.isEmpty && again.list(row, now: start + hour).count == 20 + 512)
    }

    @Test func `the explosion of an unread inbox does not read it`() throws {
        var (disk, store, row) = try makeRow()
        try fill(store, row, 10)
        store = try store.reopened()
        try store.destroyRow(row)
        #expect(store.grid.segments.isEmpty)
        store.collect()
        #expect(segments(disk).isEmpty && !store.hasRemains)
    }

    @Test func `remains are removed in slices, and a new inbox in the same slot stays untouched`() throws {
        let (disk, store, row) = try makeRow()
        for number in 1...30 { try store.put(row, number, at: start + Int64(number) * 10_000, "text") }
        try store.checkpointNow()
        try store.destroyRow(row)
        let again = try store.createRow()
        #expect(again.slot == row.slot)
        try store.put(again, 1, at: start + 10_000, "kept")
        try store.checkpointNow()
        var slices = 0
        while store.hasRemains {
            store.collect(limit: 4)
            slices += 1
        }
        #expect(slices > 5 && segments(disk).count == 1)
        #expect(try store.get(again, 1, now: start) == "kept")
    }

    @Test func `buffered messages of an exploded inbox are not written, and another inbox is unaffected`() throws {
        let (disk, store) = try makeStore()
        let (doomed, kept) = (try store.createRow(), try store.createRow())
        try fill(store, doomed, 2)
        try store.put(doomed, 3, at: start + hour, "buffered")
        try store.put(kept, 1, at: start + hour, "kept")
        let size = segments(disk).values.reduce(0) { $0 + $1.count }
        try store.destroyRow(doomed)
        try store.commitNow()
        #expect(try store.get(kept, 1, now: start) == "kept")
        let again = try store.reopened()
        #expect(again.liveRows() == [kept] && again.damage.isEmpty)
        #expect(try again.get(kept, 1, now: start) == "kept")
        #expect(size > 0 && segments(disk).count == 1)
    }

    @Test func `a released inbox keeps its deadlines: due messages are overwritten and reported, and it rests again`()
        throws
    {
        let (disk, store, row) = try makeRow()
        try store.put(row, 1, at: start + 3_000, "one")
        try store.put(row, 2, at: start + 5_000, "two")
        try store.put(row, 3, .thirtyDays, at: start + 700 * hour, "three")
        try store.saveState(row, text("state"))
        // Uncommitted data keeps the inbox awake until the commit.
        store.release(row)
        #expect(!store.grid.segments.isEmpty)
        try store.commitNow()
        store.reap(hide: start, destroy: start)
        #expect(store.grid.segments.isEmpty && store.openFiles.isEmpty)
        #expect(store.nextDeadline == start + 3_000)
        let before = segments(disk)
        let report = store.reap(hide: start + 3_000, destroy: start + 3_000)
        #expect(report.expired == [ReapReport.Expired(row: row, id: messageID(1))])
        #expect(report.recordsOverwritten == 1)
        let after = segments(disk)
        #expect(before.keys == after.keys && before != after)
        #expect(store.nextDeadline == start + 5_000)
        store.reap(hide: start + 3_001, destroy: start + 3_001)
        #expect(store.grid.segments.isEmpty && store.nextDeadline == start + 5_000)
        let end = store.reap(hide: start + 10_000, destroy: start + 10_000)
        #expect(end.columnsDestroyed == 1 && segments(disk).count == 1)
        #expect(try store.list(row, now: start + 10_000).map(\.id) == [messageID(3)])
        #expect(try store.loadState(row) == text("state"))
        #expect(!store.grid.segments.isEmpty)
        try store.put(row, 4, at: start + 30_000, "four")
        try store.checkpointNow()
        store.release(row)
        #expect(store.grid.segments.isEmpty && store.nextDeadline == start + 20_000 + 10_000)
        #expect(try store.list(row, now: start + 10_000).map(\.id) == [messageID(3), messageID(4)])
        store.release(row)
        try store.destroyRow(row)
        store.reap(hide: start + 10_001, destroy: start + 10_001)
        #expect(segments(disk).isEmpty && store.damage.isEmpty)
    }

    @Test func `a home of many inboxes is searched in slices, and every due message is overwritten`() throws {
        var (disk, store) = try makeStore()
        let count = 3 * Store.scanLimit
        for number in 0..<count {
            let row = try store.createRow()
            try store.put(row, 1, at: start + 5_000, "text \(number)")
            try store.put(row, 2, .thirtyDays, at: start + 600 * hour, "later")
        }
        try store.commitNow()
        store = try store.reopened()
        #expect(store.liveRows().count == count && store.grid.segments.isEmpty)
        var slices = 0
        var expired = 0
        while !store.unknownRows.isEmpty {
            #expect(store.nextDeadline == start + 5_000 + Int64(slices) + (slices == 0 ? -4_999 : 0))
            slices += 1
            expired +=
                store.reap(hide: start + 4_999 + Int64(slices), destroy: start + 4_999 + Int64(slices)).expired.count
            if slices > 10 { break }
        }
        #expect(slices == 3 && expired == count)
        store.reap(hide: start + 5_010, destroy: start + 5_010)
        // Unread inboxes keep only their deadlines in memory.
        #expect(store.grid.segments.isEmpty && store.damage.isEmpty)
        store.reap(hide: start + 10_000, destroy: start + 10_000)
        while store.hasRemains { store.collect() }
        #expect(segments(disk).count == count)
        #expect(try store.list(store.liveRows()[200], now: start).map(\.id) == [messageID(2)])
    }

    @Test func `counts and bytes include live messages only, due or not yet reaped`() throws {
        var (_, store, row) = try makeRow()
        func byteCount() throws -> Int64 { try store.storedAmount(row).byteCount }
        #expect(try byteCount() == 0)
        try store.put(row, 1, at: start + 5_000, "four")
        let one = try byteCount()
        try store.put(row, 2, at: start + hour, "four")
        try store.update(row, id: messageID(2), payload: text("eightful"))
        #expect(try byteCount() == 2 * one + 4)
        try store.commitNow()
        for _ in 0..<2 {
            #expect(try store.storedAmount(row) == (2 * one + 4, 2))
            #expect(try store.list(row, now: start).count == 2)
            #expect(try store.list(row, now: start + 5_000).count == 1)
            store = try store.reopened()
        }
        store.reap(hide: start + 5_000, destroy: start + 5_000)
        #expect(try byteCount() == one + 4)
        #expect(try store.list(row, now: start).count == 1)
        try store.erase(row, id: messageID(2))
        #expect(try byteCount() == 0)
        #expect(try store.list(row, now: start).count == 0)
    }

    @Test func `a directory without a key page is set aside and reported, and removed after a week`() throws {
        var (disk, store) = try makeStore()
        let rows = [try store.createRow(), try store.createRow()]
        for row in rows { try fill(store, row, 2, at: start + 700 * hour) }
        store.close()
        var damaged = try #require(disk.files()["/home/rows.slots"])
        damaged[1_000] ^= 1
        disk.replace("/home/rows.slots", with: damaged)
        for _ in 0..<2 {
            store = try openHome(disk)
            #expect(store.liveRows() == [rows[1]] && store.damage.count == 1)
            #expect(store.nextDeadline == start + InboxDirectories.lostInterval)
            #expect(segments(disk).count == 2)
            store.close()
        }
        store = try openHome(disk)
        store.reap(hide: start + 2, destroy: start + 2)
        store.reap(hide: start + InboxDirectories.lostInterval, destroy: start + InboxDirectories.lostInterval)
        #expect(segments(disk).count == 1)
        store.close()
        store = try openHome(disk, now: start + InboxDirectories.lostInterval)
        #expect(store.damage.isEmpty)
    }

    @Test func `an inbox that wakes and sleeps two hundred times does not lengthen the queue of deadlines`() throws {
        let (_, store, row) = try makeRow()
        for number in 1...50 { try store.put(row, number, at: start + Int64(number) * 10_000, "text") }
        try store.commitNow()
        for round in 1...200 {
            #expect(try store.list(row, now: start).count == 50)
            store.release(row)
            store.reap(hide: start + 1, destroy: start + 1)
            if round % 50 == 0 { #expect(store.deadlines.count <= 2 * 51 + DeadlineQueue.staleLimit) }
        }
        for number in 1...50 as ClosedRange<Int64> {
            let moment = start + number * 10_000
            #expect(store.nextExpiry == moment)
            #expect(store.reap(hide: moment, destroy: moment).columnsDestroyed == 1)
        }
        #expect(store.nextExpiry == nil && store.deadlines.count == 0)
        store.close()
    }
}
