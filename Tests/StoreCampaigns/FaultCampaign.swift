import Glibc
import SimulatedDisk
import Store

/// Fails the n-th file-system call, for every n, with every errno, once and for good. Acknowledged data must survive,
/// refusals must be typed errors, and the store must work again after the fault.
package final class FaultCampaign: CallCampaign {
    package static let codes: [Int32] = [EIO, ENOSPC, EROFS, EMFILE, EDQUOT, EACCES]

    package enum Lasting: CaseIterable, Sendable {
        case once
        /// All calls of the same name fail from then on.
        case oneCall
        case everything
    }

    package private(set) var refusals = 0
    package private(set) var struck: [String: Int] = [:]
    private let believesFailures: Bool

    /// - Parameters:
    ///   - steps: The history whose calls fail.
    ///   - believesFailures: Plants the bug that the campaign must find; see ``History/believesFailures``.
    package init(on base: SimulatedDisk, seed: UInt64, steps: [Operation?], believesFailures: Bool = false) {
        self.believesFailures = believesFailures
        super.init(on: base, seed: seed, steps: steps)
    }

    /// Checks that the campaign can fail: a failed commit that counts as done acknowledges missing data. Returns the
    /// violation; `nil` if the campaign missed it.
    package static func canary(on home: SimulatedDisk) throws -> String? {
        let steps: [Operation?] = [.createInbox, .put, .commit]
        let campaign = FaultCampaign(on: home, seed: 1, steps: steps, believesFailures: true)
        let count = try campaign.callCount()
        for call in 1...count { campaign.run(failing: call, with: EIO, .once) }
        return campaign.violations.first { $0.contains("is lost") }
    }

    /// Every kind of operation at least once, in an order that gives each something to act on.
    package static let everyOperation: [Operation] = [
        .createInbox, .createInbox, .saveState, .put, .put, .putHidden, .commit, .update, .put, .commit, .lightFuse,
        .createInbox, .put, .saveState, .commit, .reschedule, .commit, .addTombstone, .addTombstone, .updateTombstone,
        .removeTombstone, .saveFanOut, .saveFanOut, .removeFanOut, .saveClock, .saveSummaries, .changePassphrase,
        .erase, .shortWait, .saveLargeState, .commit, .saveLargeState, .commit, .saveLargeState, .commit,
        .saveLargeState, .commit, .release, .put, .put, .commit, .changePassphrase, .lock, .put, .commit,
        .waitWhileLocked, .createInbox, .put, .saveState, .commit, .longWait, .createInbox, .put, .commit,
        .destroyInbox, .createInbox, .put, .commit, .destroyWhileLocked, .restart, .changePassphrase, .put, .commit,
        .shortWait, .changePassphrase, .changePassphrase, .addTombstone, .lightFuse, .saveClock, .restart,
    ]

    package func run(failing call: Int, with code: Int32, _ lasting: Lasting) {
        attempt("call \(call), \(String(cString: strerror(code))), \(lasting)") { try tryRun(call, code, lasting) }
    }

    private func tryRun(_ call: Int, _ code: Int32, _ lasting: Lasting) throws {
        let disk = base.copy()
        disk.with {
            $0.fault = .init(at: call, code: code, isLasting: lasting != .once, isForOneCall: lasting == .oneCall)
        }
        let history = History(on: disk, seed: seed)
        history.isHarmed = true
        history.believesFailures = believesFailures
        do { try history.open() } catch is StoreError {}
        for step in steps where history.store != nil { try history.step(step) }
        refusals += history.refusals
        place = ", \(disk.with { $0.struckCall } ?? "none"), now \(history.operation)"
        struck[disk.with { $0.struckCall } ?? "none", default: 0] += 1
        // After a power cut at this moment only durable data survives.
        let outcomes = Outcomes(of: disk)
        for choice in outcomes.choices(limit: 3, seed: UInt64(call)) {
            try Verification(history.promise, outcomes.disk(choice), wasHarmed: true).run(isThorough: false)
        }
        // Without the fault the store works, at once or after a restart.
        disk.with { $0.fault = nil }
        // A store that found its home read-only stays read-only until it is opened again.
        if history.store?.isReadOnly ?? false { history.close() }
        if let store = history.store { try recover(store, history) }
        history.close()
        if disk.openFileCount != 0 { throw Violation("\(disk.openFileCount) descriptors stay open") }
        try Verification(history.promise, disk.copy(), wasHarmed: true).run(isThorough: true)
    }

    private func recover(_ store: Store, _ history: History) throws {
        if store.isLocked {
            do { try Verification.unlock(store, history.promise.secrets) } catch {
                throw Violation("the store stays locked: \(error)")
            }
        }
        for _ in 0..<2 {
            let report = store.reap(hide: history.promise.now, destroy: history.promise.now)
            if let failure = report.failures.last, history.promise.inboxes.isEmpty { throw failure }
        }
        let report = store.reap(hide: history.promise.now, destroy: history.promise.now)
        if let failure = report.failures.first { throw Violation("it still fails: \(failure)") }
        do {
            let row = try store.createRow()
            let text = Promise.Text(serial: 0, byteCount: 40)
            try store.append(
                row, id: Verification.identifier(0), tier: .thirtyDays, expiresAt: history.promise.now + 3_600_000,
                payload: text.bytes)
            try store.saveState(row, text.bytes)
            try Verification.commit(store)
            try store.destroyRow(row)
        } catch let error as StoreError { throw Violation("the fault is gone and the store refuses: \(error)") }
        history.settleDue()
    }
}
