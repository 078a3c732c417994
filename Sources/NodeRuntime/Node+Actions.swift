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
        for case .explode(_, let record, _) in actions { reports[record.conversation] = nil }
        flushLinks()
    }

    private func perform(_ action: NodeAction) {
        if store.isLocked { putOff(action) }
        switch action {
        case .save(let client): save(client)
        case .keep(let client, let message, let keeping):
            // Before the message: killed between the two, the next start must look for it.
            if case .disk = keeping, message.sender == nil, message.content.type != .systemMessage { unsettle(client) }
            storing(client) { row throws(StoreError) in
                try archive.keep(message, keeping, client: client, row: row, now: now)
            }
            if case .disk = keeping {
                changed(client)
                room.stored()
            }
        case .setState(let client, let id, let state):
            storing(client) { row throws(StoreError) in
                try archive.setState(state, of: id, client: client, row: row)
            }
            switch state {
            // What has become of a file is said to its sender, who then does not send it again.
            case .received, .failed: changed(client)
            case .sent: break
            // Not worth waiting for: if it is lost, the message is sent and acknowledged once more.
            case .queued, .delivered, .expiredUndelivered, .cancelled, .read, .receiving: scheduleLateCommit()
            }
        case .erase(let client, let ids):
            storing(client) { row throws(StoreError) in try archive.erase(ids, client: client, row: row) }
            changed(client)
        case .forgetMemory(let client): archive.forgetMemory(client)
        case .reschedule(let client, let id, let expiresAt):
            storing(client) { row throws(StoreError) in
                try archive.reschedule(id, expiresAt: expiresAt, client: client, row: row, now: now)
            }
            changed(client)
        case .eraseSent(let client, let agreement):
            storing(client) { row throws(StoreError) in
                let ids = try archive.sent(under: agreement, client: client, row: row)
                try archive.erase(ids, client: client, row: row)
            }
            changed(client)
        case .explode(let client, let record, let fanOut): explode(client, record, fanOut: fanOut)
        case .destroy(let client): destroy(client)
        case .saveTombstone(let conversation): saveTombstone(conversation)
        case .removeTombstone(let conversation): removeTombstone(conversation)
        case .armExplosion(let client, let record, let fanOut):
            guard let key = keys[client] else { return }
            // Nothing takes a fuse back: it is lit when the schedule is there, which may be refused yet. The inbox may sleep
            // by then.
            let armed = { [unowned self] (isDurable: Bool) in
                if isDurable, rows[client] != nil { arm(client, key, record, fanOut: fanOut) }
            }
            leave(.run(armed), for: client)
        case .register(let client, let route): register(client, route)
        case .unregister(let client, let route): unregister(client, route)
        case .dial(let client, let dial): self.dial(client, dial)
        case .knock(let knock): self.knock(knock)
        case .wake(let client, let reason): wakeIfPossible(client, reason)
        case .sleep(let client): putToSleep(client)
        case .transmit(let link, _), .transmitMessage(let link, _, _, _), .close(let link):
            guard let client = links[link]?.client else { return }
            leave(.action(action), for: client)
        case .notify(let event):
            guard let client = event.client else { return notify(event) }
            leave(.action(action), for: client)
        case .setDelivery(let client, let id, let delivery):
            storing(client) { row throws(StoreError) in
                try archive.setDelivery(delivery, of: id, client: client, row: row)
            }
            if delivery.state == .read { scheduleLateCommit() }
        case .keepChunk(let client, let chunk, let expiresAt, let keeping):
            keep(chunk, client: client, expiresAt: expiresAt, keeping)
        case .forgetChunks(let client, let id):
            storing(client) { row throws(StoreError) in
                try archive.forgetChunks(id, client: client, row: row)
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
    func keep(
        _ chunk: AttachmentChunk,
        client: ClientID,
        expiresAt: Messaging.Timestamp?,
        _ keeping: NodeAction.Keeping
    ) {
        storing(client) { row throws(StoreError) in
            try archive.keep(chunk, keeping, expiresAt: expiresAt, client: client, row: row)
        }
        if case .disk = keeping {
            changed(client)
            room.took(byteCount: chunk.bytes.count)
        }
    }

    /// What leaves the node goes now, or behind what is on its way to the disk.
    func leave(_ effect: EffectQueue.Effect, for client: ClientID) {
        if !effects.enqueue(effect, for: client) { release(effect, isDurable: true) }
        if effects.count(for: client) > 1_024 { pauseLinks(of: client) }
    }

    func release(_ effect: EffectQueue.Effect, isDurable: Bool) {
        switch effect {
        case .run(let body): body(isDurable)
        case .action(let action):
            guard isDurable else { return }
            switch action {
            case .transmit(let link, let frame): transmit(frame, on: link)
            case .transmitMessage(let link, let client, let id, let age):
                guard let listed = archive.read(id, client: client, row: rows[client], now: now) else { return }
                transmit(.content(listed.message.content, age: age), on: link)
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
        switch action {
        // Whether somebody has it can be seen in its record alone.
        case .setState(_, _, .sent), .setState(_, _, .cancelled): return
        case .setState(let client, let id, _), .setDelivery(let client, let id, _), .forgetChunks(let client, let id),
            .reschedule(let client, let id, _):
            if !archive.isHeld(id, client: client) { putOff[client, default: []].append(action) }
        case .erase(let client, let ids):
            let stored = ids.filter { !archive.isHeld($0, client: client) }
            if !stored.isEmpty { putOff[client, default: []].append(.erase(client, stored)) }
        case .eraseSent(let client, _): putOff[client, default: []].append(action)
        case .save, .keep, .forgetMemory, .explode, .destroy, .saveTombstone, .removeTombstone, .armExplosion,
            .register, .unregister, .dial, .transmit, .transmitMessage, .close, .pauseReading, .knock, .notify, .wake,
            .sleep, .keepChunk, .verifyAttachment, .serveChunks, .transmitChunk, .forward, .relayed,
            .endpointsMayHaveChanged, .gatherCandidates, .dialPunching, .punch:
            return
        }
    }

    /// The storage is unlocked: what was put off, before anything else is written.
    func performPutOff() {
        let waiting = putOff.filter { rows[$0.key] != nil }
        for client in waiting.keys.sorted() {
            putOff[client] = nil
            perform(waiting[client] ?? [])
        }
    }

    func storing(_ client: ClientID, _ body: (RowID) throws(StoreError) -> Void) {
        guard let row = rows[client] else { return }
        do throws(StoreError) { try body(row) } catch {
            storageFailed(client, error)
        }
    }

    /// From now on a message of ours may wait in this inbox: what is saved of it must not say otherwise.
    private func unsettle(_ client: ClientID) {
        if settled.remove(client) != nil { save(client) }
    }

    private func save(_ client: ClientID) {
        guard !store.isLocked else {
            unsaved.insert(client)
            return
        }
        guard let record = core.record(client), let row = rows[client] else { return }
        followNotes(record)
        let snapshot = snapshot(record)
        do throws(StoreError) {
            try store.saveState(row, StoredCodec.encode(record: snapshot))
        } catch {
            return storageFailed(client, error)
        }
        changed(client)
    }

    /// What is saved of an inbox that is awake.
    func snapshot(_ record: InboxRecord) -> InboxSnapshot {
        activitySaved[record.client] = core.lastActivity(record.client)
        return InboxSnapshot(
            record: record,
            counters: counters(of: record.client),
            lastActivity: core.lastActivity(record.client),
            outboxCount: settled.contains(record.client) ? 0 : nil,
            notes: notes[record.client]
        )
    }

    func changed(_ client: ClientID) {
        guard !store.isLocked else { return }
        effects.changed(client)
        scheduleCommit()
    }

    /// One commit for everything that happens in one turn of the loop.
    func scheduleCommit() {
        guard !isCommitScheduled, !store.isLocked else { return }
        isCommitScheduled = true
        loop.assumeIsolated().execute {
            self.assumeIsolated { $0.commit() }
        }
    }

    /// A commit for what nobody waits for: with the next one, at the latest in a tenth of a second.
    private func scheduleLateCommit() {
        isLateCommitDue = true
        guard !isLateCommitScheduled, !isCommitScheduled, !store.isLocked else { return }
        isLateCommitScheduled = true
        loop.assumeIsolated().scheduleTask(in: .milliseconds(100)) {
            self.assumeIsolated { node in
                node.isLateCommitScheduled = false
                if node.isLateCommitDue { node.scheduleCommit() }
            }
        }
    }

    /// Succeeds when everything that has happened so far, in whatever inbox, is on the disk. While the storage is locked
    /// nothing can be, so nothing is waited for.
    package func whenCommitted() -> EventLoopFuture<Void> {
        guard !isStopped, !store.isLocked else { return loop.makeSucceededVoidFuture() }
        let promise = loop.makePromise(of: Void.self)
        commitWaiters.append((effects.nextCommit, promise))
        scheduleCommit()
        return promise.futureResult
    }

    private func answerWaiters(upTo sequence: UInt64, _ result: Result<Void, StoreError>) {
        let done = commitWaiters.filter { $0.sequence <= sequence }
        commitWaiters.removeAll { $0.sequence <= sequence }
        for waiter in done { waiter.promise.completeWith(result.mapError { NodeError.store($0) }) }
    }

    /// - Parameter ended: called on another thread, with whether it is durable.
    func commit(_ ended: (@Sendable (Bool) -> Void)? = nil) {
        isCommitScheduled = false
        isLateCommitDue = false
        guard !isStopped, !store.isLocked else {
            ended?(false)
            return answerWaiters(upTo: effects.nextCommit, isStopped ? .failure(.locked) : .success(()))
        }
        let sequence = effects.beginCommit()
        store.commit { result in
            if case .success = result { ended?(true) } else { ended?(false) }
            self.loop.execute {
                self.assumeIsolated { $0.committed(sequence, result) }
            }
        }
    }

    private func committed(_ sequence: UInt64, _ result: Result<Void, StoreError>) {
        switch result {
        case .success:
            for (client, released) in effects.complete(sequence) {
                for effect in released { release(effect, isDurable: true) }
                resumeLinks(of: client)
            }
        case .failure(let error):
            log.error("a change could not be made durable", metadata: ["error": "\(error)"])
            lastStorageFailure = error
            storageTrouble = (error, now)
            for (client, dropped) in effects.fail(sequence) {
                for effect in dropped { release(effect, isDurable: false) }
                reload(client)
            }
        }
        answerWaiters(upTo: sequence, result)
        flushLinks()
        schedule()
    }

    /// The store has refused a change: the inbox goes on from what is durable.
    func storageFailed(_ client: ClientID, _ error: StoreError) {
        log.error("a change could not be stored", metadata: ["client": "\(client)", "error": "\(error)"])
        lastStorageFailure = error
        storageTrouble = (error, now)
        effects.changed(client)
        loop.assumeIsolated().execute {
            self.assumeIsolated { $0.reload(client) }
        }
    }
}
