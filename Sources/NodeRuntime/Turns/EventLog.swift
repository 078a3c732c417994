import DequeModule
import Messaging

/// The last 1,000 events, numbered, for watchers that resume with a cursor.
package struct EventLog {
    package static let capacity = 1_000

    package struct Entry: Sendable {
        package let cursor: Int64
        package let event: Event
    }

    package private(set) var entries: Deque<Entry> = []
    package private(set) var cursor: Int64

    /// Cursors are gapless after this one.
    private let start: Int64

    /// - Parameter start: cursors start above this, so that they also rise across restarts.
    package init(start: Int64) {
        self.start = start
        cursor = start
    }

    /// The cursors at a clean stop. The next run continues them, so that it can count the events that a watcher has
    /// missed.
    package struct Mark: Hashable, Sendable, Codable {
        package static let fileName = "events"
        /// A larger cursor would require a clock beyond the year 100,000, so the file is invalid.
        private static let limit: Int64 = 1 << 62

        /// Cursors are gapless after this one.
        package var first: Int64
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

    /// - Parameter time: the start time by the node's clock. It never goes back across restarts, and leaves room for
    ///   1,000 events per millisecond of the last run.
    /// - Parameter mark: from the last run's clean stop; `nil` after a crash, when the number of its events is unknown.
    package init(startedAt time: Timestamp, after mark: Mark? = nil) {
        self.init(start: time.milliseconds * 1_000)
        guard let mark, mark.isPossible else { return }
        self = EventLog(mark)
    }

    private init(_ mark: Mark) {
        start = mark.first
        cursor = mark.last
    }

    /// The events that a resuming watcher has missed.
    package struct Gap: Hashable, Sendable {
        /// The cursor before the oldest kept event.
        package var cursor: Int64
        /// `nil` if unknown: the gap includes events of a crashed run or of another home.
        package var lost: Int64?

        package init(cursor: Int64, lost: Int64?) {
            self.cursor = cursor
            self.lost = lost
        }
    }

    /// The gap after `cursor`; `nil` if there is none, and for cursor 0, which requests all kept events.
    package func gap(since cursor: Int64) -> Gap? {
        guard since(cursor).missed else { return nil }
        let isKnown = cursor >= start && cursor <= self.cursor
        return Gap(cursor: beforeFirst, lost: isKnown ? beforeFirst - cursor : nil)
    }

    /// The kept events after `cursor`, and whether any between are lost.
    ///
    /// A cursor above the newest is from another run with a later clock, or from another home. Its watcher has seen
    /// none of the kept events.
    package func since(_ cursor: Int64) -> (entries: [Entry], missed: Bool) {
        if cursor > self.cursor { return (Array(entries), true) }
        return (entries.filter { $0.cursor > cursor }, cursor > 0 && cursor < beforeFirst)
    }

    private var beforeFirst: Int64 { entries.first.map { $0.cursor - 1 } ?? cursor }
}
