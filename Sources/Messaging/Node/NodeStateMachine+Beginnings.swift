import Primitives

/// What an inbox of the pool becomes: the contact inbox, a conversation of our own, a join.
extension NodeStateMachine {
    /// A new inbox for the pool.
    package mutating func addUnused(_ client: ClientID, key: IdentityKey, _ turn: Turn) -> [NodeAction] {
        precondition(!inboxes.contains(client), "two inboxes with one clientId")
        records[client] = turn.now
        inboxes[client] = .unused(key)
        return [.save(client)]
    }

    /// Takes the pooled inbox as this node's contact inbox.
    package mutating func makeContact(_ client: ClientID, _ turn: inout Turn) -> [NodeAction] {
        guard case .unused(let key)? = inboxes[client] else { return [] }
        let record = ContactRecord(routingSecret: turn.random.bytes(ContactCard.routingSecretByteCount))
        inboxes[client] = .contact(ContactStateMachine(client: client, key: key, record: record, now: turn.now))
        return [.save(client), .register(client, .contact)]
    }

    /// Takes the pooled inbox for a new conversation of our own.
    package mutating func createConversation(
        _ client: ClientID,
        name: String?,
        profile: String?,
        _ turn: inout Turn
    ) throws(CommandError) -> [NodeAction] {
        guard case .unused(let key)? = inboxes[client] else { throw .unknownConversation }
        try DisplayName.check(name)
        try DisplayName.check(profile)
        let conversation = ConversationID.random(&turn.random)
        let group = GroupState.Unsigned(
            conversation: conversation,
            version: 1,
            membership: 1,
            name: name,
            isLocked: false,
            members: [key.publicKey]
        )
        let own = Member(
            profile: profile,
            endpoints: turn.fittingEndpoints(of: RelaySeed(key: key, generation: 0)),
            version: UInt64(clamping: turn.now.milliseconds),
            key: key,
            &turn.random
        )
        let record = ConversationRecord(
            genesis: Genesis(conversation: conversation, createdAt: turn.now, key: key, &turn.random),
            group: group.signed(by: key, &turn.random),
            own: own,
            members: [],
            issuer: IssuerStateMachine.Record(tag: InviteTag.random(&turn.random))
        )
        let victims = try makeRoom(for: client, .userInteraction, &turn)
        records[client] = turn.now
        inboxes[client] = .conversation(
            ConversationStateMachine(client: client, key: key, record: record, isFresh: true, now: turn.now)
        )
        return [.save(client)] + victims
    }

    /// Takes the pooled inbox for a join.
    package mutating func join(
        _ client: ClientID,
        invite: VerifiedInvite,
        profile: String?,
        _ turn: inout Turn
    ) throws(CommandError) -> [NodeAction] {
        guard case .unused(let key)? = inboxes[client] else { throw .unknownConversation }
        try DisplayName.check(profile)
        try checkJoin(invite, turn)
        let victims = try makeRoom(for: client, .pendingInvite, &turn)
        records[client] = turn.now
        let record = JoinRecord(invite, profile: profile, startedAt: turn.now)
        inboxes[client] = .joining(JoiningStateMachine(client: client, key: key, record: record, now: turn.now))
        return [.save(client)] + victims + advance(client, &turn)
    }

    /// What is wrong with joining by this invite, before an inbox is spent on it.
    package func checkJoin(_ invite: VerifiedInvite, _ turn: Turn) throws(CommandError) {
        let end = min(invite.invite.expiresAt, invite.invite.conversationExpiresAt ?? .latest)
        guard end > turn.now else { throw .inviteExpired(end) }
        // Who was removed may come back.
        for conversation in conversations where !conversation.record.isRemoved {
            if conversation.key.publicKey == invite.creatorKey { throw .ownInvite }
            if conversation.record.genesis.creator == invite.creatorKey {
                throw .alreadyMember(conversation.client)
            }
        }
        for inbox in inboxes.sleeping.values where !inbox.summary.isRemoved {
            if inbox.summary.own == invite.creatorKey { throw .ownInvite }
            if inbox.summary.members.contains(where: { $0.key == invite.creatorKey }) {
                throw .alreadyMember(inbox.summary.client)
            }
        }
        for join in joins where join.record.creator == invite.creatorKey && join.record.state == .joining {
            throw .alreadyMember(join.client)
        }
    }

    /// - Returns: `nil` when there is no join to cancel.
    package mutating func cancelJoin(_ client: ClientID) -> [NodeAction]? {
        guard case .joining(var machine)? = inboxes[client], machine.cancel() else { return nil }
        let open = links.filter { $0.value.client == client }.keys.sorted()
        remove(client)
        // The creator may have admitted us already: it is told, so that nobody's place stays taken by nobody.
        return open.flatMap { [.transmit($0, .joinCancelled), .close($0)] } + [.destroy(client)]
    }

    /// Dials the creator now.
    package mutating func retryJoin(_ client: ClientID, _ turn: inout Turn) -> [NodeAction] {
        guard case .joining(var machine)? = inboxes[client] else { return [] }
        machine.retry(&turn)
        inboxes[client] = .joining(machine)
        return advance(client, &turn)
    }
}
