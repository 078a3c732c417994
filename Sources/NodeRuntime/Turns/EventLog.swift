import Cryptography
import DequeModule
import Logging
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

    /// The cursors at a clean stop. The next run continues them, so that it can count the events that a watcher has
    /// missed.
    package struct Mark: Hashable, Sendable, Codable {
        package static let fileName = "events"
        /// A larger cursor would require a clock beyond the year 100,000, so the file is invalid.
        private static let limit: Int64 = 1 << 62

        /// Cursors are gapless after this one.
        package var first: Int64
        package var last: Int64

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
        let isKnown = mark?.isPossible ?? false
        start = isKnown ? mark?.first ?? 0 : time.milliseconds * 1_000
        cursor = isKnown ? mark?.last ?? 0 : start
    }

    /// The events that a resuming watcher has missed.
    package struct Gap: Hashable, Sendable {
        /// The cursor before the oldest kept event.
        package var cursor: Int64
        /// `nil` if unknown: the gap includes events of a crashed run or of another home.
        package var lost: Int64?
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

/// Distributes the node's events to the log, the event log and the watchers.
final class NodeEvents: Part {
    private(set) var eventLog: EventLog
    private var watchers: [(number: UInt64, told: (EventLog.Entry) -> Void)] = []
    private var nextWatcher: UInt64 = 1

    override init(_ shell: Shell) {
        eventLog = EventLog(startedAt: shell.services.now)
        super.init(shell)
    }

    func notify(_ event: Event) {
        note(event)
        services.counters.happened(event.kind)
        let entry = eventLog.append(event)
        if case .invited(let id, let key) = event.kind { shell.peers.answer(invitation: id, from: key) }
        for watcher in watchers { watcher.told(entry) }
    }

    /// Calls `body` with each event from now on.
    func watch(_ body: @escaping (EventLog.Entry) -> Void) -> UInt64 {
        defer { nextWatcher += 1 }
        watchers.append((nextWatcher, body))
        return nextWatcher
    }

    func unwatch(_ watcher: UInt64) { watchers.removeAll { $0.number == watcher } }

    func publish(_ client: ClientID, _ kind: Event.Kind) {
        notify(Event(client: client, conversation: core.machine.conversationID(client), at: now, kind: kind))
    }

    func publish(_ kind: Event.Kind) { notify(Event(client: nil, conversation: nil, at: now, kind: kind)) }

    private func note(_ event: Event) {
        // Counts are computed only for lines that the log may show; only these two kinds are above `info`.
        let isAboveInfo =
            switch event.kind {
            case .groupConflict, .twoCopies: true
            default: false
            }
        guard isAboveInfo || log.logLevel <= .info else { return }
        var counts = EventCounts()
        counts.members = event.client.flatMap { core.machine.conversation($0) }.map { $0.currentMembers.count + 1 }
        var shown = event
        if case .deletionReceipt = event.kind, let conversation = event.conversation,
            let record = core.machine.tombstone(conversation)
        {
            counts.confirmed = (record.confirmed.count, record.members.count)
            // The inbox is gone, and the tombstone does not name it.
            shown.client = shown.client ?? shell.endings[conversation].client
        }
        note(.event(shown, counts))
    }

    /// Continues the last run's cursors if it stopped cleanly. Removes the mark first, because it would be wrong after
    /// a crash of this run.
    func goOn() {
        let path = "\(options.home)/\(EventLog.Mark.fileName)"
        let mark: EventLog.Mark
        do throws(HomeFileError) {
            mark = try HomeFile.decode(EventLog.Mark.self, HomeFile.read(path), path: path)
            try HomeFile.remove(EventLog.Mark.fileName, home: options.home)
        } catch {
            if error.kind != .missing {
                log.warning(
                    "the number of events of the last run cannot be read: watchers get a gap without a number",
                    metadata: ["file": "\(EventLog.Mark.fileName)"])
            }
            return
        }
        eventLog = EventLog(startedAt: now, after: mark)
    }

    /// At a clean stop. Without the mark, the next run cannot count the events that a watcher has missed.
    func saveMark() {
        do throws(HomeFileError) {
            try HomeFile.save(eventLog.mark, EventLog.Mark.fileName, home: options.home, isShared: false)
        } catch { log.warning("the number of events of this run could not be saved", metadata: ["error": "\(error)"]) }
    }
}
