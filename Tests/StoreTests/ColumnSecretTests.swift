import Cryptography
import SimulatedDisk
import StoreCampaigns
import Testing

@testable import Store

/// Secrets that are destroyed with their row or their expiry bucket, whichever goes first.
@Suite struct ColumnSecretTests {
    private func secret(
        _ store: Store, _ row: RowID, _ tier: Tier = .oneHour, at expiry: Int64 = start + 3_000,
        _ label: String = "slice 1", isMade: Bool = false
    ) throws -> [UInt8]? {
        let secret = try store.secret(row, tier: tier, expiresAt: expiry, label: label, isMade: isMade)
        guard let secret else { return nil }
        return secret.withBytes { Array($0) }
    }

    @Test func `a column secret is the same when read again, after a crash, a lock, and after reopening`() throws {
        var (disk, store, row) = try makeRow()
        try store.saveState(row, text("state"))
        try store.commitNow()
        let made = try #require(try secret(store, row, isMade: true))
        let cut = try openHome(disk.durableCopy())
        #expect(try made.count == 32 && secret(cut, row) == made)
        cut.close()
        #expect(try secret(store, row) == made && secret(store, row, isMade: true) == made)
        store.lock()
        try store.unlock(passphrase: nil)
        #expect(try secret(store, row) == made)
        store = try store.reopened()
        #expect(try secret(store, row) == made)
        store.close()
    }

    @Test func `each label, row, bucket and class has its own column secret, the same within one bucket`() throws {
        let store = try openHome(makeHome())
        let rows = try (0..<2).map { _ in try store.createRow() }
        var seen: Set<[UInt8]> = []
        for row in rows {
            for tier in [Tier.oneHour, .sixHours, .oneDay, .sevenDays, .thirtyDays] {
                for bucket in 1...2 as ClosedRange<Int64> {
                    let edge = start + bucket * tier.bucketWidth
                    for label in ["slice 1", "slice 2", ""] {
                        let made = try #require(try secret(store, row, tier, at: edge, label, isMade: true))
                        #expect(seen.insert(made).inserted)
                        for expiry in [edge - tier.bucketWidth + 1, edge - 1] {
                            #expect(try secret(store, row, tier, at: expiry, label) == made)
                        }
                    }
                }
            }
            for label in ["slice 1", "slice 2", ""] {
                let own = try store.secret(row, label: label)
                #expect(seen.insert(own.withBytes { Array($0) }).inserted)
            }
        }
        store.close()
    }

    @Test func `a lookup without a bucket finds no column secret and makes no bucket`() throws {
        let (disk, store, row) = try makeRow()
        try store.commitNow()
        let before = disk.files()
        #expect(try secret(store, row) == nil && secret(store, row) == nil)
        #expect(disk.files() == before)
        // A secret may use the bucket of a message.
        try store.put(row, 1, at: start + 3_000, "one")
        #expect(try secret(store, row) != nil)
        #expect(try secret(store, row, at: start + 13_000) == nil && secret(store, row, .sixHours) == nil)
        store.close()
    }

    @Test func `the end of a bucket overwrites its page and destroys its column secret`() throws {
        let (disk, store, row) = try makeRow()
        try store.saveState(row, text("state"))
        let made = try #require(try secret(store, row, isMade: true))
        let later = try #require(try secret(store, row, at: start + 20_000, isMade: true))
        try store.checkpointNow()
        #expect(made != later)
        func pages() throws -> Set<[UInt8]> {
            let file = try #require(disk.files()["/home/columns.slots"])
            return Set(stride(from: 0, to: file.count - 4_095, by: 4_096).map { Array(file[$0..<($0 + 4_096)]) })
        }
        let before = try pages()
        func bucketKeys() throws -> Int {
            var thief = try Thief(of: disk.copy(), passphrase: nil)
            thief.search(image: disk.image(), written: [])
            return thief.bucketKeys
        }
        let known = try bucketKeys()
        #expect(known >= 2)

        // The bucket contains only the secret, and still has a deadline.
        #expect(store.nextDeadline == start + 10_000)
        #expect(store.reap(hide: start + 9_999, destroy: start + 9_999).columnsDestroyed == 0)
        #expect(try secret(store, row) == made)
        #expect(store.reap(hide: start + 10_000, destroy: start + 10_000).columnsDestroyed == 1)
        #expect(try secret(store, row) == nil && secret(store, row, at: start + 20_000) == later)
        #expect(try !before.isSubset(of: pages()), "a page is another")
        #expect(try bucketKeys() == known - 1)
        // A new secret differs: data sealed to the first stays unreadable.
        let again = try #require(try secret(store, row, isMade: true))
        #expect(again != made)
        store.close()
        let reopened = try openHome(disk, now: start + 10_000)
        #expect(try secret(reopened, row, at: start + 20_000) == later)
        reopened.close()
    }

    @Test func `the destruction of a row destroys all its column secrets`() throws {
        let (disk, store) = try makeStore()
        let rows = try (0..<2).map { _ in try store.createRow() }
        for row in rows { try store.saveState(row, text("state")) }
        try store.commitNow()
        let made = try rows.map { try #require(try secret(store, $0, isMade: true)) }
        try store.destroyRow(rows[0])
        for isMade in [false, true] {
            #expect(throws: StoreError.self) { _ = try secret(store, rows[0], isMade: isMade) }
        }
        #expect(try secret(store, rows[1]) == made[1], "the bucket is there for the others")
        store.close()
        let again = try openHome(disk)
        #expect(throws: StoreError.self) { _ = try secret(again, rows[0]) }
        #expect(try secret(again, rows[1]) == made[1])
        again.close()
    }

    @Test func `a locked store, an invalid class and an invalid time each give no column secret`() throws {
        let disk = try makeHome(passphrase: "open")
        let store = try openHome(disk, unlocking: false)
        try store.unlock(passphrase: secretBytes("open"))
        let row = try store.createRow()
        try store.saveState(row, text("state"))
        try store.commitNow()
        let made = try #require(try secret(store, row, isMade: true))
        for tier in [Tier.control, .fuse] {
            #expect(throws: StoreError.self) { _ = try secret(store, row, tier, isMade: true) }
        }
        for time in [-1, Int64.min, 1 << 48 + 1, .max] {
            for isMade in [false, true] {
                #expect(throws: StoreError.self) { _ = try secret(store, row, at: time, isMade: isMade) }
            }
        }
        store.lock()
        for isMade in [false, true] { #expect(throws: StoreError.self) { _ = try secret(store, row, isMade: isMade) } }
        try store.unlock(passphrase: secretBytes("open"))
        #expect(try secret(store, row) == made)
        store.close()
    }
}
