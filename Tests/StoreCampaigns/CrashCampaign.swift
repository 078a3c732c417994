import SimulatedDisk

/// Cuts the power at every file-system call of a history, tries subsets of the unsynced data, reopens and compares with
/// the promise.
package final class CrashCampaign {
    package let limit: Int
    /// One of `thoroughness` states is also used afterwards; one of four times as many is followed to its end.
    package let thoroughness: Int
    package private(set) var moments = 0
    package private(set) var statesChecked = 0
    /// Hashes of the distinct disks that were checked.
    package private(set) var names: Set<Int> = []
    package private(set) var byOperation: [Operation: Int] = [:]
    /// The first violation of each kind.
    package var violations: [String] { found.all }
    private var found = Violations()
    private var seed: UInt64

    package init(limit: Int, thoroughness: Int, seed: UInt64) {
        (self.limit, self.thoroughness, self.seed) = (limit, thoroughness, seed)
    }

    /// Checks that the campaign can fail: a disk whose barriers have no effect loses acknowledged data. Returns the
    /// violation; `nil` if the campaign missed it.
    /// - Parameter mistake: The mistake of the disk.
    package static func canary(on home: SimulatedDisk, _ mistake: (inout SimulatedDisk.State) -> Void) throws -> String?
    {
        let disk = home.copy()
        disk.with(mistake)
        let campaign = CrashCampaign(limit: 8, thoroughness: 4, seed: 1)
        let history = History(on: disk, seed: 1)
        try campaign.run(history, on: disk, named: "canary", [.createInbox, .saveState, .put, .put, .commit])
        history.close()
        return campaign.violations.first { $0.contains("is lost") }
    }

    /// - Parameter steps: The operations; reports of violations give their numbers.
    package func run(_ history: History, on disk: SimulatedDisk, named name: String, _ steps: [Operation?]) throws {
        // A moment is checked at the next one, when its operation is known.
        var last: (SimulatedDisk, Promise)?
        disk.observe { snapshot in
            if let last { self.check(last.0, last.1, "\(name), in \(history.operation)", history.operation) }
            last = (snapshot, history.promise)
        }
        defer { disk.observe(nil) }
        if history.store == nil { try history.open() }
        for (index, step) in steps.enumerated() {
            try history.step(step)
            last = nil
            let place = "\(name), step \(index), after \(history.operation)"
            check(disk.snapshot(), history.promise, place, history.operation, isStep: true)
        }
    }

    package func check(
        _ disk: SimulatedDisk, _ promise: Promise, _ place: String, _ operation: Operation, isStep: Bool = false
    ) {
        moments += 1
        seed &+= 1
        let outcomes = Outcomes(of: disk)
        for (index, choice) in outcomes.choices(limit: limit, seed: seed).enumerated() {
            let state = outcomes.disk(choice)
            let isNew = names.insert(state.contentHash).inserted
            // The end of a step changes the promise, so known states are checked again.
            if !isNew, !isStep, index > 1 { continue }
            statesChecked += 1
            if isNew { byOperation[operation, default: 0] += 1 }
            do {
                try Verification(promise, state).run(
                    isThorough: statesChecked % (4 * thoroughness) == 0, isUsed: statesChecked % thoroughness == 0)
            } catch { found.add(error, "\(place), outcome \(choice)") }
        }
    }
}
