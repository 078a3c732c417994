/// The results of a run.
package final class Journal: @unchecked Sendable {
    package private(set) var violations: [String] = []
    package private(set) var counts: [String: Int] = [:]
    /// A hash of everything that happens, in order: equal for equal seeds.
    package private(set) var trace: UInt64 = 0xcbf2_9ce4_8422_2325
    private let limit: Int
    fileprivate let log: ((String) -> Void)?

    /// - Parameter limit: A run stops at this number of violations.
    package init(limit: Int, log: ((String) -> Void)?) { (self.limit, self.log) = (limit, log) }

    package var isFull: Bool { violations.count >= limit }

    package func mix(_ value: UInt64) { trace = (trace ^ value) &* 0x100_0000_01b3 }
    package func mix(_ value: Int) { mix(UInt64(bitPattern: Int64(value))) }

    package func count(_ name: String, _ number: Int = 1) { counts[name, default: 0] += number }

    fileprivate func violation(_ text: String) { if !isFull { violations.append(text) } }
}

package protocol Journaling: AnyObject { var journal: Journal { get } }

extension Journaling { package func count(_ name: String) { journal.count(name) } }

/// The interface of either simulation to its parts.
package protocol SimulatedWorld: Drawing, Journaling { var milliseconds: Int64 { get } }

extension SimulatedWorld {
    package func note(_ text: @autoclosure () -> String) { journal.log?("t=\(milliseconds) \(text())") }

    package func violation(_ text: String) {
        note("VIOLATION \(text)")
        journal.violation("t=\(milliseconds) \(text)")
    }

    package func report(seed: UInt64, nodeCount: Int, events: Int) -> Report {
        Report(
            seed: seed, nodeCount: nodeCount, events: events, violations: journal.violations, traceHash: journal.trace,
            counts: journal.counts)
    }
}

package struct Report: Sendable {
    package let seed: UInt64
    package let nodeCount: Int
    package let events: Int
    package let violations: [String]
    package let traceHash: UInt64
    package let counts: [String: Int]
}
