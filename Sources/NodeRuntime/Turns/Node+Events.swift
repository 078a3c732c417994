import Messaging
import Store

/// Events: to the log of the last thousand, and to whoever watches.
extension Node {
    func notify(_ event: Event) {
        note(event)
        let entry = feed.append(event)
        if case .invited(let id, let key) = event.kind { answer(invitation: id, from: key) }
        feed.tell(entry)
    }

    /// Calls `body` with each event from now on.
    package func watch(_ body: @escaping (EventLog.Entry) -> Void) -> UInt64 { feed.watch(body) }

    /// Ends what ``watch(_:)`` began.
    package func unwatch(_ watcher: UInt64) { feed.unwatch(watcher) }

    /// The events that are still kept.
    package var eventLog: EventLog { feed.log }
}
