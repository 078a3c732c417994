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

    @Test func `a home in use names its process, is free after closing, and is not made again`() throws {
        let directory = TemporaryDirectory()
        func make() throws { try Store.create(home: directory.home, protection: .keyFile, passphrase: nil) }
        try make()
        #expect(throws: StoreError.alreadyInitialised(path: directory.home)) { try make() }
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
        chmod(home, 0o750)
        #expect { try Store.open(home: home, now: start) } throws: {
            ($0 as? StoreError)?.kind == .permission && ($0 as? StoreError)?.advice.contains("chmod") == true
        }
        chmod(home, 0o700)
        symlink(home, directory.path + "/link")
        #expect(throws: StoreError.symlink(path: directory.path + "/link")) {
            try Store.open(home: directory.path + "/link", now: start)
        }
        chmod(directory.path, 0o777)
        #expect(throws: StoreError.unsafeMode(path: directory.path, mode: 0o777, expected: 0o755)) {
            try Store.open(home: home, now: start)
        }
        chmod(directory.path, 0o700)
        for name in ["/clock", "/inboxes", "/keystore"] {
            rename(home + name, directory.path + name)
            if name == "/keystore" {
                #expect(throws: StoreError.missing(path: home + name)) { try Store.open(home: home, now: start) }
            } else {
                symlink(directory.path + name, home + name)
                #expect(throws: StoreError.symlink(path: home + name)) { try Store.open(home: home, now: start) }
                unlink(home + name)
            }
            rename(directory.path + name, home + name)
        }
        #expect(throws: StoreError.notEmpty(path: directory.path)) {
            try Store.create(home: directory.path, protection: .keyFile, passphrase: nil)
        }
        for path in [directory.path, home + "/keystore", home] where geteuid() == 0 {
            chown(path, 12_345, 12_345)
            #expect(throws: StoreError.foreignOwner(path: path, owner: 12_345)) {
                try Store.open(home: home, now: start)
            }
            chown(path, 0, 0)
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

    @Test func `an updated message keeps place and expiry, and an erased one is gone`() throws {
        var (_, store, row) = try makeRow()
        for number in 1...5 { try store.put(row, number, at: start + hour, "v0 of \(number)") }
        try store.commitNow()
        try store.update(row, id: messageID(2), payload: text("v1 of 2"))
        try store.update(row, id: messageID(2), payload: text("v2 of 2"))
        try store.erase(row, id: messageID(4))
        try store.commitNow()
        for _ in 0..<2 {
            #expect(try store.texts(row) == ["v0 of 1", "v2 of 2", "v0 of 3", "v0 of 5"])
            #expect(try store.list(row, last: 1, now: start).map(\.id) == [messageID(5)])
            store = try store.reopened()
        }
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
    @Test func `the clock mark only rises, and an impossible one is refused`() throws {
        var (_, store) = try makeStore()
        #expect(throws: StoreError.invalidArgument("time \(Int64.max)")) { try store.saveClockMark(.max) }
        #expect(store.clockMark() == 0)
        for mark in [start, start + 5, start + 1] { try store.saveClockMark(mark) }
        store = try store.reopened()
        #expect(store.clockMark() == start + 5)
    }

    @Test func `hidden records have no place and share the identifiers of messages, and no report names them`() throws {
        let (_, store, row) = try makeRow()
        func hide(_ number: Int) throws {
            try store.append(
                row, id: messageID(number), tier: .oneHour, expiresAt: start + 9_000, payload: text("part \(number)"),
                isHidden: true)
        }
        try hide(100)
        try store.put(row, 1, at: start + 9_500, "one")
        try hide(101)
        try store.update(row, id: messageID(101), payload: text("part 101, updated"))
        try store.commitNow()
        #expect(try store.get(row, 101, now: start) == "part 101, updated")
        #expect(try store.contains(row, id: messageID(100)) && store.place(row, of: messageID(100)) == nil)
        #expect(throws: StoreError.duplicateMessage) { try hide(1) }
        #expect(throws: StoreError.duplicateMessage) { try store.put(row, 1, at: start + hour, "again") }
        let report = store.reap(hide: start + 9_200, destroy: start + 9_200)
        #expect(report.expired.isEmpty && report.recordsOverwritten == 3)
        #expect(try store.get(row, 100, now: start) == nil)
    }
}
