import Crypto

extension NodeStateMachine {
    /// A handshake has ended and authenticated `remote`.
    package func linkOpened(
        _ link: LinkID, client: ClientID, remote: PublicKey, weDialled: Bool, isRelayed: Bool = false,
        _ turn: inout Turn
    ) -> [NodeAction] {
        guard let inbox = inboxes[client] else { return [.close(link)] }
        switch inbox.role {
        case .gone, .unused, .sleeping: return [.close(link)]
        case .contact, .joining, .conversation: break
        }
        links[link] = OpenLink(inbox: inbox, remote: remote, isRelayed: isRelayed)
        inbox.links.insert(link)
        defer { inboxes.reindex(inbox) }
        switch inbox.role {
        case .gone, .unused, .sleeping: return []
        case .contact(let running):
            guard running.machine.isAwaited(remote) else { return welcomeGuest(link, turn) }
            return running.machine.linkOpened(link, to: remote, weDialled: weDialled, turn)
        case .joining(let running): return running.machine.linkOpened(link, &turn)
        case .conversation(let running):
            // A joiner dials with an invite's token; its first frame is the join request.
            guard running.machine.members[remote] != nil else {
                guard running.machine.record.former.contains(remote) else { return welcomeGuest(link, turn) }
                return welcomeGuest(link, turn) + running.machine.turnAway(remote, on: link, &turn)
            }
            let actions = running.machine.linkOpened(
                link, to: remote, weDialled: weDialled, isRelayed: isRelayed, &turn)
            return settle(actions, &turn)
        }
    }

    /// Whether dials of this member are rejected for now, because its signatures did not verify.
    package func isShunned(_ remote: PublicKey, by client: ClientID, now: Timestamp) -> Bool {
        inboxes[client]?.conversation?.machine.isShunned(remote, now: now) ?? false
    }

    /// Whether the link is a guest's, was closed by us as a guest's, or belongs to no inbox.
    package func isGuest(_ link: LinkID) -> Bool {
        links[link] == nil || guests.contains(link) || guests.hasSentAway(link)
    }

    private func welcomeGuest(_ link: LinkID, _ turn: Turn) -> [NodeAction] {
        guests.welcome(link, now: turn.now).map { [.close($0)] } ?? []
    }

    /// - Parameter verify: checks the invite of a join request; `nil` for a wrong signature.
    package func receive(_ frame: Frame, on link: LinkID, verify: (SignedInvite) -> VerifiedInvite?, _ turn: inout Turn)
        -> [NodeAction]
    {
        let actions = answer(frame, on: link, verify: verify, &turn)
        guard let wait = haste(frame, actions, on: link, now: turn.now) else { return actions }
        return actions + [.pauseReading(link, wait)]
    }

    private func answer(_ frame: Frame, on link: LinkID, verify: (SignedInvite) -> VerifiedInvite?, _ turn: inout Turn)
        -> [NodeAction]
    {
        guard let open = links[link] else { return [] }
        if case .deletionReceipt(let receipt) = frame { return receive(receipt, on: link, &turn) }
        guard !guests.hasSentAway(link) else { return [] }
        let inbox = open.inbox
        switch inbox.role {
        case .gone, .unused, .sleeping: return [.close(link)]
        case .contact(let running):
            let actions = running.machine.receive(frame, from: open.remote, on: link, turn)
            // The relay and the mailbox service have limits of their own.
            if running.machine.relay.serves(link) || running.machine.mailbox.serves(link) { guests.leave(link) }
            inboxes.reindex(inbox)
            return actions
        case .joining(let running):
            let outcome = running.machine.receive(frame, from: open.remote, on: link, turn)
            inboxes.reindex(inbox)
            return finish(outcome, of: running.machine, in: inbox, &turn)
        case .conversation(let running):
            if case .joinRequest(let request) = frame {
                let actions = answer(request, on: link, open, running, verified: verify(request.invite), &turn)
                inboxes.reindex(inbox)
                return settle(actions, &turn)
            }
            let actions = running.machine.receive(
                frame, from: open.remote, on: link, memoryAvailable: memoryAvailable, &turn)
            inboxes.reindex(inbox, touching: frame.concernsOneMember ? open.remote : nil)
            let settled = settle(actions, &turn)
            settleDelivery(inbox, now: turn.now)
            return settled
        }
    }

    private func answer(
        _ request: JoinRequest, on link: LinkID, _ open: OpenLink, _ running: Running<ConversationStateMachine>,
        verified: @autoclosure () -> VerifiedInvite?, _ turn: inout Turn
    ) -> [NodeAction] {
        guard joinRates.takesRequest(by: running.machine.issued(request), now: turn.now) else {
            running.machine.tally.dropped += 1
            return [.close(link)]
        }
        var actions = running.machine.receiveJoinRequest(
            request, verified: verified(), from: open.remote, on: link, isRelayed: open.isRelayed, &turn)
        for case .transmit(link, .joinError(let error)) in actions
        where !joinRates.takesRefusal(error.inviteTag, now: turn.now) {
            running.machine.tally.dropped += 1
            actions = [.close(link)]
        }
        if running.machine.members[open.remote] != nil { guests.leave(link) }
        return actions
    }

    var memoryAvailable: Int { Limits.memoryTotalByteCount - inboxes.heldByteCount }

    package var unreadByteCount: Int { inboxes.heldByteCount }

    func finish(
        _ outcome: JoiningStateMachine.Outcome, of join: JoiningStateMachine, in inbox: InboxEntry, _ turn: inout Turn
    ) -> [NodeAction] {
        let (client, tag) = (inbox.client, join.record.invite.tag)
        switch outcome {
        case .pending(let actions): return actions
        case .forgotten:
            forget(inbox)
            return [.destroy(client)]
        case .failed(let type, let actions):
            lifecycle.remove(inbox)
            let event = Event(client: client, conversation: nil, at: turn.now, kind: .joinFailed(type, tag))
            return [.save(client)] + actions + [.notify(event)]
        case .entered(let record, let agreement, let link):
            if explosions[record.genesis.conversation] != nil {
                // An exploded conversation cannot be entered again on this node.
                return refuseWelcome(.conversationExpired, inbox, tag: tag, on: link, turn)
            }
            // An attacker who knows a conversation id can sign a genesis of its own with it. The explosion of that one
            // must not destroy the real one, so all copies of an id have one creator.
            let others = inboxes.directory.copies(of: record.genesis.conversation)
            guard others.allSatisfy({ $0.creator == record.genesis.creator }) else {
                return refuseWelcome(.genericFailure, inbox, tag: tag, on: link, turn)
            }
            var machine = ConversationStateMachine(
                client: client, key: join.key, record: record, isFresh: true, now: turn.now)
            let creator = record.genesis.creator
            let joined = Event(client: client, conversation: record.genesis.conversation, at: turn.now, kind: .joined)
            var actions: [NodeAction] = [.save(client)]
            actions += machine.reachableBy.map { .register(client, .member($0)) }
            actions.append(.notify(joined))
            actions += machine.enter(under: agreement, &turn)
            actions += settle(machine.enterSchedule(&turn), &turn)
            let isRelayed = links[link]?.isRelayed ?? false
            actions += machine.linkOpened(link, to: creator, weDialled: true, isRelayed: isRelayed, &turn)
            inboxes.set(inbox, to: .conversation(Running(machine)))
            return actions
        }
    }

    /// Fails the join for a conversation that cannot be entered here; the join stays listed. The creator releases the
    /// member's place.
    private func refuseWelcome(
        _ error: JoinErrorType, _ inbox: InboxEntry, tag: InviteTag, on link: LinkID, _ turn: Turn
    ) -> [NodeAction] {
        guard case .joining(let running) = inbox.role else { return [.close(link)] }
        running.machine.refuse(error)
        inboxes.reindex(inbox)
        lifecycle.remove(inbox)
        let event = Event(client: inbox.client, conversation: nil, at: turn.now, kind: .joinFailed(error, tag))
        return [.save(inbox.client), .transmit(link, .joinCancelled), .close(link), .notify(event)]
    }

    /// The answer to ``NodeAction/gatherCandidates(_:_:)``: our candidate addresses for UDP.
    package func gathered(_ client: ClientID, _ remote: PublicKey, _ endpoints: [Endpoint], _ turn: inout Turn)
        -> [NodeAction]
    { withConversation(inboxes[client]) { $0.gathered(endpoints, for: remote, turn) } }

    package func linkClosed(_ link: LinkID, _ turn: inout Turn) -> [NodeAction] {
        guests.leave(link)
        guard let open = links.removeValue(forKey: link) else { return [] }
        let inbox = open.inbox
        inbox.links.remove(link)
        defer { inboxes.reindex(inbox) }
        switch inbox.role {
        case .gone, .unused, .sleeping: return []
        case .contact(let running): return running.machine.linkClosed(link, to: open.remote, turn)
        case .joining(let running):
            running.machine.linkClosed(link, &turn)
            return []
        case .conversation(let running): return running.machine.linkClosed(link, to: open.remote, turn)
        }
    }

    /// Local discovery has found a member, or the creator of a conversation that we join. A sleeping inbox is not
    /// woken, because the peer that looks for it dials.
    package func found(_ client: ClientID, _ member: PublicKey, at endpoint: Endpoint, _ turn: inout Turn)
        -> [NodeAction]
    {
        guard let inbox = inboxes[client] else { return [] }
        defer { inboxes.reindex(inbox) }
        switch inbox.role {
        case .gone, .unused, .contact, .sleeping: return []
        case .joining(let running):
            return running.machine.record.creator == member ? running.machine.found(at: endpoint, &turn) : []
        case .conversation(let running): return running.machine.found(member, at: endpoint, &turn)
        }
    }

    /// Joins that need discovery of their creators, with the invites that identify us.
    package func missedCreators(now: Timestamp) -> [(client: ClientID, creator: PublicKey, invite: InviteID)] {
        joins.compactMap { join in join.missedInvite(now: now).map { (join.client, join.record.creator, $0) } }
    }

    /// The machine's addresses have changed: sends a ping to contacts and to the members of awake conversations.
    /// - Parameter hasNew: an address is new, so members without a link are dialled.
    package func addressesChanged(hasNew: Bool, _ turn: inout Turn) -> [NodeAction] {
        changeDials.begin(now: turn.now)
        var dials = hasNew ? changeDials : nil
        defer { if let dials { changeDials = dials } }
        // The contact's links first: they lead to the user's own rendezvous nodes and mailbox.
        return withContact(&turn) { $0.addressesChanged(&dials, &$1) }
            + withConversations { $0.addressesChanged(&dials, &turn) }
    }

    /// Members of awake conversations that need discovery: a link is wanted and missing.
    package func missedMembers(now: Timestamp) -> [(client: ClientID, member: PublicKey)] {
        inboxes.awake.inOrderOfCreation().flatMap { inbox -> [(client: ClientID, member: PublicKey)] in
            inbox.conversation?.machine.missedMembers(now: now).map { (inbox.client, $0) } ?? []
        }
    }

    /// Awake conversations with a sign that two copies of a home run at once.
    package var conversationsWithCopies: [ConversationStateMachine] {
        inboxes.withCopies.inOrderOfCreation().compactMap { $0.conversation?.machine }
    }

    /// - Parameter isUnknownThere: a node closed, perhaps since it does not know our token. Over UDP such a node is
    ///   silent, so there no answer counts too.
    package func dialFailed(_ client: ClientID, to remote: PublicKey, isUnknownThere: Bool, _ turn: inout Turn)
        -> [NodeAction]
    {
        guard let inbox = inboxes[client] else { return [] }
        defer { inboxes.reindex(inbox) }
        switch inbox.role {
        case .gone, .unused, .sleeping: return []
        case .contact(let running):
            running.machine.dialFailed(to: remote, &turn)
            return []
        case .joining(let running): return running.machine.dialFailed(isUnknownThere: isUnknownThere, &turn)
        case .conversation(let running):
            let actions = running.machine.dialFailed(to: remote, isUnknownThere: isUnknownThere, &turn)
            settleDelivery(inbox, now: turn.now)
            return actions
        }
    }

    // MARK: Frames that change nothing

    /// Counts a no-op frame, unless a service or the conversation counts it.
    /// - Parameter actions: the result of the frame.
    /// - Returns: how long to pause reading the link; `nil` for no pause.
    private func haste(_ frame: Frame, _ actions: [NodeAction], on link: LinkID, now: Timestamp) -> Milliseconds? {
        guard actions.isIdle(on: link) else { return nil }
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
        case (.conversation(let running), _): if running.machine.members[open.remote] != nil { return nil }
        default: break
        }
        let waits = [
            links[link]?.idleFrames.note(elements: elements, now: now), idleFrames.note(elements: shared, now: now),
        ]
        return waits.compactMap { $0 }.max()
    }

    // MARK: Reservations at rendezvous nodes: one for each inbox, awake or asleep, and for each tombstone

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
    package func settleRelays(_ turn: inout Turn) -> [NodeAction] {
        guard isRelayDue else { return [] }
        inboxes.relaysHaveChanged = false
        explosions.relaysHaveChanged = false
        let present = inboxes.all.inOrderOfCreation().flatMap(\.relaySeeds)
        let past = explosions.records.flatMap(\.relaySeeds)
        return withContact(&turn) { contact, _ in contact.want(present + past) }
    }

    // MARK: Mailboxes

    /// The answer to ``NodeAction/mail(_:_:)``.
    package func mailed(_ order: MailOrder, _ result: MailResult, client: ClientID, _ turn: inout Turn) -> [NodeAction]
    {
        guard let inbox = inboxes[client] else { return [] }
        return settle(withConversation(inbox) { $0.mailed(order, result, &turn) }, &turn)
    }

    /// Handles the frames of an opened slot of our box.
    /// - Returns: whether the slot may be discarded once the actions are durable.
    package func receiveMailed(
        _ frames: [Frame], number: UInt64?, from member: PublicKey, age: SlotAge, client: ClientID, _ turn: inout Turn
    ) -> (actions: [NodeAction], isTaken: Bool) {
        guard let inbox = inboxes[client], let running = inbox.conversation, running.machine.members[member] != nil
        else { return ([], false) }
        var result: [NodeAction] = []
        var isTaken = true
        var hasEnded = false
        for frame in frames {
            let one = running.machine.receiveMailed(
                frame, from: member, age: age, memoryAvailable: memoryAvailable, &turn)
            result += one.actions
            isTaken = isTaken && one.isTaken
            // Frames after the end of the conversation are ignored.
            hasEnded = one.actions.contains { if case .explode = $0 { true } else { false } }
            if hasEnded { break }
        }
        if isTaken, !hasEnded, let number { result += running.machine.took(number, of: member) }
        inboxes.reindex(inbox)
        return (settle(result, &turn), isTaken)
    }

    /// Inboxes that need boxes, the oldest first: conversations, awake or asleep, with a mailbox agreed now or
    /// recently.
    package func boxSeeds(now: Timestamp) -> [RelaySeed] {
        inboxes.all.inOrderOfCreation().filter { $0.boxUntil.map { $0 > now } ?? false }.flatMap(\.relaySeeds)
    }

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
