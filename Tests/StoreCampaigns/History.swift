import Cryptography
import SimulatedDisk
import Store

package enum Operation: String, CaseIterable, Sendable {
    case createInbox, put, putHidden, update, erase, reschedule, saveState, saveLargeState, commit, destroyInbox,
        lightFuse
    case shortWait, longWait, addTombstone, updateTombstone, removeTombstone, saveFanOut, removeFanOut, saveSummaries
    case saveClock, release, lock, destroyWhileLocked, waitWhileLocked, restart, changePassphrase
}

/// A store under random operations, and the promise it has given.
package final class History {
    package private(set) var promise = Promise()
    package private(set) var disk: any FileSystem
    private let home: String
    package private(set) var store: Store?
    package private(set) var refusals = 0
    /// Messages that a reap has reported as expired.
    package private(set) var expiredCount = 0
    package private(set) var lockedWaits = 0
    /// Every payload ever sealed, with the row and bucket end of its key.
    private var sealed: [(serial: Int, row: RowID?, keyEnds: Int64)] = []
    /// The disk fails: a commit may silently fail a reap's erasures, and a later reap repeats them.
    package var isHarmed = false
    /// Plants a bug: a failed commit counts as done.
    package var believesFailures = false
    private var luck: SimulatedDisk.Generator
    private var rows: [RowID] = []
    package private(set) var now = campaignStart
    private var nextSerial = 1
    private var nextNumber = 1
    /// Promises that the next commit acknowledges, in order.
    private var waiting: [(inout Promise) -> Void] = []
    private var tombstoneIDs: [Int: TombstoneID] = [:]
    package private(set) var operation = Operation.restart

    package init(on disk: any FileSystem, home: String = Verification.home, seed: UInt64) {
        self.disk = disk
        self.home = home
        luck = SimulatedDisk.Generator(seed: seed)
    }

    package func open() throws {
        let now = now
        store = try Verification.open(disk, home: home, now: now, secrets: promise.secrets)
    }

    package func close() {
        store?.close()
        store = nil
    }

    // MARK: - Luck

    private func pick(_ range: Range<Int>) -> Int { range.lowerBound + Int(luck.next() % UInt64(range.count)) }
    private func pick<Element>(_ elements: [Element]) -> Element? {
        elements.isEmpty ? nil : elements[pick(0..<elements.count)]
    }

    private func text(_ byteCount: Int) -> Promise.Text {
        defer { nextSerial += 1 }
        return Promise.Text(serial: nextSerial, byteCount: byteCount)
    }

    private static let tiers: [Tier] = [.oneHour, .oneHour, .sixHours, .thirtyDays]

    private func version(_ text: Promise.Text) -> Promise.Version {
        let tier = pick(Self.tiers) ?? .oneHour
        let longest = min(tier.lifetime, tier == .oneHour ? 60_000 : tier.lifetime)
        return Promise.Version(text: text, tier: tier, expiresAt: now + 1 + Int64(luck.next() % UInt64(longest)))
    }

    private func note(_ version: Promise.Version, _ row: RowID?) {
        sealed.append((version.text.serial, row, version.keyEnds))
    }

    /// Payloads whose keys the store has confirmed destroyed: kept ciphertext is useless.
    package var withoutKeys: Set<Int> {
        let alive = sealed.filter { text in
            if let row = text.row, promise.destroyedInboxes.contains(row) { return false }
            return text.keyEnds > lastReap
        }
        return Set(sealed.map(\.serial)).subtracting(alive.map(\.serial))
    }

    package var live: Set<Int> {
        var found: Set<Int> = []
        for inbox in promise.inboxes.values where !inbox.mayBeGone {
            for message in inbox.messages.values where !message.mayBeGone && message.versions.count == 1 {
                found.formUnion(message.versions.map(\.text.serial))
            }
            if inbox.states.count == 1 { found.formUnion(inbox.states.compactMap { $0?.serial }) }
        }
        for note in Array(promise.tombstones.values) + Array(promise.fanOuts.values) where !note.mayBeGone {
            if note.texts.count == 1 { found.formUnion(note.texts.map(\.serial)) }
        }
        return found
    }

    /// Everything due at this time was destroyed.
    package private(set) var lastReap = campaignStart

    package var liveRows: [RowID] { rows.filter { row in promise.inboxes[row].map { !$0.mayBeGone } ?? false } }

    /// A message that is certainly stored.
    private func someMessage() -> (RowID, Int)? {
        let all = liveRows.flatMap { row in
            (promise.inboxes[row]?.messages ?? [:]).filter { $0.value.versions.allSatisfy { $0.expiresAt > now } }.map {
                (row, $0.key)
            }
        }
        return pick(all.sorted { $0 < $1 })
    }

    // MARK: - Steps

    private func attempt(_ body: (Store) throws -> Void) throws {
        guard let store else { return }
        do { try body(store) } catch is StoreError { refusals += 1 }
    }

    /// Makes a step of a kind with random details; nothing if there is nothing to act on.
    package func step(_ operation: Operation) throws {
        self.operation = operation
        switch operation {
        case .createInbox: try createInbox()
        case .put: try put(isHidden: false)
        case .putHidden: try put(isHidden: true)
        case .update: try update()
        case .erase: try erase()
        case .reschedule: try reschedule()
        case .saveState: try saveState(pick(10..<2_000))
        case .saveLargeState: try saveState(90_000)
        case .commit: try commit()
        case .destroyInbox: try destroyInbox()
        case .lightFuse: try lightFuse()
        case .shortWait: try pass(Int64(pick(1..<12_000)))
        case .longWait: try pass(Int64(pick(60_000..<8_000_000)))
        case .addTombstone: try addTombstone()
        case .updateTombstone: try updateTombstone()
        case .removeTombstone: try removeTombstone()
        case .saveFanOut: try saveFanOut()
        case .removeFanOut: try removeFanOut()
        case .saveSummaries: try saveSummaries()
        case .saveClock: try saveClock()
        case .release: try release()
        case .lock: try lock()
        case .destroyWhileLocked: try destroyWhileLocked()
        case .waitWhileLocked: try waitWhileLocked()
        case .restart: try restart()
        case .changePassphrase: try changePassphrase()
        }
    }

    package func step(_ operation: Operation?) throws { if let operation { try step(operation) } else { try step() } }

    /// Makes a random step; frequent operations of a node are frequent.
    package func step() throws {
        let often: [Operation] = [
            .put, .put, .put, .put, .update, .update, .saveState, .commit, .commit, .commit, .shortWait,
        ]
        let seldom = Operation.allCases.filter { $0 != .saveLargeState }
        try step(liveRows.isEmpty ? .createInbox : pick(often + seldom) ?? .put)
    }

    private func createInbox() throws {
        guard promise.inboxes.count < 6 else { return }
        try attempt { store in
            let row = try store.createRow()
            rows.append(row)
            promise.inboxes[row] = Promise.Inbox(id: row)
        }
    }

    private func put(isHidden: Bool) throws {
        guard let row = pick(liveRows) else { return }
        let version = version(text(pick([20..<60, 20..<60, 400..<1_500, 3_000..<9_000]).map(pick) ?? 20))
        let number = nextNumber
        nextNumber += 1
        note(version, row)
        promise.inboxes[row]?.messages[number] = Promise.Message(
            versions: [version], mayBeGone: true, isHidden: isHidden, place: number)
        try attempt { store in
            try store.append(
                row, id: Verification.identifier(number), tier: version.tier, expiresAt: version.expiresAt,
                payload: version.text.bytes, isHidden: isHidden)
            waiting.append { $0.inboxes[row]?.messages[number]?.mayBeGone = false }
        }
    }

    private func update() throws {
        guard let (row, number) = someMessage(), let old = promise.inboxes[row]?.messages[number]?.versions.last else {
            return
        }
        let version = Promise.Version(text: text(pick(20..<600)), tier: old.tier, expiresAt: old.expiresAt)
        try replace(row, number, by: version) { store in
            try store.update(row, id: Verification.identifier(number), payload: version.text.bytes)
        }
    }

    private func replace(_ row: RowID, _ number: Int, by version: Promise.Version, _ change: (Store) throws -> Void)
        throws
    {
        note(version, row)
        promise.inboxes[row]?.messages[number]?.versions.append(version)
        try attempt { store in
            try change(store)
            waiting.append {
                $0.inboxes[row]?.messages[number]?.versions = [version]
                $0.inboxes[row]?.messages[number]?.mayBeGone = false
            }
        }
    }

    private func erase() throws {
        guard let (row, number) = someMessage() else { return }
        promise.inboxes[row]?.messages[number]?.mayBeGone = true
        try attempt { store in
            try store.erase(row, id: Verification.identifier(number))
            waiting.append { $0.erase(row, number) }
        }
        // No later operation of this batch uses the row.
        try commit()
    }

    /// Erases a message and stores another with its identifier in one commit, as a mailbox keeps an owner's answer in
    /// place of a notice.
    package func replace() throws {
        guard let (row, number) = someMessage() else { return }
        let version = version(text(pick(20..<600)))
        let place = nextNumber
        nextNumber += 1
        note(version, row)
        promise.inboxes[row]?.messages[number]?.mayBeGone = true
        try attempt { store in
            let id = Verification.identifier(number)
            try store.erase(row, id: id)
            try store.append(row, id: id, tier: version.tier, expiresAt: version.expiresAt, payload: version.text.bytes)
            waiting.append {
                $0.erase(row, number)
                $0.inboxes[row]?.messages[number] = Promise.Message(
                    versions: [version], mayBeGone: false, isHidden: false, place: place)
            }
        }
        try commit()
    }

    private func reschedule() throws {
        guard let (row, number) = someMessage(), let old = promise.inboxes[row]?.messages[number]?.versions.last else {
            return
        }
        let version = version(old.text)
        try replace(row, number, by: version) { store in
            try store.reschedule(
                row, id: Verification.identifier(number), tier: version.tier, expiresAt: version.expiresAt)
        }
    }

    private func saveState(_ byteCount: Int) throws {
        guard let row = pick(liveRows) else { return }
        let state = text(byteCount)
        sealed.append((state.serial, row, .max))
        promise.inboxes[row]?.states.append(state)
        try attempt { store in
            try store.saveState(row, state.bytes)
            waiting.append { $0.inboxes[row]?.states = [state] }
        }
    }

    private func commit() throws {
        let done = waiting
        waiting = []
        let refusalsBefore = refusals
        try attempt { store in
            try Verification.commit(store)
            for change in done { change(&promise) }
        }
        if believesFailures, refusals > refusalsBefore { for change in done { change(&promise) } }
    }

    private func destroyInbox() throws {
        guard let row = pick(liveRows) else { return }
        try commit()
        try destroy(row)
    }

    private func destroy(_ row: RowID) throws {
        promise.inboxes[row]?.mayBeGone = true
        try attempt { store in
            try store.destroyRow(row)
            promise.destroy(row)
        }
    }

    private func lightFuse() throws {
        guard let row = pick(liveRows) else { return }
        let moment = now + Int64(pick(1..<20_000))
        promise.inboxes[row]?.possibleFuses.append(moment)
        try attempt { store in
            try store.scheduleDestruction(of: row, at: moment)
            let earliest = min(promise.inboxes[row]?.fuse ?? moment, moment)
            promise.inboxes[row]?.fuse = earliest
            promise.inboxes[row]?.possibleFuses.removeAll { $0 >= earliest }
        }
    }

    package func pass(_ interval: Int64) throws {
        try commit()
        now += interval
        promise.expect(expiry: now)
        try reap(withRecords: !isHarmed)
    }

    private func reap(withRecords: Bool) throws {
        try attempt { store in
            let report = store.reap(hide: now, destroy: now)
            expiredCount += report.expired.count
            if let failure = report.failures.first { throw failure }
            lastReap = now
            promise.settle(expiry: now, withRecords: withRecords)
        }
    }

    /// Expects the pending expiries done, after a reap without failures on a working disk.
    package func settleDue() {
        promise.expect(expiry: now)
        promise.settle(expiry: now, withRecords: true)
    }

    private func addTombstone() throws {
        guard promise.tombstones.count < 4 else { return }
        let number = nextNumber
        nextNumber += 1
        let text = text(pick(10..<2_000))
        let moment = now + Int64(pick(1..<9_000_000))
        promise.tombstones[number] = Promise.Note(texts: [text], expiresAt: moment, mayBeGone: true)
        try attempt { store in
            tombstoneIDs[number] = try store.addTombstone(keepUntil: moment, payload: text.bytes)
            promise.tombstones[number]?.mayBeGone = false
        }
    }

    private func someTombstone() -> (Int, TombstoneID)? {
        pick(promise.tombstones.filter { !$0.value.mayBeGone }.keys.sorted()).flatMap { number in
            tombstoneIDs[number].map { (number, $0) }
        }
    }

    private func updateTombstone() throws {
        guard let (number, id) = someTombstone() else { return }
        let text = text(pick(10..<2_000))
        promise.tombstones[number]?.texts.append(text)
        try attempt { store in
            try store.updateTombstone(id, payload: text.bytes)
            promise.tombstones[number]?.texts = [text]
        }
    }

    private func removeTombstone() throws {
        guard let (number, id) = someTombstone() else { return }
        promise.tombstones[number]?.mayBeGone = true
        try attempt { store in
            try store.removeTombstone(id)
            let texts = promise.tombstones.removeValue(forKey: number)?.texts ?? []
            promise.destroyed.formUnion(texts.map(\.serial))
        }
    }

    private func saveFanOut() throws {
        let known = pick(promise.fanOuts.filter { !$0.value.mayBeGone }.keys.sorted())
        let number = promise.fanOuts.count < 3 ? nextNumber : known
        guard let number else { return }
        nextNumber += 1
        let text = text(pick(10..<500))
        var note =
            promise.fanOuts[number]
            ?? Promise.Note(
                texts: [], expiresAt: now + 1 + Int64(luck.next() % UInt64(Tier.control.lifetime)), mayBeGone: true)
        note.texts.append(text)
        self.note(Promise.Version(text: text, tier: .control, expiresAt: note.expiresAt), nil)
        promise.fanOuts[number] = note
        try attempt { store in
            try store.saveFanOut(id: Verification.identifier(number), expiresAt: note.expiresAt, payload: text.bytes)
            waiting.append {
                $0.fanOuts[number]?.texts = [text]
                $0.fanOuts[number]?.mayBeGone = false
            }
            try commit()
        }
    }

    private func removeFanOut() throws {
        guard let number = pick(promise.fanOuts.filter { !$0.value.mayBeGone }.keys.sorted()) else { return }
        promise.fanOuts[number]?.mayBeGone = true
        try attempt { store in
            try store.removeFanOut(id: Verification.identifier(number))
            waiting.append {
                let texts = $0.fanOuts.removeValue(forKey: number)?.texts ?? []
                $0.destroyed.formUnion(texts.map(\.serial))
            }
            try commit()
        }
    }

    private func saveSummaries() throws {
        try commit()
        let entries = liveRows.compactMap { row in
            promise.inboxes[row]?.states.last.flatMap { $0 }.map { (row: row, payload: $0.bytes) }
        }
        try attempt { store in try store.saveSummaries(entries) }
    }

    private func saveClock() throws {
        let value = now
        guard value > promise.clock else { return }
        promise.possibleClocks.append(value)
        try attempt { store in
            try store.saveClockMark(value)
            promise.clock = value
            promise.possibleClocks = []
        }
    }

    private func release() throws {
        guard let row = pick(liveRows) else { return }
        store?.release(row)
    }

    /// A lock commits pending appends and does not report a failure.
    private func lock() throws {
        try commit()
        store?.lock()
        try unlock()
    }

    private func unlock() throws {
        try attempt { store in
            do { try Verification.unlock(store, promise.secrets) } catch {
                close()
                throw error
            }
        }
    }

    private func destroyWhileLocked() throws {
        guard let row = pick(liveRows) else { return }
        try commit()
        store?.lock()
        try destroy(row)
        try unlock()
    }

    private func waitWhileLocked() throws { try passWhileLocked(Int64(pick(1..<30_000))) }

    package func passWhileLocked(_ interval: Int64) throws {
        try commit()
        now += interval
        lockedWaits += 1
        store?.lock()
        promise.expect(expiry: now)
        try reap(withRecords: false)
        try unlock()
        try reap(withRecords: !isHarmed)
    }

    /// Kills the process. The next one finds all its writes, or after a power cut those that arrived.
    package func kill(powerCut seed: UInt64? = nil) throws {
        guard let before = disk as? SimulatedDisk else { return }
        promise.expect(expiry: now)
        let after = before.snapshot()
        if let seed { after.reboot(seed: seed) }
        close()
        waiting = []
        disk = after
        do { try open() } catch is StoreError { refusals += 1 }
    }

    package func passWhileStopped(_ interval: Int64) throws {
        try commit()
        close()
        now += interval
        promise.expect(expiry: now)
        do { try open() } catch is StoreError { refusals += 1 }
        try pass(1)
    }

    private func restart() throws {
        try commit()
        promise.expect(expiry: now)
        close()
        do { try open() } catch is StoreError { refusals += 1 }
    }

    /// Replaces a passphrase or the key file; one of three possible changes returns to a key file.
    private func changePassphrase() throws {
        guard let store else { return }
        let isBack = store.protection == .passphrase && pick(0..<3) == 0
        let new = isBack ? nil : "passphrase \(nextNumber)"
        nextNumber += 1
        let old = promise.secrets
        let keyFile = keyFile
        if !old.contains(new) { promise.secrets.append(new) }
        try attempt { store in
            try Self.change(store, from: old, to: new)
            promise.secrets = [new]
            promise.formerPassphrases.formUnion(old.compactMap(\.self))
            if new != nil, let keyFile { promise.formerKeyFiles.insert(keyFile) }
        }
    }

    private static func change(_ store: Store, from old: [String?], to new: String?) throws {
        for secret in old.dropLast() {
            do { return try change(store, from: secret, to: new) } catch StoreError.wrongPassphrase {} catch StoreError
                .passphraseNeeded
            {}
        }
        try change(store, from: old.last ?? nil, to: new)
    }

    private static func change(_ store: Store, from old: String?, to new: String?) throws {
        let old: SecretBytes? = old.map { SecretBytes(copying: $0.utf8) }
        let new: SecretBytes? = new.map { SecretBytes(copying: $0.utf8) }
        try store.changeProtection(from: old, to: new)
    }

    private var keyFile: [UInt8]? {
        if let disk = disk as? SimulatedDisk { return disk.files()[home + "/key"] }
        guard let file = try? disk.open(home + "/key", in: nil, []) else { return nil }
        defer { disk.close(file) }
        return try? disk.read(file, at: 0, count: 32)
    }
}
