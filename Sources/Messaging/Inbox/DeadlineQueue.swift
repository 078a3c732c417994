import Crypto
import HeapModule

/// The deadlines of many owners in one heap, so that neither a frame nor a timer visits all owners.
///
/// Each owner keeps the deadline that counts beside its own state (`queued`); other entries of the same key are stale.
/// A deadline that moves back keeps its earlier entry: the owner is visited once too often and then queued anew. So an
/// inbox with a busy link costs one entry, not one for each frame.
package struct DeadlineQueue<Key: Comparable & Sendable>: Sendable {
    private struct Entry: Comparable, Sendable {
        let at: Timestamp
        let key: Key

        static func < (left: Entry, right: Entry) -> Bool { (left.at, left.key) < (right.at, right.key) }
    }

    private var heap = Heap<Entry>()

    package init() {}

    /// Not after the first deadline; exact once ``take(until:limit:)`` has found nothing.
    package var next: Timestamp? { heap.min?.at }

    /// - Parameters:
    ///   - deadline: `nil` for never.
    ///   - queued: the owner's entry that counts.
    package mutating func set(_ key: Key, _ deadline: Timestamp?, queued: inout Timestamp?) {
        guard let deadline else { return }
        if let queued, queued <= deadline { return }
        queued = deadline
        heap.insert(Entry(at: deadline, key: key))
    }

    /// Removes the entries that are due, in order, at most `limit`. The caller skips those that are stale and clears `queued`
    /// of the others.
    package mutating func take(until now: Timestamp, limit: Int = .max) -> [(key: Key, at: Timestamp)] {
        var due: [(key: Key, at: Timestamp)] = []
        while due.count < limit, let first = heap.min, first.at <= now {
            heap.removeMin()
            due.append((first.key, first.at))
        }
        return due
    }

    /// The entries that are due, in order; they stay in the queue. Some may be stale.
    package mutating func due(until now: Timestamp) -> [(key: Key, at: Timestamp)] {
        let due = take(until: now)
        for one in due { heap.insert(Entry(at: one.at, key: one.key)) }
        return due
    }
}
