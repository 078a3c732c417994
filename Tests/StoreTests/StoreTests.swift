import Cryptography
import Glibc
import SimulatedDisk
import Testing

@testable import Store

@Suite struct StoreTests {
    @Test func `the store's own commit thread reports to the closure, on the real disk`() async throws {
        let directory = TemporaryDirectory()
        try Store.create(home: directory.home, protection: .keyFile, passphrase: nil)
        let store = try Store.open(home: directory.home, now: start)
        try store.unlock(passphrase: nil)
        let row = try store.createRow()
        try store.put(row, 1, at: start + hour, "one")
        try await withCheckedThrowingContinuation { (continuation: CheckedContinuation<Void, any Error>) in
            store.commit { continuation.resume(with: $0.mapError { $0 as any Error }) }
        }
        for number in 2...199 {
            try store.put(row, number, at: start + hour, "text \(number)")
            store.commit { _ in }
            #expect(try store.get(row, number, now: start) == "text \(number)")
        }
        store.close()
        let again = try Store.open(home: directory.home, now: start)
        try again.unlock(passphrase: nil)
        #expect(try again.list(row, now: start).count == 199)
        #expect(try again.list(row, last: 2, now: start).map(\.id) == [messageID(198), messageID(199)])
        again.close()
    }

    @Test func `the right passphrase opens a home, a wrong one does not, and damage differs from both`() throws {
        let disk = try makeHome(passphrase: "correct")
        let store = try openHome(disk, unlocking: false)
        #expect(store.protection == .passphrase && store.isLocked)
        #expect(throws: StoreError.wrongPassphrase) { try store.unlock(passphrase: secretBytes("wrong")) }
        #expect(throws: StoreError.passphraseNeeded) { try store.unlock(passphrase: nil) }
        try store.unlock(passphrase: secretBytes("correct"))
        let row = try store.createRow()
        store.lock()
        #expect(throws: StoreError.locked) { try store.createRow() }
        try store.unlock(passphrase: secretBytes("correct"))
        #expect(store.liveRows() == [row])
        store.close()

        var bytes = try #require(disk.files()["/home/keystore"])
        for index in 0..<200 { bytes[index] ^= 1 }
        disk.replace("/home/keystore", with: bytes)
        let half = try openHome(disk, unlocking: false)
        #expect(half.damage.count == 1)
        try half.unlock(passphrase: secretBytes("correct"))
        half.close()
        for index in 4_096..<4_300 { bytes[index] ^= 1 }
        disk.replace("/home/keystore", with: bytes)
        #expect(throws: StoreError.keysDamaged(path: "/home/keystore")) { try openHome(disk, unlocking: false) }
    }

    @Test func `weaker Argon2 parameters are refused`() throws {
        let disk = try makeHome(passphrase: "p")
        let store = try Store.open(home: "/home", fileSystem: disk, now: start, committingOn: .caller)
        #expect(throws: StoreError.weakKeystore(iterations: 1, memoryByteCount: 8_192)) {
            try store.unlock(passphrase: secretBytes("p"))
        }
        store.close()
    }

    @Test func `create refuses an existing home`() throws {
        let disk = try makeHome()
        #expect(throws: StoreError.alreadyInitialised(path: "/home")) { try makeHome(disk) }
    }

    @Test func `a home in use names its process, and is free after closing`() throws {
        let directory = TemporaryDirectory()
        try Store.create(home: directory.home, protection: .keyFile, passphrase: nil)
        let store = try Store.open(home: directory.home, now: start)
        #expect(throws: StoreError.homeInUse(pid: getpid())) { try Store.open(home: directory.home, now: start) }
        store.close()
        try Store.open(home: directory.home, now: start).close()
    }

    @Test func `unsafe modes, links and owners are refused`() throws {
        let directory = TemporaryDirectory()
        let home = directory.home
        umask(0)
        try Store.create(home: home, protection: .keyFile, passphrase: nil)
        umask(0o022)
        var status = stat()
        stat(home + "/key", &status)
        #expect(status.st_mode & 0o777 == 0o600)
        for (path, mode) in [(home, 0o750), (home + "/key", 0o640), (home + "/rows.slots", 0o604)] {
            stat(path, &status)
            chmod(path, mode_t(mode))
            do {
                let store = try Store.open(home: home, now: start)
                defer { store.close() }
                try store.unlock(passphrase: nil)
                Issue.record("\(path)")
            } catch {
                #expect(error.kind == .permission)
                #expect(error.advice.contains("chmod"))
            }
            chmod(path, status.st_mode & 0o777)
        }
        symlink(home, directory.path + "/link")
        #expect(throws: StoreError.symlink(path: directory.path + "/link")) {
            try Store.open(home: directory.path + "/link", now: start)
        }
        chmod(directory.path, 0o777)
        #expect(throws: StoreError.unsafeMode(path: directory.path, mode: 0o777, expected: 0o755)) {
            try Store.open(home: home, now: start)
        }
        chmod(directory.path, 0o700)
        rename(home + "/clock", directory.path + "/clock")
        symlink(directory.path + "/clock", home + "/clock")
        #expect(throws: StoreError.symlink(path: home + "/clock")) { try Store.open(home: home, now: start) }
        unlink(home + "/clock")
        rename(directory.path + "/clock", home + "/clock")
        rename(home + "/inboxes", directory.path + "/inboxes")
        symlink(directory.path + "/inboxes", home + "/inboxes")
        #expect(throws: StoreError.symlink(path: home + "/inboxes")) { try Store.open(home: home, now: start) }
        unlink(home + "/inboxes")
        rename(directory.path + "/inboxes", home + "/inboxes")
        #expect(throws: StoreError.notEmpty(path: directory.path)) {
            try Store.create(home: directory.path, protection: .keyFile, passphrase: nil)
        }
        rename(home + "/keystore", directory.path + "/keystore")
        #expect(throws: StoreError.missing(path: home + "/keystore")) { try Store.open(home: home, now: start) }
        rename(directory.path + "/keystore", home + "/keystore")
        if geteuid() == 0 {
            chown(directory.path, 12_345, 12_345)
            #expect(throws: StoreError.foreignOwner(path: directory.path, owner: 12_345)) {
                try Store.open(home: home, now: start)
            }
            chown(directory.path, 0, 0)
            chown(home + "/keystore", 12_345, 12_345)
            #expect(throws: StoreError.foreignOwner(path: home + "/keystore", owner: 12_345)) {
                try Store.open(home: home, now: start)
            }
            chown(home, 12_345, 12_345)
            #expect(throws: StoreError.foreignOwner(path: home, owner: 12_345)) {
                try Store.open(home: home, now: start)
            }
        }
        #expect(throws: StoreError.notAHome(path: directory.path)) { try Store.open(home: directory.path, now: start) }
        #expect(throws: StoreError.notAHome(path: "/tmp/none/such")) {
            try Store.open(home: "/tmp/none/such", now: start)
        }
    }

    @Test func `secrets of a row are stable, and differ by label and row`() throws {
        let store = try openHome(makeHome())
        let (one, two) = (try store.createRow(), try store.createRow())
        func bytes(_ row: RowID, _ label: String) throws -> [UInt8] {
            try store.secret(row, label: label).withBytes { Array($0) }
        }
        let first = try bytes(one, "identity")
        #expect(try bytes(one, "identity") == first)
        #expect(try bytes(one, "routing") != first)
        #expect(try bytes(two, "identity") != first)
        store.lock()
        try store.unlock(passphrase: nil)
        #expect(try bytes(one, "identity") == first)
    }

    @Test func `slot files grow, and a reused slot is a different row`() throws {
        var store = try openHome(makeHome())
        let rows = try (0..<130).map { _ in try store.createRow() }
        try store.destroyRow(rows[3])
        let reused = try store.createRow()
        #expect(reused.slot == rows[3].slot && reused != rows[3])
        #expect(throws: StoreError.unknownRow) { try store.loadState(rows[3]) }
        store = try store.reopened()
        #expect(Set(store.liveRows()) == Set(rows).subtracting([rows[3]]).union([reused]))
    }

    @Test func `an updated message keeps place and expiry, an erased one is gone, a duplicate is refused`() throws {
        var (_, store, row) = try makeRow()
        for number in 1...5 { try store.put(row, number, at: start + hour, "v0 of \(number)") }
        try store.commitNow()
        try store.update(row, id: messageID(2), payload: text("v1 of 2"))
        try store.update(row, id: messageID(2), payload: text("v2 of 2"))
        try store.erase(row, id: messageID(4))
        #expect(throws: StoreError.duplicateMessage) { try store.put(row, 1, at: start + hour, "again") }
        try store.commitNow()
        for _ in 0..<2 {
            #expect(try store.texts(row) == ["v0 of 1", "v2 of 2", "v0 of 3", "v0 of 5"])
            #expect(try store.list(row, last: 1, now: start).map(\.id) == [messageID(5)])
            #expect(try store.contains(row, id: messageID(2)))
            #expect(try !store.contains(row, id: messageID(4)))
            #expect(try store.list(row, now: start).count == 4)
            store = try store.reopened()
        }
        try store.erase(row, id: messageID(2))
        try store.commitNow()
        store = try store.reopened()
        #expect(try store.get(row, 2, now: start) == nil)
        #expect(store.damage.isEmpty)
    }

    @Test func `a state log is compacted and keeps its last state`() throws {
        var (disk, store, row) = try makeRow()
        #expect(try store.loadState(row) == nil)
        for number in 0..<100 {
            try store.saveState(row, [UInt8](repeating: UInt8(number), count: 20_000))
            try store.commitNow()
        }
        let largest = disk.files().filter { $0.key.hasSuffix(".log") }.values.map(\.count).max() ?? 0
        #expect(largest > 0 && largest < 300_000)
        store = try store.reopened()
        #expect(try store.loadState(row) == [UInt8](repeating: 99, count: 20_000))
        #expect(store.damage.isEmpty)
    }

    @Test func `a tombstone is removed while the store is locked`() throws {
        let (disk, store) = try makeStore()
        let (one, two) = try (
            store.addTombstone(keepUntil: start + hour, payload: text("one")),
            store.addTombstone(keepUntil: start + hour, payload: text("two"))
        )
        let before = try #require(disk.files()["/home/tombstones.slots"])
        store.lock()
        try store.removeTombstone(one)
        #expect(throws: StoreError.unknownTombstone) { try store.removeTombstone(one) }
        let after = try #require(disk.files()["/home/tombstones.slots"])
        let page = SlotFile.pageByteCount
        #expect(after[..<page] != before[..<page] && after[page...] == before[page...], "its page, and no other")
        try store.unlock(passphrase: nil)
        #expect(try store.tombstones().map(\.id) == [two])
        store.close()
    }

    @Test func `tombstones are kept, updated, removed and end at their time`() throws {
        var (disk, store) = try makeStore()
        let one = try store.addTombstone(keepUntil: start + 100, payload: text("one"))
        let two = try store.addTombstone(
            keepUntil: start + 200, payload: [UInt8](repeating: 9, count: Store.maximumTombstonePayload))
        let three = try store.addTombstone(keepUntil: start + 300, payload: [])
        try store.updateTombstone(one, payload: text("one, later"))
        try store.removeTombstone(three)
        #expect(Store.maximumTombstonePayload == 4_002)
        #expect(throws: StoreError.tooLarge(limit: Store.maximumTombstonePayload)) {
            try store.updateTombstone(two, payload: [UInt8](repeating: 9, count: Store.maximumTombstonePayload + 1))
        }
        #expect(throws: StoreError.unknownTombstone) { try store.updateTombstone(three, payload: []) }
        #expect(throws: StoreError.unknownTombstone) { try store.removeTombstone(three) }
        #expect(store.nextDeadline == start + 100)
        store = try store.reopened()
        let found = try store.tombstones()
        #expect(Set(found.map(\.id)) == [one, two])
        #expect(found.first { $0.id == one }?.payload == text("one, later"))
        #expect(store.reap(hide: start + 100, destroy: start + 100).tombstonesDestroyed == 1)
        #expect(try store.tombstones().map(\.id) == [two])
        store.close()
        #expect(try Store.reapHome(home: "/home", fileSystem: disk, now: start + 200).tombstonesDestroyed == 1)
        #expect(try openHome(disk, now: start + 200).tombstones().isEmpty)
    }

    @Test func `a fan-out list outlives every row and dies with its bucket`() throws {
        var (_, store, row) = try makeRow()
        try store.saveFanOut(id: messageID(1), expiresAt: start + 160 * hour, payload: text("members"))
        try store.saveFanOut(id: messageID(2), expiresAt: start + 160 * hour, payload: text("other"))
        try store.commitNow()
        try store.destroyRow(row)
        try store.saveFanOut(id: messageID(1), expiresAt: start + 160 * hour, payload: text("fewer"))
        try store.removeFanOut(id: messageID(2))
        try store.commitNow()
        store = try store.reopened()
        #expect(try store.fanOuts(now: start).map(\.payload) == [text("fewer")])
        #expect(try store.fanOut(id: messageID(1), now: start) == text("fewer"))
        #expect(try store.fanOut(id: messageID(2), now: start) == nil)
        #expect(try store.fanOut(id: messageID(1), now: start + 160 * hour) == nil)
        #expect(try store.fanOuts(now: start + 160 * hour).isEmpty)
        let report = store.reap(hide: start + 161 * hour, destroy: start + 161 * hour)
        #expect(report.columnsDestroyed == 1 && report.expired.isEmpty)
        #expect(try store.fanOuts(now: start).isEmpty)
    }

    @Test func `the clock mark only rises and survives a torn write`() throws {
        var (disk, store) = try makeStore()
        #expect(store.clockMark() == 0)
        try store.saveClockMark(start)
        try store.saveClockMark(start + 5)
        try store.saveClockMark(start + 1)
        store = try store.reopened()
        #expect(store.clockMark() == start + 5)
        store.close()
        var bytes = try #require(disk.files()["/home/clock"])
        bytes[0] ^= 1
        disk.replace("/home/clock", with: bytes)
        store = try openHome(disk)
        #expect(store.clockMark() >= start)
        #expect(store.damage.isEmpty)
    }

    @Test func `the erasure promise follows the file system`() {
        func erasure(_ type: String, _ options: String = "", inline: Bool = false, swap: String? = nil) -> Erasure {
            ErasurePromise.decide(fileSystem: type, options: options, hasInlineData: inline, plainSwap: swap).erasure
        }
        #expect(erasure("ext4") == .inPlace && erasure("xfs") == .inPlace && erasure("tmpfs") == .ram)
        #expect(erasure("ext4", "rw,data=journal") == .bestEffort && erasure("ext4", inline: true) == .bestEffort)
        #expect(erasure("ext4", swap: "/dev/sda2") == .bestEffort)
        #expect(erasure("tmpfs", swap: "/swapfile") == .bestEffort)
        for type in ["btrfs", "zfs", "overlay", "nfs4", "fuse", ""] { #expect(erasure(type) == .bestEffort) }
        let info = "36 35 98:0 /m /h rw,noatime master:1 - ext4 /dev/root rw,data=journal\n40 1 0:1 / / rw - tmpfs t rw"
        #expect(ErasurePromise.mount("36", in: info) == ("ext4", "rw,data=journal"))
        #expect(ErasurePromise.mount("40", in: info) == ("tmpfs", "rw"))
        #expect(ErasurePromise.mount("41", in: info) == ("", ""))
    }

    @Test func `tiers round expiries up to their bucket's end`() {
        for tier in Tier.allCases {
            for time in [0, 1, 9_999, 10_000, 10_001, start, start + 1, start + hour] as [Int64] {
                let header = ColumnHeader(tier: tier, expiresAt: time)
                #expect(header.notAfter >= time && header.notAfter - time < tier.bucketWidth)
            }
        }
    }

    @Test func `a locked store destroys the given live row, and no other`() throws {
        let store = try openHome(try makeHome())
        let (doomed, kept) = (try store.createRow(), try store.createRow())
        for row in [doomed, kept] { try store.saveState(row, text("state")) }
        try store.commitNow()
        store.lock()
        try store.destroyRow(doomed)
        #expect(throws: StoreError.locked) { try store.destroyRow(doomed) }
        try store.unlock(passphrase: nil)
        #expect(store.liveRows() == [kept])
        #expect(try store.loadState(kept) == text("state"))
    }

    @Test func `hidden records are found by their identifier and are in no list, count or report`() throws {
        var (_, store, row) = try makeRow()
        func hide(_ number: Int, at expiry: Int64) throws {
            try store.append(
                row, id: messageID(number), tier: .oneHour, expiresAt: expiry, payload: text("part \(number)"),
                isHidden: true)
        }
        try hide(100, at: start + 9_000)
        try store.put(row, 1, at: start + 9_500, "one")
        try hide(101, at: start + 9_000)
        try store.put(row, 2, at: start + 9_500, "two")
        try hide(102, at: start + 9_500)
        try store.update(row, id: messageID(101), payload: text("part 101, updated"))
        try store.commitNow()
        for _ in 0..<2 {
            #expect(try store.list(row, now: start).map(\.id) == [messageID(1), messageID(2)])
            #expect(try store.list(row, last: 2, now: start).count == 2)
            #expect(try store.get(row, 100, now: start) == "part 100")
            #expect(try store.get(row, 101, now: start) == "part 101, updated")
            #expect(try store.contains(row, id: messageID(102)))
            #expect(try store.place(row, of: messageID(100)) == nil)
            #expect(throws: StoreError.duplicateMessage) { try hide(1, at: start + 9_000) }
            store = try store.reopened()
        }
        try store.erase(row, id: messageID(102))
        #expect(try store.get(row, 102, now: start) == nil)
        let report = store.reap(hide: start + 9_200, destroy: start + 9_200)
        #expect(report.expired.isEmpty && report.recordsOverwritten == 3)
        #expect(try store.get(row, 100, now: start) == nil)
        try store.put(row, 3, at: start + 20_000, "three")
        #expect(try store.list(row, now: start).map(\.id) == [1, 2, 3].map { messageID($0) })
    }
}
