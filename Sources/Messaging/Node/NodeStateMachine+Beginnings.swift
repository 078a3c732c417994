import Cryptography

/// Turns a pooled inbox into the contact inbox, a conversation of our own, or a join.
extension NodeStateMachine {
    package func addUnused(_ client: ClientID, key: IdentityKey, _ turn: inout Turn) {
        precondition(!contains(client), "two inboxes with one clientId")
        inboxes.enter(client, createdAt: turn.now, as: .unused(key))
        turn.save(client)
    }

    package func makeContact(_ client: ClientID, _ turn: inout Turn) {
        guard let inbox = inboxes[client], case .unused(let key) = inbox.role else { return }
        let record = ContactRecord(routingSecret: turn.random.bytes(ContactCard.routingSecretByteCount))
        let machine = ContactStateMachine(client: client, key: key, record: record, now: turn.now)
        inboxes.set(inbox, to: .contact(Running(machine)))
        turn.save(client)
        turn.add(.register(client, .contact))
    }

    package func createConversation(_ client: ClientID, name: String?, profile: String?, _ turn: inout Turn)
        throws(CommandError)
    {
        guard let inbox = inboxes[client], case .unused(let key) = inbox.role else { throw .unknownConversation }
        try DisplayName.check(name)
        try DisplayName.check(profile)
        let conversation = ConversationID.random(&turn.random)
        let group = GroupState(
            conversation: conversation, version: 1, membership: 1, name: name, isLocked: false, members: [key.publicKey]
        )
        let own = Member(
            profile: profile, endpoints: turn.fittingEndpoints(of: RelaySeed(key: key, generation: 0)),
            version: UInt64(clamping: turn.now.milliseconds), key: key, &turn.random)
        let record = ConversationRecord(
            genesis: Genesis(conversation: conversation, createdAt: turn.now, key: key, &turn.random),
            group: group.signed(by: key, &turn.random), own: own, members: [],
            issuer: InviteBook(tag: InviteTag.random(&turn.random)))
        turn.save(client)
        makeRoom(for: inbox, .userInteraction, &turn)
        inbox.createdAt = turn.now
        inboxes.set(
            inbox,
            to: .conversation(Conversation(client: client, key: key, record: record, isFresh: true, now: turn.now)))
    }

    package func join(
        _ client: ClientID, invite: VerifiedInvite, profile: String?, asks: Bool? = nil, _ turn: inout Turn
    ) throws(CommandError) {
        guard let inbox = inboxes[client], case .unused(let key) = inbox.role else { throw .unknownConversation }
        try DisplayName.check(profile)
        try checkJoin(invite, turn)
        turn.save(client)
        makeRoom(for: inbox, .pendingInvite, &turn)
        let record = JoinRecord(invite, profile: profile, startedAt: turn.now, asks: asks)
        let machine = JoiningStateMachine(client: client, key: key, record: record, now: turn.now)
        inbox.createdAt = turn.now
        inboxes.set(inbox, to: .joining(Running(machine)))
        advance(inbox, &turn)
    }

    /// Rejects an invite before an inbox is spent on it.
    package func checkJoin(_ invite: VerifiedInvite, _ turn: Turn) throws(CommandError) {
        let end = min(invite.invite.expiresAt, invite.invite.conversationExpiresAt ?? .latest)
        guard end > turn.now else { throw .inviteExpired(end) }
        // A removed member may join again.
        for conversation in conversations where !conversation.record.isRemoved {
            if conversation.key.publicKey == invite.creatorKey { throw .ownInvite }
            if conversation.record.genesis.creator == invite.creatorKey { throw .alreadyMember(conversation.client) }
        }
        for summary in sleepers where !summary.isRemoved {
            if summary.own == invite.creatorKey { throw .ownInvite }
            if summary.creator == invite.creatorKey { throw .alreadyMember(summary.client) }
        }
        for join in joins where join.record.creator == invite.creatorKey && join.record.state == .joining {
            throw .alreadyMember(join.client)
        }
    }

    /// - Returns: whether the inbox is gone. One that the creator has admitted goes once the creator knows.
    @discardableResult package func cancelJoin(_ client: ClientID, _ turn: inout Turn) -> Bool {
        guard let inbox = inboxes[client], case .joining(let running) = inbox.role else { return false }
        let (open, stays) = (inbox.links.sorted(), running.machine.cancel())
        if stays {
            lifecycle.remove(inbox)
            turn.save(client)
            inboxes.reindex(inbox)
        } else {
            remove(client)
        }
        for link in open {
            turn.send(.joinCancelled, on: link)
            turn.close(link)
        }
        if !stays { turn.add(.destroy(client)) }
        return !stays
    }

    /// - Parameter agrees: the user agrees to what the conversation keeps.
    package func retryJoin(_ client: ClientID, agrees: Bool = false, _ turn: inout Turn) {
        guard let inbox = inboxes[client], case .joining(let running) = inbox.role else { return }
        if agrees { running.machine.agree(&turn) } else { running.machine.retry(&turn) }
        turn.save(client)
        inboxes.reindex(inbox)
        advance(inbox, &turn)
    }

    /// Adds the routes of the inbox.
    package func load(
        _ record: InboxRecord, key: IdentityKey, sessionGoesOn: Bool = false, lastActivity: Timestamp? = nil,
        _ turn: inout Turn
    ) {
        let client = record.client
        switch record.role {
        case .unused: inboxes.enter(client, createdAt: record.createdAt, as: .unused(key))
        case .contact(let contact):
            let machine = ContactStateMachine(client: client, key: key, record: contact, now: turn.now)
            inboxes.enter(client, createdAt: record.createdAt, as: .contact(Running(machine)))
            turn.add(.register(client, .contact))
        case .joining(let join):
            let machine = JoiningStateMachine(client: client, key: key, record: join, now: turn.now)
            let inbox = inboxes.enter(client, createdAt: record.createdAt, as: .joining(Running(machine)))
            if join.state == .joining { takeNote(of: inbox, .pendingInvite, lastActivity: nil, turn) }
        case .conversation(let known):
            if explosions[known.genesis.conversation] != nil { return turn.add(.destroy(client)) }
            let conversation = Conversation(
                client: client, key: key, record: known, isFresh: sessionGoesOn, now: turn.now)
            let inbox = inboxes.enter(client, createdAt: record.createdAt, as: .conversation(conversation))
            takeNote(of: inbox, .appLaunch, lastActivity: lastActivity, turn)
            addRoutes(of: conversation, &turn)
        }
    }

    /// Load explosions before the inboxes, so that an exploded conversation stays gone.
    ///
    /// A prepared tombstone takes effect once its time has come: the store has destroyed the inbox, or loading removes
    /// it. An earlier one is not taken; the inbox that prepared it uses it.
    package func load(_ tombstone: ExplosionRecord, _ turn: inout Turn) {
        let now = turn.now
        if tombstone.isPrepared { guard tombstone.explodedAt <= now else { return } }
        var record = tombstone
        record.isPrepared = false
        explosions[tombstone.conversation] = Explosion(
            record, knockAt: tombstone.role == .creator && !tombstone.isTraceless ? now : nil)
        guard tombstone.isPrepared else { return }
        turn.add(.saveTombstone(tombstone.conversation))
        turn.tell(.exploded, nil, tombstone.conversation)
    }

    /// A message from the disk that was undelivered when the node stopped.
    package func restoreOutbox(_ message: Message, client: ClientID) {
        guard let inbox = inboxes[client], let conversation = inbox.conversation else { return }
        conversation.restoreOutbox(message)
        inboxes.reindex(inbox)
    }
}
