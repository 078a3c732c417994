import Glibc
import SimulatedDisk
import Store

/// Ends the process at the n-th file-system call, for every n, and leaves the kernel's cache as it is: what the next process
/// shows, it may build on. So a power cut at that moment must leave all of it.
package final class KillCampaign {
    package enum End: CaseIterable, Sendable {
        /// Killed in the middle of the call.
        case killed
        /// The call fails with EIO, and the process is killed at the end of the step.
        case refused
    }

    package private(set) var runs = 0
    package var violations: [String] { kinds.values.sorted() }
    private var kinds: [String: String] = [:]
    private let base: SimulatedDisk
    private let seed: UInt64
    private let steps: [Operation?]
    private let trustsCache: Bool

    /// - Parameter trustsCache: plants the bug that the campaign must find: the next process believes the machine to have
    ///   been started since.
    package init(on base: SimulatedDisk, seed: UInt64, steps: [Operation?], trustsCache: Bool = false) {
        self.base = base
        self.seed = seed
        self.steps = steps
        self.trustsCache = trustsCache
    }

    /// - Returns: what is found of the bug after a kill, and after a refused barrier; `nil` if either is not found.
    package static func canary(on home: SimulatedDisk) throws -> String? {
        let steps: [Operation?] = [.createInbox, .saveState, .put, .commit, .put, .commit]
        let found = try End.allCases.compactMap { end in
            let campaign = KillCampaign(on: home, seed: 1, steps: steps, trustsCache: true)
            for call in 1...(try campaign.callCount()) { campaign.run(at: call, end) }
            return campaign.violations.first
        }
        return found.count == End.allCases.count ? found.joined(separator: "; ") : nil
    }

    /// How many calls the undisturbed history makes.
    package func callCount() throws -> Int {
        let disk = base.copy()
        let history = History(on: disk, seed: seed)
        try history.open()
        for step in steps { try perform(step, history) }
        let count = disk.operations
        history.close()
        return count
    }

    private func perform(_ step: Operation?, _ history: History) throws {
        if let step { try history.step(step) } else { try history.step() }
    }

    package func run(at call: Int, _ end: End) {
        runs += 1
        do { try tryRun(call, end) } catch {
            let kind = String("\(error)".filter { !$0.isNumber && !$0.isHexDigit })
            if kinds[kind] == nil { kinds[kind] = "seed \(seed), call \(call), \(end): \(error)" }
        }
    }

    private func tryRun(_ call: Int, _ end: End) throws {
        let disk = base.copy()
        disk.with {
            switch end {
            case .killed: $0.crashAt = call
            case .refused: $0.fault = .init(at: call, code: EIO, isLasting: false)
            }
        }
        let history = History(on: disk, seed: seed)
        history.isHarmed = true
        do { try history.open() } catch is StoreError {}
        for step in steps where history.store != nil && disk.operations < call { try perform(step, history) }
        let killed = disk.snapshot()
        if trustsCache { killed.with { $0.boot += 1 } }
        history.close()
        try Verification(history.promise, killed.snapshot(), wasHarmed: true).run(isThorough: false)
        let store = try Verification.open(killed, now: campaignStart)
        let shown = try Self.shown(by: store)
        let outcomes = Outcomes(of: killed)
        store.close()
        for choice in outcomes.choices(limit: 3, seed: UInt64(call)) {
            let again = try Verification.open(outcomes.disk(choice), now: campaignStart)
            defer { again.close() }
            if let lost = shown.subtracting(try Self.shown(by: again)).min() {
                throw Violation("\(lost) was shown and is lost")
            }
        }
    }

    /// All that a store says it has.
    private static func shown(by store: Store) throws -> Set<String> {
        var shown: Set<String> = ["clock \(store.clockMark())"]
        func text(_ bytes: [UInt8]) -> String {
            Promise.Text.serial(of: bytes).map(String.init) ?? "\(bytes.prefix(8))"
        }
        for row in store.liveRows() {
            shown.insert("inbox \(row)")
            if let fuse = store.scheduledDestruction(of: row) { shown.insert("fuse \(fuse) of \(row)") }
            if let state = try store.loadState(row) { shown.insert("state \(text(state)) of \(row)") }
            for message in try store.list(row, now: campaignStart) {
                shown.insert("message \(text(message.payload)) of \(row)")
            }
        }
        for note in try store.tombstones() { shown.insert("tombstone \(text(note.payload))") }
        for note in try store.fanOuts(now: campaignStart) { shown.insert("fan-out list \(text(note.payload))") }
        return shown
    }
}
