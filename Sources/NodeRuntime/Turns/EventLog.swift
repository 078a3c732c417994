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

    /// Of the event before the first of those that are numbered without a gap up to now.
    private let start: Int64

    /// - Parameter start: cursors begin above this, so that they rise over restarts too.
    package init(start: Int64) {
        self.start = start
        cursor = start
    }

    /// Where the numbers stood at a clean stop: the next run counts on from there, so that it knows how many events a
    /// watcher has missed.
    package struct Mark: Hashable, Sendable, Codable {
        package static let fileName = "events"
        /// Above this a file is not ours: the clock would have to show the year 100,000.
        private static let limit: Int64 = 1 << 62

        /// Of the event before the first that is numbered without a gap.
        package var first: Int64
        /// Of the newest event.
        package var last: Int64

        package init(first: Int64, last: Int64) {
            self.first = first
            self.last = last
        }

        var isPossible: Bool { 0 <= first && first <= last && last < Self.limit }
    }

    package var mark: Mark { Mark(first: start, last: cursor) }

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
    /// - Parameter mark: of the last run's clean stop; `nil` after a crash, of which nobody knows how many events it saw.
    package init(startedAt time: Timestamp, after mark: Mark? = nil) {
        self.init(start: time.milliseconds * 1_000)
        guard let mark, mark.isPossible else { return }
        self = EventLog(mark)
    }

    private init(_ mark: Mark) {
        start = mark.first
        cursor = mark.last
    }

    /// What a watcher that resumes has missed.
    package struct Gap: Hashable, Sendable {
        /// Of the event before the oldest that is kept.
        package var cursor: Int64
        /// `nil` when it includes events of a run that ended in a crash, or of another history: nobody knows how many.
        package var lost: Int64?

        package init(cursor: Int64, lost: Int64?) {
            self.cursor = cursor
            self.lost = lost
        }
    }

    /// What is gone of everything after `cursor`; `nil` when nothing is, and for 0, which asks for what is kept.
    package func gap(since cursor: Int64) -> Gap? {
        guard since(cursor).missed else { return nil }
        let isKnown = cursor >= start && cursor <= self.cursor
        return Gap(cursor: beforeFirst, lost: isKnown ? beforeFirst - cursor : nil)
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
