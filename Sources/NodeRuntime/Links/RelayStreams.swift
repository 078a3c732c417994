import Crypto
import Logging
import Messaging
import NIOCore
import Transport
import Wire

/// Streams through rendezvous nodes, as far as they end here; passing them on for others is the core's.
final class RelayStreams: CorePart {
    let core: ProtocolCore
    private let routes: Routes
    private let output: LinkOutput
    private let listening: Listening
    /// Dials of rendezvous nodes, by the transport's numbers, and the links that came of them.
    private var dials: [UInt64: RelayGuestDial] = [:]
    private var guests: [LinkID: RelayGuestLink] = [:]
    /// Relayed streams that end here.
    private var ends: [RelayEndName: RelayEnd] = [:]
    private var sending: [LinkID: RelaySending] = [:]

    init(_ core: ProtocolCore, _ routes: Routes, _ output: LinkOutput, _ listening: Listening) {
        self.core = core
        self.routes = routes
        self.output = output
        self.listening = listening
    }

    private var transport: LinkTransport? { listening.transport }

    // MARK: Streams to us

    /// Of a stream at a rendezvous node of ours.
    func relayed(_ answer: RelayAnswer, on link: LinkID) {
        switch answer {
        case .incoming(let stream, let reservation): incoming(RelayEndName(link: link, stream: stream), to: reservation)
        case .stream(let stream, let frame): receive(frame, for: RelayEndName(link: link, stream: stream))
        case .reserved, .refused: break
        }
    }

    private func incoming(_ name: RelayEndName, to reservation: ReservationID) {
        guard let transport, let connection = links[name.link]?.connection else { return }
        // It opens streams, and forgets or invents none.
        guard ends[name] == nil else { return connection.abort(.protocolViolation) }
        guard ends.count(where: { $0.key.link == name.link }) < Limits.streamsPerUser else {
            return say([.close(.busy)], of: name)
        }
        // Withdrawn meanwhile.
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

    /// A stream to one inbox leads to no other one: else a member of two conversations, or of none, could try the token of
    /// one inbox at the endpoint of another, and see whether they are on one node.
    private func leads(_ token: RoutingToken, to reservation: ReservationID, at rendezvous: PublicKey) -> Bool {
        guard let match = routes.match(token), let target = core.machine.relayTarget(of: reservation, at: rendezvous)
        else { return false }
        let number: UInt64
        switch match.route {
        case .member(let id), .shared(let id), .knockOnly(let id): number = id
        }
        switch routes.target(of: number) {
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
        // One that has ended meanwhile: what was on its way is dropped.
        guard let end = ends[name] else { return noteLostPiece(frame, on: name.link) }
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
        if let wait = links[link]?.lostPieces.note(now: now) { output.pauseForHaste(link, wait) }
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
        loop.assumeIsolated().scheduleTask(in: .milliseconds(Limits.sentPieceInterval)) {
            for stream in self.sending[link]?.next() ?? [] { self.send(of: RelayEndName(link: link, stream: stream)) }
        }
    }

    private func say(_ frames: [RelayStreamFrame], of name: RelayEndName) {
        let connection = guests[name.link]?.connection ?? links[name.link]?.connection
        for frame in frames { try? connection?.send(FrameCodec.encode(.relayRequest(.stream(name.stream, frame)))) }
        connection?.flush()
    }

    /// Lets go of an end. What has come and was not read is still read; what was not sent is lost.
    private func finish(_ name: RelayEndName) {
        guard let end = ends.removeValue(forKey: name) else { return }
        end.channel.events = StreamChannel.Events()
        end.channel.finish()
        guests[name.link]?.connection.close()
    }

    /// A link to a rendezvous node is gone, and the streams over it.
    func end(on link: LinkID) {
        for name in ends.keys.filter({ $0.link == link }).sorted(by: { $0.stream < $1.stream }) { finish(name) }
        sending[link] = nil
    }

    // MARK: Streams to others

    /// Asks a rendezvous node for a stream; what it is for hears of it, not before this returns.
    /// - Parameters:
    ///   - endpoint: a relayed one.
    ///   - isOfAnyDay: which kind of token the rendezvous node is shown.
    /// - Returns: a number for ``cancel(_:)``.
    @discardableResult func open(at endpoint: Messaging.Endpoint, for purpose: StreamPurpose, isOfAnyDay: Bool = false)
        -> UInt64?
    {
        guard let transport, let relay = endpoint.relay else { return nil }
        let secret = RoutingSecret.derive(shared: SecretBytes(copying: relay.routingSecret), purpose: "card")
        let dial = LinkTransport.Dial(
            endpoints: [Transport.Endpoint(host: endpoint.host, port: Int(endpoint.port))],
            token: { [routes] in routes.sharedToken(secret, isOfAnyDay: isOfAnyDay) },
            // Of this link alone: the rendezvous node learns no inbox of ours, and cannot tell that two links are one's.
            identity: IdentityKey(SecretKey.generate()), remote: relay.key)
        let number = transport.dial(dial)
        dials[number] = RelayGuestDial(
            reservation: relay.reservation, purpose: purpose, endpoint: endpoint, isOfAnyDay: isOfAnyDay)
        return number
    }

    /// Gives it up; nothing is called. Nothing happens to a stream that is open.
    func cancel(_ number: UInt64) {
        guard dials.removeValue(forKey: number) != nil else { return }
        transport?.cancelDial(number)
    }

    /// - Returns: whether the link is one to a rendezvous node, for a stream.
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

    /// A frame of a rendezvous node's over such a link; nothing happens over another.
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

    /// The core knows nothing of such links; the limits are the same.
    private func noteIdleFrame(asGuest link: LinkID) {
        if let wait = guests[link]?.idleFrames.note(now: now) { pauseGuestLink(link, wait) }
    }

    private func pauseGuestLink(_ link: LinkID, _ time: Milliseconds) {
        guests[link]?.connection.pauseReading()
        loop.assumeIsolated().scheduleTask(in: .milliseconds(time)) { self.guests[link]?.connection.resumeReading() }
    }

    /// The dial over the stream of such a link.
    func setDial(_ number: UInt64, over link: LinkID) { guests[link]?.dial = number }

    /// Cuts the links to rendezvous nodes for which `isMeant` holds.
    func abortLinks(where isMeant: (PeerConnection) -> Bool) {
        for id in guests.keys.sorted() {
            if let connection = guests[id]?.connection, isMeant(connection) { connection.abort() }
        }
    }

    /// Nothing happens for another link.
    func linkClosed(_ link: LinkID) {
        guard guests[link] != nil else { return }
        // A stream that has been closed at its other end has a say: the dial that it was for hears of that a little later.
        if ends[RelayEndName(link: link, stream: .guest)] != nil { streamLost(link) }
        guests[link] = nil
        end(on: link)
    }

    /// The rendezvous node has ended the stream, or is gone: which does not say that our token is unknown to anybody.
    private func streamLost(_ link: LinkID) { if let number = guests[link]?.dial { transport?.cancelDial(number) } }

    /// - Returns: whether it was a dial of such a link.
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
