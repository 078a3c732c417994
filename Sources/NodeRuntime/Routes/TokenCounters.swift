import Crypto
import DequeModule
import Messaging
import Store
import Wire

/// Saves the counters of routing tokens: lazily, since counters that a crash takes are within the window of the other side.
final class TokenCounters: CorePart {
    let core: ProtocolCore
    private let writer: InboxWriter
    private let sleep: InboxSleep
    /// Rate limit of the writes that dialers cause by showing tokens.
    private var saves = TokenBucket(interval: Limits.counterSaveInterval, burst: Limits.counterSaveBurst)
    /// Inboxes whose counters wait for a tick to write them.
    private var owing: Deque<Inbox> = []

    init(_ core: ProtocolCore, _ writer: InboxWriter, _ sleep: InboxSleep) {
        self.core = core
        self.writer = writer
        self.sleep = sleep
    }

    /// The next commit makes them durable.
    func save(_ client: ClientID) {
        guard !store.isLocked, let record = core.machine.record(client), let inbox = inboxes[client] else { return }
        try? store.saveState(inbox.row, StoredCodec.encode(record: writer.snapshot(record, inbox)))
    }

    /// A member has shown so many tokens that were not finished that a crash would lose too many. A sleeping inbox is woken
    /// for it. Who shows tokens without end makes us write once a second at most.
    func saveShown(_ inbox: Inbox) {
        guard saves.take(now: now) == nil else {
            if !inbox.owesCounters { owing.append(inbox) }
            inbox.owesCounters = true
            return
        }
        inbox.owesCounters = false
        if core.machine.isSleeping(inbox.client) { sleep.wakeIfPossible(inbox.client, .pushNotification) }
        save(inbox.client)
    }

    /// With each tick.
    func saveLate() {
        guard !store.isLocked else { return }
        while !owing.isEmpty, !saves.isSpent(now: now) {
            let inbox = owing.removeFirst()
            if inbox.owesCounters, inboxes[inbox.client] === inbox { saveShown(inbox) }
        }
    }
}
