import Cryptography
import DequeModule

/// The whole node as a table of inboxes: routes each event to its inbox, whose effects go into the turn. It does no I/O
/// and reads no clock, so a seed replays a run.
package final class NodeStateMachine {
    struct OpenLink {
        let inbox: InboxEntry
        let remote: PublicKey
        var isRelayed = false
        /// No-op frames of a link that is not a member's; ``Conversation`` counts those of a member.
        var idleFrames = IdleFrames.stranger
    }

    let inboxes = InboxTable()
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

    package var clients: [ClientID] { inboxes.all.inOrderOfCreation().map(\.client) }

    package func createdAt(_ client: ClientID) -> Timestamp { inboxes[client]?.createdAt ?? .latest }

    package var conversations: [Conversation] { inboxes.awake.inOrderOfCreation().compactMap(\.conversation) }

    /// Pending joins, and ended ones that the user has not dismissed.
    package var joins: [JoiningStateMachine] { joiners.filter { $0.record.state != .cancelled } }

    /// ``joins``, and dismissed ones that their creator must still hear of.
    var joiners: [JoiningStateMachine] {
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

    package func names(ofExploded conversation: ConversationID) -> [PublicKey: String] {
        explosions[conversation]?.names ?? [:]
    }

    /// `nil` if the inbox is asleep or no conversation.
    package func conversation(_ client: ClientID) -> Conversation? { inboxes[client]?.conversation }

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
        case .conversation(let conversation): role = .conversation(conversation.record)
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

    /// Runs a user's command. A refused one has no effect.
    package func command<Result>(
        _ client: ClientID, _ turn: inout Turn, _ body: (Conversation, inout Turn) throws(CommandError) -> Result
    ) throws(CommandError) -> Result {
        guard let inbox = inboxes[client] else { throw .unknownConversation }
        guard let conversation = inbox.conversation else {
            if case .joining = inbox.role { throw .notJoined }
            throw .unknownConversation
        }
        let mark = turn.mark
        let result: Result
        do throws(CommandError) { result = try body(conversation, &turn) } catch {
            turn.actions.removeSubrange(mark...)
            inboxes.reindex(inbox)
            throw error
        }
        inboxes.reindex(inbox)
        settle(since: mark, &turn)
        return result
    }

    /// Runs `body` on a conversation. Does nothing if the inbox is asleep or no conversation.
    package func step(_ client: ClientID, _ turn: inout Turn, _ body: (Conversation, inout Turn) -> Void) {
        step(inboxes[client], &turn, body)
    }

    /// - Parameter member: the only member whose link and outbox change; `nil` for any.
    func step(
        _ inbox: InboxEntry?, touching member: PublicKey? = nil, _ turn: inout Turn,
        _ body: (Conversation, inout Turn) -> Void
    ) {
        guard let inbox, let conversation = inbox.conversation else { return }
        let mark = turn.mark
        body(conversation, &turn)
        inboxes.reindex(inbox, touching: member)
        settle(since: mark, &turn)
    }

    /// Awake conversations only, in order of creation.
    func stepAll(_ turn: inout Turn, _ body: (Conversation, inout Turn) -> Void) {
        for inbox in inboxes.awake.inOrderOfCreation() { step(inbox, &turn, body) }
    }

    package func withContact(_ turn: inout Turn, _ body: (inout ContactStateMachine, inout Turn) -> [NodeAction]) {
        guard let inbox = inboxes.contact, case .contact(let running) = inbox.role else { return }
        turn.add(body(&running.machine, &turn))
        inboxes.reindex(inbox)
    }

    package func endpointsChanged(_ turn: inout Turn) {
        stepAll(&turn) { $0.endpointsChanged(&$1) }
        sleepersMoved(&turn)
    }

    /// - Parameter byteCount: `nil` for all of them.
    package func releaseMemory(_ client: ClientID, byteCount: Int? = nil) {
        guard let inbox = inboxes[client], let conversation = inbox.conversation else { return }
        conversation.releaseMemory(byteCount: byteCount)
        inboxes.reindex(inbox)
    }

    /// A link has room for more chunks. Adds nothing when no chunk waits for this link.
    package func chunksMayGo(on link: LinkID, _ turn: inout Turn) {
        guard let open = links[link] else { return }
        step(open.inbox, touching: open.remote, &turn) { $0.chunksMayGo(to: open.remote, on: link, &$1) }
    }

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
    func settle(since mark: Int, _ turn: inout Turn) {
        // Most actions concern one inbox.
        var last: InboxEntry?
        func inbox(_ client: ClientID) -> InboxEntry? {
            if last?.client != client { last = inboxes[client] }
            return last
        }
        var earlierReceipts: [DeletionReceipt] = []
        var (index, end) = (mark, turn.mark)
        while index < end {
            switch turn.actions[index] {
            case .armExplosion(let client, var record, let fanOut):
                addEarlierCopies(to: &record, than: client, &turn)
                turn.actions[index] = .armExplosion(client, record, fanOut: fanOut)
            case .transmit(let link, .deletionReceipt):
                // The creator closes a link when it gets the receipt of that link's own copy, so the earlier receipts
                // go first.
                let receipts = earlierReceipts.map { NodeAction.transmit(link, .deletionReceipt($0)) }
                turn.actions.insert(contentsOf: receipts, at: index)
                index += receipts.count
                end += receipts.count
            case .explode(let client, var record, let fanOut):
                last = nil
                let copies = addEarlierCopies(to: &record, than: client, &turn)
                earlierReceipts = record.earlierCopies.map(\.receipt)
                turn.actions[index] = .explode(client, record, fanOut: fanOut)
                for earlier in copies {
                    let open = earlier.links.sorted()
                    remove(earlier.client)
                    for link in open { turn.close(link) }
                    turn.add(.destroy(earlier.client))
                }
                explosions[record.conversation] = Explosion(
                    record, knockAt: fanOut.isEmpty ? nil : turn.now + Limits.knock.first, client: client)
                if let inbox = inboxes[client] {
                    for member in inbox.conversation?.record.members ?? [] {
                        explosions[record.conversation]?.names[member.key] = member.profile
                    }
                    forget(inbox)
                    // Receipts still go over its links. They stay as long as a guest's.
                    for link in inbox.links.sorted() { welcomeGuest(link, &turn) }
                }
                rebalanceAt = rebalanceAt ?? turn.now + Limits.inboxTrimInterval
            case .destroy(let client):
                last = nil
                if let inbox = inboxes[client] { forget(inbox) }
                rebalanceAt = rebalanceAt ?? turn.now + Limits.inboxTrimInterval
            case .removeTombstone(let conversation)
            where inboxes.directory.copies(of: conversation).contains(where: \.mayHaveSchedule):
                // Another copy of ours still explodes as scheduled.
                turn.actions.remove(at: index)
                (index, end) = (index - 1, end - 1)
            case .keep(let client, let messages, _) where messages.contains { $0.content.type != .systemMessage }:
                if let inbox = inbox(client) { lifecycle.active(inbox, at: turn.now) }
            case .setState(let client, _, .delivered): inbox(client)?.retries = 0
            default: break
            }
            index += 1
        }
    }

    package func advance(_ turn: inout Turn) {
        settleRelays(&turn)
        advanceInboxes(&turn)
        while let link = guests.takeOverdue(now: turn.now) { turn.close(link) }
        var knockCount = 0
        for conversation in explosions.takeDue(until: turn.now) {
            guard var explosion = explosions[conversation] else { continue }
            if explosion.record.keepUntil <= turn.now {
                explosions[conversation] = nil
                turn.add(.removeTombstone(conversation))
                continue
            }
            if let due = explosion.knockAt, due <= turn.now, knockCount >= Limits.knocksAtOnce {
                explosion.knockAt = turn.now + .second
            } else if let due = explosion.knockAt, due <= turn.now {
                for member in explosion.record.waiting { turn.add(.knock(.deliver(conversation, member))) }
                knockCount += explosion.record.waiting.count
                explosion.knockAt = explosion.record.waiting.isEmpty ? nil : turn.now + explosion.wait
                explosion.wait = min(explosion.wait * 2, Limits.knock.longest)
            }
            explosions[conversation] = explosion
        }
    }

    func advance(_ inbox: InboxEntry, _ turn: inout Turn) {
        switch inbox.role {
        case .gone, .unused, .sleeping: break
        case .contact: withContact(&turn) { $0.advance(&$1) }
        case .joining(let running):
            let outcome = running.machine.advance(&turn)
            inboxes.reindex(inbox)
            finish(outcome, of: running.machine, in: inbox, &turn)
        case .conversation: step(inbox, &turn) { $0.advance(&$1) }
        }
    }
}
