import Crypto
import DequeModule
import Messaging
import Store

/// Saves the counters of routing tokens lazily: counters lost in a crash are within the peer's window.
final class TokenCounters: Part {
    /// Rate limit for writes caused by shown tokens.
    private var saves = TokenBucket(Limits.counterSaveRate)
    /// Inboxes whose counters are written at a tick.
    private var owing: Deque<Inbox> = []

    /// The next commit makes the counters durable.
    func save(_ client: ClientID) {
        guard !store.isLocked, let record = core.machine.record(client), let inbox = inboxes[client] else { return }
        try? store.saveState(inbox.row, StoredCodec.encode(record: shell.writer.snapshot(record, inbox)))
    }

    /// Saves the counters after many unfinished handshakes, before a crash would lose too many. Wakes a sleeping inbox
    /// for it. Endless tokens cause at most one write per second.
    func saveShown(_ inbox: Inbox) {
        guard saves.take(now: now) == nil else {
            if !inbox.owesCounters { owing.append(inbox) }
            inbox.owesCounters = true
            return
        }
        inbox.owesCounters = false
        if core.machine.isSleeping(inbox.client) { shell.sleep.wakeIfPossible(inbox.client, .pushNotification) }
        save(inbox.client)
    }

    func saveLate() {
        guard !store.isLocked else { return }
        while !owing.isEmpty, !saves.isSpent(now: now) {
            let inbox = owing.removeFirst()
            if inbox.owesCounters, inboxes[inbox.client] === inbox { saveShown(inbox) }
        }
    }
}
