import Logging
import Messaging
import Store

/// Events: to the log of the last thousand, and to whoever watches.
extension Node {
    func notify(_ event: Event) {
        note(event)
        let entry = events.append(event)
        if case .invited(let id, let key) = event.kind { answer(invitation: id, from: key) }
        for watcher in watchers { watcher.told(entry) }
    }

    /// Calls `body` with each event from now on.
    package func watch(_ body: @escaping (EventLog.Entry) -> Void) -> UInt64 {
        defer { nextWatcher += 1 }
        watchers.append((nextWatcher, body))
        return nextWatcher
    }

    /// Ends what ``watch(_:)`` began.
    package func unwatch(_ watcher: UInt64) { watchers.removeAll { $0.number == watcher } }

    /// The events that are still kept.
    package var eventLog: EventLog { events }

    // MARK: Numbers over a restart

    /// Takes the numbers up where the last run has left them, if it ended cleanly. The mark is removed first: after a crash
    /// of this run it would be wrong.
    func countOnEvents() {
        let mark: EventLog.Mark
        do throws(HomeFileError) {
            mark = try HomeFile.load(EventLog.Mark.self, EventLog.Mark.fileName, home: options.home)
            try HomeFile.remove(EventLog.Mark.fileName, home: options.home)
        } catch {
            if error.kind != .missing {
                log.warning(
                    "how many events the last run saw cannot be read: watchers are told of a gap without a number",
                    metadata: ["file": "\(EventLog.Mark.fileName)"]
                )
            }
            return
        }
        events = EventLog(startedAt: now, after: mark)
    }

    /// At a clean stop. Without the mark the next run only cannot say how many events a watcher has missed.
    func saveEventMark() {
        guard peersStamp != nil, !store.isHomeGone, !store.isReadOnly else { return }
        do throws(HomeFileError) {
            try HomeFile.save(events.mark, EventLog.Mark.fileName, home: options.home)
        } catch {
            log.warning("how many events this run saw could not be saved", metadata: ["error": "\(error)"])
        }
    }
}
