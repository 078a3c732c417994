import Crypto
import DequeModule

/// The whole node: routes what happens to the inbox that it concerns and returns what the shell is to do, in order.
/// It opens nothing, waits for nothing and reads no clock: one seed replays a run. It is a table of inboxes, each of which
/// is changed where it is, so a node has one owner and is no value that could be copied.
package final class NodeStateMachine {
    struct OpenLink {
        let inbox: InboxEntry
        let remote: PublicKey
        /// It goes through a rendezvous node.
        var isRelayed = false
        /// Frames over it that changed nothing; a member's are counted in its conversation.
        var idleFrames = IdleFrames.stranger
    }

    var inboxes = InboxTable()
    var links: [LinkID: OpenLink] = [:]
    /// Frames over all links that changed nothing, but for members'.
    var idleFrames = IdleFrames.strangers
    /// Which of the links are guests'.
    var guests = GuestList()
    var explosions = ExplosionTable()
    /// How many join requests are looked at and refused.
    var joinRates = JoinRates()
    /// When members are dialled because this machine's addresses have changed.
    var changeDials = ChangeDials()

    /// Which inboxes are awake (Inbox.md).
    var lifecycle: InboxLifecycleStateMachine
    /// Inboxes that are to be woken, some in each turn from `wakesAt` on.
    var pendingWakes: Deque<(inbox: InboxEntry, reason: WakeReason)> = []
    var wakesAt: Timestamp?
    /// Served at `lineAt`; `nil` while it is empty.
    var line = DeliveryLine()
    var lineAt: Timestamp?
    var rebalanceAt: Timestamp?
    var trimAt: Timestamp?

    /// - Parameter capacity: how many inboxes are to be awake.
    package init(capacity: Int = Limits.inboxCapacity) { lifecycle = InboxLifecycleStateMachine(capacity: capacity) }

    /// An independent node in the same state: a fuzzer starts every input from one.
    package func copy() -> NodeStateMachine {
        let copy = NodeStateMachine(capacity: lifecycle.capacity)
        var copies: [ObjectIdentifier: InboxEntry] = [:]
        for inbox in inboxes.all.inOrderOfCreation() {
            let entry = copy.inboxes.enter(inbox.client, createdAt: inbox.createdAt, as: inbox.role.copy)
            entry.activity = inbox.activity
            entry.links = inbox.links
            (entry.watcherCount, entry.retries, entry.isInLine) = (inbox.watcherCount, inbox.retries, inbox.isInLine)
            copies[ObjectIdentifier(inbox)] = entry
        }
        copy.inboxes.relaysHaveChanged = inboxes.relaysHaveChanged
        copy.lifecycle = InboxLifecycleStateMachine(capacity: lifecycle.capacity, inboxes: copies.values)
        for (link, open) in links {
            // The keys of an inbox may be gone while its links are open.
            let inbox =
                copies[ObjectIdentifier(open.inbox)]
                ?? InboxEntry(client: open.inbox.client, createdAt: open.inbox.createdAt)
            inbox.links = open.inbox.links
            copies[ObjectIdentifier(open.inbox)] = inbox
            copy.links[link] = OpenLink(
                inbox: inbox, remote: open.remote, isRelayed: open.isRelayed, idleFrames: open.idleFrames)
        }
        copy.idleFrames = idleFrames
        (copy.guests, copy.explosions, copy.joinRates) = (guests, explosions, joinRates)
        copy.changeDials = changeDials
        copy.pendingWakes = Deque(
            pendingWakes.compactMap { wake in copies[ObjectIdentifier(wake.inbox)].map { ($0, wake.reason) } })
        copy.line.first = Deque(line.first.compactMap { copies[ObjectIdentifier($0)] })
        copy.line.later = Deque(line.later.compactMap { copies[ObjectIdentifier($0)] })
        (copy.wakesAt, copy.lineAt, copy.rebalanceAt, copy.trimAt) = (wakesAt, lineAt, rebalanceAt, trimAt)
        return copy
    }

    // MARK: What there is

    /// In the order in which they were made.
    package var clients: [ClientID] { inboxes.all.inOrderOfCreation().map(\.client) }

    /// Those that are awake, in the order in which they were made.
    package var conversations: [ConversationStateMachine] {
        inboxes.awake.inOrderOfCreation().compactMap { $0.conversation?.machine }
    }

    /// Those under way, and those that have ended and were not dismissed.
    package var joins: [JoiningStateMachine] {
        inboxes.joining.inOrderOfCreation().compactMap {
            if case .joining(let running) = $0.role { running.machine } else { nil }
        }
    }

    /// `nil` until it is made at the first start.
    package var contact: ContactStateMachine? {
        guard case .contact(let running)? = inboxes.contact?.role else { return nil }
        return running.machine
    }

    /// The inbox that waits for the next conversation or join.
    package var unused: ClientID? { inboxes.unused?.client }

    /// Of all explosions that are remembered.
    package var tombstones: [ExplodeStateMachine.Record] { explosions.records }

    /// What is left of an exploded conversation.
    package func tombstone(_ conversation: ConversationID) -> ExplodeStateMachine.Record? {
        explosions[conversation]?.machine.record
    }

    /// `nil` for an inbox that is no conversation, or sleeps.
    package func conversation(_ client: ClientID) -> ConversationStateMachine? {
        inboxes[client]?.conversation?.machine
    }

    package var linkCount: Int { links.count }

    /// Of a conversation, awake or asleep.
    package func conversationID(_ client: ClientID) -> ConversationID? { inboxes[client]?.listing?.conversation }

    /// What the creator calls a conversation, awake or asleep.
    package func name(of client: ClientID) -> String? { inboxes[client]?.listing?.name }

    /// Awake or asleep.
    package func client(of conversation: ConversationID) -> ClientID? { inboxes.directory.client(of: conversation) }

    /// All that we have of a conversation: who was removed and has joined again has two.
    package func clients(of conversation: ConversationID) -> [ClientID] { inboxes.directory.clients(of: conversation) }

    /// The record of an inbox as it is to be saved; `nil` for one that sleeps: it was saved.
    package func record(_ client: ClientID) -> InboxRecord? {
        guard let inbox = inboxes[client] else { return nil }
        let role: InboxRecord.Role
        switch inbox.role {
        case .unused: role = .unused
        case .contact(let running): role = .contact(running.machine.savedRecord)
        case .joining(let running): role = .joining(running.machine.record)
        case .conversation(let running): role = .conversation(running.machine.savedRecord)
        case .sleeping, .gone: return nil
        }
        return InboxRecord(client: client, createdAt: inbox.createdAt, role: role)
    }

    /// When ``advance(_:)`` has something to do; `nil` for never.
    package var nextDeadline: Timestamp? {
        var earliest: Timestamp?
        func consider(_ deadline: Timestamp?) { if let deadline { earliest = min(earliest ?? deadline, deadline) } }
        consider(inboxes.nextDeadline)
        consider(wakesAt)
        consider(lineAt)
        consider(rebalanceAt)
        if lifecycle.isOverCapacity { consider(trimAt ?? Timestamp(milliseconds: 0)) }
        consider(guests.nextEnd)
        consider(explosions.nextDeadline)
        if isRelayDue { consider(Timestamp(milliseconds: 0)) }
        return earliest
    }

    // MARK: Conversations

    /// Runs a command on one conversation and routes its actions.
    package func command<Result>(
        _ client: ClientID, _ turn: inout Turn,
        _ body: (inout ConversationStateMachine, inout Turn) throws(CommandError) -> (Result, [NodeAction])
    ) throws(CommandError) -> (Result, [NodeAction]) {
        guard let inbox = inboxes[client] else { throw .unknownConversation }
        guard let running = inbox.conversation else {
            if case .joining = inbox.role { throw .notJoined }
            throw .unknownConversation
        }
        let outcome = Swift.Result { () throws(CommandError) in try body(&running.machine, &turn) }
        inboxes.reindex(inbox)
        let (result, actions) = try outcome.get()
        return (result, settle(actions, &turn))
    }

    /// Runs a step of one conversation; nothing happens to what is none, or sleeps.
    func withConversation(_ inbox: InboxEntry?, _ body: (inout ConversationStateMachine) -> [NodeAction])
        -> [NodeAction]
    {
        guard let inbox, let running = inbox.conversation else { return [] }
        let actions = body(&running.machine)
        inboxes.reindex(inbox)
        return actions
    }

    /// Runs a step of each conversation that is awake, in the order in which they were made.
    func withConversations(_ body: (inout ConversationStateMachine) -> [NodeAction]) -> [NodeAction] {
        inboxes.awake.inOrderOfCreation().flatMap { withConversation($0, body) }
    }

    /// What was in memory has been read or stored: see `ConversationStateMachine.releaseMemory()`.
    /// - Parameter byteCount: `nil` for all of it.
    package func releaseMemory(_ client: ClientID, byteCount: Int? = nil) {
        _ = withConversation(inboxes[client]) {
            $0.releaseMemory(byteCount: byteCount)
            return []
        }
    }

    /// This node can be reached elsewhere now: the members of all conversations are told.
    package func endpointsChanged(_ turn: inout Turn) -> [NodeAction] {
        let result = withConversations { $0.endpointsChanged(&turn) }
        sleepersMoved(&turn)
        return result
    }

    /// Runs a step of the contact inbox; nothing happens while there is none.
    package func withContact(_ turn: inout Turn, _ body: (inout ContactStateMachine, inout Turn) -> [NodeAction])
        -> [NodeAction]
    {
        guard let inbox = inboxes.contact, case .contact(let running) = inbox.role else { return [] }
        let actions = body(&running.machine, &turn)
        inboxes.reindex(inbox)
        return actions
    }

    /// Dials the members of a conversation now.
    package func retry(_ client: ClientID, _ turn: inout Turn) -> [NodeAction] {
        settle(withConversation(inboxes[client]) { $0.retry(&turn) }, &turn)
    }

    /// Dials the members of a conversation that have no link.
    package func reach(_ client: ClientID, _ turn: inout Turn) -> [NodeAction] {
        settle(withConversation(inboxes[client]) { $0.reach(&turn) }, &turn)
    }

    /// The user has seen these messages.
    package func markRead(_ seen: [(id: MessageID, sender: PublicKey)], client: ClientID, _ turn: inout Turn)
        -> [NodeAction]
    { withConversation(inboxes[client]) { $0.markRead(seen, turn) } }

    /// Contents that waited in memory are on the disk now.
    package func stored(_ contents: [StoredContent], client: ClientID, _ turn: inout Turn) -> [NodeAction] {
        withConversation(inboxes[client]) { $0.stored(contents, turn) }
    }

    /// The answer to ``NodeAction/verifyAttachment(_:_:)``.
    package func attachmentVerified(_ message: MessageID, client: ClientID, isRight: Bool, _ turn: inout Turn)
        -> [NodeAction]
    { withConversation(inboxes[client]) { $0.attachmentVerified(message, isRight, turn) } }

    /// A link with chunks to send takes more.
    /// - Returns: nothing when no chunk waits for it.
    package func chunksMayGo(on link: LinkID, _ turn: inout Turn) -> [NodeAction] {
        guard let open = links[link], let running = open.inbox.conversation else { return [] }
        let actions = running.machine.chunksMayGo(to: open.remote, on: link, turn)
        inboxes.reindex(open.inbox, touching: open.remote)
        return actions
    }

    // MARK: Letting go

    /// Lets go of an inbox whose keys are gone, and of its links.
    package func remove(_ client: ClientID) {
        if let inbox = inboxes[client] { forget(inbox) }
        // After an explosion the links of an inbox outlive its place in the table.
        for (link, open) in links where open.inbox.client == client { forgetLink(link) }
    }

    /// Lets go of an inbox that is gone, awake or asleep. Its links stay until they are closed.
    func forget(_ inbox: InboxEntry) {
        lifecycle.remove(inbox)
        inboxes.remove(inbox)
        if !line.isEmpty { lineAt = Timestamp(milliseconds: 0) }
    }

    func forgetLink(_ link: LinkID) {
        guests.leave(link)
        links.removeValue(forKey: link)?.inbox.links.remove(link)
    }

    /// Explosions move to the tombstones; destroyed inboxes are let go.
    func settle(_ actions: [NodeAction], _ turn: inout Turn) -> [NodeAction] {
        var result = actions
        // Most actions are of one inbox.
        var last: InboxEntry?
        func inbox(_ client: ClientID) -> InboxEntry? {
            if last?.client != client { last = inboxes[client] }
            return last
        }
        var insertedCount = 0
        var earlierReceipts: [DeletionReceipt] = []
        for (index, action) in actions.enumerated() {
            switch action {
            case .armExplosion(let client, var record, let fanOut):
                addEarlierCopies(to: &record, than: client, &turn)
                result[index + insertedCount] = .armExplosion(client, record, fanOut: fanOut)
            case .transmit(let link, .deletionReceipt):
                // The creator closes the link behind the receipt of the copy whose link it is.
                let receipts = earlierReceipts.map { NodeAction.transmit(link, .deletionReceipt($0)) }
                result.insert(contentsOf: receipts, at: index + insertedCount)
                insertedCount += receipts.count
            case .explode(let client, var record, let fanOut):
                last = nil
                let copies = addEarlierCopies(to: &record, than: client, &turn)
                earlierReceipts = record.earlierCopies.map(\.receipt)
                result[index + insertedCount] = .explode(client, record, fanOut: fanOut)
                for earlier in copies {
                    let open = earlier.links.sorted()
                    remove(earlier.client)
                    result += open.map { .close($0) } + [.destroy(earlier.client)]
                }
                explosions[record.conversation] = Explosion(
                    machine: ExplodeStateMachine(record: record),
                    knockAt: fanOut.isEmpty ? nil : turn.now + Limits.knockFirst, client: client)
                if let inbox = inboxes[client] {
                    forget(inbox)
                    // Its links stay for what there is to be said of the end, as long as a guest may.
                    for link in inbox.links.sorted() {
                        result += guests.welcome(link, now: turn.now).map { [.close($0)] } ?? []
                    }
                }
                rebalanceAt = rebalanceAt ?? turn.now + Limits.inboxTrimInterval
            case .destroy(let client):
                last = nil
                if let inbox = inboxes[client] { forget(inbox) }
                rebalanceAt = rebalanceAt ?? turn.now + Limits.inboxTrimInterval
            case .keep(let client, let messages, _) where messages.contains { $0.content.type != .systemMessage }:
                if let inbox = inbox(client) { lifecycle.active(inbox, at: turn.now) }
            case .setState(let client, _, .delivered): inbox(client)?.retries = 0
            default: break
            }
        }
        return result
    }

    // MARK: Time

    /// What is due in all inboxes, knocks that are due, tombstones whose time is over.
    package func advance(_ turn: inout Turn) -> [NodeAction] {
        var result: [NodeAction] = []
        result += settleRelays(&turn)
        result += advanceInboxes(&turn)
        while let link = guests.takeOverdue(now: turn.now) { result.append(.close(link)) }
        for conversation in explosions.takeDue(until: turn.now) {
            guard var explosion = explosions[conversation] else { continue }
            if explosion.machine.record.keepUntil <= turn.now {
                explosions[conversation] = nil
                result.append(.removeTombstone(conversation))
                continue
            }
            if let due = explosion.knockAt, due <= turn.now {
                for member in explosion.machine.waiting { result.append(.knock(.deliver(conversation, member))) }
                explosion.knockAt = explosion.machine.waiting.isEmpty ? nil : turn.now + explosion.wait
                explosion.wait = min(explosion.wait * 2, Limits.knockLongest)
            }
            explosions[conversation] = explosion
        }
        return result
    }

    func advance(_ inbox: InboxEntry, _ turn: inout Turn) -> [NodeAction] {
        switch inbox.role {
        case .gone, .unused, .sleeping: return []
        case .contact: return withContact(&turn) { $0.advance(&$1) }
        case .joining(let running):
            let outcome = running.machine.advance(turn)
            inboxes.reindex(inbox)
            return finish(outcome, of: running.machine, in: inbox, &turn)
        case .conversation: return settle(withConversation(inbox) { $0.advance(&turn) }, &turn)
        }
    }
}
