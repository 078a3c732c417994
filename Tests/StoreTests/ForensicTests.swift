import Cryptography
import SimulatedDisk
import Testing

@testable import Store

/// An attacker with the raw disk, all ciphertext ever written, and the passphrase. It tries each page as row and
/// column, for every sidecar, on every record.
struct Attacker {
    let keys: GridKeys
    private(set) var rowSecrets: [SharedSecret] = []
    private(set) var columnSecrets: [SharedSecret] = []

    init(home: SimulatedDisk) throws {
        let directory = try HomeDirectory("/home", disk: home)
        let keyFile = try KeyFile(reading: directory)
        let opened = try Keystore(in: directory).open(passphrase: nil, keyFile: keyFile, floor: testArgon2)
        keys = GridKeys(root: opened.root)
        directory.close()
    }

    /// Collects every key in the files. Slots are also tried at other positions, as if the page had been moved.
    mutating func search(_ files: [String: [UInt8]]) {
        rowSecrets.append(SharedSecret(keys.control.clone()))
        for (path, bytes) in files where path.contains(".slots") {
            for offset in stride(from: 0, to: bytes.count - 4_095, by: 512) {
                let page = Array(bytes[offset..<(offset + 4_096)])
                for index in [offset / 4_096] {
                    let row = KeyPage.open(page, file: "rows.slots", index: index, headerByteCount: 0, keys: keys)
                    if let row { rowSecrets.append(row) }
                    let column = KeyPage.open(
                        page, file: "columns.slots", index: index, headerByteCount: ColumnHeader.byteCount, keys: keys)
                    if let column { columnSecrets.append(column) }
                }
            }
        }
    }

    func payloads(_ written: [[UInt8]]) -> Set<[UInt8]> {
        var found: Set<[UInt8]> = []
        let sidecars = written.filter { $0.count == 128 && $0.starts(with: Array("MFEXP1".utf8)) }
        for sidecar in sidecars {
            for row in rowSecrets {
                for column in columnSecrets {
                    let both = row.bytes.withBytes { Array($0) } + column.bytes.withBytes { Array($0) }
                    let key = BLAKE2b.derive(
                        key: SecretBytes(copying: both), Array("mayfly segment".utf8), Array(sidecar[8..<24]))
                    for chunk in written { open(chunk, key, sidecar, &found) }
                }
            }
        }
        return found
    }

    private func open(_ chunk: [UInt8], _ key: borrowing SecretBytes, _ data: [UInt8], _ found: inout Set<[UInt8]>) {
        var position = chunk.starts(with: Array("MFJRNL1".utf8)) ? JournalBlock.headerByteCount : 0
        let tag = BLAKE2b.hash(Array("mayfly file".utf8), data, byteCount: 16)
        while let length = chunk.integer(UInt32.self, at: position), length >= 40,
            position + 16 + Int(length) <= chunk.count, let number = chunk.integer(UInt32.self, at: position + 4)
        {
            let sealed = chunk[(position + 16)..<(position + 16 + Int(length))]
            let opened = try? XChaChaPoly.open(sealed, key: key, authenticating: tag + UInt64(number).littleEndianBytes)
            if let opened { found.insert(Array(opened[52...])) }
            position += 20 + Int(length)
        }
    }
}

@Suite struct ForensicTests {
    /// A history with live and dead messages of every kind. Returns the dead and the live payloads.
    private func history(_ store: Store) throws -> (dead: Set<[UInt8]>, live: Set<[UInt8]>) {
        let rows = try (0..<3).map { _ in try store.createRow() }
        var (dead, live): (Set<[UInt8]>, Set<[UInt8]>) = ([], [])
        for (index, row) in rows.enumerated() {
            for number in 0..<4 {
                let expiry = start + 5_000 + Int64(number) * 10_000
                let payload = text("row \(index) message \(number)")
                try store.append(row, id: messageID(number), tier: .oneHour, expiresAt: expiry, payload: payload)
                if number < 2 || index == 2 { dead.insert(payload) } else { live.insert(payload) }
            }
            try store.commitNow()
        }
        try store.update(rows[0], id: messageID(0), payload: text("update 0"))
        try store.saveFanOut(id: messageID(9), expiresAt: start + 10_000, payload: text("fan-out"))
        dead.formUnion([text("update 0")])
        live.insert(text("fan-out"))
        try store.scheduleDestruction(of: rows[2], at: start + 19_000)
        try store.checkpointNow()
        return (dead, live)
    }

    @Test func `a thief with raw files, key file and every written ciphertext opens no dead record`() throws {
        let disk = try makeHome()
        disk.with { $0.keepsHistory = true }
        let store = try openHome(disk)
        let (dead, live) = try history(store)
        var before = try Attacker(home: disk.copy())
        before.search(disk.files())
        let written = disk.with { $0.history }
        #expect(before.payloads(written) == dead.union(live), "the attacker can read what lives")

        store.reap(hide: start + 20_000, destroy: start + 20_000)
        store.close()
        let everything = disk.with { $0.history }
        var after = try Attacker(home: disk.copy())
        after.search(disk.files())
        let found = after.payloads(everything)
        #expect(found.isDisjoint(with: dead))
        #expect(found == live)
    }

    @Test func `canary: destruction by rename leaves the old file, and the thief reads all of it`() throws {
        let disk = try makeHome()
        disk.with { $0.keepsHistory = true }
        let store = try openHome(disk)
        let (dead, _) = try history(store)
        let old = disk.files()
        store.reap(hide: start + 20_000, destroy: start + 20_000)
        var files = disk.files()
        for name in ["rows.slots", "columns.slots"] { files["/free blocks/\(name)"] = old["/home/\(name)"] }
        var attacker = try Attacker(home: disk.copy())
        attacker.search(files)
        #expect(attacker.payloads(disk.with { $0.history }).isSuperset(of: dead))
    }

    @Test func `a key page is dead when any one of its sectors is overwritten`() throws {
        let (disk, store) = try makeStore()
        _ = try store.createRow()
        let rows = try #require(disk.files()["/home/rows.slots"])
        for sector in 0..<8 {
            var files = disk.files()
            files["/home/rows.slots"] = rows
            files["/home/rows.slots"]?.replaceSubrange((sector * 512)..<((sector + 1) * 512), with: randomBytes(512))
            var attacker = try Attacker(home: disk.copy())
            attacker.search(files)
            #expect(attacker.rowSecrets.count == 1)
        }
    }

    @Test func `all versions of an expired or erased record are zeros on the disk`() throws {
        let (disk, store, row) = try makeRow()
        try store.put(row, 1, at: start + 5_000, "secret one")
        try store.commitNow()
        try store.update(row, id: messageID(1), payload: text("secret one, again"))
        try store.put(row, 2, at: start + 9_000, "secret two")
        try store.put(row, 3, at: start + 9_000, "secret three")
        try store.commitNow()
        try store.erase(row, id: messageID(2))
        try store.commitNow()
        store.reap(hide: start + 5_000, destroy: start + 5_000)
        let path = try #require(disk.files().keys.first { $0.hasSuffix(".seg") })
        let bytes = try #require(disk.files()[path])
        var position = 0
        var isErased: [Bool] = []
        while let length = bytes.integer(UInt32.self, at: position) {
            isErased.append(bytes[(position + 16)..<(position + 16 + Int(length))].allSatisfy { $0 == 0 })
            position += 20 + Int(length)
        }
        #expect(isErased == [true, true, true, false])
    }

    @Test func `no file or path contains a plaintext or an identifier`() throws {
        let (disk, store, row) = try makeRow()
        try store.put(row, 1, at: start + 5_000, "some very secret words")
        try store.saveState(row, text("some very secret words"))
        try store.commitNow()
        try store.put(row, 2, .oneDay, at: start + 20 * hour, "more very secret words")
        try store.commitNow()
        try store.reschedule(row, id: messageID(2), tier: .sixHours, expiresAt: start + 5 * hour)
        let tombstone = try store.addTombstone(keepUntil: start + 1_000 * hour, payload: text("very secret words"))
        try store.commitNow()
        #expect(disk.paths().allSatisfy { !$0.contains("secret") && !$0.contains(Hex.encode(messageID(1))) })
        for (path, bytes) in disk.files() {
            for needle in [text("very secret"), messageID(1), messageID(2), tombstone.bytes] {
                var from = 0
                while let hit = bytes[from...].firstIndex(of: needle[0]) {
                    #expect(!bytes[hit...].starts(with: needle), "\(path)")
                    from = hit + 1
                }
            }
        }
    }
}
