import Crypto
import HeapModule

/// The deadlines of many owners in one heap, so that neither a frame nor a timer visits all owners.
///
/// Each owner keeps the deadline that counts beside its own state (`queued`); other entries of the same key are stale.
/// A deadline that moves back keeps its earlier entry: the owner is visited once too often and then queued anew. So an
/// inbox with a busy link costs one entry, not one for each frame.
struct DeadlineQueue<Key: Comparable & Sendable>: Sendable {
    private struct Entry: Comparable, Sendable {
        let at: Timestamp
        let key: Key

        static func < (left: Entry, right: Entry) -> Bool { (left.at, left.key) < (right.at, right.key) }
    }

    private var heap = Heap<Entry>()

    /// Not after the first deadline; exact once ``take(until:)`` has found nothing.
    var next: Timestamp? { heap.min?.at }

    /// - Parameters:
    ///   - deadline: `nil` for never.
    ///   - queued: the owner's entry that counts.
    mutating func set(_ key: Key, _ deadline: Timestamp?, queued: inout Timestamp?) {
        guard let deadline else { return }
        if let queued, queued <= deadline { return }
        queued = deadline
        heap.insert(Entry(at: deadline, key: key))
    }

    /// Removes the entries that are due, in order. The caller skips those that are stale and clears `queued` of the others.
    mutating func take(until now: Timestamp) -> [(key: Key, at: Timestamp)] {
        var due: [(key: Key, at: Timestamp)] = []
        while let first = heap.min, first.at <= now {
            heap.removeMin()
            due.append((first.key, first.at))
        }
        return due
    }
}
