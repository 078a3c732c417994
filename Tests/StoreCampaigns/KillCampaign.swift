import Glibc
import SimulatedDisk
import Store

/// Ends the process at the n-th file-system call, for every n, and keeps the kernel's cache. Data that the next process
/// shows may be relied on, so a power cut at that moment must keep all of it.
package final class KillCampaign: CallCampaign {
    package enum End: CaseIterable, Sendable {
        case killed
        /// The call fails with EIO, and the process is killed at the end of the step.
        case refused
        /// The call fails with EIO, and the process closes the store.
        case refusedAndClosed
        /// The disk is full from that call on, and the process is killed three steps later.
        case full
        /// The disk is full from that call on, and the process closes the store.
        case fullAndClosed
    }

    private let trustsCache: Bool

    /// - Parameter trustsCache: Plants the bug the campaign must find: the next process assumes that the last one
    /// closed in order.
    package init(on base: SimulatedDisk, seed: UInt64, steps: [Operation?], trustsCache: Bool = false) {
        self.trustsCache = trustsCache
        super.init(on: base, seed: seed, steps: steps)
    }

    /// Returns the violations found for each end; `nil` if one end missed the bug.
    package static func canary(on home: SimulatedDisk) throws -> String? {
        // More states than fit the last blocks of their files, in a commit too large for the journal: the next process
        // must make the journal's data durable. No later step writes the clock's mark again.
        let states = [Operation?](repeating: .saveState, count: 6)
        let steps: [Operation?] =
            [.createInbox, .saveState, .put, .commit, .lock, .saveClock, .put] + states + [.saveLargeState, .commit]
        var found: [String] = []
        for end in End.allCases {
            var violations: [String] = []
            for seed in 19...26 as ClosedRange<UInt64> where violations.isEmpty {
                let campaign = KillCampaign(on: home, seed: seed, steps: steps, trustsCache: true)
                for call in 1...(try campaign.callCount()) { campaign.run(at: call, end) }
                violations = campaign.violations
            }
            guard let first = violations.first else { return nil }
            found.append(first)
        }
        return found.joined(separator: "; ")
    }

    package func run(at call: Int, _ end: End) { attempt("call \(call), \(end)") { try tryRun(call, end) } }

    private func tryRun(_ call: Int, _ end: End) throws {
        let disk = base.copy()
        disk.with {
            switch end {
            case .killed: $0.crashAt = call
            case .refused, .refusedAndClosed: $0.fault = .init(at: call, code: EIO, isLasting: false)
            case .full, .fullAndClosed: $0.fullAt = call
            }
        }
        let history = History(on: disk, seed: seed)
        history.isHarmed = true
        do { try history.open() } catch is StoreError {}
        var later = end == .full || end == .fullAndClosed ? 3 : 0
        for step in steps where history.store != nil && (disk.operations < call || later > 0) {
            if disk.operations >= call { later -= 1 }
            try history.step(step)
        }
        if end == .refusedAndClosed || end == .fullAndClosed { history.close() }
        let killed = disk.snapshot()
        if end == .full || end == .fullAndClosed, !trustsCache {
            let full = killed.snapshot()
            full.with { $0.isFull = true }
            try Verification(history.promise, full.snapshot(), wasHarmed: true).run(isThorough: false, isUsed: false)
            try checkNext(full, call, history.promise.secrets, fails: nil)
        }
        killed.with { $0.isFull = false }
        if trustsCache { killed.replace("/home/lock", with: Array("1               ended   ".utf8)) }
        history.close()
        try Verification(history.promise, killed.snapshot(), wasHarmed: true).run(isThorough: false)
        let secrets = history.promise.secrets
        try checkNext(killed.snapshot(), call, secrets, fails: nil)
        let from = killed.operations + 1 + call % 40
        let next = SimulatedDisk.Fault(at: from, code: EIO, isLasting: true, isForOneCall: true)
        try checkNext(killed, call, secrets, fails: next)
    }

    /// Checks that everything the next process shows survives a power cut.
    private func checkNext(_ disk: SimulatedDisk, _ call: Int, _ secrets: [String?], fails: SimulatedDisk.Fault?) throws
    {
        disk.with { $0.fault = fails }
        let store: Store
        do { store = try Verification.open(disk, now: campaignStart, secrets: secrets) } catch let error as StoreError {
            if fails == nil { throw error }
            return
        }
        // A secret that opened the home without a fault is the only one from then on.
        let isSettled = fails == nil && secrets.count > 1
        var accepted = secrets
        if isSettled {
            store.lock()
            accepted = [try Verification.unlock(store, secrets)]
        }
        let shown = try Self.shown(by: store, mayFail: fails != nil)
        let outcomes = Outcomes(of: disk)
        store.close()
        for choice in outcomes.choices(limit: 3, seed: UInt64(call)) {
            let again = try Verification.open(outcomes.disk(choice), now: campaignStart, secrets: accepted)
            defer { again.close() }
            if let lost = shown.subtracting(try Self.shown(by: again)).min() {
                throw Violation("\(lost) was shown \(fails == nil ? "" : "by a disk that fails ")and is lost")
            }
        }
    }

    /// Everything the store returns.
    /// - Parameter mayFail: Omits unreadable data and the clock, whose failure is reported.
    private static func shown(by store: Store, mayFail: Bool = false) throws -> Set<String> {
        var shown: Set<String> = mayFail ? [] : ["clock \(store.clockMark())"]
        func text(_ bytes: [UInt8]) -> String {
            Promise.Text.serial(of: bytes).map(String.init) ?? "\(bytes.prefix(8))"
        }
        func attempt(_ body: () throws -> Void) throws {
            do { try body() } catch let error as StoreError { if !mayFail { throw error } }
        }
        for row in store.liveRows() {
            shown.insert("inbox \(row)")
            if let fuse = store.scheduledDestruction(of: row) { shown.insert("fuse \(fuse) of \(row)") }
            try attempt { if let state = try store.loadState(row) { shown.insert("state \(text(state)) of \(row)") } }
            try attempt {
                for message in try store.list(row, now: campaignStart) {
                    shown.insert("message \(text(message.payload)) of \(row)")
                }
            }
        }
        for note in try store.tombstones() { shown.insert("tombstone \(text(note.payload))") }
        try attempt {
            for note in try store.fanOuts(now: campaignStart) { shown.insert("fan-out list \(text(note.payload))") }
        }
        return shown
    }
}
