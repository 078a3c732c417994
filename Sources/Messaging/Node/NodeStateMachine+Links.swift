import Primitives

/// Links: whose they are, what comes over them, and guests.
extension NodeStateMachine {
    /// A handshake has ended: `remote` is who is there.
    package mutating func linkOpened(
        _ link: LinkID,
        client: ClientID,
        remote: PublicKey,
        weDialled: Bool,
        isRelayed: Bool = false,
        _ turn: inout Turn
    ) -> [NodeAction] {
        links[link] = OpenLink(client: client, remote: remote, isRelayed: isRelayed)
        switch take(client) {
        case nil, .unused:
            links[link] = nil
            return [.close(link)]
        case .contact(var machine):
            defer { inboxes[client] = .contact(machine) }
            guard machine.isAwaited(remote) else { return welcomeGuest(link, turn) }
            return machine.linkOpened(link, to: remote, weDialled: weDialled, turn)
        case .joining(var machine):
            defer { inboxes[client] = .joining(machine) }
            return machine.linkOpened(link, &turn)
        case .conversation(var machine):
            // A joiner comes by an invite's token; its first frame says what it wants.
            defer { inboxes[client] = .conversation(machine) }
            guard machine.members[remote] != nil else {
                guard machine.record.former.contains(remote) else { return welcomeGuest(link, turn) }
                return welcomeGuest(link, turn) + machine.turnAway(remote, on: link, &turn)
            }
            let actions = machine.linkOpened(
                link,
                to: remote,
                weDialled: weDialled,
                isRelayed: isRelayed,
                &turn
            )
            return settle(actions, &turn)
        }
    }

    /// Whether dials of this member are not answered now: what it has sent did not verify.
    package func isShunned(_ remote: PublicKey, by client: ClientID, now: Timestamp) -> Bool {
        guard case .conversation(let machine)? = inboxes[client] else { return false }
        return machine.isShunned(remote, now: now)
    }

    /// Whether it is the link of somebody who came by an invite or our contact card, and with whom we have no business; or
    /// who was sent away, or whose inbox is not here any more.
    package func isGuest(_ link: LinkID) -> Bool {
        links[link] == nil || guests.contains(link) || guests.hasSentAway(link)
    }

    /// Somebody came by an invite or our contact card: it may speak, but not sit here.
    private mutating func welcomeGuest(_ link: LinkID, _ turn: Turn) -> [NodeAction] {
        guests.welcome(link, now: turn.now).map { [.close($0)] } ?? []
    }

    /// A frame has come.
    /// - Parameter verify: checks the invite of a join request; `nil` when its signature does not hold.
    package mutating func receive(
        _ frame: Frame,
        on link: LinkID,
        verify: (SignedInvite) -> VerifiedInvite?,
        _ turn: inout Turn
    ) -> [NodeAction] {
        let actions = answer(frame, on: link, verify: verify, &turn)
        guard let wait = haste(frame, actions, on: link, now: turn.now) else { return actions }
        return actions + [.pauseReading(link, wait)]
    }

    private mutating func answer(
        _ frame: Frame,
        on link: LinkID,
        verify: (SignedInvite) -> VerifiedInvite?,
        _ turn: inout Turn
    ) -> [NodeAction] {
        guard let open = links[link] else { return [] }
        if case .deletionReceipt(let receipt) = frame { return receive(receipt, on: link, &turn) }
        guard !guests.hasSentAway(link) else { return [] }
        switch take(open.client) {
        case nil, .unused: return [.close(link)]
        case .contact(var machine):
            defer { inboxes[open.client] = .contact(machine) }
            let actions = machine.receive(frame, from: open.remote, on: link, turn)
            // Counted there; it has its own limits.
            if machine.relay.serves(link) { guests.leave(link) }
            return actions
        case .joining(var machine):
            let outcome = machine.receive(frame, from: open.remote, on: link, turn)
            inboxes[open.client] = .joining(machine)
            return finish(outcome, client: open.client, key: machine.key, tag: machine.record.invite.tag, &turn)
        case .conversation(var machine):
            var actions: [NodeAction]
            if case .joinRequest(let request) = frame {
                guard joinRates.takesRequest(by: machine.issued(request), now: turn.now) else {
                    machine.droppedCount += 1
                    inboxes[open.client] = .conversation(machine)
                    return [.close(link)]
                }
                actions = machine.receiveJoinRequest(
                    request,
                    verified: verify(request.invite),
                    from: open.remote,
                    on: link,
                    isRelayed: open.isRelayed,
                    &turn
                )
                for case .transmit(link, .joinError(let error)) in actions
                where !joinRates.takesRefusal(error.inviteTag, now: turn.now) {
                    machine.droppedCount += 1
                    actions = [.close(link)]
                }
                if machine.members[open.remote] != nil { guests.leave(link) }
            } else {
                actions = machine.receive(
                    frame,
                    from: open.remote,
                    on: link,
                    memoryAvailable: memoryAvailable,
                    &turn
                )
            }
            inboxes[open.client] = .conversation(machine)
            return settle(actions, &turn)
        }
    }

    /// What all inboxes may still hold in memory, in bytes.
    var memoryAvailable: Int {
        Limits.memoryTotalByteCount - inboxes.heldByteCount
    }

    mutating func finish(
        _ outcome: JoiningStateMachine.Outcome,
        client: ClientID,
        key: IdentityKey,
        tag: InviteTag,
        _ turn: inout Turn
    ) -> [NodeAction] {
        switch outcome {
        case .pending(let actions): return actions
        case .forgotten:
            inboxes[client] = nil
            records[client] = nil
            return [.destroy(client)]
        case .failed(let type, let actions):
            lifecycle.remove(client)
            let event = Event(client: client, conversation: nil, at: turn.now, kind: .joinFailed(type, tag))
            return [.save(client)] + actions + [.notify(event)]
        case .entered(let record, let agreement, let link):
            if explosions[record.genesis.conversation] != nil {
                // A conversation that has exploded here stays gone.
                return refuseWelcome(.conversationExpired, client: client, tag: tag, on: link, turn)
            }
            // Whoever knows the id of a conversation may sign a genesis of its own for it, whose end would be that of the
            // true one.
            let others = inboxes.directory.clients(of: record.genesis.conversation)
            guard others.allSatisfy({ inboxes.creator(of: $0) == record.genesis.creator }) else {
                return refuseWelcome(.genericFailure, client: client, tag: tag, on: link, turn)
            }
            var machine = ConversationStateMachine(
                client: client,
                key: key,
                record: record,
                isFresh: true,
                now: turn.now
            )
            let creator = record.genesis.creator
            let joined = Event(
                client: client,
                conversation: record.genesis.conversation,
                at: turn.now,
                kind: .joined
            )
            var actions: [NodeAction] = [.save(client)]
            actions += machine.reachableBy.map { .register(client, .member($0)) }
            actions.append(.notify(joined))
            actions += machine.enter(under: agreement, &turn)
            actions += machine.enterSchedule(&turn)
            let isRelayed = links[link]?.isRelayed ?? false
            actions += machine.linkOpened(link, to: creator, weDialled: true, isRelayed: isRelayed, &turn)
            inboxes[client] = .conversation(machine)
            return actions
        }
    }

    /// A welcome to a conversation that cannot be entered here: the join has failed, and stays listed like every other that
    /// has. The creator gives the place back.
    private mutating func refuseWelcome(
        _ error: JoinErrorType,
        client: ClientID,
        tag: InviteTag,
        on link: LinkID,
        _ turn: Turn
    ) -> [NodeAction] {
        guard case .joining(var machine)? = take(client) else { return [.close(link)] }
        machine.refuse(error)
        inboxes[client] = .joining(machine)
        lifecycle.remove(client)
        let event = Event(client: client, conversation: nil, at: turn.now, kind: .joinFailed(error, tag))
        return [.save(client), .transmit(link, .joinCancelled), .close(link), .notify(event)]
    }

    /// Where this node may be seen over UDP: see ``NodeAction/gatherCandidates(_:_:)``.
    package mutating func gathered(
        _ client: ClientID,
        _ remote: PublicKey,
        _ endpoints: [Endpoint],
        _ turn: inout Turn
    ) -> [NodeAction] {
        guard case .conversation(var machine)? = take(client) else { return [] }
        defer { inboxes[client] = .conversation(machine) }
        return machine.gathered(endpoints, for: remote, turn)
    }

    /// A link is gone, by whatever cause.
    package mutating func linkClosed(_ link: LinkID, _ turn: inout Turn) -> [NodeAction] {
        guests.leave(link)
        guard let open = links.removeValue(forKey: link) else { return [] }
        switch take(open.client) {
        case nil, .unused: return []
        case .contact(var machine):
            defer { inboxes[open.client] = .contact(machine) }
            return machine.linkClosed(link, to: open.remote, turn)
        case .joining(var machine):
            machine.linkClosed(link, &turn)
            inboxes[open.client] = .joining(machine)
            return []
        case .conversation(var machine):
            defer { inboxes[open.client] = .conversation(machine) }
            return machine.linkClosed(link, to: open.remote, turn)
        }
    }

    /// A member of a conversation, or the creator of one that we join, has said on this network where it is. A sleeping
    /// inbox sleeps on: who looks for it dials.
    package mutating func found(
        _ client: ClientID,
        _ member: PublicKey,
        at endpoint: Endpoint,
        _ turn: inout Turn
    ) -> [NodeAction] {
        switch take(client) {
        case nil, .unused: return []
        case .contact(let machine):
            inboxes[client] = .contact(machine)
            return []
        case .joining(var machine):
            defer { inboxes[client] = .joining(machine) }
            return machine.record.creator == member ? machine.found(at: endpoint, &turn) : []
        case .conversation(var machine):
            defer { inboxes[client] = .conversation(machine) }
            return machine.found(member, at: endpoint, &turn)
        }
    }

    /// Joins whose creators are looked for, with the invites by which they know us.
    package func missedCreators(now: Timestamp) -> [(client: ClientID, creator: PublicKey, invite: InviteID)] {
        joins.compactMap { join in
            join.missedInvite(now: now).map { (join.client, join.record.creator, $0) }
        }
    }

    /// The machine's addresses have changed: contacts and the members of conversations that are
    /// awake are asked whether they are there.
    package mutating func addressesChanged(_ turn: inout Turn) -> [NodeAction] {
        var result: [NodeAction] = []
        for client in awakeClients {
            guard case .conversation? = inboxes[client], case .conversation(var machine)? = take(client) else {
                continue
            }
            result += machine.addressesChanged(&turn)
            inboxes[client] = .conversation(machine)
        }
        return result + withContact(&turn) { $0.addressesChanged(&$1) }
    }

    /// Members of conversations that are awake to which there is no link, though one is wanted.
    package func missedMembers(now: Timestamp) -> [(client: ClientID, member: PublicKey)] {
        awakeClients.flatMap { client -> [(client: ClientID, member: PublicKey)] in
            guard case .conversation(let machine)? = inboxes[client] else { return [] }
            return machine.missedMembers(now: now).map { (client, $0) }
        }
    }

    /// - Parameter isUnknownThere: a node was there and did not know our token.
    package mutating func dialFailed(
        _ client: ClientID,
        to remote: PublicKey,
        isUnknownThere: Bool,
        _ turn: inout Turn
    ) -> [NodeAction] {
        switch take(client) {
        case nil, .unused: return []
        case .contact(var machine):
            machine.dialFailed(to: remote, &turn)
            inboxes[client] = .contact(machine)
            return []
        case .joining(var machine):
            defer { inboxes[client] = .joining(machine) }
            return machine.dialFailed(isUnknownThere: isUnknownThere, &turn)
        case .conversation(var machine):
            defer { inboxes[client] = .conversation(machine) }
            return machine.dialFailed(to: remote, isUnknownThere: isUnknownThere, &turn)
        }
    }
}
