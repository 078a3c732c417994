import Cryptography
import SimulatedDisk
import Testing

@testable import Store

/// Starts on a full disk: data that is only in the journal is served from memory.
@Suite struct FullDiskTests {
    /// A home on a full disk. Its journal has a state and two messages of the first row, and a state of the second.
    private func makeFullHome() throws -> (disk: SimulatedDisk, rows: [RowID]) {
        let (disk, store) = try makeStore()
        let rows = [try store.createRow(), try store.createRow()]
        for row in rows { try store.saveState(row, text("state of \(row)")) }
        for number in 0..<2 { try store.put(rows[0], number, at: start + hour, "message \(number)") }
        try store.commitNow()
        disk.with { $0.isFull = true }
        store.close()
        #expect(disk.files().keys.allSatisfy { !$0.hasSuffix(".seg") && !$0.hasSuffix(".log") })
        return (disk, rows)
    }

    private func state(_ store: Store, _ row: RowID) throws -> String? {
        try store.loadState(row).map { String(decoding: $0, as: UTF8.self) }
    }

    @Test func `a start on a full disk serves the journal's records, and writes them to files later`() throws {
        let (disk, rows) = try makeFullHome()
        var store = try openHome(disk)
        #expect(try state(store, rows[0]) == "state of \(rows[0])")
        #expect(try store.texts(rows[0]) == ["message 0", "message 1"])
        // A full disk is not reported as damage, and the journal accepts commits.
        #expect(store.damage.isEmpty)
        try store.put(rows[0], 2, at: start + hour, "message 2")
        try store.saveState(rows[1], text("later"))
        try store.commitNow()
        for isFull in [true, false] {
            let cut = disk.durableCopy()
            cut.with { $0.isFull = isFull }
            let again = try openHome(cut)
            #expect(try again.texts(rows[0]) == ["message 0", "message 1", "message 2"], "full: \(isFull)")
            #expect(try state(again, rows[0]) == "state of \(rows[0])" && state(again, rows[1]) == "later")
            again.close()
        }
        store = try store.reopened()
        store.lock()
        try store.unlock(passphrase: nil)
        #expect(try store.texts(rows[0]) == ["message 0", "message 1", "message 2"])
        disk.with { $0.isFull = false }
        store = try store.reopened()
        #expect(store.commits.backlog.isEmpty && store.damage.isEmpty)
        #expect(try store.texts(rows[0]) == ["message 0", "message 1", "message 2"])
        #expect(try state(store, rows[0]) == "state of \(rows[0])" && state(store, rows[1]) == "later")
        store.close()
    }

    @Test func `erasure, expiry and explosion after a start on a full disk leave no readable record`() throws {
        let (disk, rows) = try makeFullHome()
        let store = try openHome(disk)
        #expect(try readable(on: disk).isSuperset(of: [text("message 0"), text("message 1")]))
        try store.erase(rows[0], id: messageID(0))
        try store.commitNow()
        #expect(try store.texts(rows[0]) == ["message 1"])
        #expect(try readable(on: disk).isDisjoint(with: [text("message 0")]))
        #expect(try readable(on: disk).contains(text("message 1")))
        try store.destroyRow(rows[1])
        #expect(store.liveRows() == [rows[0]])
        let report = store.reap(hide: start + hour, destroy: start + hour)
        #expect(report.expired.map(\.id) == [messageID(1)] && report.failures.isEmpty)
        #expect(try readable(on: disk).isDisjoint(with: [text("message 1")]))
        store.close()
        disk.with { $0.isFull = false }
        let again = try openHome(disk, now: start + hour)
        #expect(again.liveRows() == [rows[0]] && again.damage.isEmpty)
        #expect(try state(again, rows[0]) == "state of \(rows[0])")
        again.close()
    }

    @Test func `a full disk that takes part of a checkpoint loses no record served from the journal`() throws {
        var (disk, store, row) = try makeRow()
        try store.saveState(row, text("state"))
        try store.put(row, 0, at: start + hour, "in the files")
        try store.checkpointNow()
        for number in 1..<40 {
            try store.put(row, number, at: start + hour, String(repeating: "\(number % 10)", count: 200))
        }
        try store.saveState(row, [UInt8](repeating: 5, count: 5_000))
        try store.commitNow()
        disk.with { $0.isFull = true }
        store = try store.reopened()
        #expect(try store.texts(row).count == 40 && store.damage.isEmpty)
        #expect(try store.texts(row).first == "in the files")
        #expect(try store.loadState(row) == [UInt8](repeating: 5, count: 5_000))
        #expect(try store.get(row, 39, now: start) == String(repeating: "9", count: 200))
        // A sleeping inbox is read from the files again.
        store.release(row)
        #expect(try store.texts(row).count == 40)
        store.close()
    }

    @Test func `an erasure after a move of the journal stays, despite an earlier run's old blocks`() throws {
        var (disk, store) = try makeStore()
        let rows = [try store.createRow(), try store.createRow()]
        for row in rows { try store.put(row, 0, at: start + hour, "message") }
        try store.commitNow()
        disk.with { $0.isFull = true }
        store = try store.reopened()
        // The disk refuses the checkpoint, so the journal moves without the erased record.
        try store.erase(rows[0], id: messageID(0))
        try store.commitNow()
        disk.with { $0.isFull = false }
        // The freed space suffices for the other inbox, whose first use writes it to its files.
        #expect(try store.texts(rows[1]) == ["message"])
        try store.erase(rows[1], id: messageID(0))
        try store.commitNow()
        let killed = disk.snapshot()
        store.close()
        store = try openHome(killed)
        for row in rows { #expect(try store.texts(row) == []) }
        store.close()
    }
}
