import DequeModule
import Primitives

/// The whole node: routes what happens to the inbox that it concerns and returns what the shell is to do, in order.
/// It opens nothing, waits for nothing and reads no clock: one seed replays a run.
package struct NodeStateMachine: Sendable {
    enum Inbox: Sendable {
        case unused(IdentityKey)
        case contact(ContactStateMachine)
        case joining(JoiningStateMachine)
        case conversation(ConversationStateMachine)
    }

    struct OpenLink: Sendable {
        var client: ClientID
        var remote: PublicKey
        /// It goes through a rendezvous node.
        var isRelayed = false
        /// Frames over it that changed nothing; a member's are counted in its conversation.
        var idleFrames = IdleFrames.stranger
    }

    var inboxes = InboxTable()
    var records: [ClientID: Timestamp] = [:]
    var links: [LinkID: OpenLink] = [:]
    /// Frames over all links that changed nothing, but for members'.
    var idleFrames = IdleFrames.strangers
    /// Which of the links are guests'.
    var guests = GuestList()
    var explosions = ExplosionTable()
    /// How many join requests are looked at and refused.
    var joinRates = JoinRates()

    /// Which inboxes are awake (section 10).
    var lifecycle: InboxLifecycleStateMachine
    /// Conversations that are open in front of somebody, and how often.
    var watched: [ClientID: Int] = [:]
    /// How often the outbox of an inbox was tried in vain between two sleeps.
    var retries: [ClientID: Int] = [:]
    /// Inboxes that are to be woken, some in each turn from `wakesAt` on.
    var pendingWakes: Deque<(client: ClientID, reason: WakeReason)> = []
    var wakesAt: Timestamp?
    var rebalanceAt: Timestamp?
    var trimAt: Timestamp?

    /// - Parameter capacity: how many inboxes are to be awake.
    package init(capacity: Int = Limits.inboxCapacity) {
        lifecycle = InboxLifecycleStateMachine(capacity: capacity)
    }

    // MARK: What there is

    /// In the order in which they were made.
    package var clients: [ClientID] {
        records.sorted { ($0.value, $0.key) < ($1.value, $1.key) }.map(\.key)
    }

    /// Those that are awake, in the order in which they were made.
    package var conversations: [ConversationStateMachine] {
        awakeClients.compactMap { if case .conversation(let machine)? = inboxes[$0] { machine } else { nil } }
    }

    /// Those under way, and those that have ended and were not dismissed.
    package var joins: [JoiningStateMachine] {
        inboxes.joins.sorted { (records[$0] ?? .latest, $0) < (records[$1] ?? .latest, $1) }
            .compactMap { if case .joining(let machine)? = inboxes[$0] { machine } else { nil } }
    }

    /// `nil` until it is made at the first start.
    package var contact: ContactStateMachine? {
        guard let client = inboxes.contact, case .contact(let machine)? = inboxes[client] else { return nil }
        return machine
    }

    /// The inbox that waits for the next conversation or join.
    package var unused: ClientID? { inboxes.unused }

    /// Of all explosions that are remembered.
    package var tombstones: [ExplodeStateMachine.Record] { explosions.records }

    /// What is left of an exploded conversation.
    package func tombstone(_ conversation: ConversationID) -> ExplodeStateMachine.Record? {
        explosions[conversation]?.machine.record
    }

    /// `nil` for an inbox that is no conversation, or sleeps.
    package func conversation(_ client: ClientID) -> ConversationStateMachine? {
        if case .conversation(let machine)? = inboxes[client] { machine } else { nil }
    }

    package var linkCount: Int { links.count }

    /// Of a conversation, awake or asleep.
    package func conversationID(_ client: ClientID) -> ConversationID? {
        inboxes.directory.conversation(of: client)
    }

    /// Awake or asleep.
    package func client(of conversation: ConversationID) -> ClientID? {
        inboxes.directory.client(of: conversation)
    }

    /// All that we have of a conversation: who was removed and has joined again has two.
    package func clients(of conversation: ConversationID) -> [ClientID] {
        inboxes.directory.clients(of: conversation)
    }

    /// The record of an inbox as it is to be saved; `nil` for one that sleeps: it was saved.
    package func record(_ client: ClientID) -> InboxRecord? {
        guard let inbox = inboxes[client], let createdAt = records[client] else { return nil }
        let role: InboxRecord.Role =
            switch inbox {
            case .unused: .unused
            case .contact(let machine): .contact(machine.record)
            case .joining(let machine): .joining(machine.record)
            case .conversation(let machine): .conversation(machine.savedRecord)
            }
        return InboxRecord(client: client, createdAt: createdAt, role: role)
    }

    /// When ``advance(_:)`` has something to do; `nil` for never.
    package var nextDeadline: Timestamp? {
        var earliest: Timestamp?
        func consider(_ deadline: Timestamp?) {
            if let deadline { earliest = min(earliest ?? deadline, deadline) }
        }
        consider(inboxes.nextDeadline)
        consider(wakesAt)
        consider(rebalanceAt)
        if lifecycle.isOverCapacity { consider(trimAt ?? Timestamp(milliseconds: 0)) }
        consider(guests.nextEnd)
        consider(explosions.nextDeadline)
        if isRelayDue { consider(Timestamp(milliseconds: 0)) }
        return earliest
    }

    // MARK: Conversations

    /// Runs a command on one conversation and routes its actions.
    package mutating func command<Result>(
        _ client: ClientID,
        _ turn: inout Turn,
        _ body: (inout ConversationStateMachine, inout Turn) throws(CommandError) -> (Result, [NodeAction])
    ) throws(CommandError) -> (Result, [NodeAction]) {
        guard case .conversation? = inboxes[client] else {
            if case .joining? = inboxes[client] { throw .notJoined }
            throw .unknownConversation
        }
        guard case .conversation(var machine)? = take(client) else { throw .unknownConversation }
        let outcome = Swift.Result { () throws(CommandError) in try body(&machine, &turn) }
        inboxes[client] = .conversation(machine)
        let (result, actions) = try outcome.get()
        return (result, settle(actions, &turn))
    }

    /// Takes a machine out, so that it is changed in place instead of copied; whoever takes it puts it back.
    mutating func take(_ client: ClientID) -> Inbox? {
        if case .unused? = inboxes[client] { return inboxes[client] }
        // Its place in the indices stays, and is set right when it is put back.
        return inboxes.removeValue(forKey: client)
    }

    /// What was in memory has been read or stored: see ``ConversationStateMachine/releaseMemory()``.
    /// - Parameter byteCount: `nil` for all of it.
    package mutating func releaseMemory(_ client: ClientID, byteCount: Int? = nil) {
        guard case .conversation? = inboxes[client], case .conversation(var machine)? = take(client) else { return }
        machine.releaseMemory(byteCount: byteCount)
        inboxes[client] = .conversation(machine)
    }

    /// This node can be reached elsewhere now: the members of all conversations are told.
    package mutating func endpointsChanged(_ turn: inout Turn) -> [NodeAction] {
        var result: [NodeAction] = []
        for client in clients {
            guard case .conversation? = inboxes[client], case .conversation(var machine)? = take(client) else {
                continue
            }
            result += machine.endpointsChanged(&turn)
            inboxes[client] = .conversation(machine)
        }
        sleepersMoved(&turn)
        return result
    }

    /// Runs a step of the contact inbox; nothing happens while there is none.
    package mutating func withContact(
        _ turn: inout Turn,
        _ body: (inout ContactStateMachine, inout Turn) -> [NodeAction]
    ) -> [NodeAction] {
        guard var machine = contact else { return [] }
        let actions = body(&machine, &turn)
        inboxes[machine.client] = .contact(machine)
        return actions
    }

    /// Lets go of an inbox whose keys are gone.
    package mutating func remove(_ client: ClientID) {
        forget(client)
        for link in links.keys where links[link]?.client == client {
            guests.leave(link)
            links[link] = nil
        }
    }

    /// Explosions move to the tombstones; destroyed inboxes are let go.
    mutating func settle(_ actions: [NodeAction], _ turn: inout Turn) -> [NodeAction] {
        var result = actions
        for action in actions {
            switch action {
            case .explode(let client, let record, let fanOut):
                // Who was removed and has joined again has the copy of its earlier time, too.
                for earlier in inboxes.directory.clients(of: record.conversation) where earlier != client {
                    let open = links.filter { $0.value.client == earlier }.keys.sorted()
                    remove(earlier)
                    result += open.map { .close($0) } + [.destroy(earlier)]
                }
                explosions[record.conversation] = Explosion(
                    machine: ExplodeStateMachine(record: record),
                    knockAt: fanOut.isEmpty ? nil : turn.now + Limits.knockFirst,
                    client: client
                )
                forget(client)
                // Its links stay for what there is to be said of the end, as long as a guest may.
                for link in links.keys.sorted() where links[link]?.client == client {
                    result += guests.welcome(link, now: turn.now).map { [.close($0)] } ?? []
                }
                rebalanceAt = rebalanceAt ?? turn.now + Limits.inboxTrimInterval
            case .destroy(let client):
                forget(client)
                rebalanceAt = rebalanceAt ?? turn.now + Limits.inboxTrimInterval
            case .keep(let client, let message, _) where message.content.type != .systemMessage:
                lifecycle.active(client, at: turn.now)
            case .setState(let client, _, .delivered): delivered(client)
            default: break
            }
        }
        return result
    }

    // MARK: Time

    /// What is due in all inboxes, knocks that are due, tombstones whose time is over.
    package mutating func advance(_ turn: inout Turn) -> [NodeAction] {
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

    mutating func advance(_ client: ClientID, _ turn: inout Turn) -> [NodeAction] {
        switch take(client) {
        case nil, .unused: return []
        case .contact(var machine):
            defer { inboxes[client] = .contact(machine) }
            return machine.advance(&turn)
        case .joining(var machine):
            let outcome = machine.advance(turn)
            inboxes[client] = .joining(machine)
            return finish(outcome, client: client, key: machine.key, tag: machine.record.invite.tag, &turn)
        case .conversation(var machine):
            let actions = machine.advance(&turn)
            inboxes[client] = .conversation(machine)
            return settle(actions, &turn)
        }
    }

    /// Dials the members of a conversation now.
    package mutating func retry(_ client: ClientID, _ turn: inout Turn) -> [NodeAction] {
        guard case .conversation? = inboxes[client], case .conversation(var machine)? = take(client) else { return [] }
        let actions = machine.retry(&turn)
        inboxes[client] = .conversation(machine)
        return settle(actions, &turn)
    }
}
