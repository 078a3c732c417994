import Logging
import Messaging
import NIOCore
import Primitives
import Transport
import Wire

/// Streams through rendezvous nodes, as far as they end here; passing them on for others is the core's.
extension Node {
    // MARK: Rendezvous nodes

    /// The configuration or the peers have changed, or the contact inbox is there.
    func rendezvousChanged() {
        guard core.contact != nil else { return }
        useRendezvous()
        // They are dialled now.
        turn { core.advance(&$0) }
    }

    /// Says whom this node serves, and who serves it.
    func useRendezvous() {
        let terms = relayTerms
        let cards = peers.peers.compactMap { $0.isRendezvous && !$0.isBlocked ? $0.card : nil }
        turn {
            core.withContact(&$0) { contact, turn in
                contact.serve(terms, turn) + contact.use(rendezvous: cards, turn)
            } + core.settleRelays(&$0)
        }
    }

    /// Lets others reach us through a peer, or no longer.
    /// - Throws: ``NodeError/unknownPeer(_:)``, ``NodeError/peerWithoutCard(_:)``, ``NodeError/tooManyRendezvous``,
    ///   ``NodeError/homeFile(_:)``.
    package func setRendezvous(_ name: String, _ isRendezvous: Bool) throws(NodeError) {
        let (peer, _) = try peer(name)
        if isRendezvous, !peer.isRendezvous {
            guard peer.card != nil else { throw .peerWithoutCard(name) }
            guard peers.peers.count(where: \.isRendezvous) < Limits.rendezvousCount else { throw .tooManyRendezvous }
        }
        _ = try changePeer(name) { $0.rendezvous = isRendezvous ? true : nil }
    }

    private var relayTerms: RelayTerms {
        var terms = configuration.rendezvous?.terms ?? RelayTerms()
        if let isRendezvous = options.isRendezvous { terms.isServing = isRendezvous }
        return terms
    }

    /// Whom others may ask, and what became of it.
    package func rendezvousStandings() -> [(name: String, standing: RelayReservationStateMachine.Standing?)] {
        peers.peers.filter { $0.isRendezvous && !$0.isBlocked }.map { peer in
            (peer.name, peer.card.flatMap { core.contact?.standing(at: $0.key) })
        }
    }

    /// What this node does for others; `nil` if it serves nobody.
    package var relayService: (terms: RelayTerms, counts: RelayCounts)? {
        guard let relay = core.contact?.relay, relay.terms.isServing else { return nil }
        return (relay.terms, relay.counts)
    }

    func relaysMayHaveChanged() {
        addresses.relaysHaveChanged = true
        endpointsMayHaveChanged()
    }

    func endpointsMayHaveChanged() {
        loop.assumeIsolated().execute {
            self.assumeIsolated { node in
                guard !node.isStopped else { return }
                node.addresses.forgetAdvertised()
                node.announceEndpoints()
                node.noteRendezvous()
            }
        }
    }

    // MARK: Streams to us

    /// Of a stream at a rendezvous node of ours.
    func relayed(_ answer: RelayAnswer, on link: LinkID) {
        switch answer {
        case .incoming(let stream, let reservation):
            incoming(RelayEndName(link: link, stream: stream), to: reservation)
        case .stream(let stream, let frame): receive(frame, for: RelayEndName(link: link, stream: stream))
        case .reserved, .refused: break
        }
    }

    private func incoming(_ name: RelayEndName, to reservation: ReservationID) {
        guard let transport, let connection = links[name.link]?.connection else { return }
        // It opens streams, and forgets or invents none.
        guard relayEnds[name] == nil else { return connection.abort(.protocolViolation) }
        guard relayEnds.count(where: { $0.key.link == name.link }) < Limits.streamsPerUser else {
            return say([.close(.busy)], of: name)
        }
        // Withdrawn meanwhile.
        guard let rendezvous = core.remote(of: name.link),
            core.relayTarget(of: reservation, at: rendezvous) != nil
        else { return say([.close(.unknownReservation)], of: name) }
        let end = makeEnd(name, over: connection)
        let admits: (RoutingToken) -> Bool = { [weak self] token in
            self?.assumeIsolated { $0.leads(token, to: reservation, at: rendezvous) } ?? false
        }
        do { try transport.accept(end.channel, admits: admits) } catch { return finish(name) }
        end.channel.begin()
    }

    /// A stream to one inbox leads to no other one: else a member of two conversations, or of none, could try the token of
    /// one inbox at the endpoint of another, and see whether they are on one node.
    private func leads(_ token: RoutingToken, to reservation: ReservationID, at rendezvous: PublicKey) -> Bool {
        guard let match = routing.match(token), let target = core.relayTarget(of: reservation, at: rendezvous) else {
            return false
        }
        let number: UInt64
        switch match.route {
        case .member(let id), .shared(let id), .knockOnly(let id): number = id
        }
        switch routeTargets[number] {
        case .inbox(let client, _): return target == .inbox(client)
        case .tombstone(let conversation, _): return target == .tombstone(conversation)
        case nil: return false
        }
    }

    private func makeEnd(_ name: RelayEndName, over connection: PeerConnection) -> RelayEnd {
        let channel = StreamChannel(loop: loop, through: connection)
        let end = RelayEnd(channel: channel)
        relayEnds[name] = end
        channel.events.hasOutput = { [weak self] in self?.assumeIsolated { $0.send(of: name) } }
        channel.events.consumed = { [weak self] count in
            self?.assumeIsolated { node in
                guard let frame = node.relayEnds[name]?.machine.consumed(count) else { return }
                node.say([frame], of: name)
            }
        }
        channel.events.closed = { [weak self] in
            self?.assumeIsolated { node in
                guard let frame = node.relayEnds[name]?.machine.close() else { return node.finish(name) }
                node.say([frame], of: name)
                node.finish(name)
            }
        }
        return end
    }

    private func receive(_ frame: RelayStreamFrame, for name: RelayEndName) {
        // One that has ended meanwhile: what was on its way is dropped.
        guard let end = relayEnds[name] else { return noteLostPiece(frame, on: name.link) }
        let arrival = end.machine.receive(frame)
        switch arrival {
        case .bytes(let bytes): end.channel.arrive(bytes)
        case .credit: send(of: name)
        case .ended:
            end.channel.endInput()
            if end.machine.isOver { finish(name) }
        case .closed(let reason):
            // The other end has closed it, or the rendezvous node, which says nothing of the other end.
            if reason != .closed { streamLost(name.link) }
            if case .close = frame {} else { say([.close(reason)], of: name) }
            finish(name)
        case .nothing: noteLostPiece(frame, on: name.link)
        }
    }

    /// A piece of a stream that is not there. Of a rendezvous node of ours the core counts the small ones, and nobody else
    /// those of a link that was made for one stream.
    private func noteLostPiece(_ frame: RelayStreamFrame, on link: LinkID) {
        guard !frame.isSmall else { return }
        if let wait = links[link]?.lostPieces.note(now: now) { pauseForHaste(link, wait) }
        if let wait = relayGuests[link]?.smallPieces.note(now: now) { pauseGuestLink(link, wait) }
    }

    private func send(of name: RelayEndName) {
        guard let end = relayEnds[name] else { return }
        let now = now
        let (frames, waits) = end.output { relaySending[name.link, default: RelaySending()].take(now: now) }
        if !frames.isEmpty { say(frames, of: name) }
        if waits, relaySending[name.link]?.wait(name.stream) ?? false { comeBack(to: name.link) }
        if end.machine.isOver { finish(name) }
    }

    private func comeBack(to link: LinkID) {
        loop.assumeIsolated().scheduleTask(in: .milliseconds(Limits.sentPieceInterval)) {
            self.assumeIsolated { node in
                for stream in node.relaySending[link]?.next() ?? [] {
                    node.send(of: RelayEndName(link: link, stream: stream))
                }
            }
        }
    }

    private func say(_ frames: [RelayStreamFrame], of name: RelayEndName) {
        let connection = relayGuests[name.link]?.connection ?? links[name.link]?.connection
        for frame in frames { try? connection?.send(FrameCodec.encode(.relayRequest(.stream(name.stream, frame)))) }
        connection?.flush()
    }

    /// Lets go of an end. What has come and was not read is still read; what was not sent is lost.
    private func finish(_ name: RelayEndName) {
        guard let end = relayEnds.removeValue(forKey: name) else { return }
        end.channel.events = StreamChannel.Events()
        end.channel.finish()
        relayGuests[name.link]?.connection.close()
    }

    /// A link to a rendezvous node is gone, and the streams over it.
    func endStreams(on link: LinkID) {
        for name in relayEnds.keys.filter({ $0.link == link }).sorted(by: { $0.stream < $1.stream }) { finish(name) }
        relaySending[link] = nil
    }

    // MARK: Streams to others

    /// Asks a rendezvous node for a stream; what it is for hears of it, not before this returns.
    /// - Parameters:
    ///   - endpoint: a relayed one.
    ///   - isOfAnyDay: which kind of token the rendezvous node is shown.
    /// - Returns: a number for ``cancelStream(_:)``.
    @discardableResult
    func openStream(at endpoint: Messaging.Endpoint, for purpose: RelayGuestDial.Purpose, isOfAnyDay: Bool = false)
        -> UInt64?
    {
        guard let transport, let relay = endpoint.relay else { return nil }
        let secret = RoutingSecret.derive(shared: SecretBytes(copying: relay.routingSecret), purpose: "card")
        let dial = LinkTransport.Dial(
            endpoints: [Transport.Endpoint(host: endpoint.host, port: Int(endpoint.port))],
            token: { [unowned self] in assumeIsolated { $0.sharedToken(secret, isOfAnyDay: isOfAnyDay) } },
            // Of this link alone: the rendezvous node learns no inbox of ours, and cannot tell that two links are one's.
            identity: IdentityKey(SecretKey.generate()),
            remote: relay.key
        )
        let number = transport.dial(dial)
        guestDials[number] = RelayGuestDial(
            reservation: relay.reservation,
            purpose: purpose,
            endpoint: endpoint,
            isOfAnyDay: isOfAnyDay
        )
        return number
    }

    /// Gives it up; nothing is called. Nothing happens to a stream that is open.
    func cancelStream(_ number: UInt64) {
        guard guestDials.removeValue(forKey: number) != nil else { return }
        transport?.cancelDial(number)
    }

    /// - Returns: whether the link is one to a rendezvous node, for a stream.
    func guestLinkOpened(_ connection: PeerConnection) -> Bool {
        guard let dial = guestDials.removeValue(forKey: connection.route) else { return false }
        let name = RelayEndName(link: LinkID(connection.id), stream: .guest)
        relayGuests[name.link] = RelayGuestLink(connection: connection)
        connection.welcome()
        try? connection.send(FrameCodec.encode(.relayRequest(.open(dial.reservation))))
        connection.flush()
        let end = makeEnd(name, over: connection)
        switch dial.purpose {
        case .dial(let group): attempt(group, over: end, name)
        case .knock(let knock): self.knock(knock, over: end.channel)
        }
        end.channel.begin()
        return true
    }

    /// A frame of a rendezvous node's over such a link; nothing happens over another.
    func receiveAsGuest(_ bytes: [UInt8], on connection: PeerConnection) {
        let link = LinkID(connection.id)
        guard relayGuests[link] != nil else { return }
        let frame = try? FrameCodec.decode(bytes)
        switch frame {
        case .relayAnswer(.stream(.guest, let frame)):
            receive(frame, for: RelayEndName(link: link, stream: .guest))
            if frame.isSmall, let wait = relayGuests[link]?.smallPieces.note(now: now) { pauseGuestLink(link, wait) }
        case .ping(let nonce):
            try? connection.send(FrameCodec.encode(.pong(nonce)))
            connection.flush()
            noteIdleFrame(asGuest: link)
        case .closing: connection.close()
        case .unknown: noteIdleFrame(asGuest: link)
        default: connection.abort(.protocolViolation)
        }
    }

    /// The core knows nothing of such links; the limits are the same.
    private func noteIdleFrame(asGuest link: LinkID) {
        if let wait = relayGuests[link]?.idleFrames.note(now: now) { pauseGuestLink(link, wait) }
    }

    private func pauseGuestLink(_ link: LinkID, _ time: Milliseconds) {
        relayGuests[link]?.connection.pauseReading()
        loop.assumeIsolated().scheduleTask(in: .milliseconds(time)) {
            self.assumeIsolated { $0.relayGuests[link]?.connection.resumeReading() }
        }
    }

    /// Nothing happens for another link.
    func guestLinkClosed(_ link: LinkID) {
        guard relayGuests[link] != nil else { return }
        // A stream that has been closed at its other end has a say: the dial that it was for hears of that a little later.
        if relayEnds[RelayEndName(link: link, stream: .guest)] != nil { streamLost(link) }
        relayGuests[link] = nil
        endStreams(on: link)
    }

    /// The rendezvous node has ended the stream, or is gone: which does not say that our token is unknown to anybody.
    private func streamLost(_ link: LinkID) {
        if let number = relayGuests[link]?.dial { transport?.cancelDial(number) }
    }

    /// - Returns: whether it was a dial of such a link.
    func guestDialEnded(_ number: UInt64, _ hearing: LinkTransport.TokenHearing) -> Bool {
        guard let dial = guestDials.removeValue(forKey: number) else { return false }
        if hearing != .none, !dial.isOfAnyDay,
            let again = openStream(at: dial.endpoint, for: dial.purpose, isOfAnyDay: true)
        {
            if case .dial(let group) = dial.purpose { groups[group]?.guestDial = again }
            return true
        }
        switch dial.purpose {
        case .dial(let group): streamFailed(group)
        case .knock(let knock): knocked(.failure(.unreachable), knock)
        }
        return true
    }
}
