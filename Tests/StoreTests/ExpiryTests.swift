import Cryptography
import SimulatedDisk
import Testing

@testable import Store

@Suite struct ExpiryTests {
    @Test func `a message is readable until exactly its expiry, before any reap and after reopening`() throws {
        var (disk, store, row) = try makeRow()
        let expiry = start + 3_456
        try store.put(row, 1, at: expiry, "one")
        try store.put(row, 2, at: start + 9_000, "two")
        try store.commitNow()
        for _ in 0..<2 {
            #expect(try store.get(row, 1, now: expiry - 1) == "one")
            #expect(try store.get(row, 1, now: expiry) == nil)
            #expect(try store.list(row, now: expiry).map(\.id) == [messageID(2)])
            store = try store.reopened()
        }
        store.close()
        // The bucket has not ended, so only the exact expiry inside the record can hide the message.
        store = try openHome(disk, now: expiry)
        #expect(try store.get(row, 1, now: start) == nil)
        #expect(try store.get(row, 2, now: start) == "two")
    }

    @Test func `the next deadline is the next expiry, then the bucket's end, then the fuse`() throws {
        let (disk, store) = try makeStore()
        #expect(store.nextDeadline == nil)
        let row = try store.createRow()
        try store.put(row, 1, at: start + 3_000, "one")
        try store.put(row, 2, at: start + 5_000, "two")
        try store.scheduleDestruction(of: row, at: start + 60_000)
        try store.commitNow()
        #expect(store.nextDeadline == start + 3_000)
        #expect(store.reap(hide: start + 2_999, destroy: start + 2_999).expired.isEmpty)
        let first = store.reap(hide: start + 3_000, destroy: start + 3_000)
        #expect(first.expired == [ReapReport.Expired(row: row, id: messageID(1))])
        #expect(first.recordsOverwritten == 1 && first.columnsDestroyed == 0)
        #expect(store.nextDeadline == start + 5_000)
        #expect(store.reap(hide: start + 5_000, destroy: start + 5_000).expired.count == 1)
        #expect(store.nextDeadline == start + 10_000)
        let end = store.reap(hide: start + 10_000, destroy: start + 10_000)
        #expect(end.columnsDestroyed == 1 && end.expired.isEmpty)
        #expect(!disk.files().keys.contains { $0.hasSuffix(".seg") || $0.hasSuffix(".expiry") })
        #expect(store.nextDeadline == start + 60_000)
        let last = store.reap(hide: start + 60_000, destroy: start + 60_000)
        #expect(last.rows == [row] && store.liveRows().isEmpty)
        #expect(store.nextDeadline == nil)
        let again = store.reap(hide: start + 60_000, destroy: start + 60_000)
        #expect(again.rowsDestroyed == 0 && again.failures.isEmpty)
    }

    @Test func `a checkpoint under way at a bucket's end makes no file of that bucket`() throws {
        let disk = try makeHome()
        nonisolated(unsafe) var work: [@Sendable () -> Void] = []
        let store = try openHome(disk, committingOn: .later { work.append($0) })
        let row = try store.createRow()
        try store.put(row, 1, at: start + 3_000, "one")
        store.commitUntold(withCheckpoint: true)
        #expect(work.count == 1)
        let isFile: @Sendable (String) -> Bool = { $0.hasSuffix(".seg") || $0.hasSuffix(".expiry") }
        #expect(store.reap(hide: start + 10_000, destroy: start + 10_000).columnsDestroyed == 1)
        work[0]()
        #expect(disk.files().keys.count(where: isFile) == 0)
        store.close()
    }

    @Test func `a start makes no file of an ended bucket from an earlier run's journal`() throws {
        let disk = try makeHome()
        let first = try openHome(disk)
        let row = try first.createRow()
        try first.put(row, 1, at: start + 3_000, "one")
        try first.commitNow()
        let copy = disk.durableCopy()
        first.close()
        let isFile: @Sendable (String) -> Bool = { $0.hasSuffix(".seg") || $0.hasSuffix(".expiry") }
        for end in [3_001, 10_000] as [Int64] {
            let disk = copy.copy()
            disk.with { $0.isFull = true }
            let store = try openHome(disk)
            #expect(store.commits.backlog.count == 1, "the segment")
            let report = store.reap(hide: start + end, destroy: start + end)
            #expect(report.columnsDestroyed == (end == 10_000 ? 1 : 0))
            disk.with { $0.isFull = false }
            store.commitUntold(withCheckpoint: true)
            store.commits.absorb()
            #expect(store.commits.backlog.isEmpty)
            #expect(disk.files().keys.count(where: isFile) == (end == 10_000 ? 0 : 2))
            store.close()
        }
    }

    @Test func `a hidden message returns when the clock is corrected, and is destroyed at the confirmed time`() throws {
        let (_, store, row) = try makeRow()
        try store.put(row, 1, at: start + 3_000, "one")
        try store.commitNow()
        #expect(store.reap(hide: start + hour, destroy: start).expired.count == 1)
        #expect(try store.get(row, 1, now: start) == nil)
        store.reap(hide: start + 1, destroy: start + 1)
        #expect(try store.get(row, 1, now: start + 1) == "one")
        let report = store.reap(hide: start + hour, destroy: start + hour)
        #expect(report.columnsDestroyed == 1)
        store.reap(hide: start + 1, destroy: start + 1)
        #expect(try store.get(row, 1, now: start + 1) == nil)
    }

    @Test func `the earliest fuse of a row burns without a passphrase, and spares a reused slot`() throws {
        let disk = try makeHome(passphrase: "p")
        var store = try openHome(disk, unlocking: false)
        try store.unlock(passphrase: secretBytes("p"))
        let (one, two) = (try store.createRow(), try store.createRow())
        try store.scheduleDestruction(of: one, at: start + 5_000)
        try store.scheduleDestruction(of: one, at: start + 2_001)
        try store.scheduleDestruction(of: two, at: start + 2_001)
        try store.put(one, 1, at: start + hour, "one")
        try store.commitNow()
        #expect(store.scheduledDestruction(of: one) == start + 2_001)
        #expect(try store.get(one, 1, now: start + 2_001) == nil)
        try store.destroyRow(two)
        let three = try store.createRow()
        #expect(three.slot == two.slot)
        store.close()
        let report = try Store.reapHome(home: "/home", fileSystem: disk, now: start + 2_001)
        #expect(report.rowsDestroyed == 1)
        store = try openHome(disk, now: start + 2_001, unlocking: false)
        try store.unlock(passphrase: secretBytes("p"))
        #expect(store.liveRows() == [three])
        #expect(!disk.files().keys.contains { $0.hasSuffix(".seg") })
    }

    @Test func `a read-only home is readable, but refuses to unlock with an overdue message`() throws {
        var (disk, store, row) = try makeRow()
        try store.put(row, 1, at: start + 3_000, "one")
        try store.saveState(row, text("state"))
        try store.commitNow()
        store.close()
        disk.with { $0.isReadOnly = true }
        store = try openHome(disk)
        #expect(store.isReadOnly)
        #expect(try store.get(row, 1, now: start) == "one")
        #expect(try store.loadState(row) == text("state"))
        for body in [
            { _ = try store.createRow() }, { try store.destroyRow(row) }, { try store.put(row, 2, at: start + 1, "") },
            { try store.erase(row, id: messageID(1)) }, { try store.saveState(row, []) },
            { _ = try store.addTombstone(keepUntil: start, payload: []) }, { try store.saveClockMark(start) },
        ] as [() throws -> Void] { #expect { try body() } throws: { ($0 as? StoreError)?.kind == .readOnly } }
        #expect(try store.get(row, 1, now: start) == "one")
        store.close()
        store = try openHome(disk, now: start + 10_000, unlocking: false)
        #expect(throws: StoreError.overdueOnReadOnly(path: "/home")) { try store.unlock(passphrase: nil) }
        #expect(store.openingReport.failures == [.overdueOnReadOnly(path: "/home")])
    }

    @Test func `expiry, destruction and erasure work on a full disk, and appends fail with an error`() throws {
        let (disk, store) = try makeStore()
        let (one, two) = (try store.createRow(), try store.createRow())
        for number in 1...3 { try store.put(one, number, at: start + Int64(number) * 1_000, "text \(number)") }
        try store.put(two, 1, at: start + hour, "other")
        try store.saveState(one, text("state"))
        try store.commitNow()
        disk.with { $0.isFull = true }
        try store.erase(one, id: messageID(3))
        try store.commitNow()
        let report = store.reap(hide: start + 1_000, destroy: start + 1_000)
        #expect(report.recordsOverwritten == 1 && report.failures.isEmpty)
        _ = try store.addTombstone(keepUntil: start + hour, payload: text("gone"))
        try store.destroyRow(two)
        // Appends fail when neither journal nor file has room, and the file stays usable.
        let long = String(repeating: "4", count: 70_000)
        try store.put(one, 4, at: start + 9_000, long)
        #expect(throws: StoreError.self) { try store.commitNow() }
        #expect(try store.get(one, 4, now: start) == nil)
        #expect(throws: StoreError.self) {
            try store.put(one, 4, at: start + 9_000, long)
            try store.commitNow()
        }
        #expect(try store.get(one, 2, now: start) == "text 2")
        disk.with { $0.isFull = false }
        try store.put(one, 4, at: start + 9_000, "four")
        try store.saveState(one, text("later"))
        try store.commitNow()
        store.close()
        let again = try openHome(disk, now: start + 1_000)
        #expect(try again.list(one, now: start).map(\.id) == [messageID(2), messageID(4)])
        #expect(try again.loadState(one) == text("later"))
        #expect(again.liveRows() == [one])
    }

    @Test func `a page the disk fails to overwrite is not served, is retried, and then counts`() throws {
        let (disk, store, row) = try makeRow()
        try store.put(row, 1, at: start + 3_000, "one")
        try store.commitNow()
        let before = disk.files()
        disk.with { $0.fault = .init(at: $0.operations + 1, code: 5, isLasting: true) }
        #expect(throws: StoreError.self) { try store.destroyRow(row) }
        #expect(store.liveRows().isEmpty)
        var report = store.reap(hide: start + 20_000, destroy: start + 20_000)
        #expect(report.columnsDestroyed == 0 && !report.failures.isEmpty)
        #expect(store.nextDeadline == start + 21_000)
        disk.with { $0.fault = nil }
        report = store.reap(hide: start + 21_000, destroy: start + 21_000)
        #expect(report.failures.isEmpty && store.nextDeadline == nil)
        for name in ["/home/rows.slots", "/home/columns.slots"] {
            #expect(before[name]?.prefix(4_096) != disk.files()[name]?.prefix(4_096))
        }
    }
}
