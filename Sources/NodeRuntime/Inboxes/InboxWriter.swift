import Crypto
import Logging
import Messaging
import NIOCore
import Store
import Wire

/// Writes the states and messages of inboxes to the store, and schedules the commits that make them durable.
final class InboxWriter: CorePart {
    /// Calls into the node.
    struct Events {
        let committed: (CommitSchedule.Ended) -> Void
        /// An inbox's storage has failed: everything since the last durable state is void.
        let reload: (Inbox) -> Void
    }

    /// How long an inbox whose storage has failed takes no links, and is not read again.
    static let troublePause: Milliseconds = 2 * .second

    let core: ProtocolCore
    private let routes: Routes
    private let aliases: Aliases
    private var events: Events?
    private(set) lazy var commits = makeCommits()
    /// Inboxes of which something was learned that the next commit writes.
    private var owingStatuses: [Inbox] = []

    init(_ core: ProtocolCore, _ routes: Routes, _ aliases: Aliases) {
        self.core = core
        self.routes = routes
        self.aliases = aliases
    }

    /// To be called before the first change.
    func connect(_ events: Events) { self.events = events }

    private func makeCommits() -> CommitSchedule {
        CommitSchedule(
            store, on: loop,
            events: CommitSchedule.Events(
                isStopped: { [services] in services.isStopped }, leaves: { [unowned self] in writeStatuses() },
                ended: { [unowned self] commit in events?.committed(commit) }))
    }

    // MARK: Changes

    /// Runs a change of an inbox's messages. When the store refuses it, ``failed(_:_:)`` is told.
    func storing(_ client: ClientID, _ body: (Inbox) throws(StoreError) -> Void) {
        guard let inbox = inboxes[client] else { return }
        do throws(StoreError) { try body(inbox) } catch { failed(client, error) }
    }

    /// The inbox has changed on the disk.
    func changed(_ client: ClientID) {
        guard !store.isLocked, let inbox = inboxes[client] else { return }
        commits.changed(inbox.effects)
        commits.schedule()
    }

    /// The store has refused a change: the inbox goes on from what is durable.
    func failed(_ client: ClientID, _ error: StoreError) {
        log.error("a change could not be stored", metadata: ["client": "\(client)", "error": "\(error)"])
        storage.failed(error, at: now)
        guard let inbox = inboxes[client] else { return }
        commits.changed(inbox.effects)
        loop.assumeIsolated().execute { if let inbox = self.inboxes[client] { self.events?.reload(inbox) } }
    }

    /// A commit has failed: the inbox, which was part of it, goes on from what is durable.
    func reload(_ inbox: Inbox) { events?.reload(inbox) }

    // MARK: Messages

    func keep(_ messages: [Message], _ keeping: NodeAction.Keeping, client: ClientID) {
        // Before the messages: killed between the two, the next start must look for them.
        if case .disk = keeping, messages.contains(where: { $0.sender == nil && $0.content.type != .systemMessage }) {
            unsettle(client)
        }
        storing(client) { inbox throws(StoreError) in
            let now = now
            for message in messages { try inbox.archive.keep(message, keeping, now: now) }
        }
        guard case .disk = keeping else { return }
        // The saved state has the count of when the inbox fell asleep: after a crash it would be too low.
        if let inbox = inboxes[client], inbox.notes.unreadCount != nil, messages.contains(where: { $0.sender != nil }) {
            inbox.notes.unreadCount = nil
            save(client)
        }
        changed(client)
        storage.room.stored(count: messages.count)
        commits.stored(count: messages.count)
    }

    /// A chunk goes beside its message, or into memory.
    /// - Returns: whether it was not there already.
    @discardableResult func keep(
        _ chunk: AttachmentChunk, client: ClientID, expiresAt: Messaging.Timestamp?, _ keeping: NodeAction.Keeping
    ) -> Bool {
        var isNew = false
        // A file that is never handed over whole is looked for by the next start.
        if case .disk = keeping { unsettle(client) }
        storing(client) { inbox throws(StoreError) in
            isNew = try inbox.archive.keep(chunk, keeping, expiresAt: expiresAt)
        }
        guard case .disk = keeping else { return isNew }
        if let inbox = inboxes[client], !store.isLocked {
            commits.storedChunk(byteCount: chunk.bytes.count, inbox.effects)
        }
        storage.room.took(byteCount: chunk.bytes.count)
        return isNew
    }

    /// What becomes of messages is written with the next commit: one record for all that it learns of.
    func learn(_ client: ClientID, _ body: (MessageArchive) -> Void) {
        guard let inbox = inboxes[client] else { return }
        body(inbox.archive)
        guard !inbox.archive.learned.isEmpty, !inbox.owesStatuses else { return }
        inbox.owesStatuses = true
        owingStatuses.append(inbox)
    }

    /// - Returns: false when the storage has refused; ``failed(_:_:)`` was told.
    @discardableResult func writeStatuses(_ inbox: Inbox) -> Bool {
        guard !inbox.archive.learned.isEmpty else { return true }
        do throws(StoreError) { try inbox.archive.writeStatuses() } catch {
            failed(inbox.client, error)
            return false
        }
        // A commit that fails loses these statuses. The inbox is part of it, so that it is loaded anew then.
        commits.changed(inbox.effects)
        commits.schedule()
        return true
    }

    private func writeStatuses() {
        let owing = owingStatuses
        owingStatuses = []
        for inbox in owing {
            inbox.owesStatuses = false
            if inboxes[inbox.client] === inbox { writeStatuses(inbox) }
        }
    }

    // MARK: States

    func save(_ client: ClientID) {
        guard let inbox = inboxes[client] else { return }
        guard !store.isLocked else {
            inbox.isUnsaved = true
            return
        }
        guard let record = core.machine.record(client) else { return }
        aliases.follow(record, inbox)
        let snapshot = snapshot(record, inbox)
        do throws(StoreError) { try store.saveState(inbox.row, StoredCodec.encode(record: snapshot)) } catch {
            return failed(client, error)
        }
        inbox.archive.isShownSaved = true
        changed(client)
    }

    /// What is saved of an inbox that is awake.
    func snapshot(_ record: InboxRecord, _ inbox: Inbox) -> InboxSnapshot {
        // The chunks of a file that is being handed over have no message in the outbox yet.
        if core.machine.conversation(inbox.client)?.outboxCount == 0, memory.uploading.isEmpty {
            settleOutboxPlace(inbox)
        }
        let lastActivity = core.machine.lastActivity(inbox.client)
        inbox.activitySaved = lastActivity
        return InboxSnapshot(
            record: record, counters: routes.counters(of: inbox), lastActivity: lastActivity,
            outboxCount: inbox.isSettled ? 0 : nil, outboxPlace: inbox.outboxPlace, notes: inbox.savedNotes)
    }

    /// Saves an inbox that falls asleep.
    func saveSleeping(_ inbox: Inbox, outboxCount: Int) {
        guard let record = core.machine.record(inbox.client), !store.isLocked else { return }
        inbox.isUnsaved = false
        let isTold = writeStatuses(inbox)
        if isTold, outboxCount == 0, memory.uploading.isEmpty { settleOutboxPlace(inbox) }
        inbox.notes = inbox.savedNotes
        inbox.notes.unreadCount = UInt32(clamping: inbox.archive.unreadStoredCount(now: services.readClock().hide))
        let snapshot = InboxSnapshot(
            record: record, counters: routes.counters(of: inbox), lastActivity: core.machine.lastActivity(inbox.client),
            // A message in a segment that the disk refuses now may wait, too.
            outboxCount: isTold && !inbox.hasUnreadOutbox && store.isWhole(inbox.row) ? outboxCount : nil,
            outboxPlace: inbox.outboxPlace, notes: inbox.notes)
        do throws(StoreError) { try store.saveState(inbox.row, StoredCodec.encode(record: snapshot)) } catch {
            return failed(inbox.client, error)
        }
        inbox.archive.isShownSaved = true
        commits.changed(inbox.effects)
        commits.schedule()
    }

    /// Saves the states whose mark of what was read has changed since the last save. Called at a tick. A sleeping inbox is
    /// listed again when it wakes.
    func saveShown() {
        guard !memory.unsavedMarks.isEmpty, !store.isLocked, !store.isReadOnly else { return }
        let unsaved = memory.unsavedMarks
        memory.unsavedMarks = []
        for inbox in inboxes.at(unsaved) { save(inbox.client) }
    }

    /// Saves the states of awake inboxes whose last activity or mark of what was read has changed. Called at a stop; sleeping
    /// inboxes were saved when they fell asleep.
    func saveActivity() {
        guard !store.isLocked, !store.isReadOnly else { return }
        for inbox in inboxes.all {
            guard core.machine.conversation(inbox.client) != nil, let record = core.machine.record(inbox.client),
                !inbox.archive.isShownSaved || core.machine.lastActivity(inbox.client) != inbox.activitySaved
            else { continue }
            do throws(StoreError) {
                try store.saveState(inbox.row, StoredCodec.encode(record: snapshot(record, inbox)))
            } catch { log.warning("the next start will not know what was active", metadata: ["error": "\(error)"]) }
        }
    }

    /// The states of the inboxes that changed while the storage was locked.
    func saveUnsaved() {
        let unsaved = inboxes.all.filter(\.isUnsaved)
        core.perform(unsaved.map { .save($0.client) })
        for inbox in unsaved { inbox.isUnsaved = false }
    }

    // MARK: The outbox's place

    /// No message of ours waits: the next start need not look for one on the disk before this place. What has become of
    /// them is written before that is said.
    private func settleOutboxPlace(_ inbox: Inbox) {
        guard !store.isLocked, !inbox.hasUnreadOutbox, writeStatuses(inbox),
            let place = try? store.nextPlace(inbox.row),
            // A message in a segment that the disk refuses now may wait, too.
            store.isWhole(inbox.row)
        else { return }
        inbox.outboxPlace = place
    }

    /// From now on a message of ours may wait in this inbox: what is saved of it must not say otherwise.
    private func unsettle(_ client: ClientID) {
        guard let inbox = inboxes[client], inbox.isSettled || !inbox.isPlaceSaved else { return }
        // The store gives the highest places again once the records that had them are gone.
        inbox.outboxPlace = min(inbox.outboxPlace, (try? store.nextPlace(inbox.row)) ?? 0)
        if inbox.isSettled {
            inbox.isSettled = false
            settleOutboxPlace(inbox)
        }
        inbox.isPlaceSaved = true
        save(client)
    }

    // MARK: What waited for the disk

    /// Writes what has waited in memory for the disk, and tells its senders once it is there. What the disk refuses, or has
    /// no room for, waits on and is tried again.
    func storeWaiting() {
        guard !memory.waiting.isEmpty, !store.isLocked, !store.isReadOnly else { return }
        let now = now
        let waiting = inboxes.at(memory.waiting).filter { $0.archive.isWaiting && !$0.isTroubled(now: now) }
        guard !waiting.isEmpty else { return }
        // A commit that fails would have to be undone: what is in memory is given away for good.
        do throws(StoreError) { try store.probe(for: waiting.reduce(0) { $0 + $1.archive.waitingByteCount }) } catch {
            for inbox in waiting { keepWaiting(inbox, error) }
            return
        }
        for inbox in waiting where inboxes[inbox.client] === inbox {
            let (stored, failure) = inbox.archive.storeWaiting(now: now)
            changed(inbox.client)
            core.turn { core.machine.stored(stored, client: inbox.client, &$0) }
            if let failure { keepWaiting(inbox, failure) } else { core.machine.releaseMemory(inbox.client) }
        }
    }

    private func keepWaiting(_ inbox: Inbox, _ error: StoreError) {
        if storage.trouble == nil {
            log.error("contents that waited could not be stored", metadata: ["error": "\(error)"])
        }
        storage.note(error, at: now)
        inbox.troubledUntil = now + Self.troublePause
    }
}
