import Crypto
import Messaging
import Store

/// Interprets the core's actions: one case each, no decisions. Each goes to the object that owns the changed state.
final class ActionPerformer: CorePart {
    let core: ProtocolCore
    private let endings: EndingTable
    private let writer: InboxWriter
    private let held: HeldEffects
    private let sleep: InboxSleep
    private let removal: InboxRemoval
    private let explosions: Explosions
    private let knocks: Knocks
    private let routes: Routes
    private let dials: Dials
    private let streams: RelayStreams
    private let punching: Punching
    private let output: LinkOutput
    private let transfers: FileTransfers
    private let network: NodeNetwork
    private let mailboxes: Mailboxes

    init(
        _ core: ProtocolCore, _ endings: EndingTable, _ writer: InboxWriter, _ held: HeldEffects, _ sleep: InboxSleep,
        _ removal: InboxRemoval, _ explosions: Explosions, _ knocks: Knocks, _ routes: Routes, _ dials: Dials,
        _ streams: RelayStreams, _ punching: Punching, _ output: LinkOutput, _ transfers: FileTransfers,
        _ network: NodeNetwork, _ mailboxes: Mailboxes
    ) {
        self.core = core
        self.endings = endings
        self.writer = writer
        self.held = held
        self.sleep = sleep
        self.removal = removal
        self.explosions = explosions
        self.knocks = knocks
        self.routes = routes
        self.dials = dials
        self.streams = streams
        self.punching = punching
        self.output = output
        self.transfers = transfers
        self.network = network
        self.mailboxes = mailboxes
    }

    func perform(_ actions: [NodeAction]) {
        for action in actions { perform(action) }
        // Each explosion sends its receipt within this turn, so the report ends here.
        for case .explode(_, let record, _) in actions { endings[record.conversation].report = nil }
        output.flush()
    }

    private func perform(_ action: NodeAction) {
        if store.isLocked { putOff(action) }
        switch action {
        case .save(let client): writer.save(client)
        case .keep(let client, let messages, let keeping): writer.keep(messages, keeping, client: client)
        case .setState(let client, let ids, let state): setState(state, of: ids, client)
        case .forgetMemory(let client):
            inboxes[client]?.archive.forgetMemory()
            inboxes[client]?.forgetHashes()
        case .reschedule(let client, let id, let expiresAt):
            writer.storing(client) { inbox throws(StoreError) in
                try inbox.archive.reschedule(id, expiresAt: expiresAt, now: now)
            }
            writer.changed(client)
        case .eraseSent(let client, let agreement):
            writer.storing(client) { inbox throws(StoreError) in
                let ids = try inbox.archive.sent(under: agreement)
                try inbox.archive.erase(ids)
            }
            writer.changed(client)
        case .explode(let client, let record, let fanOut): explosions.explode(client, record, fanOut: fanOut)
        case .destroy(let client): removal.destroy(client)
        case .saveTombstone(let conversation): explosions.saveTombstone(conversation)
        case .removeTombstone(let conversation): explosions.removeTombstone(conversation)
        case .armExplosion(let client, let record, let fanOut): armExplosion(client, record, fanOut)
        case .register(let client, let route): routes.register(client, route)
        case .unregister(let client, let route): routes.unregister(client, route)
        case .dial(let client, let dial): dials.dial(client, dial)
        case .knock(let knock): knocks.knock(knock)
        case .wake(let client, let reason): sleep.wakeIfPossible(client, reason)
        case .sleep(let client): sleep.putToSleep(client)
        case .transmit(let link, _), .transmitMessages(let link, _, _), .close(let link): held.leave(action, on: link)
        case .notify(let event): held.leave(action, telling: event)
        case .notifyMessages(let events): held.leave(.action(action), for: events.client)
        case .setDelivery(let client, let ids, let delivery):
            writer.learn(client) { archive in for id in ids { archive.setDelivery(delivery, of: id) } }
            if delivery.state == .read { writer.commits.scheduleLate() }
        case .keepChunk(let client, let chunk, let expiresAt, let keeping):
            if writer.keep(chunk, client: client, expiresAt: expiresAt, keeping) {
                transfers.hash(chunk, client: client)
            }
        case .forgetChunks(let client, let id):
            writer.storing(client) { inbox throws(StoreError) in
                inbox.verifications[id] = nil
                try inbox.archive.forgetChunks(id)
            }
            writer.changed(client)
        case .verifyAttachment(let client, let id): transfers.verify(id, client: client)
        case .serveChunks(let link): transfers.serve(link)
        // The file's message has already left; the chunk need not wait for later changes.
        case .transmitChunk(let link, let client, let id, let index):
            transfers.transmitChunk(id, index, client: client, on: link)
        case .pauseReading(let link, let time): output.pauseForHaste(link, time)
        case .forward(let link, let frame): output.transmit(frame, on: link)
        case .relayed(let link, let answer): streams.relayed(answer, on: link)
        case .endpointsMayHaveChanged: network.relaysMayHaveChanged()
        case .gatherCandidates(let client, let remote): punching.gatherCandidates(client, remote)
        case .dialPunching(let client, let dial, let nonce): dials.dial(client, dial, punchingWith: nonce)
        case .punch(let nonce, let candidates): punching.punch(nonce, candidates)
        case .mail(let client, let order): mailboxes.orders.mail(order, client)
        case .makeSlices(let client, let agreement, let above, let link):
            mailboxes.keys.send(agreement, above: above, client, on: link)
        case .mailNotices(let conversation, let notices): mailboxes.notices.begin(conversation, notices)
        case .mailbox(let action): mailboxes.bodies.perform(action)
        }
    }

    private func setState(_ state: DeliveryState, of ids: [Messaging.MessageID], _ client: ClientID) {
        writer.learn(client) { archive in for id in ids { archive.setState(state, of: id) } }
        switch state {
        // The sender of a file is told its result, and then does not send the file again.
        case .received, .failed: writer.changed(client)
        case .sent: break
        // Not worth a commit: if lost, the message is sent and acknowledged again.
        case .queued, .mailed, .delivered, .expiredUndelivered, .cancelled, .read, .receiving:
            writer.commits.scheduleLate()
        }
    }

    /// A fuse cannot be cancelled, so it is armed only after the schedule is durable. The inbox may sleep by then.
    private func armExplosion(_ client: ClientID, _ record: ExplosionRecord, _ fanOut: [Messaging.Member]) {
        guard let key = inboxes[client]?.key else { return }
        let armed = { [inboxes, explosions] (isDurable: Bool) in
            if isDurable, inboxes[client] != nil { explosions.arm(client, key, record, fanOut: fanOut) }
        }
        held.leave(.run(armed), for: client)
    }

    /// Defers status changes of stored messages until the unlock.
    private func putOff(_ action: NodeAction) {
        func deferIt(_ client: ClientID, _ action: NodeAction) { inboxes[client]?.deferred.append(action) }
        func isHeld(_ id: Messaging.MessageID, _ client: ClientID) -> Bool {
            inboxes[client]?.archive.isHeld(id) ?? false
        }
        switch action {
        // Not deferred: `sent` is never written, and only the record of a cancelled message tells whether a member has
        // it.
        case .setState(_, _, .sent), .setState(_, _, .cancelled): return
        case .setState(let client, let ids, let state):
            let stored = ids.filter { !isHeld($0, client) }
            if !stored.isEmpty { deferIt(client, .setState(client, stored, state)) }
        case .setDelivery(let client, let ids, let delivery):
            let stored = ids.filter { !isHeld($0, client) }
            if !stored.isEmpty { deferIt(client, .setDelivery(client, stored, delivery)) }
        case .forgetChunks(let client, let id), .reschedule(let client, let id, _):
            if !isHeld(id, client) { deferIt(client, action) }
        case .eraseSent(let client, _): deferIt(client, action)
        case .save, .keep, .forgetMemory, .explode, .destroy, .saveTombstone, .removeTombstone, .armExplosion,
            .register, .unregister, .dial, .transmit, .transmitMessages, .close, .pauseReading, .knock, .notify,
            .notifyMessages, .wake, .sleep, .keepChunk, .verifyAttachment, .serveChunks, .transmitChunk, .forward,
            .relayed, .endpointsMayHaveChanged, .gatherCandidates, .dialPunching, .punch, .mail, .makeSlices,
            .mailNotices, .mailbox:
            return
        }
    }

    /// A task of the loop may outlive the node; its actions are then ignored.
    deinit { core.disconnect() }
}
