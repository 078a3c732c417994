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

    /// - Parameter time: of the node's clock, at its start. It never goes back over restarts as the system's may, and
    ///   leaves room for a thousand events in each millisecond of the last run.
    package init(startedAt time: Timestamp) { self.init(start: time.milliseconds * 1_000) }

    /// What a watcher that resumes has missed.
    package struct Gap: Hashable, Sendable {
        /// Of the event before the oldest that is kept.
        package var cursor: Int64
        /// `nil` when it includes events from before the node's start, or of another history: nobody knows how many.
        package var lost: Int64?

        package init(cursor: Int64, lost: Int64?) {
            self.cursor = cursor
            self.lost = lost
        }
    }

    /// What is gone of everything after `cursor`; `nil` when nothing is, and for 0, which asks for what is kept.
    package func gap(since cursor: Int64) -> Gap? {
        guard since(cursor).missed else { return nil }
        let isOfThisRun = cursor >= start && cursor <= self.cursor
        return Gap(cursor: beforeFirst, lost: isOfThisRun ? beforeFirst - cursor : nil)
    }

    /// Everything after `cursor` that is still kept, and whether something between is gone.
    ///
    /// A cursor above the newest was given out by another run, whose clock was ahead, or by a home that is not this one:
    /// nothing that is kept has been seen by who holds it.
    package func since(_ cursor: Int64) -> (entries: [Entry], missed: Bool) {
        if cursor > self.cursor { return (Array(entries), true) }
        return (entries.filter { $0.cursor > cursor }, cursor > 0 && cursor < beforeFirst)
    }

    /// Of the event before the oldest that is kept.
    private var beforeFirst: Int64 { entries.first.map { $0.cursor - 1 } ?? cursor }
}
