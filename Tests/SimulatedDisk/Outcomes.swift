/// Possible disks after a power cut. Each unsynced sector, file size and directory entry independently keeps one of its
/// versions: any subset of the writes since the last barrier, in any order, torn at 512 bytes. Sizes may survive
/// without contents, and names without files, or the other way around.
package struct Outcomes {
    enum Unit {
        case sector(node: Int, sector: Int)
        case size(node: Int)
        case entry(node: Int, name: String)
    }

    let units: [Unit]
    /// Number of versions of each unit, at least two; the first is the durable one.
    let ways: [Int]
    private let state: SimulatedDisk.State

    package init(of disk: SimulatedDisk) { self.init(disk.with { $0 }) }

    init(_ state: SimulatedDisk.State) {
        self.state = state
        var units: [Unit] = []
        var ways: [Int] = []
        for number in state.nodes.keys.sorted() {
            guard let node = state.nodes[number] else { continue }
            for sector in node.pending.keys.sorted() {
                units.append(.sector(node: number, sector: sector))
                ways.append(1 + (node.pending[sector]?.count ?? 0))
            }
            if !node.sizes.isEmpty {
                units.append(.size(node: number))
                ways.append(1 + node.sizes.count)
            }
            for name in node.pendingEntries.keys.sorted() {
                units.append(.entry(node: number, name: name))
                ways.append(1 + (node.pendingEntries[name]?.count ?? 0))
            }
        }
        self.units = units
        self.ways = ways
    }

    /// Number of outcomes; `Int.max` if it overflows.
    package var total: Int {
        var total = 1
        for way in ways {
            let (product, isTooMany) = total.multipliedReportingOverflow(by: way)
            if isTooMany { return .max }
            total = product
        }
        return total
    }

    /// All outcomes if there are at most `limit`. Otherwise nothing and everything, each unit alone kept and alone
    /// lost, and random ones.
    package func choices(limit: Int, seed: UInt64) -> [[Int]] {
        let none = [Int](repeating: 0, count: ways.count)
        let count = total
        if count <= limit {
            var choice = none
            return (0..<count).map { _ in
                defer { advance(&choice) }
                return choice
            }
        }
        let all = ways.map { $0 - 1 }
        var found = [none, all]
        var luck = SimulatedDisk.Generator(seed: seed)
        let step = max(1, 4 * ways.count / max(1, limit))
        for index in stride(from: 0, to: ways.count, by: step) where found.count + 2 <= limit {
            var alone = none
            alone[index] = all[index]
            var missing = all
            missing[index] = 0
            found += [alone, missing]
        }
        while found.count < limit {
            let mood = luck.next() % 3 + 1
            found.append(ways.map { luck.next() % 4 < mood ? Int(luck.next() % UInt64($0)) : 0 })
        }
        return found
    }

    private func advance(_ choice: inout [Int]) {
        for index in choice.indices {
            choice[index] += 1
            if choice[index] < ways[index] { return }
            choice[index] = 0
        }
    }

    /// The disk after a power cut with this outcome, with no open files.
    package func disk(_ choice: [Int]) -> SimulatedDisk { SimulatedDisk(state: outcome(choice)) }

    func outcome(_ choice: [Int]) -> SimulatedDisk.State {
        var state = state
        for (unit, way) in zip(units, choice) {
            switch unit {
            case .sector(let node, let sector):
                guard way > 0, let version = state.nodes[node]?.pending[sector]?[way - 1] else { continue }
                state.nodes[node]?.durable.write(version.bytes[...], at: sector * SimulatedDisk.sectorByteCount)
            case .size: break
            case .entry(let node, let name):
                guard way > 0, let version = state.nodes[node]?.pendingEntries[name]?[way - 1] else { continue }
                state.nodes[node]?.durableEntries[name] = version
            }
        }
        // Done after the sectors, which may lie beyond the end.
        for (number, node) in self.state.nodes where !node.isClean {
            state.nodes[number]?.durable.resize(to: node.durableCount)
        }
        for (unit, way) in zip(units, choice) {
            guard case .size(let node) = unit, way > 0, let size = state.nodes[node]?.sizes[way - 1] else { continue }
            // Sectors beyond the old size become visible with the new size.
            state.nodes[node]?.durable.resize(to: size)
            for case (.sector(node, let sector), let version) in zip(units, choice) where version > 0 {
                let from = sector * SimulatedDisk.sectorByteCount
                guard from < size, let written = state.nodes[node]?.pending[sector]?[version - 1] else { continue }
                state.nodes[node]?.durable.write(written.bytes.prefix(size - from), at: from)
            }
        }
        for number in state.nodes.keys { state.nodes[number]?.restart() }
        state.restart()
        return state
    }
}
