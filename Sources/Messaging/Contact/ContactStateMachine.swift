import Crypto

/// What survives a restart of the contact inbox.
package struct ContactRecord: Hashable, Sendable, Codable {
    /// From which the routing tokens of whoever holds our card are derived. 32 bytes.
    package var routingSecret: [UInt8]
    /// Invitations on their way out.
    package var outgoing: [Outgoing] = []
    /// Invitations that wait for our answer.
    package var received: [Received] = []
    /// What our rendezvous nodes have granted: after a start it is advertised as before, until they answer or do not.
    package var granted: [Granted] = []
    /// Boxes that this node keeps for others, as a mailbox.
    package var boxes: [BoxRecord] = []

    package init(routingSecret: [UInt8]) { self.routingSecret = routingSecret }

    /// An invitation that its receiver has not acknowledged.
    package struct Outgoing: Hashable, Sendable, Codable {
        package var card: ContactCard
        package var invitation: Invitation
        /// When the invite expires, and with it the invitation.
        package var deadline: Timestamp
    }

    /// At one rendezvous node.
    package struct Granted: Hashable, Sendable, Codable {
        package var rendezvous: PublicKey
        package var grant: RelayGrant

        package init(rendezvous: PublicKey, grant: RelayGrant) {
            self.rendezvous = rendezvous
            self.grant = grant
        }
    }

    /// An invitation that waits for our user's answer.
    package struct Received: Hashable, Sendable, Codable {
        /// The sender's contact inbox.
        package var from: PublicKey
        package var invitation: Invitation
        /// By our clock; it is forgotten after ``Limits/inviteMaximumLifetime``.
        package var receivedAt: Timestamp
    }
}

/// The contact inbox: carries invitations and pings between nodes that know each other's cards, never chat; and is where
/// rendezvous nodes and those that use them meet.
package struct ContactStateMachine: Sendable {
    /// One remote contact inbox with which we have business now.
    struct Remote: Sendable {
        var card: ContactCard
        var link: LinkStateMachine
        var pings: Set<UInt64> = []
        /// Of a rendezvous node of ours.
        var rendezvous: Rendezvous?
        /// Of streams that end here.
        var smallPieces = IdleFrames.member
    }

    /// A rendezvous node of ours.
    struct Rendezvous: Sendable {
        var reservation: RelayReservationStateMachine
        let secret: RelaySecret
        /// Of ``relaySeeds``.
        var labels: [RelaySeed: RelayLabel] = [:]
        /// Those that are advertised.
        var reservations: [RelaySeed: ReservationID] = [:]
        /// Whose they are.
        var seeds: [ReservationID: RelaySeed] = [:]
        var linkedAt: Timestamp?
        /// Links in a row that have ended soon after they opened.
        var shortLinks = 0

        /// Its link is gone.
        /// - Returns: whether the next dial is put off: another copy of our home may take each link of ours.
        mutating func linkLost(now: Timestamp) -> Bool {
            let isShort = linkedAt.map { now - $0 < Limits.shortLink } ?? false
            shortLinks = isShort ? shortLinks + 1 : 0
            linkedAt = nil
            return shortLinks >= Limits.shortLinkCount
        }
    }

    package let client: ClientID
    package let key: IdentityKey
    /// Of our card.
    package let cardSeed: RelaySeed
    /// Of all inboxes of this node that are to be reached through rendezvous nodes, the card's first.
    var relaySeeds: [RelaySeed]
    /// The record as it is to be saved.
    package internal(set) var record: ContactRecord
    var remotes: [PublicKey: Remote] = [:]
    /// What this node does for others as a rendezvous node.
    package internal(set) var relay = RelayServiceStateMachine()
    /// What this node does for others as a mailbox.
    package internal(set) var mailbox: MailboxServiceStateMachine

    package init(client: ClientID, key: IdentityKey, record: ContactRecord, now: Timestamp) {
        self.client = client
        self.key = key
        self.record = record
        cardSeed = RelaySeed(card: key)
        relaySeeds = [cardSeed]
        mailbox = MailboxServiceStateMachine(record.boxes)
        for outgoing in record.outgoing { connect(outgoing.card, now: now) }
    }

    /// When ``advance(_:)`` has something to do; `nil` for never.
    package var nextDeadline: Timestamp? {
        let links = remotes.values.compactMap(\.link.nextDeadline)
        let reservations = remotes.values.compactMap(\.rendezvous?.reservation.nextDeadline)
        let ends = record.outgoing.map(\.deadline)
        return (links + reservations + ends + [relay.nextDeadline, mailbox.nextDeadline].compactMap { $0 }).min()
    }

    /// The record as it is to be saved.
    package var savedRecord: ContactRecord {
        var saved = record
        saved.boxes = mailbox.records
        return saved
    }

    /// Whether we have business of our own with this remote.
    package func isAwaited(_ remote: PublicKey) -> Bool { remotes[remote] != nil }

    mutating func connect(_ card: ContactCard, now: Timestamp) {
        if remotes[card.key] != nil {
            remotes[card.key]!.card = card
            remotes[card.key]!.link.hurry(now: now)
            return
        }
        var link = LinkStateMachine(own: key.publicKey, remote: card.key, isDialable: true, now: now)
        if let held = relay.link(of: card.key) {
            // It is here as one whom we serve: another link would take the place of this one, and end what goes over it.
            _ = link.opened(held, dialer: card.key, now: now)
        }
        link.hurry(now: now)
        remotes[card.key] = Remote(card: card, link: link)
    }

    /// Sends an invitation, for as long as the invite lives.
    package mutating func send(_ invitation: Invitation, to card: ContactCard, deadline: Timestamp, _ turn: inout Turn)
        -> [NodeAction]
    {
        record.outgoing.append(ContactRecord.Outgoing(card: card, invitation: invitation, deadline: deadline))
        connect(card, now: turn.now)
        var actions: [NodeAction] = [.save(client)]
        if let link = remotes[card.key]?.link.link { actions.append(.transmit(link, .invitation(invitation))) }
        return actions + advance(&turn)
    }

    /// Dials a peer's contact inbox and asks for an answer. The shell matches the nonce of the pong.
    package mutating func ping(_ card: ContactCard, nonce: UInt64, _ turn: inout Turn) -> [NodeAction] {
        connect(card, now: turn.now)
        remotes[card.key]!.pings.insert(nonce)
        if let link = remotes[card.key]!.link.link { return [.transmit(link, .ping(nonce))] }
        return advance(&turn)
    }

    /// Nobody waits for this pong any more.
    package mutating func stopPing(_ key: PublicKey, nonce: UInt64) -> [NodeAction] {
        remotes[key]?.pings.remove(nonce)
        return release(key).map { [.close($0)] } ?? []
    }

    /// Forgets an invitation: it was accepted or refused.
    package mutating func dismiss(_ id: MessageID) -> [NodeAction] {
        let before = record.received.count
        record.received.removeAll { $0.invitation.id == id }
        return record.received.count == before ? [] : [.save(client)]
    }

    /// A handshake with another contact inbox has ended: what we have for it goes out.
    package mutating func linkOpened(_ link: LinkID, to remote: PublicKey, weDialled: Bool, _ turn: Turn)
        -> [NodeAction]
    {
        guard remotes[remote] != nil else { return [] }
        var result: [NodeAction] = []
        let dialer = weDialled ? key.publicKey : remote
        for action in remotes[remote]!.link.opened(link, dialer: dialer, now: turn.now) {
            switch action {
            case .use(let link):
                for outgoing in record.outgoing where outgoing.card.key == remote {
                    result.append(.transmit(link, .invitation(outgoing.invitation)))
                }
                for nonce in remotes[remote]!.pings.sorted() { result.append(.transmit(link, .ping(nonce))) }
                result += reservationLinked(link, to: remote, turn)
            case .retire(let link): result += [.transmit(link, .closing(asleep: false)), .close(link)]
            case .dial, .ping, .drop, .upgrade: preconditionFailure("an opened link is used or retired, not \(action)")
            }
        }
        return dismissing(result)
    }

    /// What still comes on links that we close is nothing to the relay either.
    private mutating func dismissing(_ actions: [NodeAction]) -> [NodeAction] {
        relay.dismiss(in: actions)
        return actions
    }

    /// A frame from another contact inbox. What is neither invitation nor ping ends the link.
    package mutating func receive(_ frame: Frame, from remote: PublicKey, on link: LinkID, _ turn: Turn) -> [NodeAction]
    {
        remotes[remote]?.link.heard(link, now: turn.now)
        relay.heard(link, now: turn.now)
        mailbox.heard(link, now: turn.now)
        return dismissing(answer(frame, from: remote, on: link, turn))
    }

    private mutating func answer(_ frame: Frame, from remote: PublicKey, on link: LinkID, _ turn: Turn) -> [NodeAction]
    {
        switch frame {
        case .ping(let nonce): return [.transmit(link, .pong(nonce))]
        case .pong(let nonce):
            remotes[remote]?.pings.remove(nonce)
            return release(remote).map { [.close($0)] } ?? []
        case .invitation(let invitation): return receive(invitation, from: remote, on: link, turn)
        case .acknowledgement(let said):
            // An invitation has no time after which it means nothing.
            guard said.expired.isEmpty else { return [.close(link)] }
            let before = record.outgoing.count
            let ids = Set(said.stored + said.held)
            record.outgoing.removeAll { $0.card.key == remote && ids.contains($0.invitation.id) }
            guard record.outgoing.count != before else { return [] }
            return [.save(client)] + (release(remote).map { [.close($0)] } ?? [])
        case .closing: return [.close(link)]
        case .session, .contents, .lifetime, .joinRequest, .welcome, .joinError, .explosion, .deletionReceipt,
            .memberLeft, .joinCancelled, .unknown, .group, .profile, .receipt, .attachmentRequest, .attachmentChunk,
            .attachmentGone, .punch, .mailboxAnswer, .mailbox:
            return [.close(link)]
        case .mailboxRequest(let request):
            // A node that has business with us in its own name is served under a key of a link alone.
            guard remotes[remote] == nil, !relay.serves(link) else { return [.close(link)] }
            return mailbox.receive(request, from: remote, on: link, client: client, own: key, turn)
        case .relayRequest(let request):
            return relay.receive(
                request, from: remote, on: link, own: key, isPeer: turn.isNamedPeer(remote),
                source: turn.sourceOf(link), now: turn.now)
        case .relayAnswer(let answer): return receive(answer, from: remote, on: link, turn)
        }
    }

    private mutating func receive(_ invitation: Invitation, from remote: PublicKey, on link: LinkID, _ turn: Turn)
        -> [NodeAction]
    {
        let answer: NodeAction = .transmit(link, .acknowledgement(invitation.id, stored: true))
        if record.received.contains(where: { $0.invitation.id == invitation.id }) { return [answer] }
        // Full, or locked: not acknowledged, so it comes again.
        guard hasRoom(for: remote, turn), !turn.isLocked else { return [] }
        record.received.append(ContactRecord.Received(from: remote, invitation: invitation, receivedAt: turn.now))
        return [
            .save(client), answer,
            .notify(
                Event(client: client, conversation: nil, at: turn.now, kind: .invited(invitation.id, from: remote))),
        ]
    }

    /// The peer was blocked: what waits for it, and what it has sent, is forgotten.
    package mutating func forget(_ remote: PublicKey) -> [NodeAction] {
        record.outgoing.removeAll { $0.card.key == remote }
        record.received.removeAll { $0.from == remote }
        var actions: [NodeAction] = [.save(client)]
        if let link = remotes.removeValue(forKey: remote)?.link.link { actions.append(.close(link)) }
        return actions
    }

    /// Strangers share a part of the room, so that they cannot keep a named peer out.
    private func hasRoom(for remote: PublicKey, _ turn: Turn) -> Bool {
        let received = record.received
        guard received.count < Limits.invitationCount,
            received.count(where: { $0.from == remote }) < Limits.invitationsPerSender
        else { return false }
        return turn.isNamedPeer(remote)
            || received.count(where: { !turn.isNamedPeer($0.from) }) < Limits.strangerInvitationCount
    }

    /// A link is gone.
    package mutating func linkClosed(_ link: LinkID, to remote: PublicKey, _ turn: Turn) -> [NodeAction] {
        let result = relay.linkClosed(link)
        mailbox.linkClosed(link)
        guard remotes[remote] != nil else { return result }
        if remotes[remote]!.link.link == link, remotes[remote]!.rendezvous?.linkLost(now: turn.now) == true {
            remotes[remote]!.link.dialSlowly(Limits.redialCopies, until: turn.now + 1)
        }
        if remotes[remote]!.link.closed(link, now: turn.now) {
            _ = remotes[remote]!.rendezvous?.reservation.closed(link, now: turn.now)
        }
        release(remote)
        return result
    }

    /// A dial of ours came to nothing at all endpoints.
    package mutating func dialFailed(to remote: PublicKey, _ turn: inout Turn) {
        remotes[remote]?.link.dialFailed(now: turn.now, random: &turn.random)
        release(remote)
    }

    /// The machine's addresses have changed: who is still there?
    package mutating func addressesChanged(_ dials: inout ChangeDials?, _ turn: inout Turn) -> [NodeAction] {
        var result: [NodeAction] = []
        for remote in remotes.keys.sorted() {
            result += ask(remotes[remote]!.link.addressesChanged(now: turn.now, &dials), &turn)
        }
        return result
    }

    /// The storage is open again.
    package mutating func linksUnlocked(_ turn: inout Turn) -> [NodeAction] {
        var result: [NodeAction] = []
        for remote in remotes.keys.sorted() { result += ask(remotes[remote]!.link.unlocked(now: turn.now), &turn) }
        return result
    }

    private func ask(_ actions: [LinkStateMachine.Action], _ turn: inout Turn) -> [NodeAction] {
        actions.compactMap { action in
            guard case .ping(let link) = action else { return nil }
            return .transmit(link, .ping(turn.random.next()))
        }
    }

    /// Dials, pings and ends what is due.
    package mutating func advance(_ turn: inout Turn) -> [NodeAction] {
        var result: [NodeAction] = []
        let before = record.outgoing.count
        record.outgoing.removeAll { $0.deadline <= turn.now }
        if record.outgoing.count != before { result.append(.save(client)) }
        record.received.removeAll { turn.now - $0.receivedAt > Limits.inviteMaximumLifetime }
        for remote in remotes.keys.sorted() {
            for action in remotes[remote]!.link.advance(now: turn.now) {
                switch action {
                case .dial, .upgrade:
                    let card = remotes[remote]!.card
                    let route = NodeAction.DialRoute.contact(card.routingSecret)
                    // Through one rendezvous node to another nobody is to be reached.
                    let isRendezvous = remotes[remote]!.rendezvous != nil
                    let endpoints = card.endpoints.filter { !isRendezvous || $0.relay == nil }
                    result.append(.dial(client, NodeAction.Dial(remote: remote, endpoints: endpoints, route: route)))
                case .ping(let link): result.append(.transmit(link, .ping(turn.random.next())))
                case .drop(let link):
                    _ = remotes[remote]!.rendezvous?.reservation.closed(link, now: turn.now)
                    result.append(.close(link))
                case .use, .retire: preconditionFailure("time opens no link: \(action)")
                }
            }
            result += advanceReservation(remote, turn)
            if let link = release(remote) { result.append(.close(link)) }
        }
        return dismissing(result) + relay.advance(now: turn.now) + mailbox.advance(client, turn)
    }

    /// Ends our interest in a remote with which there is nothing left to do.
    /// - Returns: its link, to be closed; `nil` also when the relay serves it.
    @discardableResult mutating func release(_ remote: PublicKey) -> LinkID? {
        guard let state = remotes[remote], state.pings.isEmpty, state.rendezvous == nil,
            !record.outgoing.contains(where: { $0.card.key == remote })
        else { return nil }
        remotes[remote] = nil
        guard let link = state.link.link, !relay.serves(link) else { return nil }
        return link
    }
}
