import Cryptography

package struct ContactRecord: Hashable, Sendable, Codable {
    /// Routing tokens for holders of our card derive from it. 32 bytes.
    package var routingSecret: [UInt8]
    package var outgoing: [Outgoing] = []
    package var received: [Received] = []
    /// Grants of our rendezvous nodes. After a restart they are advertised until the nodes answer or time out.
    package var granted: [Granted] = []
    /// Boxes that this node keeps for others, as a mailbox.
    package var boxes: [BoxRecord] = []

    package init(routingSecret: [UInt8]) { self.routingSecret = routingSecret }

    /// An invitation that its receiver has not acknowledged.
    package struct Outgoing: Hashable, Sendable, Codable {
        package var card: ContactCard
        package var invitation: Invitation
        /// When the invite expires.
        package var deadline: Timestamp
    }

    package struct Granted: Hashable, Sendable, Codable {
        package var rendezvous: PublicKey
        package var grant: RelayGrant
    }

    /// An invitation that waits for our user's answer.
    package struct Received: Hashable, Sendable, Codable {
        package var from: PublicKey
        package var invitation: Invitation
        /// By our clock; dropped after ``Limits/inviteMaximumLifetime``.
        package var receivedAt: Timestamp
    }
}

/// The contact inbox carries invitations and pings between nodes with each other's cards, never chat. Rendezvous nodes
/// and mailboxes serve their clients here.
package struct ContactStateMachine: Sendable {
    struct Remote: Sendable {
        var card: ContactCard
        var link: LinkStateMachine
        var pings: Set<UInt64> = []
        var rendezvous: Rendezvous?
        /// Rate of small pieces of streams that end here.
        var smallPieces = IdleFrames.member
    }

    struct Rendezvous: Sendable {
        var reservation: RelayReservationStateMachine
        let secret: RelaySecret
        var labels: [RelaySeed: RelayLabel] = [:]
        /// Advertised reservations.
        var reservations: [RelaySeed: ReservationID] = [:]
        var linkedAt: Timestamp?
        /// Consecutive links that ended soon after they opened.
        var shortLinks = 0

        /// - Returns: whether to delay the next dial, because another copy of our home may replace our links.
        mutating func linkLost(now: Timestamp) -> Bool {
            let isShort = linkedAt.map { now - $0 < Limits.shortLink } ?? false
            shortLinks = isShort ? shortLinks + 1 : 0
            linkedAt = nil
            return shortLinks >= Limits.shortLinkCount
        }
    }

    package let client: ClientID
    package let key: IdentityKey
    package let cardSeed: RelaySeed
    /// All inboxes of this node that need reservations, the card's first.
    var relaySeeds: [RelaySeed]
    package internal(set) var record: ContactRecord
    var remotes: [PublicKey: Remote] = [:]
    package internal(set) var relay = RelayServiceStateMachine()
    package internal(set) var mailbox: MailboxServiceStateMachine

    package init(client: ClientID, key: IdentityKey, record: ContactRecord, now: Timestamp) {
        (self.client, self.key, self.record) = (client, key, record)
        cardSeed = RelaySeed(card: key)
        relaySeeds = [cardSeed]
        mailbox = MailboxServiceStateMachine(record.boxes)
        for outgoing in record.outgoing { connect(outgoing.card, now: now) }
    }

    package var nextDeadline: Timestamp? {
        remotes.values.reduce(earliest(relay.nextDeadline, mailbox.nextDeadline, record.outgoing.map(\.deadline).min()))
        { earliest($0, $1.link.nextDeadline, $1.rendezvous?.reservation.nextDeadline) }
    }

    package var savedRecord: ContactRecord {
        var saved = record
        saved.boxes = mailbox.records
        return saved
    }

    /// Whether we want a link to this remote.
    package func isAwaited(_ remote: PublicKey) -> Bool { remotes[remote] != nil }

    mutating func connect(_ card: ContactCard, now: Timestamp) {
        if remotes[card.key] != nil {
            remotes[card.key]!.card = card
            remotes[card.key]!.link.hurry(now: now)
            return
        }
        var link = LinkStateMachine(own: key.publicKey, remote: card.key, isDialable: true, now: now)
        if let held = relay.link(of: card.key) {
            // The remote is a client of our relay already. A new link would replace this one and cut its streams.
            _ = link.opened(held, dialer: card.key, now: now)
        }
        link.hurry(now: now)
        remotes[card.key] = Remote(card: card, link: link)
    }

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

    package mutating func stopPing(_ key: PublicKey, nonce: UInt64) -> [NodeAction] {
        remotes[key]?.pings.remove(nonce)
        return release(key)
    }

    /// The user has accepted or refused this invitation.
    package mutating func dismiss(_ id: MessageID) -> [NodeAction] {
        let before = record.received.count
        record.received.removeAll { $0.invitation.id == id }
        return record.received.count == before ? [] : [.save(client)]
    }

    /// Sends pending invitations and pings to the contact inbox that has authenticated.
    package mutating func linkOpened(_ link: LinkID, to remote: PublicKey, weDialled: Bool, _ turn: Turn)
        -> [NodeAction]
    {
        guard remotes[remote] != nil else { return [] }
        // An opened link draws no random number.
        var turn = turn
        let dialer = weDialled ? key.publicKey : remote
        let actions = remotes[remote]!.link.opened(link, dialer: dialer, now: turn.now)
        return dismissing(perform(actions, with: remote, &turn))
    }

    private mutating func perform(_ actions: [LinkStateMachine.Action], with remote: PublicKey, _ turn: inout Turn)
        -> [NodeAction]
    {
        var result: [NodeAction] = []
        for action in actions {
            switch action {
            case .dial, .upgrade:
                let card = remotes[remote]!.card
                let route = NodeAction.DialRoute.contact(card.routingSecret)
                // A rendezvous node is not reached through another rendezvous node.
                let isRendezvous = remotes[remote]!.rendezvous != nil
                let endpoints = card.endpoints.filter { !isRendezvous || $0.relay == nil }
                result.append(.dial(client, NodeAction.Dial(remote: remote, endpoints: endpoints, route: route)))
            case .ping(let link): result.append(.transmit(link, .ping(turn.random.next())))
            case .drop(let link):
                _ = remotes[remote]!.rendezvous?.reservation.closed(link, now: turn.now)
                result.append(.close(link))
            case .use(let link):
                for outgoing in record.outgoing where outgoing.card.key == remote {
                    result.append(.transmit(link, .invitation(outgoing.invitation)))
                }
                for nonce in remotes[remote]!.pings.sorted() { result.append(.transmit(link, .ping(nonce))) }
                result += reservationLinked(link, to: remote, turn)
            case .retire(let link): result += [.transmit(link, .closing(asleep: false)), .close(link)]
            }
        }
        return result
    }

    /// The relay ignores frames on links that we close.
    private mutating func dismissing(_ actions: [NodeAction]) -> [NodeAction] {
        relay.dismiss(in: actions)
        return actions
    }

    /// Closes the link on any frame but those of invitations, pings, relay and mailbox.
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
            return release(remote)
        case .invitation(let invitation): return receive(invitation, from: remote, on: link, turn)
        case .acknowledgement(let said):
            // An invitation cannot expire on arrival.
            guard said.expired.isEmpty else { return [.close(link)] }
            let before = record.outgoing.count
            let ids = Set(said.stored + said.held)
            record.outgoing.removeAll { $0.card.key == remote && ids.contains($0.invitation.id) }
            guard record.outgoing.count != before else { return [] }
            return [.save(client)] + release(remote)
        case .mailboxRequest(let request):
            // A client of the mailbox uses a key of its own for that link, so this remote is no client.
            guard remotes[remote] == nil, !relay.serves(link) else { return [.close(link)] }
            return mailbox.receive(request, from: remote, on: link, client: client, own: key, turn)
        case .relayRequest(let request):
            return relay.receive(
                request, from: remote, on: link, own: key, isPeer: turn.node.isNamedPeer(remote),
                source: turn.node.source(of: link), now: turn.now)
        case .relayAnswer(let answer): return receive(answer, from: remote, on: link, turn)
        default: return [.close(link)]
        }
    }

    private mutating func receive(_ invitation: Invitation, from remote: PublicKey, on link: LinkID, _ turn: Turn)
        -> [NodeAction]
    {
        let answer: NodeAction = .transmit(link, .acknowledgement(invitation.id, stored: true))
        if record.received.contains(where: { $0.invitation.id == invitation.id }) { return [answer] }
        // Without an acknowledgement the sender repeats it, which helps when we are full or locked.
        guard hasRoom(for: remote, turn), !turn.isLocked else { return [] }
        record.received.append(ContactRecord.Received(from: remote, invitation: invitation, receivedAt: turn.now))
        let kind = Event.Kind.invited(invitation.id, from: remote)
        return [.save(client), answer, .notify(Event(client: client, conversation: nil, at: turn.now, kind: kind))]
    }

    /// The peer was blocked: drops its invitations in both directions.
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
        return turn.node.isNamedPeer(remote)
            || received.count(where: { !turn.node.isNamedPeer($0.from) }) < Limits.strangerInvitationCount
    }

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

    package mutating func dialFailed(to remote: PublicKey, _ turn: inout Turn) {
        remotes[remote]?.link.dialFailed(now: turn.now, random: &turn.random)
        release(remote)
    }

    package mutating func addressesChanged(_ dials: inout ChangeDials?, _ turn: inout Turn) -> [NodeAction] {
        performAll(&turn) { $0.addressesChanged(now: $1.now, &dials) }
    }

    package mutating func linksUnlocked(_ turn: inout Turn) -> [NodeAction] {
        performAll(&turn) { $0.unlocked(now: $1.now) }
    }

    private mutating func performAll(
        _ turn: inout Turn, _ event: (inout LinkStateMachine, Turn) -> [LinkStateMachine.Action]
    ) -> [NodeAction] { remotes.keys.sorted().flatMap { perform(event(&remotes[$0]!.link, turn), with: $0, &turn) } }

    package mutating func advance(_ turn: inout Turn) -> [NodeAction] {
        var result: [NodeAction] = []
        let before = record.outgoing.count
        record.outgoing.removeAll { $0.deadline <= turn.now }
        if record.outgoing.count != before { result.append(.save(client)) }
        record.received.removeAll { turn.now - $0.receivedAt > Limits.inviteMaximumLifetime }
        for remote in remotes.keys.sorted() {
            result += perform(remotes[remote]!.link.advance(now: turn.now), with: remote, &turn)
            result += perform(remotes[remote]?.rendezvous?.reservation.advance(now: turn.now) ?? [], of: remote)
            result += release(remote)
        }
        return dismissing(result) + relay.advance(now: turn.now) + mailbox.advance(client, turn)
    }

    /// Drops a remote that we need no longer, and closes its link unless the relay serves it.
    @discardableResult mutating func release(_ remote: PublicKey) -> [NodeAction] {
        guard let state = remotes[remote], state.pings.isEmpty, state.rendezvous == nil,
            !record.outgoing.contains(where: { $0.card.key == remote })
        else { return [] }
        remotes[remote] = nil
        guard let link = state.link.link, !relay.serves(link) else { return [] }
        return [.close(link)]
    }
}
