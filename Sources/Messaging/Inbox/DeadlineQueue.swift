import HeapModule
import Primitives

/// When which of many has something to do next, so that neither a frame nor a tick looks at all of them.
///
/// One whose moment moves back keeps its earlier place: it is looked at once too often, and then takes the right one. So
/// an inbox with a busy link costs one entry, not one for each frame.
struct DeadlineQueue<Key: Hashable & Comparable & Sendable>: Sendable {
    private struct Entry: Comparable, Sendable {
        let at: Timestamp
        let key: Key

        static func < (left: Entry, right: Entry) -> Bool { (left.at, left.key) < (right.at, right.key) }
    }

    private var heap = Heap<Entry>()
    /// The entry that counts; others of the same key are skipped.
    private var queued: [Key: Timestamp] = [:]

    /// Not after the first moment; exact once ``take(until:)`` has found nothing.
    var next: Timestamp? { heap.min?.at }

    /// - Parameter deadline: `nil` for never.
    mutating func set(_ key: Key, _ deadline: Timestamp?) {
        guard let deadline else { return }
        if let current = queued[key], current <= deadline { return }
        queued[key] = deadline
        heap.insert(Entry(at: deadline, key: key))
    }

    mutating func remove(_ key: Key) { queued[key] = nil }

    /// Those whose moment may have come; whoever takes them sets their next one.
    mutating func take(until now: Timestamp) -> [Key] {
        var due: [Key] = []
        while let first = heap.min, first.at <= now {
            heap.removeMin()
            guard queued[first.key] == first.at else { continue }
            queued[first.key] = nil
            due.append(first.key)
        }
        return due
    }
}
