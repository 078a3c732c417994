import Cryptography
import SimulatedDisk
import Store

/// Reopens a disk after a power cut or fault and compares it with the promise.
package struct Verification {
    package static let home = "/home"
    package static let argon2 = Argon2Parameters(iterations: 1, memoryByteCount: 8_192)

    let promise: Promise
    let disk: any FileSystem
    let home: String

    /// Calls have failed, so the store may report truncated files.
    let wasHarmed: Bool

    package init(_ promise: Promise, _ disk: any FileSystem, home: String = Verification.home, wasHarmed: Bool = false)
    { (self.promise, self.disk, self.home, self.wasHarmed) = (promise, disk, home, wasHarmed) }

    /// - Parameter secrets: As in ``Promise/secrets``; the first that opens is used.
    package static func open(_ disk: any FileSystem, home: String = home, now: Int64, secrets: [String?] = [nil]) throws
        -> Store
    {
        let store = try openLocked(disk, home: home, now: now)
        do { try unlock(store, secrets) } catch {
            store.close()
            throw error
        }
        return store
    }

    private static func openLocked(_ disk: any FileSystem, home: String, now: Int64) throws -> Store {
        try Store.open(home: home, fileSystem: disk, now: now, argon2Floor: argon2, committingOn: .caller)
    }

    @discardableResult package static func unlock(_ store: Store, _ secrets: [String?]) throws -> String? {
        for secret in secrets.dropLast() {
            do { return try unlock(store, secret) } catch StoreError.wrongPassphrase {} catch StoreError
                .passphraseNeeded
            {}
        }
        return try unlock(store, secrets.last ?? nil)
    }

    private static func unlock(_ store: Store, _ secret: String?) throws -> String? {
        let bytes: SecretBytes? = secret.map { SecretBytes(copying: $0.utf8) }
        try store.unlock(passphrase: bytes)
        return secret
    }

    package static func makeHome() throws -> SimulatedDisk {
        let disk = SimulatedDisk()
        try makeHome(on: disk)
        return disk
    }

    package static func makeHome(on disk: any FileSystem, home: String = home) throws {
        try Store.create(
            home: home, protection: .keyFile, passphrase: nil, fileSystem: disk, argon2: argon2,
            journal: SimulatedDisk.journalByteCount)
    }

    /// Starts with the clock set back, so that only destruction hides data; this start must keep the promise and then
    /// accept writes. A second start must find them.
    /// - Parameter isThorough: Also lets everything expire and counts what remains on the disk.
    package func run(isThorough: Bool, isUsed: Bool = true) throws {
        let store = try require("the home can be looked at") {
            try Self.openLocked(disk, home: home, now: campaignStart)
        }
        var isOpen = true
        defer { if isOpen { store.close() } }
        try checkFormer(store)
        // After an unfinished change either secret may be the current one.
        let secrets = isUsed ? promise.secrets : promise.secrets.reversed()
        let secret = try require("the home opens") { try Self.unlock(store, secrets) }
        try compare(store)
        try checkDamage(store, isFirst: true)
        let fresh = isUsed || isThorough ? try use(store) : nil
        store.close()
        isOpen = false
        try checkDescriptors()
        guard isThorough, let fresh else { return }
        let again = try require("the home opens again") {
            try Self.open(disk, home: home, now: promise.now, secrets: [secret])
        }
        isOpen = true
        defer { again.close() }
        let found = try again.read(fresh, id: Self.identifier(0), now: promise.now)
        try expect(found.flatMap(Promise.Text.serial) == 0, "what was stored after the power cut is lost")
        try checkDamage(again, isFirst: false)
        try checkHidden(again)
        try letExpire(again)
        isOpen = false
    }

    static func identifier(_ number: Int) -> Bytes16 { Bytes16(UInt64(number).byteSwapped, 0x0707_0707_0707_0707) }

    private func expect(_ isTrue: Bool, _ comment: @autoclosure () -> String) throws {
        if !isTrue { throw Violation(comment()) }
    }

    private func require<Value>(_ what: String, _ body: () throws -> Value) throws -> Value {
        do { return try body() } catch let error as StoreError { throw Violation("\(what): \(error)") }
    }

    /// A former passphrase must open nothing. In key-file mode passphrases are ignored.
    private func checkFormer(_ store: Store) throws {
        guard store.protection == .passphrase else { return }
        for passphrase in promise.formerPassphrases.sorted().suffix(2) {
            do { _ = try Self.unlock(store, passphrase) } catch StoreError.wrongPassphrase { continue }
            throw Violation("a passphrase of before opens the home")
        }
    }

    package func compare(_ store: Store) throws {
        let live = Set(store.liveRows())
        try expect(live.isDisjoint(with: promise.destroyedInboxes), "an inbox that was destroyed is back")
        for (id, inbox) in promise.inboxes where !inbox.mayBeGone {
            try expect(live.contains(id), "inbox \(id) is lost")
        }
        for id in live {
            guard let inbox = promise.inboxes[id] else {
                try expect(store.list(id, now: campaignStart).isEmpty, "an inbox nobody knows has messages")
                continue
            }
            try require("inbox \(id)") { try compare(store, inbox) }
        }
        try compareNotes(store)
        let clock = store.clockMark()
        let clocks = promise.possibleClocks + [promise.clock]
        try expect(clocks.contains(clock), "the clock mark is \(clock - campaignStart)")
        for (id, payload) in store.loadSummaries() {
            let state = try store.loadState(id).flatMap(Promise.Text.serial)
            try expect(state == Promise.Text.serial(of: payload), "a summary is of another state")
        }
    }

    private func compare(_ store: Store, _ inbox: Promise.Inbox) throws {
        let listed = try store.list(inbox.id, now: campaignStart)
        let numbers = listed.map { message in message.id.bytes[..<8].reversed().reduce(0) { $0 << 8 | Int($1) } }
        try expect(Set(numbers).count == listed.count, "a message is listed twice")
        var serials: [Int] = []
        for (number, message) in inbox.messages {
            let found = try store.read(inbox.id, id: Self.identifier(number), now: campaignStart)
            if let found, let serial = Promise.Text.serial(of: found) { serials.append(serial) }
            let version = message.versions.first { $0.text.bytes == found }
            if found == nil {
                try expect(message.mayBeGone, "message \(number) of \(inbox.id) is lost")
            } else if message.mayBeGone, message.versions.allSatisfy({ $0.expiresAt <= promise.now }) {
                // An expired message: the order in which its versions are overwritten does not matter.
                continue
            } else {
                try expect(version != nil, "message \(number) of \(inbox.id) is another: \(show(found))")
            }
            try expect(numbers.contains(number) == (found != nil && !message.isHidden), "the list is not what is there")
            let contains = try store.contains(inbox.id, id: Self.identifier(number))
            try expect(contains == (found != nil), "message \(number) can be named and not read, or read and not named")
        }
        let served = serials + listed.compactMap { Promise.Text.serial(of: $0.payload) }
        for serial in served {
            try expect(!promise.destroyed.contains(serial), "\(serial) was destroyed and is served")
        }
        for number in numbers { try expect(inbox.messages[number] != nil, "message \(number) is nobody's") }
        let places = numbers.compactMap { inbox.messages[$0]?.place }
        try expect(places == places.sorted(), "the order of the messages is another")
        let state = try store.loadState(inbox.id)
        try expect(inbox.states.contains { $0?.bytes == state }, "the state is \(show(state)), not \(inbox.states)")
        let fuse = store.scheduledDestruction(of: inbox.id)
        if let promised = inbox.fuse {
            let isEarlier = fuse.map { $0 == promised || $0 < promised && inbox.possibleFuses.contains($0) }
            try expect(isEarlier ?? false, "the fuse is out, or another")
        } else if let fuse {
            try expect(inbox.possibleFuses.contains(fuse), "a fuse nobody lit")
        }
    }

    private func compareNotes(_ store: Store) throws {
        let tombstones = try store.tombstones().map(\.payload)
        try compare(tombstones, promise.tombstones, "tombstone")
        let fanOuts = try store.fanOuts(now: campaignStart).map(\.payload)
        try compare(fanOuts, promise.fanOuts, "fan-out list")
    }

    private func compare(_ found: [[UInt8]], _ notes: [Int: Promise.Note], _ what: String) throws {
        for (number, note) in notes {
            let count = found.count { bytes in note.texts.contains { $0.bytes == bytes } }
            try expect(count == 1 || count == 0 && note.mayBeGone, "\(what) \(number) is there \(count) times")
        }
        for bytes in found {
            guard let serial = Promise.Text.serial(of: bytes) else { throw Violation("a strange \(what)") }
            try expect(!promise.destroyed.contains(serial), "\(what) \(serial) was destroyed and is there")
        }
    }

    private func show(_ bytes: [UInt8]?) -> String {
        bytes.map { String(decoding: $0.prefix(12), as: UTF8.self) } ?? "nothing"
    }

    /// Reports allowed after a power cut, about writes that were not acknowledged; the last three at the first start
    /// only.
    private static let passing = [
        "is damaged; what can be opened is served", "is damaged; the last valid state is used",
        "its end makes no record: a write that was interrupted", "its end makes no state: a write that was interrupted",
        "its end makes no commit: a write that was interrupted", "its messages count as expired", "header of page",
        "tombstones.slots was changed",
    ]

    private func checkDescriptors() throws {
        guard let disk = disk as? SimulatedDisk else { return }
        try expect(disk.openFileCount == 0, "\(disk.openFileCount) descriptors stay open")
    }

    private func checkDamage(_ store: Store, isFirst: Bool) throws {
        for text in store.damage {
            // The torn end of a file remains.
            let allowed = isFirst ? Self.passing : Self.passing.dropLast(3)
            if allowed.contains(where: { text.contains($0) }) { continue }
            // With the clock set back, a bucket that has ended is recognised by its missing page.
            if isFirst, promise.now > campaignStart, text.contains("its key page is gone") { continue }
            // A segment whose creation failed.
            if wasHarmed, isFirst, text.contains("sidecar is missing or damaged") { continue }
            if mayReportLost, text.contains("belongs to no key page") { continue }
            throw Violation("\(isFirst ? "the first" : "the second") start reports: \(text)")
        }
    }

    /// A page torn while its inbox was being destroyed cannot name the directory.
    private var mayReportLost: Bool { promise.inboxes.values.contains { $0.mayBeGone } }

    /// Checks that the store accepts every operation.
    private func use(_ store: Store) throws -> RowID {
        try require("the store can be used") {
            let row = try store.createRow()
            let text = Promise.Text(serial: 0, byteCount: 40)
            for id in store.liveRows() {
                try store.append(
                    id, id: Self.identifier(id == row ? 0 : 999_999), tier: .thirtyDays,
                    expiresAt: campaignStart + 700 * 3_600_000, payload: text.bytes)
                if id != row, let state = try store.loadState(id) { try store.saveState(id, state) }
            }
            try store.saveState(row, text.bytes)
            try Self.commit(store)
            return row
        }
    }

    package static func commit(_ store: Store) throws {
        nonisolated(unsafe) var outcome: Result<Void, StoreError>?
        store.commit { outcome = $0 }
        guard let outcome else { throw Violation("a commit did not report") }
        try outcome.get()
    }

    private func checkHidden(_ store: Store) throws {
        for (id, inbox) in promise.inboxes where store.liveRows().contains(id) {
            for (number, message) in inbox.messages where message.versions.allSatisfy({ $0.expiresAt <= promise.now }) {
                let found = try store.read(id, id: Self.identifier(number), now: promise.now)
                try expect(found == nil, "message \(number) is served after its time")
            }
        }
    }

    /// Forty days later only inboxes and their states remain, also on the disk.
    private func letExpire(_ store: Store) throws {
        let later = promise.now + 40 * 24 * 3_600_000
        for _ in 0..<3 {
            let report = store.reap(hide: later, destroy: later)
            try expect(report.failures.isEmpty, "an expiry fails: \(report.failures)")
        }
        store.collect(limit: .max)
        let rows = store.liveRows().count
        store.close()
        try checkDescriptors()
        guard let disk = disk as? SimulatedDisk else { return }
        let left = disk.paths().filter { $0.hasPrefix(home + "/inboxes/") && $0 != home + "/inboxes/" }
        let directories = left.filter { $0.hasSuffix("/") }
        // The control row has a directory too.
        try expect(directories.count <= rows + 1, "directories are left: \(directories.count) for \(rows) inboxes")
        let strange = left.filter { !$0.hasSuffix("/") && !$0.hasSuffix(".log") }
        try expect(strange.isEmpty, "files are left: \(strange.map { $0.suffix(12) })")
    }
}
