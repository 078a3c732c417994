import HeapModule
import NIOCore

/// When the patience with each connection ends. One task of the event loop serves all of them: the loop looks for a task
/// that is cancelled among all of its tasks, one after the other, and it runs all that are due before it reads again.
struct Deadlines {
    private struct Entry: Comparable {
        let deadline: NIODeadline
        let id: UInt64

        static func < (left: Entry, right: Entry) -> Bool { left.deadline < right.deadline }
        static func == (left: Entry, right: Entry) -> Bool { left.deadline == right.deadline }
    }

    private var entries = Heap<Entry>()

    /// The next time to call ``due(at:limit:)``.
    var next: NIODeadline? { entries.min?.deadline }

    /// There is no way to take one back: whoever is told looks whether it is still so.
    mutating func add(_ id: UInt64, at deadline: NIODeadline) { entries.insert(Entry(deadline: deadline, id: id)) }

    /// Takes those out whose time has come, at most so many of them.
    mutating func due(at now: NIODeadline, limit: Int) -> [UInt64] {
        var result: [UInt64] = []
        while result.count < limit, let first = entries.min, first.deadline <= now {
            result.append(entries.removeMin().id)
        }
        return result
    }
}
