import Logging
import Messaging
import NIOCore
import Primitives
import Store
import Transport
import Wire

/// The interpreter of the core's actions: one case each, no decisions.
extension Node {
    func perform(_ actions: [NodeAction]) {
        for action in actions { perform(action) }
        // Who is told that we have forgotten is told in the turn in which we do.
        for case .explode(_, let record, _) in actions { endings[record.conversation].report = nil }
        flushLinks()
    }

    private func perform(_ action: NodeAction) {
        if store.isLocked { putOff(action) }
        switch action {
        case .save(let client): save(client)
        case .keep(let client, let message, let keeping):
            // Before the message: killed between the two, the next start must look for it.
            if case .disk = keeping, message.sender == nil, message.content.type != .systemMessage { unsettle(client) }
            storing(client) { inbox throws(StoreError) in try inbox.archive.keep(message, keeping, now: now) }
            if case .disk = keeping {
                changed(client)
                storage.room.stored()
            }
        case .setState(let client, let id, let state):
            learn(client) { $0.setState(state, of: id) }
            switch state {
            // What has become of a file is said to its sender, who then does not send it again.
            case .received, .failed: changed(client)
            case .sent: break
            // Not worth waiting for: if it is lost, the message is sent and acknowledged once more.
            case .queued, .delivered, .expiredUndelivered, .cancelled, .read, .receiving: commits.scheduleLate()
            }
        case .erase(let client, let ids):
            storing(client) { inbox throws(StoreError) in try inbox.archive.erase(ids) }
            changed(client)
        case .forgetMemory(let client): inboxes[client]?.archive.forgetMemory()
        case .reschedule(let client, let id, let expiresAt):
            storing(client) { inbox throws(StoreError) in
                try inbox.archive.reschedule(id, expiresAt: expiresAt, now: now)
            }
            changed(client)
        case .eraseSent(let client, let agreement):
            storing(client) { inbox throws(StoreError) in
                let ids = try inbox.archive.sent(under: agreement)
                try inbox.archive.erase(ids)
            }
            changed(client)
        case .explode(let client, let record, let fanOut): explode(client, record, fanOut: fanOut)
        case .destroy(let client): destroy(client)
        case .saveTombstone(let conversation): saveTombstone(conversation)
        case .removeTombstone(let conversation): removeTombstone(conversation)
        case .armExplosion(let client, let record, let fanOut):
            guard let key = inboxes[client]?.key else { return }
            // Nothing takes a fuse back: it is lit when the schedule is there, which may be refused yet. The inbox may sleep
            // by then.
            let armed = { [unowned self] (isDurable: Bool) in
                if isDurable, inboxes[client] != nil { arm(client, key, record, fanOut: fanOut) }
            }
            leave(.run(armed), for: client)
        case .register(let client, let route): register(client, route)
        case .unregister(let client, let route): unregister(client, route)
        case .dial(let client, let dial): self.dial(client, dial)
        case .knock(let knock): self.knock(knock)
        case .wake(let client, let reason): wakeIfPossible(client, reason)
        case .sleep(let client): putToSleep(client)
        case .transmit(let link, _), .transmitMessages(let link, _, _), .close(let link):
            guard let client = links[link]?.client else { return }
            leave(.action(action), for: client)
        case .notify(let event):
            guard let client = event.client else { return notify(event) }
            leave(.action(action), for: client)
        case .setDelivery(let client, let id, let delivery):
            learn(client) { $0.setDelivery(delivery, of: id) }
            if delivery.state == .read { commits.scheduleLate() }
        case .keepChunk(let client, let chunk, let expiresAt, let keeping):
            if keep(chunk, client: client, expiresAt: expiresAt, keeping) { hash(chunk, client: client) }
        case .forgetChunks(let client, let id):
            verifications[FileName(client: client, id: id)] = nil
            storing(client) { inbox throws(StoreError) in
                try inbox.archive.forgetChunks(id)
            }
            changed(client)
        case .verifyAttachment(let client, let id): verifyAttachment(id, client: client)
        case .serveChunks(let link): serveChunks(on: link)
        // What it is part of has left before; it need not wait for what others have changed since.
        case .transmitChunk(let link, let client, let id, let index):
            transmitChunk(id, index, client: client, on: link)
        case .pauseReading(let link, let time): pauseForHaste(link, time)
        case .forward(let link, let frame): transmit(frame, on: link)
        case .relayed(let link, let answer): relayed(answer, on: link)
        case .endpointsMayHaveChanged: relaysMayHaveChanged()
        case .gatherCandidates(let client, let remote): gatherCandidates(client, remote)
        case .dialPunching(let client, let dial, let nonce): self.dial(client, dial, punchingWith: nonce)
        case .punch(let nonce, let candidates): punch(nonce, candidates)
        }
    }

    /// A chunk goes beside its message, or into memory.
    /// - Returns: whether it was not there already.
    @discardableResult
    func keep(
        _ chunk: AttachmentChunk,
        client: ClientID,
        expiresAt: Messaging.Timestamp?,
        _ keeping: NodeAction.Keeping
    ) -> Bool {
        var isNew = false
        // A file that is never handed over whole is looked for by the next start.
        if case .disk = keeping { unsettle(client) }
        storing(client) { inbox throws(StoreError) in
            isNew = try inbox.archive.keep(chunk, keeping, expiresAt: expiresAt)
        }
        if case .disk = keeping {
            if let inbox = inboxes[client], !store.isLocked {
                commits.storedChunk(byteCount: chunk.bytes.count, inbox.effects)
            }
            storage.room.took(byteCount: chunk.bytes.count)
        }
        return isNew
    }

    /// What leaves the node goes now, or behind what is on its way to the disk.
    func leave(_ effect: EffectQueue.Effect, for client: ClientID) {
        guard let inbox = inboxes[client], commits.enqueue(effect, inbox.effects) else {
            return release(effect, isDurable: true)
        }
        if inbox.effects.count > 1_024 { pauseLinks(of: inbox) }
    }

    func release(_ effect: EffectQueue.Effect, isDurable: Bool) {
        switch effect {
        case .run(let body): body(isDurable)
        case .action(let action):
            guard isDurable else { return }
            switch action {
            case .transmit(let link, let frame): transmit(frame, on: link)
            case .transmitMessages(let link, let client, let messages):
                guard let archive = inboxes[client]?.archive else { return }
                let contents = messages.compactMap { one in
                    archive.read(one.id, now: now).map { AgedContent($0.message.content, age: one.age) }
                }
                transmit(contents, on: link)
            case .close(let link): close(link)
            case .notify(let event): notify(event)
            case .save, .keep, .setState, .erase, .forgetMemory, .explode, .destroy, .saveTombstone, .removeTombstone,
                .register, .unregister, .dial, .knock, .armExplosion, .setDelivery, .keepChunk, .forgetChunks,
                .verifyAttachment, .serveChunks, .transmitChunk, .reschedule, .eraseSent, .wake, .sleep, .forward,
                .relayed, .endpointsMayHaveChanged, .gatherCandidates, .dialPunching, .punch, .pauseReading:
                preconditionFailure("\(action) does not leave the node")
            }
        }
    }

    // MARK: Storage

    /// What a locked storage cannot be told of a message on the disk it is told when it is unlocked.
    private func putOff(_ action: NodeAction) {
        func deferIt(_ client: ClientID, _ action: NodeAction) { inboxes[client]?.deferred.append(action) }
        func isHeld(_ id: Messaging.MessageID, _ client: ClientID) -> Bool {
            inboxes[client]?.archive.isHeld(id) ?? false
        }
        switch action {
        // Whether somebody has it can be seen in its record alone.
        case .setState(_, _, .sent), .setState(_, _, .cancelled): return
        case .setState(let client, let id, _), .setDelivery(let client, let id, _), .forgetChunks(let client, let id),
            .reschedule(let client, let id, _):
            if !isHeld(id, client) { deferIt(client, action) }
        case .erase(let client, let ids):
            let stored = ids.filter { !isHeld($0, client) }
            if !stored.isEmpty { deferIt(client, .erase(client, stored)) }
        case .eraseSent(let client, _): deferIt(client, action)
        case .save, .keep, .forgetMemory, .explode, .destroy, .saveTombstone, .removeTombstone, .armExplosion,
            .register, .unregister, .dial, .transmit, .transmitMessages, .close, .pauseReading, .knock, .notify, .wake,
            .sleep, .keepChunk, .verifyAttachment, .serveChunks, .transmitChunk, .forward, .relayed,
            .endpointsMayHaveChanged, .gatherCandidates, .dialPunching, .punch:
            return
        }
    }

    /// The storage is unlocked: what was put off, before anything else is written.
    func performPutOff() {
        for inbox in inboxes.all where !inbox.deferred.isEmpty {
            let waiting = inbox.deferred
            inbox.deferred = []
            perform(waiting)
        }
    }

    func storing(_ client: ClientID, _ body: (Inbox) throws(StoreError) -> Void) {
        guard let inbox = inboxes[client] else { return }
        do throws(StoreError) { try body(inbox) } catch {
            storageFailed(client, error)
        }
    }

    /// What becomes of messages is written with the next commit: one record for all that it learns of.
    private func learn(_ client: ClientID, _ body: (MessageArchive) -> Void) {
        guard let inbox = inboxes[client] else { return }
        body(inbox.archive)
        guard !inbox.archive.learned.isEmpty, !inbox.owesStatuses else { return }
        inbox.owesStatuses = true
        owingStatuses.append(inbox)
    }

    /// - Returns: false when the storage has refused; ``storageFailed(_:_:)`` was told.
    @discardableResult
    func writeStatuses(_ inbox: Inbox) -> Bool {
        guard !inbox.archive.learned.isEmpty else { return true }
        do throws(StoreError) { try inbox.archive.writeStatuses() } catch {
            storageFailed(inbox.client, error)
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

    /// No message of ours waits: the next start need not look for one on the disk before this place. What has become of
    /// them is written before that is said.
    func settleOutboxPlace(_ inbox: Inbox) {
        guard !store.isLocked, writeStatuses(inbox), let place = try? store.nextPlace(inbox.row),
            // A message in a segment that the disk refuses now may wait, too.
            store.isWhole(inbox.row)
        else { return }
        inbox.outboxPlace = place
    }

    /// From now on a message of ours may wait in this inbox: what is saved of it must not say otherwise.
    private func unsettle(_ client: ClientID) {
        guard let inbox = inboxes[client], inbox.isSettled else { return }
        inbox.isSettled = false
        settleOutboxPlace(inbox)
        save(client)
    }

    private func save(_ client: ClientID) {
        guard let inbox = inboxes[client] else { return }
        guard !store.isLocked else {
            inbox.isUnsaved = true
            return
        }
        guard let record = core.record(client) else { return }
        followNotes(record, inbox)
        let snapshot = snapshot(record, inbox)
        do throws(StoreError) {
            try store.saveState(inbox.row, StoredCodec.encode(record: snapshot))
        } catch {
            return storageFailed(client, error)
        }
        changed(client)
    }

    /// What is saved of an inbox that is awake.
    func snapshot(_ record: InboxRecord, _ inbox: Inbox) -> InboxSnapshot {
        // The chunks of a file that is being handed over have no message in the outbox yet.
        if core.conversation(inbox.client)?.outboxCount == 0, memory.uploading.isEmpty { settleOutboxPlace(inbox) }
        let lastActivity = core.lastActivity(inbox.client)
        inbox.activitySaved = lastActivity
        return InboxSnapshot(
            record: record,
            counters: counters(of: inbox),
            lastActivity: lastActivity,
            outboxCount: inbox.isSettled ? 0 : nil,
            outboxPlace: inbox.outboxPlace,
            notes: inbox.notes
        )
    }

    func changed(_ client: ClientID) {
        guard !store.isLocked, let inbox = inboxes[client] else { return }
        commits.changed(inbox.effects)
        commits.schedule()
    }

    /// Succeeds when everything that has happened so far, in whatever inbox, is on the disk. While the storage is locked
    /// nothing can be, so nothing is waited for.
    package func whenCommitted() -> EventLoopFuture<Void> { commits.whenCommitted() }

    func makeCommits() -> CommitSchedule {
        let events = CommitSchedule.Events(
            isStopped: { [unowned self] in isStopped },
            leaves: { [unowned self] in writeStatuses() },
            ended: { [unowned self] commit in
                // Made and used on the loop that is the actor's executor.
                nonisolated(unsafe) let commit = commit
                committed(commit)
            }
        )
        return CommitSchedule(store, on: loop, events: events)
    }

    private func committed(_ commit: CommitSchedule.Ended) {
        if let error = commit.failure {
            log.error("a change could not be made durable", metadata: ["error": "\(error)"])
            storage.failed(error, at: now)
        }
        for one in commit.effects {
            for effect in one.effects { release(effect, isDurable: commit.failure == nil) }
            guard let inbox = inboxes[one.queue.client] else { continue }
            if commit.failure == nil { resumeLinks(of: inbox) } else { reload(inbox) }
        }
        flushLinks()
        schedule()
    }

    /// The store has refused a change: the inbox goes on from what is durable.
    func storageFailed(_ client: ClientID, _ error: StoreError) {
        log.error("a change could not be stored", metadata: ["client": "\(client)", "error": "\(error)"])
        storage.failed(error, at: now)
        guard let inbox = inboxes[client] else { return }
        commits.changed(inbox.effects)
        loop.assumeIsolated().execute {
            self.assumeIsolated { node in
                if let inbox = node.inboxes[client] { node.reload(inbox) }
            }
        }
    }
}
