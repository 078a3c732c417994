import Crypto
import Logging
import Messaging
import NIOCore
import Transport

/// Streams through rendezvous nodes that end here; the core forwards streams of others.
final class RelayStreams: Part {
    /// Dials to rendezvous nodes, by the transport's numbers, and the resulting links.
    private var dials: [UInt64: RelayGuestDial] = [:]
    private var guests: [LinkID: RelayGuestLink] = [:]
    private var ends: [RelayEndName: RelayEnd] = [:]
    private var sending: [LinkID: RelaySending] = [:]

    private var transport: LinkTransport? { shell.listening.transport }

    // MARK: Streams to us

    /// An event of a stream at one of our rendezvous nodes.
    func relayed(_ answer: RelayAnswer, on link: LinkID) {
        switch answer {
        case .incoming(let stream, let reservation): incoming(RelayEndName(link: link, stream: stream), to: reservation)
        case .stream(let stream, let frame): receive(frame, for: RelayEndName(link: link, stream: stream))
        case .reserved, .refused: break
        }
    }

    private func incoming(_ name: RelayEndName, to reservation: ReservationID) {
        guard let transport, let connection = links[name.link]?.connection else { return }
        // A correct rendezvous node opens each stream once.
        guard ends[name] == nil else { return connection.abort(.protocolViolation) }
        guard ends.count(where: { $0.key.link == name.link }) < Limits.streamsPerUser else {
            return say([.close(.busy)], of: name)
        }
        guard let rendezvous = core.machine.remote(of: name.link),
            core.machine.relayTarget(of: reservation, at: rendezvous) != nil
        else { return say([.close(.unknownReservation)], of: name) }
        let end = makeEnd(name, over: connection)
        let admits: (RoutingToken) -> Bool = { [weak self] token in
            self?.leads(token, to: reservation, at: rendezvous) ?? false
        }
        do { try transport.accept(end.channel, admits: admits) } catch { return finish(name) }
        end.channel.begin()
    }

    /// A stream to one inbox accepts only that inbox's tokens. Otherwise a peer could try one inbox's token at
    /// another's endpoint, and learn whether both are on one node.
    private func leads(_ token: RoutingToken, to reservation: ReservationID, at rendezvous: PublicKey) -> Bool {
        guard let match = shell.routes.match(token),
            let target = core.machine.relayTarget(of: reservation, at: rendezvous)
        else { return false }
        let number: UInt64
        switch match.route {
        case .member(let id), .shared(let id), .knockOnly(let id): number = id
        }
        switch shell.routes.target(of: number) {
        case .inbox(let client, _): return target == .inbox(client)
        case .tombstone(let conversation, _): return target == .tombstone(conversation)
        case nil: return false
        }
    }

    private func makeEnd(_ name: RelayEndName, over connection: PeerConnection) -> RelayEnd {
        let channel = StreamChannel(loop: loop, through: connection)
        let end = RelayEnd(channel: channel)
        ends[name] = end
        channel.events.hasOutput = { [weak self] in self?.send(of: name) }
        channel.events.consumed = { [weak self] count in
            guard let self, let frame = ends[name]?.machine.consumed(count) else { return }
            say([frame], of: name)
        }
        channel.events.closed = { [weak self] in
            guard let self else { return }
            if let frame = ends[name]?.machine.close() { say([frame], of: name) }
            finish(name)
        }
        return end
    }

    private func receive(_ frame: RelayStreamFrame, for name: RelayEndName) {
        // In flight when the stream ended: drop.
        guard let end = ends[name] else { return noteLostPiece(frame, on: name.link) }
        let arrival = end.machine.receive(frame)
        switch arrival {
        case .bytes(let bytes): end.channel.arrive(bytes)
        case .credit: send(of: name)
        case .ended:
            end.channel.endInput()
            if end.machine.isOver { finish(name) }
        case .closed(let reason):
            // Closed by the other end, or by the rendezvous node for a reason of its own.
            if reason != .closed { streamLost(name.link) }
            if case .close = frame {} else { say([.close(reason)], of: name) }
            finish(name)
        case .nothing: noteLostPiece(frame, on: name.link)
        }
    }

    /// Counts pieces of unknown streams. The core counts small ones on links to our rendezvous nodes; links for one
    /// stream are counted here.
    private func noteLostPiece(_ frame: RelayStreamFrame, on link: LinkID) {
        guard !frame.isSmall else { return }
        if let wait = links[link]?.lostPieces.note(now: now) { shell.output.pauseForHaste(link, wait) }
        if let wait = guests[link]?.smallPieces.note(now: now) { pauseGuestLink(link, wait) }
    }

    private func send(of name: RelayEndName) {
        guard let end = ends[name] else { return }
        let now = now
        let (frames, waits) = end.output { sending[name.link, default: RelaySending()].take(now: now) }
        if !frames.isEmpty { say(frames, of: name) }
        if waits, sending[name.link]?.wait(name.stream) ?? false { comeBack(to: name.link) }
        if end.machine.isOver { finish(name) }
    }

    private func comeBack(to link: LinkID) {
        after(Limits.sentPieceRate.interval) {
            for stream in self.sending[link]?.next() ?? [] { self.send(of: RelayEndName(link: link, stream: stream)) }
        }
    }

    private func say(_ frames: [RelayStreamFrame], of name: RelayEndName) {
        let connection = guests[name.link]?.connection ?? links[name.link]?.connection
        for frame in frames { try? connection?.send(FrameCodec.encode(.relayRequest(.stream(name.stream, frame)))) }
        connection?.flush()
    }

    /// Closes an end. Received bytes are still read; unsent bytes are lost.
    private func finish(_ name: RelayEndName) {
        guard let end = ends.removeValue(forKey: name) else { return }
        end.channel.events = StreamChannel.Events()
        end.channel.finish()
        guests[name.link]?.connection.close()
    }

    /// The link to a rendezvous node has ended, and its streams with it.
    func end(on link: LinkID) {
        for name in ends.keys.filter({ $0.link == link }).sorted(by: { $0.stream < $1.stream }) { finish(name) }
        sending[link] = nil
    }

    // MARK: Streams to others

    /// Requests a stream from a rendezvous node. `purpose` is called only after this returns.
    /// - Parameters:
    ///   - endpoint: a relayed endpoint.
    ///   - isOfAnyDay: the kind of token for the rendezvous node.
    /// - Returns: a number for ``cancel(_:)``.
    @discardableResult func open(at endpoint: Messaging.Endpoint, for purpose: StreamPurpose, isOfAnyDay: Bool = false)
        -> UInt64?
    {
        guard let transport, let relay = endpoint.relay else { return nil }
        let secret = RoutingSecret.derive(shared: SecretBytes(copying: relay.routingSecret), purpose: "card")
        let dial = LinkTransport.Dial(
            endpoints: [Transport.Endpoint(host: endpoint.host, port: Int(endpoint.port))],
            token: { [routes = shell.routes] in routes.sharedToken(secret, isOfAnyDay: isOfAnyDay) },
            // A one-time key: the rendezvous node learns no inbox of ours, and cannot connect two links.
            identity: IdentityKey(SecretKey.generate()), remote: relay.key)
        let number = transport.dial(dial)
        dials[number] = RelayGuestDial(
            reservation: relay.reservation, purpose: purpose, endpoint: endpoint, isOfAnyDay: isOfAnyDay)
        return number
    }

    /// Cancels a dial without a callback; an open stream is not affected.
    func cancel(_ number: UInt64) {
        guard dials.removeValue(forKey: number) != nil else { return }
        transport?.cancelDial(number)
    }

    /// - Returns: whether this is a link for one stream.
    func linkOpened(_ connection: PeerConnection) -> Bool {
        guard let dial = dials.removeValue(forKey: connection.route) else { return false }
        let name = RelayEndName(link: LinkID(connection.id), stream: .guest)
        guests[name.link] = RelayGuestLink(connection: connection)
        connection.welcome()
        try? connection.send(FrameCodec.encode(.relayRequest(.open(dial.reservation))))
        connection.flush()
        let end = makeEnd(name, over: connection)
        dial.purpose.opened(end.channel, name.link)
        end.channel.begin()
        return true
    }

    /// Receives a frame on a link for one stream; ignores other links.
    func receive(_ bytes: [UInt8], on connection: PeerConnection) {
        let link = LinkID(connection.id)
        guard guests[link] != nil else { return }
        let frame = try? FrameCodec.decode(bytes)
        switch frame {
        case .relayAnswer(.stream(.guest, let frame)):
            receive(frame, for: RelayEndName(link: link, stream: .guest))
            if frame.isSmall, let wait = guests[link]?.smallPieces.note(now: now) { pauseGuestLink(link, wait) }
        case .ping(let nonce):
            try? connection.send(FrameCodec.encode(.pong(nonce)))
            connection.flush()
            noteIdleFrame(asGuest: link)
        case .closing: connection.close()
        case .unknown: noteIdleFrame(asGuest: link)
        default: connection.abort(.protocolViolation)
        }
    }

    /// The core does not see these links; its limits apply here too.
    private func noteIdleFrame(asGuest link: LinkID) {
        if let wait = guests[link]?.idleFrames.note(now: now) { pauseGuestLink(link, wait) }
    }

    private func pauseGuestLink(_ link: LinkID, _ time: Milliseconds) {
        guests[link]?.connection.pauseReading()
        after(time) { self.guests[link]?.connection.resumeReading() }
    }

    func setDial(_ number: UInt64, over link: LinkID) { guests[link]?.dial = number }

    func abortLinks(where isMeant: (PeerConnection) -> Bool) {
        for id in guests.keys.sorted() {
            if let connection = guests[id]?.connection, isMeant(connection) { connection.abort() }
        }
    }

    /// Ignores other links.
    func linkClosed(_ link: LinkID) {
        guard guests[link] != nil else { return }
        // Only for a stream that is still open. The dial of a closed one is notified a little later, by its channel.
        if ends[RelayEndName(link: link, stream: .guest)] != nil { streamLost(link) }
        guests[link] = nil
        end(on: link)
    }

    /// The rendezvous node ended the stream or is gone; this does not mean that our token is unknown.
    private func streamLost(_ link: LinkID) { if let number = guests[link]?.dial { transport?.cancelDial(number) } }

    /// - Returns: whether the dial was for one stream.
    func dialEnded(_ number: UInt64, _ hearing: LinkTransport.TokenHearing) -> Bool {
        guard let dial = dials.removeValue(forKey: number) else { return false }
        if hearing != .none, !dial.isOfAnyDay, let again = open(at: dial.endpoint, for: dial.purpose, isOfAnyDay: true)
        {
            dial.purpose.redialled(again)
            return true
        }
        dial.purpose.failed()
        return true
    }
}
