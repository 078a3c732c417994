import Cryptography
import Glibc
import SimulatedDisk
import StoreCampaigns
import Testing

@testable import Store

@Suite struct ProtectionTests {
    private func change(_ store: Store, _ old: String?, to new: String?) throws {
        let old: SecretBytes? = old.map { secretBytes($0) }
        let new: SecretBytes? = new.map { secretBytes($0) }
        try store.changeProtection(from: old, to: new)
    }

    private func opens(_ disk: SimulatedDisk, _ secret: String?) throws -> Bool {
        let store = try openHome(disk, unlocking: false)
        defer { store.close() }
        let bytes: SecretBytes? = secret.map { secretBytes($0) }
        do { try store.unlock(passphrase: bytes) } catch { return false }
        return try store.liveRows().map { try store.loadState($0) } == [text("state")]
    }

    private func makeUsedHome(passphrase: String?) throws -> SimulatedDisk {
        let disk = try makeHome(passphrase: passphrase)
        let store = try openHome(disk, unlocking: false)
        let bytes: SecretBytes? = passphrase.map { secretBytes($0) }
        try store.unlock(passphrase: bytes)
        try store.saveState(try store.createRow(), text("state"))
        try store.commitNow()
        store.close()
        return disk.copy()
    }

    private static let changes: [(old: String?, new: String?)] = [("old", "new"), (nil, "new"), ("old", nil)]

    @Test(arguments: [false, true])
    func `after a change, locked or unlocked, the new passphrase opens and the old one fails`(isUnlocked: Bool) throws {
        let disk = try makeUsedHome(passphrase: "old")
        let store = try openHome(disk, unlocking: false)
        if isUnlocked { try store.unlock(passphrase: secretBytes("old")) }
        try change(store, "old", to: "new")
        #expect(store.isLocked == !isUnlocked)
        store.lock()
        #expect(throws: StoreError.wrongPassphrase) { try store.unlock(passphrase: secretBytes("old")) }
        try store.unlock(passphrase: secretBytes("new"))
        store.close()
        #expect(try opens(disk, "new"))
        #expect(try !opens(disk, "old"))
    }

    @Test func `a change to a passphrase removes the key file, and a change back makes another`() throws {
        let disk = try makeUsedHome(passphrase: nil)
        let first = try #require(disk.files()["/home/key"])
        let store = try openHome(disk)
        try change(store, nil, to: "new")
        #expect(store.protection == .passphrase && disk.files()["/home/key"] == nil)
        store.close()
        #expect(try !opens(disk, nil))
        #expect(try opens(disk, "new"))
        let again = try openHome(disk, unlocking: false)
        try change(again, "new", to: nil)
        #expect(again.protection == .keyFile)
        again.close()
        let second = try #require(disk.files()["/home/key"])
        #expect(second != first && second.count == 32)
        #expect(try opens(disk, nil))
        let found = Thief.opening(disk.image().map(\.bytes), passphrases: ["new"], keyFiles: [first])
        #expect(found.isEmpty)
    }

    /// - Parameter byte: The keystore's byte that a later version changes.
    @Test(
        arguments: [
            ("old", "Old", "new", StoreError.wrongPassphrase, nil), ("old", nil, "new", .passphraseNeeded, nil),
            ("old", "other", nil, .wrongPassphrase, nil), ("old", nil, nil, .passphraseNeeded, nil),
            ("old", "old", "new", .newerFormat(path: "/home/keystore"), 6), (nil, nil, nil, nil, nil),
        ] as [(String?, String?, String?, StoreError?, Int?)]) func `a refused change changes nothing`(
            home: String?, old: String?, new: String?, error: StoreError?, byte: Int?
        ) throws
    {
        let disk = try makeUsedHome(passphrase: home)
        if let byte {
            var bytes = try #require(disk.files()["/home/keystore"])
            bytes[byte] = UInt8(ascii: "2")
            disk.replace("/home/keystore", with: bytes)
        }
        let before = disk.files()
        let store = try openHome(disk, unlocking: false)
        // Without a secret to change the call itself is a mistake.
        #expect { try change(store, old, to: new) } throws: { found in
            error.map { found as? StoreError == $0 } ?? ((found as? StoreError)?.kind == .misuse)
        }
        store.close()
        for path in ["/home/key", "/home/keystore"] { #expect(disk.files()[path] == before[path]) }
        #expect(try opens(disk, home))
        #expect(byte == nil || disk.files()["/home/keystore"] == before["/home/keystore"])
    }

    @Test func `a change or unlock prepared before another change is refused`() throws {
        let disk = try makeUsedHome(passphrase: "old")
        let store = try openHome(disk, unlocking: false)
        let late = try store.rewrapping().sealed(from: secretBytes("old"), to: secretBytes("late"))
        let stretched = try #require(store.stretching).keys(from: secretBytes("old"))
        try change(store, "old", to: "new")
        #expect(throws: StoreError.wrongPassphrase) { try store.protect(by: late) }
        #expect(throws: StoreError.wrongPassphrase) { try store.unlock(with: stretched) }
        #expect(store.isLocked)
        store.close()
        #expect(try !opens(disk, "late"))
        #expect(try !opens(disk, "old"))
        #expect(try opens(disk, "new"))
    }

    @Test func `a change keeps stored parameters above the floor, and refuses weaker ones`() throws {
        let disk = try makeUsedHome(passphrase: "old")
        let strong = Argon2Parameters(iterations: 2, memoryByteCount: 16_384)
        let refusing = try Store.open(
            home: "/home", fileSystem: disk, now: start, argon2Floor: strong, committingOn: .caller)
        #expect(throws: StoreError.weakKeystore(iterations: 1, memoryByteCount: 8_192)) {
            try change(refusing, "old", to: "new")
        }
        refusing.close()
        let home = SimulatedDisk()
        try Store.create(
            home: "/home", protection: .passphrase, passphrase: secretBytes("old"), fileSystem: home, argon2: strong,
            journal: SimulatedDisk.journalByteCount)
        let store = try openHome(home, unlocking: false)
        try change(store, "old", to: "new")
        #expect(store.keystore.copies.allSatisfy { $0.parameters == strong })
        store.close()
    }

    @Test func `a power cut at any call of a change leaves exactly one of two secrets valid`() throws {
        for (old, new) in Self.changes {
            let disk = try makeUsedHome(passphrase: old)
            let store = try openHome(disk, unlocking: false)
            var cuts: [SimulatedDisk] = []
            disk.observe { cuts.append($0) }
            try change(store, old, to: new)
            disk.observe(nil)
            cuts.append(disk.snapshot())
            store.close()
            #expect(cuts.count > 3)
            var opened: [String: Int] = [:]
            for (number, cut) in cuts.enumerated() {
                let outcomes = Outcomes(of: cut)
                for choice in outcomes.choices(limit: 40, seed: UInt64(number)) {
                    for (first, second) in [(old, new), (new, old)] {
                        let found = outcomes.disk(choice)
                        // A key-file home opens with any passphrase.
                        let isFirst = try opens(found, first)
                        let isSecond = try !isFirst && opens(found, second)
                        #expect(isFirst || isSecond, "\(old ?? "key") to \(new ?? "key"), cut \(number), \(choice)")
                        let winner = isFirst ? first : second
                        opened[winner ?? "key", default: 0] += 1
                        if number == cuts.count - 1 { #expect(winner == new || new == nil) }
                        // The other secret opens nothing, and is nowhere on the disk.
                        #expect(try opens(found, winner))
                        let protection = try protection(of: found)
                        let isKeyFile = found.files()["/home/key"] != nil
                        #expect(isKeyFile == (protection == .keyFile), "\(number) \(choice)")
                        let left = Thief.opening(found.image().map(\.bytes), passphrases: ["old", "new"])
                        #expect(left.count == (protection == .passphrase ? 1 : 0), "\(left), \(number) \(choice)")
                    }
                }
            }
            #expect(opened.count == 2, "\(opened)")
        }
    }

    private func protection(of disk: SimulatedDisk) throws -> Protection {
        let store = try openHome(disk, unlocking: false)
        defer { store.close() }
        return store.protection
    }

    @Test func `a change with a failed call leaves one of two secrets valid, and can be repeated`() throws {
        for (old, new) in Self.changes {
            let calls = try callCount(old, new)
            #expect(calls > 5)
            for call in 1...calls {
                for code in [EIO, ENOSPC, EROFS, EACCES] {
                    for isLasting in [false, true] {
                        let disk = try makeUsedHome(passphrase: old)
                        let store = try openHome(disk, unlocking: false)
                        let fault = SimulatedDisk.Fault(at: disk.operations + call, code: code, isLasting: isLasting)
                        disk.with { $0.fault = fault }
                        var isRefused = false
                        do { try change(store, old, to: new) } catch is StoreError { isRefused = true }
                        disk.with { $0.fault = nil }
                        let cut = disk.durableCopy()
                        if isRefused {
                            do { try change(store, old, to: new) } catch StoreError.wrongPassphrase {
                                try change(store, "new", to: "newer")
                                try change(store, "newer", to: new)
                            } catch StoreError.passphraseNeeded { try change(store, "new", to: "new") } catch StoreError
                                .invalidArgument
                            {}
                        }
                        store.close()
                        #expect(disk.openFileCount == 0)
                        #expect(try opens(disk, new), "\(old ?? "key"), call \(call), \(code)")
                        let isThere = try opens(cut, old) || opens(cut, new)
                        #expect(isThere, "\(old ?? "key") to \(new ?? "key"), call \(call), \(code), \(isRefused)")
                    }
                }
            }
        }
    }

    private func callCount(_ old: String?, _ new: String?) throws -> Int {
        let disk = try makeUsedHome(passphrase: old)
        let store = try openHome(disk, unlocking: false)
        let before = disk.operations
        try change(store, old, to: new)
        defer { store.close() }
        return disk.operations - before
    }

    @Test func `a disk that refuses reads after a failed change refuses another, and the old passphrase opens`() throws
    {
        for call in 1...14 {
            let disk = try makeUsedHome(passphrase: "old")
            let store = try openHome(disk, unlocking: false)
            let fault = SimulatedDisk.Fault(at: disk.operations + call, code: EIO, isLasting: true, isForOneCall: true)
            disk.with { $0.fault = fault }
            try? change(store, "old", to: nil)
            guard disk.with({ $0.struckCall }) == "read" else {
                store.close()
                continue
            }
            let left = disk.files()["/home/key"]
            #expect(throws: StoreError.self) { try change(store, "old", to: nil) }
            // A keystore copy on the disk may still be sealed by the key file.
            if left != nil, store.isKeystoreStale { #expect(disk.files()["/home/key"] == left) }
            disk.with { $0.fault = nil }
            // A key-file home opens with any passphrase.
            try? store.unlock(passphrase: secretBytes("wrong"))
            #expect(store.isLocked == (store.protection == .passphrase))
            store.close()
            #expect(try opens(disk, "old"), "\(call)")
        }
    }

    @Test func `a read-only disk refuses a change; a full one allows a passphrase but no key file`() throws {
        let disk = try makeUsedHome(passphrase: "old")
        disk.with { $0.isReadOnly = true }
        let readOnly = try openHome(disk, unlocking: false)
        #expect(throws: StoreError.readOnly(path: "/home")) { try change(readOnly, "old", to: "new") }
        readOnly.close()
        disk.with {
            $0.isReadOnly = false
            $0.isFull = true
        }
        let full = try openHome(disk, unlocking: false)
        #expect(throws: StoreError.full(path: "/home/key")) { try change(full, "old", to: nil) }
        try change(full, "old", to: "new")
        full.close()
        disk.with { $0.isFull = false }
        #expect(try opens(disk, "new"))
        #expect(disk.files()["/home/key"] == nil)
    }

    @Test func `an unlock or change repairs a damaged keystore copy; a half keystore is not written`() throws {
        for index in 0..<2 {
            let disk = try makeUsedHome(passphrase: "old")
            var bytes = try #require(disk.files()["/home/keystore"])
            bytes[4_096 * index + 60] ^= 1
            disk.replace("/home/keystore", with: bytes)
            let copy = disk.copy()
            #expect(try opens(disk, "old"))
            let store = try openHome(disk, unlocking: false)
            #expect(store.keystore.isSettled && store.damage.isEmpty)
            store.close()
            let changing = try openHome(copy, unlocking: false)
            #expect(changing.damage.count == 1)
            try change(changing, "old", to: "new")
            #expect(changing.keystore.isSettled)
            changing.close()
            #expect(try opens(copy, "new"))
        }
        let disk = try makeUsedHome(passphrase: "old")
        let half = try #require(disk.files()["/home/keystore"]).prefix(4_096)
        disk.replace("/home/keystore", with: Array(half))
        let store = try openHome(disk, unlocking: false)
        #expect(throws: StoreError.damaged(what: "/home/keystore")) { try change(store, "old", to: "new") }
        try store.unlock(passphrase: secretBytes("old"))
        store.close()
        #expect(disk.files()["/home/keystore"] == Array(half))
    }
}
