import Crypto
import DequeModule

/// The whole node as a table of inboxes: routes each event to its inbox and returns the shell's actions, in order. It
/// does no I/O and reads no clock, so a seed replays a run.
package final class NodeStateMachine {
    struct OpenLink {
        let inbox: InboxEntry
        let remote: PublicKey
        var isRelayed = false
        /// No-op frames of a link that is not a member's; `ConversationStateMachine` counts those of a member.
        var idleFrames = IdleFrames.stranger
    }

    var inboxes = InboxTable()
    var links: [LinkID: OpenLink] = [:]
    var idleFrames = IdleFrames.strangers
    var guests = GuestList()
    var explosions = ExplosionTable()
    var joinRates = JoinRates()
    /// When members are dialled after a change of this machine's addresses.
    var changeDials = ChangeDials()

    var lifecycle: InboxLifecycleStateMachine
    /// Inboxes to wake; from `wakesAt` on, each turn wakes some.
    var pendingWakes: Deque<(inbox: InboxEntry, reason: WakeReason)> = []
    var wakesAt: Timestamp?
    /// Next served at `lineAt`; `nil` while the line is empty.
    var line = DeliveryLine()
    var lineAt: Timestamp?
    var rebalanceAt: Timestamp?
    var trimAt: Timestamp?

    package init(capacity: Int = Limits.inboxCapacity) { lifecycle = InboxLifecycleStateMachine(capacity: capacity) }

    /// An independent node in the same state. A fuzzer starts every input from one.
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

    // MARK: Queries

    /// In order of creation.
    package var clients: [ClientID] { inboxes.all.inOrderOfCreation().map(\.client) }

    /// Awake conversations, in order of creation.
    package var conversations: [ConversationStateMachine] {
        inboxes.awake.inOrderOfCreation().compactMap { $0.conversation?.machine }
    }

    /// Pending joins, and ended ones that the user has not dismissed.
    package var joins: [JoiningStateMachine] {
        inboxes.joining.inOrderOfCreation().compactMap {
            if case .joining(let running) = $0.role { running.machine } else { nil }
        }
    }

    /// `nil` until the first start creates it.
    package var contact: ContactStateMachine? {
        guard case .contact(let running)? = inboxes.contact?.role else { return nil }
        return running.machine
    }

    /// The pooled inbox for the next conversation or join.
    package var unused: ClientID? { inboxes.unused?.client }

    package var tombstones: [ExplosionRecord] { explosions.records }

    package func tombstone(_ conversation: ConversationID) -> ExplosionRecord? { explosions[conversation]?.record }

    /// `nil` if the inbox is asleep or no conversation.
    package func conversation(_ client: ClientID) -> ConversationStateMachine? {
        inboxes[client]?.conversation?.machine
    }

    package var linkCount: Int { links.count }

    /// Awake or asleep.
    package func conversationID(_ client: ClientID) -> ConversationID? { inboxes[client]?.listing?.conversation }

    /// The creator's name for the conversation. Awake or asleep.
    package func name(of client: ClientID) -> String? { inboxes[client]?.listing?.name }

    package func client(of conversation: ConversationID) -> ClientID? { inboxes.directory.client(of: conversation) }

    /// All our copies of a conversation: a member that was removed and has joined again has two.
    package func clients(of conversation: ConversationID) -> [ClientID] { inboxes.directory.clients(of: conversation) }

    /// The record to save; `nil` for a sleeping inbox, whose record is saved already.
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

    package var nextDeadline: Timestamp? {
        let atOnce = Timestamp(milliseconds: 0)
        return earliest(
            inboxes.nextDeadline, wakesAt, lineAt, rebalanceAt, lifecycle.isOverCapacity ? trimAt ?? atOnce : nil,
            guests.nextEnd, explosions.nextDeadline, isRelayDue ? atOnce : nil)
    }

    // MARK: Conversations

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

    /// Does nothing if the inbox is asleep or no conversation.
    func withConversation(_ inbox: InboxEntry?, _ body: (inout ConversationStateMachine) -> [NodeAction])
        -> [NodeAction]
    {
        guard let inbox, let running = inbox.conversation else { return [] }
        let actions = body(&running.machine)
        inboxes.reindex(inbox)
        return actions
    }

    /// Awake conversations only, in order of creation.
    func withConversations(_ body: (inout ConversationStateMachine) -> [NodeAction]) -> [NodeAction] {
        inboxes.awake.inOrderOfCreation().flatMap { withConversation($0, body) }
    }

    /// - Parameter byteCount: `nil` for all of them.
    package func releaseMemory(_ client: ClientID, byteCount: Int? = nil) {
        _ = withConversation(inboxes[client]) {
            $0.releaseMemory(byteCount: byteCount)
            return []
        }
    }

    package func endpointsChanged(_ turn: inout Turn) -> [NodeAction] {
        let result = withConversations { $0.endpointsChanged(&turn) }
        sleepersMoved(&turn)
        return result
    }

    package func withContact(_ turn: inout Turn, _ body: (inout ContactStateMachine, inout Turn) -> [NodeAction])
        -> [NodeAction]
    {
        guard let inbox = inboxes.contact, case .contact(let running) = inbox.role else { return [] }
        let actions = body(&running.machine, &turn)
        inboxes.reindex(inbox)
        return actions
    }

    /// Dials all members of a conversation now.
    package func retry(_ client: ClientID, _ turn: inout Turn) -> [NodeAction] {
        settle(withConversation(inboxes[client]) { $0.retry(&turn) }, &turn)
    }

    /// Dials the members of a conversation that have no link.
    package func reach(_ client: ClientID, _ turn: inout Turn) -> [NodeAction] {
        settle(withConversation(inboxes[client]) { $0.reach(&turn) }, &turn)
    }

    package func markRead(_ seen: [(id: MessageID, sender: PublicKey)], client: ClientID, _ turn: inout Turn)
        -> [NodeAction]
    { withConversation(inboxes[client]) { $0.markRead(seen, turn) } }

    /// Contents that waited in memory are now on the disk.
    package func stored(_ contents: [StoredContent], client: ClientID, _ turn: inout Turn) -> [NodeAction] {
        withConversation(inboxes[client]) { $0.stored(contents, turn) }
    }

    /// The answer to ``NodeAction/verifyAttachment(_:_:)``.
    package func attachmentVerified(_ message: MessageID, client: ClientID, isRight: Bool, _ turn: inout Turn)
        -> [NodeAction]
    { withConversation(inboxes[client]) { $0.attachmentVerified(message, isRight, turn) } }

    /// A link has room for more chunks.
    /// - Returns: nothing when no chunk waits for this link.
    package func chunksMayGo(on link: LinkID, _ turn: inout Turn) -> [NodeAction] {
        guard let open = links[link], let running = open.inbox.conversation else { return [] }
        let actions = running.machine.chunksMayGo(to: open.remote, on: link, turn)
        inboxes.reindex(open.inbox, touching: open.remote)
        return actions
    }

    // MARK: Removal

    package func remove(_ client: ClientID) {
        if let inbox = inboxes[client] { forget(inbox) }
        // After an explosion the links of an inbox outlive its entry in the table.
        for (link, open) in links where open.inbox.client == client { forgetLink(link) }
    }

    /// The links of the inbox stay until they are closed.
    func forget(_ inbox: InboxEntry) {
        lifecycle.remove(inbox)
        inboxes.remove(inbox)
        if !line.isEmpty { lineAt = Timestamp(milliseconds: 0) }
    }

    func forgetLink(_ link: LinkID) {
        guests.leave(link)
        links.removeValue(forKey: link)?.inbox.links.remove(link)
    }

    /// Moves exploded inboxes to the tombstones and removes destroyed ones.
    func settle(_ actions: [NodeAction], _ turn: inout Turn) -> [NodeAction] {
        var result = actions
        // Most actions concern one inbox.
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
                // The creator closes a link when it gets the receipt of that link's own copy, so the earlier receipts
                // go first.
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
                    record, knockAt: fanOut.isEmpty ? nil : turn.now + Limits.knock.first, client: client)
                if let inbox = inboxes[client] {
                    forget(inbox)
                    // Receipts still go over its links. They stay as long as a guest's.
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

    package func advance(_ turn: inout Turn) -> [NodeAction] {
        var result: [NodeAction] = []
        result += settleRelays(&turn)
        result += advanceInboxes(&turn)
        while let link = guests.takeOverdue(now: turn.now) { result.append(.close(link)) }
        for conversation in explosions.takeDue(until: turn.now) {
            guard var explosion = explosions[conversation] else { continue }
            if explosion.record.keepUntil <= turn.now {
                explosions[conversation] = nil
                result.append(.removeTombstone(conversation))
                continue
            }
            if let due = explosion.knockAt, due <= turn.now {
                for member in explosion.record.waiting { result.append(.knock(.deliver(conversation, member))) }
                explosion.knockAt = explosion.record.waiting.isEmpty ? nil : turn.now + explosion.wait
                explosion.wait = min(explosion.wait * 2, Limits.knock.longest)
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
