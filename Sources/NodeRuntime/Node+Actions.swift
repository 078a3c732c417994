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
        flushLinks()
    }

    private func perform(_ action: NodeAction) {
        switch action {
        case .save(let client): save(client)
        case .keep(let client, let message, let keeping):
            storing(client) { row throws(StoreError) in
                try archive.keep(message, keeping, client: client, row: row, now: now)
            }
            if case .disk = keeping {
                changed(client)
                let now = now
                room.stored(client) { rows[client].flatMap { try? store.messageCount($0, now: now.milliseconds) } ?? 0 }
            }
        case .setState(let client, let id, let state):
            storing(client) { row throws(StoreError) in
                try archive.setState(state, of: id, client: client, row: row)
            }
            // Not worth waiting for: if it is lost, the message is sent and acknowledged once more.
            if state != .sent { scheduleLateCommit() }
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
        case .register(let client, let route): register(client, route)
        case .unregister(let client, let route): unregister(client, route)
        case .dial(let client, let dial): self.dial(client, dial)
        case .knock(let knock): self.knock(knock)
        case .transmit(let link, _), .transmitMessage(let link, _, _, _), .close(let link):
            guard let client = links[link]?.client else { return }
            leave(.action(action), for: client)
        case .notify(let event):
            guard let client = event.client else { return notify(event) }
            leave(.action(action), for: client)
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
            case .save, .keep, .setState, .erase, .forgetMemory, .reschedule, .eraseSent, .explode, .destroy,
                .saveTombstone, .removeTombstone,
                .register, .unregister, .dial, .knock:
                preconditionFailure("\(action) does not leave the node")
            }
        }
    }

    // MARK: Storage

    private func storing(_ client: ClientID, _ body: (RowID) throws(StoreError) -> Void) {
        guard let row = rows[client] else { return }
        do throws(StoreError) { try body(row) } catch {
            storageFailed(client, error)
        }
    }

    private func save(_ client: ClientID) {
        guard !store.isLocked else {
            unsaved.insert(client)
            return
        }
        guard let record = core.record(client), let row = rows[client] else { return }
        let snapshot = InboxSnapshot(record: record, counters: counters(of: client))
        do throws(StoreError) {
            try store.saveState(row, StoredCodec.encode(record: snapshot))
        } catch {
            return storageFailed(client, error)
        }
        changed(client)
    }

    private func changed(_ client: ClientID) {
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

    private func commit() {
        isCommitScheduled = false
        isLateCommitDue = false
        guard !isStopped, !store.isLocked else {
            return answerWaiters(upTo: effects.nextCommit, isStopped ? .failure(.locked) : .success(()))
        }
        let sequence = effects.beginCommit()
        store.commit { result in
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
    private func storageFailed(_ client: ClientID, _ error: StoreError) {
        log.error("a change could not be stored", metadata: ["inbox": "\(client)", "error": "\(error)"])
        lastStorageFailure = error
        storageTrouble = (error, now)
        effects.changed(client)
        loop.assumeIsolated().execute {
            self.assumeIsolated { $0.reload(client) }
        }
    }
}
