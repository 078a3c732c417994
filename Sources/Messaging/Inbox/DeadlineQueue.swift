import HeapModule

/// A heap of the deadlines of many owners, so that neither a frame nor a timer visits all owners.
///
/// Each owner keeps its valid deadline in `queued`; other entries of its key are stale. A deadline that moves back
/// keeps its earlier entry: the owner is visited once too often and then queued anew. So a busy link costs one entry,
/// not one for each frame.
package struct DeadlineQueue<Key: Comparable & Sendable>: Sendable {
    @usableFromInline package struct Entry: Comparable, Sendable {
        @usableFromInline let at: Timestamp
        let key: Key

        @usableFromInline package static func < (left: Entry, right: Entry) -> Bool {
            (left.at, left.key) < (right.at, right.key)
        }
    }

    @usableFromInline var heap = Heap<Entry>()

    package init() {}

    /// A lower bound of the first deadline; exact once ``take(until:limit:)`` has returned nothing.
    @inlinable package var next: Timestamp? { heap.min?.at }

    /// - Parameters:
    ///   - deadline: `nil` for never.
    ///   - queued: the owner's valid entry.
    package mutating func set(_ key: Key, _ deadline: Timestamp?, queued: inout Timestamp?) {
        guard let deadline else { return }
        if let queued, queued <= deadline { return }
        queued = deadline
        heap.insert(Entry(at: deadline, key: key))
    }

    /// Removes at most `limit` due entries, in order. The caller skips stale ones and clears `queued` of the others.
    package mutating func take(until now: Timestamp, limit: Int = .max) -> [(key: Key, at: Timestamp)] {
        var due: [(key: Key, at: Timestamp)] = []
        while due.count < limit, let first = heap.min, first.at <= now {
            heap.removeMin()
            due.append((first.key, first.at))
        }
        return due
    }

    /// Due entries in order, some maybe stale. They stay in the queue.
    package mutating func due(until now: Timestamp) -> [(key: Key, at: Timestamp)] {
        let due = take(until: now)
        for one in due { heap.insert(Entry(at: one.at, key: one.key)) }
        return due
    }
}
