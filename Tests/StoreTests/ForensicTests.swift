import Cryptography
import SimulatedDisk
import StoreCampaigns
import Testing

@testable import Store

@Suite struct ForensicTests {
    @Test func `a key page is dead when any one of its sectors is overwritten`() throws {
        let (disk, store) = try makeStore()
        _ = try store.createRow()
        let rows = try #require(disk.files()["/home/rows.slots"])
        func inboxKeys(_ rows: [UInt8]) throws -> Int {
            var thief = try Thief(of: disk.copy(), passphrase: nil)
            thief.search(image: [(0, rows)], written: [])
            return thief.inboxKeys
        }
        #expect(try inboxKeys(rows) == 1)
        for sector in 0..<8 {
            var damaged = rows
            damaged.replaceSubrange((sector * 512)..<((sector + 1) * 512), with: randomBytes(512))
            #expect(try inboxKeys(damaged) == 0)
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
        #expect(disk.paths().allSatisfy { !$0.contains("secret") && !$0.contains(Hex.encode(messageID(1).bytes)) })
        for (path, bytes) in disk.files() {
            for needle in [text("very secret"), messageID(1).bytes, messageID(2).bytes, tombstone.bytes] {
                var from = 0
                while let hit = bytes[from...].firstIndex(of: needle[0]) {
                    #expect(!bytes[hit...].starts(with: needle), "\(path)")
                    from = hit + 1
                }
            }
        }
    }
}
