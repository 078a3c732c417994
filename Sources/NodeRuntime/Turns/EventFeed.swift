import Logging
import Messaging

/// The events of the node: the last thousand, numbered, and whoever watches. On the node's loop alone.
final class EventFeed {
    private(set) var log: EventLog
    /// In the order in which they came.
    private var watchers: [(number: UInt64, told: (EventLog.Entry) -> Void)] = []
    private var nextWatcher: UInt64 = 1

    /// - Parameter now: of the node's clock, at its start.
    init(startedAt now: Timestamp) { log = EventLog(startedAt: now) }

    func append(_ event: Event) -> EventLog.Entry { log.append(event) }

    func tell(_ entry: EventLog.Entry) { for watcher in watchers { watcher.told(entry) } }

    /// Calls `body` with each event from now on.
    func watch(_ body: @escaping (EventLog.Entry) -> Void) -> UInt64 {
        defer { nextWatcher += 1 }
        watchers.append((nextWatcher, body))
        return nextWatcher
    }

    /// Ends what ``watch(_:)`` began.
    func unwatch(_ watcher: UInt64) { watchers.removeAll { $0.number == watcher } }

    // MARK: Numbers over a restart

    /// Takes the numbers up where the last run has left them, if it ended cleanly. The mark is removed first: after a crash
    /// of this run it would be wrong.
    func goOn(home: String, startedAt now: Timestamp, logger: Logger) {
        let mark: EventLog.Mark
        do throws(HomeFileError) {
            mark = try HomeFile.load(EventLog.Mark.self, EventLog.Mark.fileName, home: home)
            try HomeFile.remove(EventLog.Mark.fileName, home: home)
        } catch {
            if error.kind != .missing {
                logger.warning(
                    "how many events the last run saw cannot be read: watchers are told of a gap without a number",
                    metadata: ["file": "\(EventLog.Mark.fileName)"])
            }
            return
        }
        log = EventLog(startedAt: now, after: mark)
    }

    /// At a clean stop. Without the mark the next run only cannot say how many events a watcher has missed.
    func saveMark(home: String, logger: Logger) {
        do throws(HomeFileError) { try HomeFile.save(log.mark, EventLog.Mark.fileName, home: home) } catch {
            logger.warning("how many events this run saw could not be saved", metadata: ["error": "\(error)"])
        }
    }
}
