import Crypto
import Logging
import Messaging

/// Distributes the node's events to the log, the event log and the watchers.
final class NodeEvents: Part {
    func notify(_ event: Event) {
        note(event)
        services.counters.happened(event.kind)
        let entry = services.feed.append(event)
        if case .invited(let id, let key) = event.kind { shell.peers.answer(invitation: id, from: key) }
        services.feed.tell(entry)
    }

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
}
