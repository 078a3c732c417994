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

    /// Of the event before the first of this run.
    private let start: Int64

    /// - Parameter start: cursors begin above this, so that they rise over restarts too.
    package init(start: Int64) {
        self.start = start
        cursor = start
    }

    /// Numbers an event and drops the oldest beyond ``capacity``.
    package mutating func append(_ event: Event) -> Entry {
        cursor += 1
        let entry = Entry(cursor: cursor, event: event)
        entries.append(entry)
        if entries.count > Self.capacity { entries.removeFirst() }
        return entry
    }

    /// What a watcher that resumes has missed.
    package struct Gap: Hashable, Sendable {
        /// Of the event before the oldest that is kept.
        package var cursor: Int64
        /// `nil` when it includes events from before the node's start: nobody knows how many.
        package var lost: Int64?

        package init(cursor: Int64, lost: Int64?) {
            self.cursor = cursor
            self.lost = lost
        }
    }

    /// What is gone of everything after `cursor`; `nil` when nothing is, and for 0, which asks for what is kept.
    package func gap(since cursor: Int64) -> Gap? {
        guard since(cursor).missed else { return nil }
        let before = entries.first.map { $0.cursor - 1 } ?? self.cursor
        return Gap(cursor: before, lost: cursor >= start ? before - cursor : nil)
    }

    /// Everything after `cursor` that is still kept, and whether something between is gone.
    package func since(_ cursor: Int64) -> (entries: [Entry], missed: Bool) {
        let missed = cursor > 0 && (entries.first.map { $0.cursor - 1 > cursor } ?? (self.cursor > cursor))
        return (entries.filter { $0.cursor > cursor }, missed)
    }
}
