import HeapModule
import NIOCore

/// One timer serves all connections: NIO cancels timers by linear search, and runs all due ones before it reads.
struct Deadlines {
    private struct Entry: Comparable {
        let deadline: NIODeadline
        let id: UInt64

        static func < (left: Entry, right: Entry) -> Bool { left.deadline < right.deadline }
        static func == (left: Entry, right: Entry) -> Bool { left.deadline == right.deadline }
    }

    private var entries = Heap<Entry>()

    var next: NIODeadline? { entries.min?.deadline }

    /// Entries cannot be removed: the owner checks whether a due entry still applies.
    mutating func add(_ id: UInt64, at deadline: NIODeadline) { entries.insert(Entry(deadline: deadline, id: id)) }

    mutating func due(at now: NIODeadline, limit: Int) -> [UInt64] {
        var result: [UInt64] = []
        while result.count < limit, let first = entries.min, first.deadline <= now {
            result.append(entries.removeMin().id)
        }
        return result
    }
}
