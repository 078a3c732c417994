import Cryptography
import Logging
import Messaging
import Store

/// Writes states and messages of inboxes, and schedules the commits that make them durable.
final class InboxWriter: Part {
    /// How long an inbox with a storage failure accepts no links and is not read again.
    static let troublePause: Milliseconds = 2 * .second

    private var owingStatuses: [Inbox] = []

    /// Changes an inbox's messages. Calls ``failed(_:_:)`` if the store refuses.
    func storing(_ client: ClientID, _ body: (Inbox) throws(StoreError) -> Void) {
        guard let inbox = inboxes[client] else { return }
        do throws(StoreError) { try body(inbox) } catch { failed(client, error) }
    }

    func changed(_ client: ClientID) {
        guard !store.isLocked, let inbox = inboxes[client] else { return }
        shell.commits.changed(inbox)
    }

    /// The store has refused a change: reload the inbox from its durable state.
    func failed(_ client: ClientID, _ error: StoreError) {
        log.error("a change could not be stored", metadata: ["client": "\(client)", "error": "\(error)"])
        storage.failed(error, at: now)
        guard let inbox = inboxes[client] else { return }
        shell.commits.mark(inbox)
        execute { if let inbox = self.inboxes[client] { self.shell.loading.reload(inbox) } }
    }

    func keep(_ messages: [Message], _ keeping: NodeAction.Keeping, client: ClientID) {
        // Before the messages: after a crash between the two, the next start must scan for them.
        if case .disk = keeping, messages.contains(where: { $0.sender == nil && $0.content.type != .systemMessage }) {
            noteOutboxUse(client)
        }
        storing(client) { inbox throws(StoreError) in
            let now = now
            // A member may choose another bucket for each message of a frame. The first message without one tells why.
            if messages.count > 1, case .disk(let lifetime) = keeping, let tier = lifetime.tier {
                try? store.prepareColumns(tier, messages.compactMap { $0.expiresAt?.milliseconds })
            }
            for message in messages { try inbox.archive.keep(message, keeping, now: now) }
        }
        guard case .disk = keeping else { return }
        // The saved unread count is from the last sleep; after a crash it would be too low.
        if let inbox = inboxes[client], inbox.notes.unreadCount != nil, messages.contains(where: { $0.sender != nil }) {
            inbox.notes.unreadCount = nil
            save(client)
        }
        changed(client)
        storage.room.stored(count: messages.count)
        shell.commits.stored(count: messages.count)
    }

    /// Stores a chunk beside its message, or in memory.
    /// - Returns: whether the chunk is new.
    @discardableResult func keep(
        _ chunk: AttachmentChunk, client: ClientID, expiresAt: Messaging.Timestamp?, _ keeping: NodeAction.Keeping
    ) -> Bool {
        var isNew = false
        // The next start must find chunks of an unfinished upload.
        if case .disk = keeping { noteOutboxUse(client) }
        storing(client) { inbox throws(StoreError) in
            isNew = try inbox.archive.keep(chunk, keeping, expiresAt: expiresAt)
        }
        guard case .disk = keeping else { return isNew }
        if let inbox = inboxes[client], !store.isLocked {
            shell.commits.storedChunk(byteCount: chunk.bytes.count, inbox)
        }
        storage.room.took(byteCount: chunk.bytes.count)
        return isNew
    }

    /// Queues status changes; the next commit writes one record for all of them.
    func learn(_ client: ClientID, _ body: (MessageArchive) -> Void) {
        guard let inbox = inboxes[client] else { return }
        body(inbox.archive)
        listStatuses(inbox)
    }

    func listStatuses(_ inbox: Inbox) {
        guard !inbox.archive.learned.isEmpty, !inbox.owesStatuses else { return }
        inbox.owesStatuses = true
        owingStatuses.append(inbox)
    }

    /// - Returns: false when the store refused; ``failed(_:_:)`` was called.
    @discardableResult func writeStatuses(_ inbox: Inbox) -> Bool {
        guard !inbox.archive.learned.isEmpty else { return true }
        do throws(StoreError) { try inbox.archive.writeStatuses() } catch {
            failed(inbox.client, error)
            return false
        }
        // A failed commit loses these statuses, so the inbox must be in the commit and be reloaded.
        shell.commits.changed(inbox)
        return true
    }

    /// Called before a commit starts; what it writes is part of that commit.
    func writeStatuses() {
        let owing = owingStatuses
        owingStatuses = []
        for inbox in owing {
            inbox.owesStatuses = false
            if inboxes[inbox.client] === inbox { writeStatuses(inbox) }
        }
    }

    func save(_ client: ClientID) {
        guard let inbox = inboxes[client] else { return }
        guard !store.isLocked else { return retries.add(.save(client)) }
        guard let record = core.machine.record(client) else { return }
        shell.aliases.follow(record, inbox)
        do throws(StoreError) { try write(snapshot(record, inbox), inbox) } catch { failed(client, error) }
    }

    func saveSleeping(_ inbox: Inbox) {
        guard let record = core.machine.record(inbox.client), !store.isLocked else { return }
        writeStatuses(inbox)
        // It is stored while the inbox sleeps, when no state can be saved.
        if inbox.archive.hasOwnWaiting { inbox.outboxFrom = 0 }
        var snapshot = snapshot(record, inbox, isAsleep: true)
        snapshot.notes.unreadCount = (try? inbox.archive.countUnread(now: services.readClock().hide)).map {
            UInt32(clamping: $0)
        }
        inbox.notes = snapshot.notes
        do throws(StoreError) { try write(snapshot, inbox) } catch { failed(inbox.client, error) }
    }

    func snapshot(_ record: InboxRecord, _ inbox: Inbox, isAsleep: Bool = false) -> InboxSnapshot {
        raiseOutbox(inbox, isAsleep: isAsleep)
        inbox.activitySaved = core.machine.lastActivity(inbox.client)
        return InboxSnapshot(
            record: record, counters: shell.routes.counters(of: inbox), lastActivity: inbox.activitySaved,
            outboxCount: inbox.outboxFrom == nil ? 0 : nil, outboxPlace: inbox.outboxFrom ?? 0, notes: inbox.savedNotes)
    }

    private func write(_ snapshot: InboxSnapshot, _ inbox: Inbox) throws(StoreError) {
        try store.saveState(inbox.row, snapshot.encoded)
        inbox.archive.isShownSaved = true
        inbox.owesCounters = false
        shell.commits.changed(inbox)
    }

    /// The next commit makes the counters durable. The saved record is reused, because encoding one is slow.
    func saveCounters(of record: InboxRecord, _ inbox: Inbox) {
        let counters = shell.routes.counters(of: inbox)
        let saved = try? store.loadState(inbox.row).flatMap { InboxSnapshot.replaceCounters(of: $0, by: counters) }
        inbox.owesCounters = false
        try? store.saveState(inbox.row, saved ?? snapshot(record, inbox).encoded)
    }

    /// Saves the inboxes whose read position changed. Called at each tick. A sleeping inbox is listed again when it
    /// wakes.
    func saveShown() {
        guard !memory.unsavedMarks.isEmpty, !store.isLocked, !store.isReadOnly else { return }
        let unsaved = memory.unsavedMarks
        memory.unsavedMarks = []
        for inbox in inboxes.at(unsaved) { save(inbox.client) }
    }

    /// Saves the awake inboxes whose activity or read position changed. Called at a stop; sleeping inboxes are already
    /// saved.
    func saveActivity() {
        guard !store.isLocked, !store.isReadOnly else { return }
        for inbox in inboxes.all {
            guard core.machine.conversation(inbox.client) != nil, let record = core.machine.record(inbox.client),
                !inbox.archive.isShownSaved || core.machine.lastActivity(inbox.client) != inbox.activitySaved
            else { continue }
            do throws(StoreError) { try store.saveState(inbox.row, snapshot(record, inbox).encoded) } catch {
                log.warning(
                    "the last activity and read position of an inbox could not be saved",
                    metadata: ["error": "\(error)"])
            }
        }
    }

    /// With an empty outbox, the next start scans from this position on, and nothing if the inbox goes to sleep.
    /// Statuses are written first.
    private func raiseOutbox(_ inbox: Inbox, isAsleep: Bool) {
        guard inbox.outboxFrom != nil, inbox.isOutboxKnown, !store.isLocked,
            core.machine.conversation(inbox.client)?.outboxCount == 0,
            // During an upload, chunks exist without a message in the outbox.
            memory.uploading.isEmpty, writeStatuses(inbox), let place = try? store.nextPlace(inbox.row),
            // An unreadable segment may contain a waiting message.
            store.isWhole(inbox.row)
        else { return }
        inbox.outboxFrom = isAsleep ? nil : place
    }

    /// Before a message or chunk of ours is stored: the next start must find it by the saved state. Expired records
    /// free the highest positions for reuse, so the saved position may lie above the store's next one.
    private func noteOutboxUse(_ client: ClientID) {
        guard let inbox = inboxes[client] else { return }
        let place = (try? store.nextPlace(inbox.row)) ?? 0
        if let from = inbox.outboxFrom, from <= place { return }
        inbox.outboxFrom = place
        save(client)
    }

    /// Stores messages that waited in memory, and acknowledges them once durable. Messages that do not fit, or are
    /// refused, keep waiting.
    func storeWaiting() {
        guard !memory.waiting.isEmpty, !store.isLocked, !store.isReadOnly else { return }
        let now = now
        let waiting = inboxes.at(memory.waiting).filter { $0.archive.isWaiting && !$0.isTroubled(now: now) }
        guard !waiting.isEmpty else { return }
        // Test-write first: `storeWaiting` removes the messages from memory, so a failed commit would lose them.
        do throws(StoreError) { try store.probe(for: waiting.reduce(0) { $0 + $1.archive.waitingByteCount }) } catch {
            for inbox in waiting { keepWaiting(inbox, error) }
            return
        }
        for inbox in waiting where inboxes[inbox.client] === inbox {
            if inbox.archive.hasOwnWaiting { noteOutboxUse(inbox.client) }
            let (stored, failure) = inbox.archive.storeWaiting(now: now)
            changed(inbox.client)
            core.turn { core.machine.step(inbox.client, &$0) { $0.stored(stored, &$1) } }
            if let failure { keepWaiting(inbox, failure) } else { core.machine.releaseMemory(inbox.client) }
        }
    }

    private func keepWaiting(_ inbox: Inbox, _ error: StoreError) {
        if storage.trouble == nil { log.error("waiting contents could not be stored", metadata: ["error": "\(error)"]) }
        storage.note(error, at: now)
        inbox.troubledUntil = now + Self.troublePause
    }
}
