import Logging
import Messaging

/// The node's events: the last thousand, numbered, and the watchers. On the node's loop alone.
final class EventFeed {
    private(set) var log: EventLog
    private var watchers: [(number: UInt64, told: (EventLog.Entry) -> Void)] = []
    private var nextWatcher: UInt64 = 1

    init(startedAt now: Timestamp) { log = EventLog(startedAt: now) }

    func append(_ event: Event) -> EventLog.Entry { log.append(event) }

    func tell(_ entry: EventLog.Entry) { for watcher in watchers { watcher.told(entry) } }

    /// Calls `body` with each event from now on.
    func watch(_ body: @escaping (EventLog.Entry) -> Void) -> UInt64 {
        defer { nextWatcher += 1 }
        watchers.append((nextWatcher, body))
        return nextWatcher
    }

    func unwatch(_ watcher: UInt64) { watchers.removeAll { $0.number == watcher } }

    // MARK: Cursors across restarts

    /// Continues the last run's cursors if it stopped cleanly. Removes the mark first, because it would be wrong after
    /// a crash of this run.
    func goOn(home: String, startedAt now: Timestamp, logger: Logger) {
        let mark: EventLog.Mark
        do throws(HomeFileError) {
            mark = try HomeFile.load(EventLog.Mark.self, EventLog.Mark.fileName, home: home)
            try HomeFile.remove(EventLog.Mark.fileName, home: home)
        } catch {
            if error.kind != .missing {
                logger.warning(
                    "the number of events of the last run cannot be read: watchers get a gap without a number",
                    metadata: ["file": "\(EventLog.Mark.fileName)"])
            }
            return
        }
        log = EventLog(startedAt: now, after: mark)
    }

    /// At a clean stop. Without the mark, the next run cannot count the events that a watcher has missed.
    func saveMark(home: String, logger: Logger) {
        do throws(HomeFileError) {
            try HomeFile.save(log.mark, EventLog.Mark.fileName, home: home, isShared: false)
        } catch {
            logger.warning("the number of events of this run could not be saved", metadata: ["error": "\(error)"])
        }
    }
}
