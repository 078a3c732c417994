import Cryptography
import Glibc
import SimulatedDisk
import Testing

@testable import Store

/// Temporary read errors of the disk.
@Suite struct RefusalTests {
    private func home(_ tier: Tier = .thirtyDays, at expiry: Int64 = start + 700 * hour) throws -> (
        disk: SimulatedDisk, row: RowID
    ) {
        let (disk, store, row) = try makeRow()
        try store.put(row, 1, tier, at: expiry, "one")
        try store.saveState(row, text("state"))
        try store.commitNow()
        store.close()
        return (disk, row)
    }

    private func names(_ disk: SimulatedDisk, _ suffix: String) -> Set<String> {
        Set(
            disk.files().keys.filter { $0.hasSuffix(suffix) }.compactMap {
                $0.split(separator: "/").last.map(String.init)
            })
    }

    private func refuse(_ disk: SimulatedDisk, _ names: Set<String>) {
        disk.with { $0.unreadable = Dictionary(uniqueKeysWithValues: names.map { ($0, 0..<Int.max) }) }
    }

    private func isErased(_ disk: SimulatedDisk) -> Bool {
        disk.files().filter { $0.key.hasSuffix(".seg") }.allSatisfy {
            $0.value.dropFirst(16).dropLast(4).allSatisfy { $0 == 0 }
        }
    }

    /// A sleeping inbox is known without its sidecar.
    @Test(arguments: [(".seg", false), (".seg", true), (".expiry", false)])
    func `an inbox that the disk refuses to read is read again, at most once a second`(suffix: String, rests: Bool)
        throws
    {
        let (disk, row) = try home()
        let store = try openHome(disk)
        if rests {
            #expect(try store.list(row, now: start).count == 1)
            store.release(row)
        }
        refuse(disk, names(disk, suffix))
        #expect(try store.list(row, now: start).isEmpty)
        #expect(try store.isUsed(row))
        store.release(row)
        #expect(try store.list(row, now: start).isEmpty)
        refuse(disk, [])
        store.reap(hide: start + 999, destroy: start + 999)
        #expect(try store.list(row, now: start + 999).isEmpty)
        #expect(store.nextDeadline == start + 1_000)
        store.reap(hide: start + 1_000, destroy: start + 1_000)
        #expect(try store.list(row, now: start + 1_000).map(\.id) == [messageID(1)])
        store.release(row)
        #expect(store.grid.segments.isEmpty)
        #expect(try store.list(row, now: start + 1_000).count == 1)
        store.close()
    }

    @Test func `an inbox whose bucket key is unreadable lacks the segment before and after a rest`() throws {
        let (disk, row) = try home()
        let store = try openHome(disk, unlocking: false)
        refuse(disk, ["columns.slots"])
        try store.unlock(passphrase: nil)
        for _ in 0..<2 {
            #expect(try store.list(row, now: start).isEmpty)
            #expect(!store.isWhole(row))
            // New messages follow everything in the unread segment.
            #expect(try store.nextPlace(row) >= 1 << 32)
            store.release(row)
            #expect(store.grid.segments.isEmpty && !store.isWhole(row))
        }
        refuse(disk, [])
        let again = try store.reopened()
        #expect(try again.list(row, now: start).count == 1 && again.isWhole(row))
        again.close()
    }

    /// An inbox's first read, or the reap of a due message.
    @Test(arguments: [false, true], [false, true]) func `a failed call of a read or reap delays its work by a second`(
        reaps: Bool, rests: Bool
    ) throws {
        let due = reaps ? start + hour / 2 : start
        let (home, row) = try reaps ? home(at: due) : home()
        for call in 1...(reaps ? 8 : 12) {
            let disk = home.copy()
            let store = try openHome(disk)
            if reaps || rests { _ = try store.list(row, now: start) }
            if rests { store.release(row) }
            if reaps { for segment in store.grid.segments.values { store.openFiles.close(segment.file) } }
            disk.with { $0.fault = .init(at: $0.operations + call, code: EMFILE, isLasting: false) }
            if reaps { store.reap(hide: due, destroy: due) } else { _ = try? store.list(row, now: start) }
            disk.with { $0.fault = nil }
            if reaps { #expect(try store.list(row, now: due).isEmpty) } else { store.release(row) }
            store.reap(hide: due + 1_000, destroy: due + 1_000)
            #expect(try store.list(row, now: due + 1_000).count == (reaps ? 0 : 1), "call \(call)")
            #expect(!reaps || isErased(disk), "call \(call)")
            store.release(row)
            #expect(store.grid.segments.isEmpty || reaps)
            store.close()
        }
    }

    @Test func `an inbox the disk keeps refusing is read less and less often`() throws {
        let (disk, row) = try home()
        let store = try openHome(disk)
        refuse(disk, names(disk, ".seg"))
        #expect(try store.list(row, now: start).isEmpty)
        let before = disk.operations
        for second in 1...600 as ClosedRange<Int64> {
            store.reap(hide: start + second * 1_000, destroy: start + second * 1_000)
            #expect(try store.list(row, now: start + second * 1_000).isEmpty)
        }
        #expect(disk.operations - before < 60)
        store.close()
    }

    @Test func `a due message in an unreadable segment is overwritten once the disk reads it`() throws {
        let (disk, row) = try home(at: start + hour / 2)
        let store = try openHome(disk)
        refuse(disk, names(disk, ".seg"))
        store.reap(hide: start + hour / 2, destroy: start + hour / 2)
        refuse(disk, [])
        #expect(!isErased(disk))
        let later = start + hour / 2 + 1_000
        #expect(store.nextDeadline == later)
        let report = store.reap(hide: later, destroy: later)
        #expect(report.expired == [ReapReport.Expired(row: row, id: messageID(1))] && report.recordsOverwritten == 1)
        #expect(isErased(disk))
        #expect(store.grid.segments.isEmpty)
        store.close()
    }

    @Test(arguments: [".seg", ".expiry"])
    func `a bucket ends while the disk refuses to read it, and its files go once readable`(suffix: String) throws {
        let (disk, row) = try home(.oneHour, at: start + 5_000)
        let store = try openHome(disk)
        refuse(disk, names(disk, suffix))
        #expect(try store.list(row, now: start).isEmpty)
        store.release(row)
        let report = store.reap(hide: start + 10_000, destroy: start + 10_000)
        #expect(report.columnsDestroyed == 1 && report.failures.isEmpty)
        refuse(disk, [])
        store.reap(hide: start + 12_000, destroy: start + 12_000)
        #expect(names(disk, ".seg").isEmpty && names(disk, ".expiry").isEmpty)
        #expect(store.nextDeadline == nil)
        #expect(try store.list(row, now: start).isEmpty)
        store.close()
    }

    /// Either the newer version's segment is unreadable, or its sidecar.
    @Test(arguments: [".seg", ".expiry"])
    func `a message erased while its newer version is unreadable does not return with that version`(suffix: String)
        throws
    {
        let (disk, row) = try home()
        let old = names(disk, suffix)
        // The torn end closes the older version's file for appends, so the newer version goes to another file.
        let segment = try #require(disk.files().first { $0.key.hasSuffix(".seg") })
        disk.replace(segment.key, with: segment.value + [1])
        var store = try openHome(disk)
        #expect(try store.get(row, 1, now: start) == "one")
        try store.update(row, id: messageID(1), payload: text("newer"))
        try store.commitNow()
        store = try store.reopened()
        refuse(disk, names(disk, suffix).subtracting(old))
        #expect(try store.get(row, 1, now: start) == "one")
        try store.erase(row, id: messageID(1))
        try store.commitNow()
        refuse(disk, [])
        store.reap(hide: start + 1_000, destroy: start + 1_000)
        #expect(try store.contains(row, id: messageID(1)) == false)
        #expect(try store.list(row, now: start).isEmpty)
        store = try store.reopened()
        #expect(try store.contains(row, id: messageID(1)) == false)
        store.close()
        let payloads = try readable(on: disk)
        #expect(payloads == [text("state")])
    }
}
