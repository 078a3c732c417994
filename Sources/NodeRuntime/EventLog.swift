import DequeModule
import Messaging

/// The last 1,000 events, numbered, for watchers that come back with a cursor.
package struct EventLog {
    /// Events that are kept, in memory.
    package static let capacity = 1_000

    /// An event and its number.
    package struct Entry: Sendable {
        package let cursor: Int64
        package let event: Event
    }

    package private(set) var entries: Deque<Entry> = []
    /// Of the newest event.
    package private(set) var cursor: Int64

    /// - Parameter start: cursors begin above this, so that they rise over restarts too.
    package init(start: Int64) { cursor = start }

    /// Numbers an event and drops the oldest beyond ``capacity``.
    package mutating func append(_ event: Event) -> Entry {
        cursor += 1
        let entry = Entry(cursor: cursor, event: event)
        entries.append(entry)
        if entries.count > Self.capacity { entries.removeFirst() }
        return entry
    }

    /// Everything after `cursor` that is still kept, and whether something between is gone.
    package func since(_ cursor: Int64) -> (entries: [Entry], missed: Bool) {
        let missed = cursor > 0 && (entries.first.map { $0.cursor > cursor + 1 } ?? (self.cursor > cursor))
        return (entries.filter { $0.cursor > cursor }, missed)
    }
}
