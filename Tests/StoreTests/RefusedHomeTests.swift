import SimulatedDisk
import Testing

@testable import Store

/// Homes that a start and `doctor` refuse and do not change.
@Suite struct RefusedHomeTests {
    private func makeUsedHome() throws -> SimulatedDisk {
        let (disk, store, row) = try makeRow()
        try store.saveState(row, text("state"))
        try store.put(row, 1, at: start + hour, "message")
        _ = try store.addTombstone(keepUntil: start + hour, payload: text("gone"))
        try store.checkpointNow()
        store.close()
        return disk
    }

    @Test(arguments: ["key", "lock", "clock", "journal", "rows.slots", "columns.slots", "tombstones.slots", "keystore"])
    func `a file that others may open is refused by start and doctor, as a permission error`(name: String) throws {
        let disk = try makeUsedHome()
        disk.setMode(0o644, of: "/home/\(name)")
        for attempt in [{ _ = try HomeInspection(home: "/home", fileSystem: disk) }, { try openHome(disk).close() }]
            as [() throws -> Void]
        {
            do {
                try attempt()
                Issue.record("\(name) was accepted")
            } catch let error as StoreError {
                #expect(error.kind == .permission && "\(error)".contains("/home/\(name)"), "\(error)")
            }
        }
    }

    @Test(arguments: ["columns.slots", "tombstones.slots", "journal"])
    func `a page of a later format is refused by start and doctor, and left unchanged`(name: String) throws {
        let disk = try makeUsedHome()
        if name == "journal" {
            let store = try openHome(disk)
            try store.put(store.liveRows()[0], 2, at: start + hour, "in the journal")
            try store.commitNow()
            disk.with { $0.isFull = true }
            store.close()
            disk.with { $0.isFull = false }
        }
        var bytes = try #require(disk.files()["/home/\(name)"])
        let magic = ["columns.slots": "MFCOL1", "tombstones.slots": "MFTOMB1", "journal": "MFJRNL1"][name] ?? ""
        let page = try #require(
            stride(from: 0, to: bytes.count, by: 4_096).first { bytes[$0...].starts(with: magic.utf8) })
        bytes[page + magic.utf8.count - 1] += 1
        disk.replace("/home/\(name)", with: bytes)
        let before = disk.files().filter { $0.key != "/home/lock" }
        let later = StoreError.newerFormat(path: "/home/\(name)")
        #expect(throws: later) { try HomeInspection(home: "/home", fileSystem: disk) }
        #expect(throws: later) { try openHome(disk) }
        #expect(disk.files().filter { $0.key != "/home/lock" } == before)
        guard name != Journal.name else { return }
        let beginning = [UInt8](repeating: 0, count: Int(Journal.maximumByteCount))
        disk.replace("/home/\(name)", with: beginning + bytes[page..<page + 4_096])
        #expect(throws: later) { try HomeInspection(home: "/home", fileSystem: disk) }
    }

    @Test(arguments: ["MFEXP1", "MFLOG1"]) func `an inbox's file of a later format is not read, and left unchanged`(
        magic: String
    ) throws {
        let disk = try makeUsedHome()
        let (path, found) = try #require(disk.files().first { $0.value.starts(with: magic.utf8) })
        var bytes = found
        bytes[magic.utf8.count - 1] += 1
        disk.replace(path, with: bytes)
        let before = disk.files().filter { $0.key.hasPrefix("/home/inboxes") }
        let store = try openHome(disk)
        let row = store.liveRows()[0]
        if magic == "MFLOG1" {
            #expect(throws: StoreError.newerFormat(path: path)) { try store.loadState(row) }
        } else {
            #expect((try? store.list(row, now: start))?.isEmpty ?? true)
        }
        #expect(magic == "MFLOG1" || store.damage.contains { $0.contains("later version") }, "\(store.damage)")
        store.close()
        #expect(disk.files().filter { $0.key.hasPrefix("/home/inboxes") } == before)
    }

    @Test func `a lock wipes the keys before it waits for the disk`() throws {
        let (disk, store, row) = try makeRow()
        try store.put(row, 1, at: start + hour, "not committed yet")
        nonisolated(unsafe) var hadKeys: [Bool] = []
        disk.observe { _ in hadKeys.append(store.pages.rows.keys != nil) }
        store.lock()
        disk.observe(nil)
        #expect(hadKeys.contains(false) && !hadKeys.contains(true))
        try store.unlock(passphrase: nil)
        #expect(try store.get(row, 1, now: start) == "not committed yet")
        store.close()
    }
}
