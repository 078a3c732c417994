import Cryptography
import Messaging
import NIOCore
import Transport

/// Streams through rendezvous nodes that end here; the core forwards streams of others.
final class RelayStreams: Part {
    /// Links to rendezvous nodes for one stream.
    private var guests: [LinkID: RelayGuestLink] = [:]
    private var ends: [RelayEndName: RelayEnd] = [:]
    private var sending: [LinkID: RelaySending] = [:]

    private var transport: LinkTransport? { shell.listening.transport }

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
        do { try transport.accept(end.socket, admits: admits) } catch { return finish(name) }
        end.socket.begin()
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
        let socket = RelayedSocket(loop: loop, through: connection)
        let end = RelayEnd(socket: socket)
        ends[name] = end
        socket.events.hasOutput = { [weak self] in self?.send(of: name) }
        socket.events.consumed = { [weak self] count in
            guard let self, let frame = ends[name]?.machine.consumed(count) else { return }
            say([frame], of: name)
        }
        socket.events.closed = { [weak self] in
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
        case .bytes(let bytes): end.socket.arrive(bytes)
        case .credit: send(of: name)
        case .ended:
            end.socket.endInput()
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
        if let wait = guests[link]?.smallPieces.note(now: now) { shell.anonymousLinks.pause(link, wait) }
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
        end.socket.events = RelayedSocket.Events()
        end.socket.finish()
        guests[name.link]?.connection.close()
    }

    /// The link to a rendezvous node has ended, and its streams with it.
    func end(on link: LinkID) {
        for name in ends.keys.filter({ $0.link == link }).sorted(by: { $0.stream < $1.stream }) { finish(name) }
        sending[link] = nil
    }

    /// Requests a stream from a rendezvous node. At most one of the callbacks is called, once,
    /// and only after this returns; none after `nil` or a cancel.
    /// - Parameters:
    ///   - endpoint: a relayed endpoint.
    ///   - opened: the stream is open, over this link to the rendezvous node. Its other end has not answered yet.
    @discardableResult func open(
        at endpoint: Messaging.Endpoint, opened: @escaping (RelayedSocket, LinkID) -> Void, failed: @escaping () -> Void
    ) -> AnonymousLinks.Dial? {
        guard let relay = endpoint.relay else { return nil }
        var guest: LinkID?
        return shell.anonymousLinks.open(
            AnonymousLinks.Remote(endpoints: [endpoint.address], key: relay.key, routingSecret: relay.routingSecret),
            for: AnonymousLinks.Purpose(
                patience: nil,
                opened: { [weak self] link in
                    guard let self, let connection = shell.anonymousLinks.connection(link) else { return }
                    guest = link
                    guests[link] = RelayGuestLink(connection: connection)
                    shell.anonymousLinks.send(.relayRequest(.open(relay.reservation)), on: link)
                    let end = makeEnd(RelayEndName(link: link, stream: .guest), over: connection)
                    opened(end.socket, link)
                    end.socket.begin()
                }, streamed: { [weak self] frame, link in self?.receive(frame, asGuest: link) },
                ended: { [weak self] in if let guest { self?.guestLinkClosed(guest) } else { failed() } }))
    }

    private func receive(_ frame: RelayStreamFrame, asGuest link: LinkID) {
        receive(frame, for: RelayEndName(link: link, stream: .guest))
        guard frame.isSmall, let wait = guests[link]?.smallPieces.note(now: now) else { return }
        shell.anonymousLinks.pause(link, wait)
    }

    func setDial(_ number: UInt64, over link: LinkID) { guests[link]?.dial = number }

    private func guestLinkClosed(_ link: LinkID) {
        // Only for a stream that is still open. The dial of a closed one is notified a little later, by its socket.
        if ends[RelayEndName(link: link, stream: .guest)] != nil { streamLost(link) }
        guests[link] = nil
        end(on: link)
    }

    /// The rendezvous node ended the stream or is gone; this does not mean that our token is unknown.
    private func streamLost(_ link: LinkID) { if let number = guests[link]?.dial { transport?.cancelDial(number) } }
}

/// Identifies a relayed stream that ends here: by the link to the rendezvous node, and its number there.
struct RelayEndName: Hashable {
    var link: LinkID
    var stream: RelayStreamID
}

/// One end of a relayed stream: the socket of a link, carried over a link to a rendezvous node.
final class RelayEnd {
    let socket: RelayedSocket
    var machine = RelayStreamStateMachine()

    init(socket: RelayedSocket) { self.socket = socket }

    /// Takes the frames that may be sent: bytes within the window, and the end.
    /// - Parameter maySaySmall: asked before each small piece; a refused piece waits and grows.
    /// - Returns: the frames, and whether a piece waits.
    func output(maySaySmall: () -> Bool) -> (frames: [RelayStreamFrame], waits: Bool) {
        var result: [RelayStreamFrame] = []
        while true {
            let available = socket.outputByteCount
            let room = machine.room(for: available)
            if room > 0, room < Limits.smallPieceByteCount, !maySaySmall() { return (result, true) }
            let bytes = socket.take(machine.take(available))
            guard !bytes.isEmpty else { break }
            result.append(.data(bytes))
        }
        if socket.isDrained, let end = machine.end() { result.append(end) }
        return (result, false)
    }
}

/// Rate limit for small pieces on one link to a rendezvous node, over all its streams. Stricter than the node's own
/// limit, so that we never queue there, whatever remote peers make us answer. Waiting pieces grow together.
struct RelaySending {
    private var tokens = TokenBucket(Limits.sentPieceRate)
    /// Streams with a small piece, longest waiting first.
    private var waiting: [RelayStreamID] = []

    /// - Returns: whether a small piece may be sent now; waiting streams go first.
    mutating func take(now: Messaging.Timestamp) -> Bool { waiting.isEmpty && tokens.take(now: now) == nil }

    /// - Returns: whether the queue was empty, so that a timer must be set.
    mutating func wait(_ stream: RelayStreamID) -> Bool {
        guard !waiting.contains(stream) else { return false }
        waiting.append(stream)
        return waiting.count == 1
    }

    /// Takes all waiting streams; the caller queues again those beyond the limit.
    mutating func next() -> [RelayStreamID] {
        defer { waiting = [] }
        return waiting
    }
}

/// A link to a rendezvous node for one stream, under a one-time key.
struct RelayGuestLink {
    let connection: PeerConnection
    /// The transport's number of the dial over its stream; `nil` for a knock.
    var dial: UInt64?
    var smallPieces = IdleFrames.member
}
