import HeapModule
import Primitives

/// When which inbox has something to do next, so that neither a frame nor a tick looks at all of them.
///
/// An inbox whose moment moves back keeps its earlier place: it is looked at once too often, and then takes the right
/// one. So an inbox with a busy link costs one entry, not one for each frame.
struct DeadlineQueue: Sendable {
    private struct Entry: Comparable, Sendable {
        let at: Timestamp
        let client: ClientID

        static func < (left: Entry, right: Entry) -> Bool { (left.at, left.client) < (right.at, right.client) }
    }

    private var heap = Heap<Entry>()
    /// The entry that counts; others of the same inbox are skipped.
    private var queued: [ClientID: Timestamp] = [:]

    /// Not after the first moment; exact once ``take(until:)`` has found nothing.
    var next: Timestamp? { heap.min?.at }

    /// - Parameter deadline: `nil` for never.
    mutating func set(_ client: ClientID, _ deadline: Timestamp?) {
        guard let deadline else { return }
        if let current = queued[client], current <= deadline { return }
        queued[client] = deadline
        heap.insert(Entry(at: deadline, client: client))
    }

    mutating func remove(_ client: ClientID) { queued[client] = nil }

    /// Those whose moment may have come; whoever takes them sets their next one.
    mutating func take(until now: Timestamp) -> [ClientID] {
        var due: [ClientID] = []
        while let first = heap.min, first.at <= now {
            heap.removeMin()
            guard queued[first.client] == first.at else { continue }
            queued[first.client] = nil
            due.append(first.client)
        }
        return due
    }
}
