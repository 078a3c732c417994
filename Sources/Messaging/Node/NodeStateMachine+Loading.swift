import Primitives

/// What the disk held, when the node starts.
extension NodeStateMachine {
    /// An inbox from the disk.
    /// - Returns: the routes by which it is reached.
    package mutating func load(
        _ record: InboxRecord,
        key: IdentityKey,
        sessionGoesOn: Bool = false,
        lastActivity: Timestamp? = nil,
        _ turn: Turn
    ) -> [NodeAction] {
        records[record.client] = record.createdAt
        switch record.role {
        case .unused:
            inboxes[record.client] = .unused(key)
            return []
        case .contact(let contact):
            inboxes[record.client] = .contact(
                ContactStateMachine(client: record.client, key: key, record: contact, now: turn.now)
            )
            return [.register(record.client, .contact)]
        case .joining(let join):
            inboxes[record.client] = .joining(
                JoiningStateMachine(client: record.client, key: key, record: join, now: turn.now)
            )
            if join.state == .joining { takeNote(of: record.client, .pendingInvite, lastActivity: nil, turn) }
            return []
        case .conversation(let conversation):
            if explosions[conversation.genesis.conversation] != nil {
                records[record.client] = nil
                return [.destroy(record.client)]
            }
            let machine = ConversationStateMachine(
                client: record.client,
                key: key,
                record: conversation,
                isFresh: sessionGoesOn,
                now: turn.now
            )
            inboxes[record.client] = .conversation(machine)
            takeNote(of: record.client, .appLaunch, lastActivity: lastActivity, turn)
            return machine.reachableBy.map { .register(record.client, .member($0)) }
                + (machine.issuer?.open(now: turn.now) ?? []).map { .register(record.client, .invite($0.id)) }
        }
    }

    /// An explosion from the disk. Load these before the inboxes: what has exploded stays gone.
    ///
    /// A prepared one whose time has come is one from now on: the store has destroyed its inbox, or it goes when it is
    /// loaded. One whose time is to come is not taken; it serves the inbox that prepared it.
    @discardableResult
    package mutating func load(_ tombstone: ExplodeStateMachine.Record, now: Timestamp) -> [NodeAction] {
        var machine = ExplodeStateMachine(record: tombstone)
        if tombstone.isPrepared {
            guard tombstone.explodedAt <= now else { return [] }
            machine.begin()
        }
        explosions[tombstone.conversation] = Explosion(
            machine: machine,
            knockAt: tombstone.role == .creator && !tombstone.isTraceless ? now : nil
        )
        guard tombstone.isPrepared else { return [] }
        let event = Event(client: nil, conversation: tombstone.conversation, at: now, kind: .exploded)
        return [.saveTombstone(tombstone.conversation), .notify(event)]
    }

    /// A message from the disk that was not delivered when the node stopped.
    package mutating func restoreOutbox(_ message: Message, client: ClientID) {
        guard case .conversation? = inboxes[client], case .conversation(var machine)? = take(client) else { return }
        machine.restoreOutbox(message)
        inboxes[client] = .conversation(machine)
    }
}
