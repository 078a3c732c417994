import Cryptography

extension NodeStateMachine {
    /// A handshake has ended and authenticated `remote`.
    package func linkOpened(
        _ link: LinkID, client: ClientID, remote: PublicKey, weDialled: Bool, isRelayed: Bool = false,
        _ turn: inout Turn
    ) {
        guard let inbox = inboxes[client] else { return turn.close(link) }
        switch inbox.role {
        case .gone, .unused, .sleeping: return turn.close(link)
        case .contact, .joining, .conversation: break
        }
        links[link] = OpenLink(inbox: inbox, remote: remote, isRelayed: isRelayed)
        inbox.links.insert(link)
        defer { inboxes.reindex(inbox) }
        switch inbox.role {
        case .gone, .unused, .sleeping: break
        case .contact(let running):
            guard running.machine.isAwaited(remote) else { return welcomeGuest(link, &turn) }
            turn.add(running.machine.linkOpened(link, to: remote, weDialled: weDialled, turn))
        case .joining(let running): turn.add(running.machine.linkOpened(link, &turn))
        case .conversation(let conversation):
            // A joiner dials with an invite's token; its first frame is the join request.
            guard conversation.peer(remote) != nil else {
                welcomeGuest(link, &turn)
                if conversation.record.former.contains(remote) { conversation.turnAway(remote, on: link, &turn) }
                return
            }
            let mark = turn.mark
            conversation.linkOpened(link, to: remote, weDialled: weDialled, isRelayed: isRelayed, &turn)
            settle(since: mark, &turn)
        }
    }

    /// Whether dials of this member are rejected for now, because its signatures did not verify.
    package func isShunned(_ remote: PublicKey, by client: ClientID, now: Timestamp) -> Bool {
        inboxes[client]?.conversation?.isShunned(remote, now: now) ?? false
    }

    /// Whether the link is a guest's, was closed by us as a guest's, or belongs to no inbox.
    package func isGuest(_ link: LinkID) -> Bool {
        links[link] == nil || guests.contains(link) || guests.hasSentAway(link)
    }

    func welcomeGuest(_ link: LinkID, _ turn: inout Turn) {
        if let evicted = guests.welcome(link, now: turn.now) { turn.close(evicted) }
    }

    /// - Parameter verify: checks the invite of a join request; `nil` for a wrong signature.
    package func receive(_ frame: Frame, on link: LinkID, verify: (SignedInvite) -> VerifiedInvite?, _ turn: inout Turn)
    {
        let mark = turn.mark
        defer { if let wait = haste(frame, since: mark, on: link, turn) { turn.add(.pauseReading(link, wait)) } }
        guard let open = links[link] else { return }
        if case .deletionReceipt(let receipt) = frame { return receive(receipt, on: link, &turn) }
        guard !guests.hasSentAway(link) else { return }
        let inbox = open.inbox
        switch inbox.role {
        case .gone, .unused, .sleeping: turn.close(link)
        case .contact(let running):
            turn.add(running.machine.receive(frame, from: open.remote, on: link, turn))
            // The relay and the mailbox service have limits of their own.
            if running.machine.relay.serves(link) || running.machine.mailbox.serves(link) { guests.leave(link) }
            inboxes.reindex(inbox)
        case .joining(let running):
            let outcome = running.machine.receive(frame, from: open.remote, on: link, turn)
            inboxes.reindex(inbox)
            finish(outcome, of: running.machine, in: inbox, &turn)
        case .conversation:
            if case .joinRequest(let request) = frame {
                return step(inbox, &turn) { answer(request, on: link, open, $0, verified: verify(request.invite), &$1) }
            }
            let memoryAvailable = memoryAvailable
            step(inbox, touching: frame.concernsOneMember ? open.remote : nil, &turn) {
                $0.receive(frame, from: open.remote, on: link, memoryAvailable: memoryAvailable, &$1)
            }
            settleDelivery(inbox, now: turn.now)
        }
    }

    private func answer(
        _ request: JoinRequest, on link: LinkID, _ open: OpenLink, _ conversation: Conversation,
        verified: @autoclosure () -> VerifiedInvite?, _ turn: inout Turn
    ) {
        guard joinRates.takesRequest(by: conversation.issued(request), now: turn.now) else {
            conversation.drop()
            return turn.close(link)
        }
        let mark = turn.mark
        conversation.receiveJoinRequest(
            request, verified: verified(), from: open.remote, on: link, isRelayed: open.isRelayed, &turn)
        for case .transmit(link, .joinError(let error)) in turn.actions[mark...]
        where !joinRates.takesRefusal(error.inviteTag, now: turn.now) {
            conversation.drop()
            turn.actions.removeSubrange(mark...)
            turn.close(link)
        }
        if conversation.peer(open.remote) != nil { guests.leave(link) }
    }

    var memoryAvailable: Int { Limits.memoryTotalByteCount - inboxes.heldByteCount }

    package var unreadByteCount: Int { inboxes.heldByteCount }

    func finish(
        _ outcome: JoiningStateMachine.Outcome, of join: JoiningStateMachine, in inbox: InboxEntry, _ turn: inout Turn
    ) {
        let (client, tag) = (inbox.client, join.record.invite.tag)
        switch outcome {
        case .pending(let actions): turn.add(actions)
        case .forgotten:
            forget(inbox)
            turn.add(.destroy(client))
        case .failed(let type, let actions):
            lifecycle.remove(inbox)
            turn.save(client)
            turn.add(actions)
            turn.tell(.joinFailed(type, tag), client, nil)
        case .entered(let record, let agreement, let link):
            if explosions[record.genesis.conversation] != nil {
                // An exploded conversation cannot be entered again on this node.
                return refuseWelcome(.conversationExpired, inbox, tag: tag, on: link, &turn)
            }
            // An attacker who knows a conversation id can sign a genesis of its own with it. The explosion of that one
            // must not destroy the real one, so all copies of an id have one creator.
            let others = inboxes.directory.copies(of: record.genesis.conversation)
            guard others.allSatisfy({ $0.creator == record.genesis.creator }) else {
                return refuseWelcome(.genericFailure, inbox, tag: tag, on: link, &turn)
            }
            let conversation = Conversation(client: client, key: join.key, record: record, isFresh: true, now: turn.now)
            turn.save(client)
            for member in conversation.reachableBy { turn.add(.register(client, .member(member))) }
            conversation.tell(.joined, &turn)
            conversation.enter(under: agreement, &turn)
            let mark = turn.mark
            conversation.enterSchedule(&turn)
            settle(since: mark, &turn)
            conversation.linkOpened(
                link, to: record.genesis.creator, weDialled: true, isRelayed: links[link]?.isRelayed ?? false, &turn)
            inboxes.set(inbox, to: .conversation(conversation))
        }
    }

    /// Fails the join for a conversation that cannot be entered here; the join stays listed. The creator releases the
    /// member's place.
    private func refuseWelcome(
        _ error: JoinErrorType, _ inbox: InboxEntry, tag: InviteTag, on link: LinkID, _ turn: inout Turn
    ) {
        guard case .joining(let running) = inbox.role else { return turn.close(link) }
        running.machine.refuse(error)
        inboxes.reindex(inbox)
        lifecycle.remove(inbox)
        turn.save(inbox.client)
        turn.send(.joinCancelled, on: link)
        turn.close(link)
        turn.tell(.joinFailed(error, tag), inbox.client, nil)
    }

    package func linkClosed(_ link: LinkID, _ turn: inout Turn) {
        guests.leave(link)
        guard let open = links.removeValue(forKey: link) else { return }
        let inbox = open.inbox
        inbox.links.remove(link)
        switch inbox.role {
        case .gone, .unused, .sleeping: break
        case .contact(let running): turn.add(running.machine.linkClosed(link, to: open.remote, turn))
        case .joining(let running): running.machine.linkClosed(link, &turn)
        case .conversation(let conversation): conversation.linkClosed(link, to: open.remote, &turn)
        }
        inboxes.reindex(inbox)
    }

    /// Local discovery has found a member, or the creator of a conversation that we join. A sleeping inbox is not
    /// woken, because the peer that looks for it dials.
    package func found(_ client: ClientID, _ member: PublicKey, at endpoint: Endpoint, _ turn: inout Turn) {
        guard let inbox = inboxes[client] else { return }
        switch inbox.role {
        case .gone, .unused, .contact, .sleeping: break
        case .joining(let running):
            if running.machine.record.creator == member { turn.add(running.machine.found(at: endpoint, &turn)) }
        case .conversation(let conversation): conversation.found(member, at: endpoint, &turn)
        }
        inboxes.reindex(inbox)
    }

    /// Joins that need discovery of their creators, with the invites that identify us.
    package func missedCreators(now: Timestamp) -> [(client: ClientID, creator: PublicKey, invite: InviteID)] {
        joiners.compactMap { join in join.missedInvite(now: now).map { (join.client, join.record.creator, $0) } }
    }

    /// The machine's addresses have changed: sends a ping to contacts and to the members of awake conversations.
    /// - Parameter hasNew: an address is new, so members without a link are dialled.
    package func addressesChanged(hasNew: Bool, _ turn: inout Turn) {
        changeDials.begin(now: turn.now)
        var dials = hasNew ? changeDials : nil
        defer { if let dials { changeDials = dials } }
        // The contact's links first: they lead to the user's own rendezvous nodes and mailbox.
        withContact(&turn) { $0.addressesChanged(&dials, &$1) }
        stepAll(&turn) { $0.addressesChanged(&dials, &$1) }
    }

    /// Members of awake conversations that need discovery: a link is wanted and missing.
    package func missedMembers(now: Timestamp) -> [(client: ClientID, member: PublicKey)] {
        inboxes.awake.inOrderOfCreation().flatMap { inbox -> [(client: ClientID, member: PublicKey)] in
            inbox.conversation?.missedMembers(now: now).map { (inbox.client, $0) } ?? []
        }
    }

    /// Awake conversations with a sign that two copies of a home run at once.
    package var conversationsWithCopies: [Conversation] {
        inboxes.withCopies.inOrderOfCreation().compactMap(\.conversation)
    }

    /// Conversations whose unread contents in memory leave less than a tenth of ``Limits/memoryByteCount``.
    package var conversationsWithFullMemory: [Conversation] {
        let full = Limits.memoryByteCount / 10 * 9
        guard unreadByteCount >= full else { return [] }
        return inboxes.awake.filter { $0.figures.heldByteCount >= full }.inOrderOfCreation().compactMap(\.conversation)
    }

    /// - Parameter isUnknownThere: a node closed, perhaps since it does not know our token. Over UDP such a node is
    ///   silent, so there no answer counts too.
    package func dialFailed(_ client: ClientID, to remote: PublicKey, isUnknownThere: Bool, _ turn: inout Turn) {
        guard let inbox = inboxes[client] else { return }
        switch inbox.role {
        case .gone, .unused, .sleeping: break
        case .contact(let running): running.machine.dialFailed(to: remote, &turn)
        case .joining(let running): turn.add(running.machine.dialFailed(isUnknownThere: isUnknownThere, &turn))
        case .conversation(let conversation):
            conversation.dialFailed(to: remote, isUnknownThere: isUnknownThere, &turn)
            settleDelivery(inbox, now: turn.now)
        }
        inboxes.reindex(inbox)
    }

    /// Counts a no-op frame, unless a service or the conversation counts it.
    /// - Parameter mark: where the effects of the frame begin.
    /// - Returns: how long to pause reading the link; `nil` for no pause.
    private func haste(_ frame: Frame, since mark: Int, on link: LinkID, _ turn: borrowing Turn) -> Milliseconds? {
        guard turn.isIdle(since: mark, on: link) else { return nil }
        let now = turn.now
        var elements = frame.elementCount
        // Charged to the rate that the links of all strangers share.
        var shared = elements
        // The inbox is removed or asleep; frames in transit are read until the link closes.
        guard let open = links[link] else { return idleFrames.note(elements: elements, now: now) }
        switch (open.inbox.role, frame) {
        // The relay service counts small pieces.
        case (.contact(let running), .relayRequest(.stream)): if running.machine.relay.serves(link) { return nil }
        case (.contact(let running), .relayRequest):
            if running.machine.relay.serves(link) { (elements, shared) = (1, 1) }
        // A named peer claims all its boxes after a start. This must not use up the strangers' rate.
        case (.contact(let running), .mailboxRequest): if running.machine.mailbox.serves(link) { shared = 1 }
        // These two frames are not a member's, even on a member's link.
        case (.conversation, .joinRequest), (.conversation, .deletionReceipt): break
        // The conversation counts the frames of a member over all its links.
        case (.conversation(let conversation), _): if conversation.peer(open.remote) != nil { return nil }
        default: break
        }
        let waits = [
            links[link]?.idleFrames.note(elements: elements, now: now), idleFrames.note(elements: shared, now: now),
        ]
        return waits.compactMap { $0 }.max()
    }

    package enum RelayTarget: Hashable, Sendable {
        case inbox(ClientID)
        case tombstone(ConversationID)
    }

    /// `nil` for a reservation that we do not hold.
    /// - Parameter rendezvous: the node that announced the stream.
    package func relayTarget(of reservation: ReservationID, at rendezvous: PublicKey) -> RelayTarget? {
        guard case .contact(let running)? = inboxes.contact?.role,
            let seed = running.machine.seed(of: reservation, at: rendezvous)
        else { return nil }
        if seed == running.machine.cardSeed { return .inbox(running.machine.client) }
        if let inbox = inboxes.owner(of: seed) { return .inbox(inbox.client) }
        return explosions.relaySeeds[seed].map { .tombstone($0) }
    }

    package func remote(of link: LinkID) -> PublicKey? { links[link]?.remote }

    var isRelayDue: Bool { inboxes.usesRendezvous && (inboxes.relaysHaveChanged || explosions.relaysHaveChanged) }

    /// Tells the contact inbox which inboxes and tombstones need reservations, the oldest first.
    package func settleRelays(_ turn: inout Turn) {
        guard isRelayDue else { return }
        inboxes.relaysHaveChanged = false
        explosions.relaysHaveChanged = false
        let present = inboxes.all.inOrderOfCreation().flatMap(\.figures.relaySeeds)
        let past = explosions.records.flatMap(\.relaySeeds)
        withContact(&turn) { contact, _ in contact.want(present + past) }
    }

    /// Handles the frames of an opened slot of our box.
    /// - Returns: whether the slot may be discarded once the actions are durable.
    @discardableResult package func receiveMailed(
        _ frames: [Frame], number: UInt64?, from member: PublicKey, age: SlotAge, client: ClientID, _ turn: inout Turn
    ) -> Bool {
        guard let inbox = inboxes[client], let peer = inbox.conversation?.peer(member) else { return false }
        var isTaken = true
        step(inbox, &turn) { conversation, turn in
            for frame in frames {
                let mark = turn.mark
                let isDone = conversation.receiveMailed(
                    frame, from: peer, age: age, memoryAvailable: memoryAvailable, &turn)
                isTaken = isTaken && isDone
                // Frames after the end of the conversation are ignored.
                if turn.actions[mark...].contains(where: \.isExplosion) { return }
            }
            if isTaken, let number { conversation.took(number, of: member, &turn) }
        }
        return isTaken
    }

    /// Inboxes that need boxes, the oldest first: conversations, awake or asleep, with a mailbox agreed now or
    /// recently.
    package func boxSeeds(now: Timestamp) -> [RelaySeed] {
        let present = inboxes.all.inOrderOfCreation().map(\.figures)
        return present.filter { $0.boxUntil.map { $0 > now } ?? false }.flatMap(\.relaySeeds)
    }

    /// Seeds of the boxes in which contents of exploded conversations may wait.
    package var explodedSeeds: [RelaySeed] { explosions.records.filter { !$0.isPrepared }.flatMap(\.relaySeeds) }

    package var boxesMayHaveChanged: Bool { inboxes.mailboxesHaveChanged }

    /// Returns and clears the dirty flag of ``boxSeeds(now:)``.
    package func takeMailboxChange() -> Bool {
        defer { inboxes.mailboxesHaveChanged = false }
        return inboxes.mailboxesHaveChanged
    }

    package func owner(of seed: RelaySeed) -> ClientID? { inboxes.owner(of: seed)?.client }
}

extension Frame {
    /// Whether this frame can change only the link and the outbox of its sender.
    fileprivate var concernsOneMember: Bool {
        switch self {
        case .contents, .acknowledgement, .receipt, .ping, .attachmentRequest, .attachmentChunk: true
        default: false
        }
    }
}
