import SimulatedDisk

/// The first violation of each kind.
struct Violations {
    private var kinds: [String: String] = [:]
    var all: [String] { kinds.values.sorted() }

    mutating func add(_ error: any Error, _ place: String) {
        let kind = String("\(error)".filter { !$0.isNumber && !$0.isHexDigit })
        if kinds[kind] == nil { kinds[kind] = "\(place): \(error)" }
    }
}

/// Repeats a history, each time with a misfortune at one call of the file system.
package class CallCampaign {
    package private(set) var runs = 0
    package var violations: [String] { found.all }
    private var found = Violations()
    /// Further names in a violation of this run.
    var place = ""
    let base: SimulatedDisk
    let seed: UInt64
    let steps: [Operation?]

    init(on base: SimulatedDisk, seed: UInt64, steps: [Operation?]) {
        (self.base, self.seed, self.steps) = (base, seed, steps)
    }

    package func callCount() throws -> Int {
        let disk = base.copy()
        let history = History(on: disk, seed: seed)
        try history.open()
        for step in steps { try history.step(step) }
        defer { history.close() }
        return disk.operations
    }

    func attempt(_ name: String, _ run: () throws -> Void) {
        runs += 1
        do { try run() } catch { found.add(error, "seed \(seed), \(name)\(place)") }
    }
}
