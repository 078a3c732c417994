import Cryptography
import Messaging
import Store

/// Interprets the core's actions: one case each, no decisions. Each goes to the object that owns the changed state.
final class ActionPerformer: Part {
    func perform(_ actions: [NodeAction]) {
        for action in actions { perform(action) }
        // Each explosion sends its receipt within this turn, so the report ends here.
        for case .explode(_, let record, _) in actions { shell.endings[record.conversation].report = nil }
        shell.output.flush()
    }

    private func perform(_ action: NodeAction) {
        if store.isLocked { putOff(action) }
        switch action {
        case .save(let client): shell.writer.save(client)
        case .keep(let client, let messages, let keeping): shell.writer.keep(messages, keeping, client: client)
        case .setState(let client, let ids, let state): setState(state, of: ids, client)
        case .forgetMemory(let client):
            inboxes[client]?.archive.forgetMemory()
            inboxes[client]?.forgetHashes()
        case .reschedule(let client, let id, let expiresAt):
            shell.writer.storing(client) { inbox throws(StoreError) in
                try inbox.archive.reschedule(id, expiresAt: expiresAt, now: now)
            }
            shell.writer.changed(client)
        case .explode(let client, let record, let fanOut): shell.explosions.explode(client, record, fanOut: fanOut)
        case .destroy(let client): shell.removal.destroy(client)
        case .saveTombstone(let conversation): shell.explosions.saveTombstone(conversation)
        case .removeTombstone(let conversation): shell.explosions.removeTombstone(conversation)
        case .armExplosion(let client, let record, let fanOut): armExplosion(client, record, fanOut)
        case .register(let client, let route): shell.routes.register(client, route)
        case .unregister(let client, let route): shell.routes.unregister(client, route)
        case .dial(let client, let dial): shell.dials.dial(client, dial)
        case .knock(let knock): shell.knocks.knock(knock)
        case .wake(let client, let reason): shell.sleep.wakeIfPossible(client, reason)
        case .sleep(let client): shell.sleep.putToSleep(client)
        case .transmit(let link, let frame): shell.commits.sendWhenDurable(.transmit(link, frame), on: link)
        case .transmitMessages(let link, let client, let messages):
            shell.commits.sendWhenDurable(.transmitMessages(link, client, messages), on: link)
        case .close(let link): shell.commits.sendWhenDurable(.close(link), on: link)
        case .notify(let event):
            guard let client = event.client else { return shell.events.notify(event) }
            shell.commits.sendWhenDurable(.notify(event), for: client)
        case .notifyMessages(let events): shell.commits.sendWhenDurable(.notifyMessages(events), for: events.client)
        case .setDelivery(let client, let ids, let delivery):
            shell.writer.learn(client) { archive in for id in ids { archive.setDelivery(delivery, of: id) } }
            if delivery.state == .read { shell.commits.scheduleLate() }
        case .keepChunk(let client, let chunk, let expiresAt, let keeping):
            if shell.writer.keep(chunk, client: client, expiresAt: expiresAt, keeping) {
                shell.transfers.hash(chunk, client: client)
            }
        case .forgetChunks(let client, let id):
            shell.writer.storing(client) { inbox throws(StoreError) in
                inbox.verifications[id] = nil
                try inbox.archive.forgetChunks(id)
            }
            shell.writer.changed(client)
        case .verifyAttachment(let client, let id): shell.transfers.verify(id, client: client)
        case .serveChunks(let link): shell.transfers.serve(link)
        // The file's message has already left; the chunk need not wait for later changes.
        case .transmitChunk(let link, let client, let id, let index):
            shell.transfers.transmitChunk(id, index, client: client, on: link)
        case .pauseReading(let link, let time): shell.output.pauseForHaste(link, time)
        case .forward(let link, let frame): shell.output.transmit(frame, on: link)
        case .relayed(let link, let answer): shell.streams.relayed(answer, on: link)
        case .endpointsMayHaveChanged: shell.network.relaysMayHaveChanged()
        case .gatherCandidates(let client, let remote): shell.punching.gatherCandidates(client, remote)
        case .dialPunching(let client, let dial, let nonce): shell.dials.dial(client, dial, punchingWith: nonce)
        case .punch(let nonce, let candidates): shell.punching.punch(nonce, candidates)
        case .mail(let client, let order): shell.mailOrders.mail(order, client)
        case .makeSlices(let client, let agreement, let above, let link):
            shell.sliceKeys.send(agreement, above: above, client, on: link)
        case .mailNotices(let conversation, let notices): shell.mailNotices.begin(conversation, notices)
        case .mailbox(let action): shell.keptBoxes.perform(action)
        }
    }

    private func setState(_ state: DeliveryState, of ids: [Messaging.MessageID], _ client: ClientID) {
        shell.writer.learn(client) { archive in for id in ids { archive.setState(state, of: id) } }
        switch state {
        // The sender of a file is told its result, and then does not send the file again.
        case .received, .failed: shell.writer.changed(client)
        case .sent: break
        // Not worth a commit: if lost, the message is sent and acknowledged again.
        case .queued, .mailed, .delivered, .expiredUndelivered, .cancelled, .read, .receiving:
            shell.commits.scheduleLate()
        }
    }

    /// A fuse cannot be cancelled, so it is armed only after the schedule is durable. The inbox may sleep by then.
    private func armExplosion(_ client: ClientID, _ record: ExplosionRecord, _ fanOut: [Messaging.Member]) {
        guard let key = inboxes[client]?.key else { return }
        let armed = { [self] (isDurable: Bool) in
            if isDurable, inboxes[client] != nil { shell.explosions.arm(client, key, record, fanOut: fanOut) }
        }
        shell.commits.sendWhenDurable(.run(armed), for: client)
    }

    /// While the storage is locked, changes of stored messages wait for the unlock; statuses wait in the archive.
    private func putOff(_ action: NodeAction) {
        switch action {
        case .forgetChunks(let client, let id), .reschedule(let client, let id, _):
            guard let inbox = inboxes[client], !inbox.archive.isHeld(id) else { return }
            retries.add(.change(client, action))
        default: return
        }
    }
}
