import Cryptography
import Glibc
import NIOCore

/// One connection over TCP or a relayed stream (Links.md): its protocol, its timeouts, and the events for the owner.
///
/// Functions are in the order of a connection's life: ``start()``, ``received(_:)``, `receive`, `opened`, `send`,
/// `close`, `end`.
final class StreamLink: LinkEnd {
    struct Dial {
        let token: RoutingToken
        let identity: IdentityKey
        /// The expected peer, authenticated by act 2.
        let remote: PublicKey
        /// The number of the whole dial, returned with the link.
        let route: UInt64
    }

    enum Phase {
        /// An incoming connection without a valid token, or one that waits for a place, or with the greeting of a code
        /// and no message.
        case beforeToken
        /// A responder's handshake or a knock, counted under its network.
        case admitted(DatagramAddress.Network?, route: RouteMatch?, token: RoutingToken)
        /// A code's exchange, counted separately under its network.
        case exchanging(DatagramAddress.Network?, CodeConnection)
        case dialling(Dial)
        /// An outgoing exchange without a handshake.
        case asking(ExchangeDial)
        case open(PeerConnection)
        /// We are closing: queued output leaves, and the peer's input is still delivered.
        case closing(PeerConnection, LinkCloseReason)
        case ended
    }

    let id: UInt64
    let transport: LinkTransport
    var phase: Phase
    private var handshake: LinkHandshake?
    // Of the open link.
    private var keys: TransportState?
    var rekeying: Rekeying?
    /// Bytes of the next piece outside of a handshake and a link; 0 while none is expected.
    var expected = 0
    /// `nil` before the connection is established, and after its end: the socket holds its link, too.
    var socket: (any StreamSocket)?

    var inbound: InboundBytes
    var outbound: OutboundBytes
    private var hasStarted = false
    /// The tokens that an incoming connection may show; all others are unknown.
    private let admits: (RoutingToken) -> Bool
    /// When an incoming connection was accepted, if before it got its channel.
    private var arrival: NIODeadline?
    private var actDeadline: NIODeadline?
    /// For the open link, or for the end of a closing one.
    private var wholeDeadline: NIODeadline?
    private var watchedUntil: NIODeadline?

    /// The cause of a dial's failure, if known from outside the channel.
    private var dialFailure: DialFailure?
    /// The error of a failed write: the channel ends without reporting it.
    private var writeError: IOError?
    private var isPaused = false
    /// The connection was lost while closing: deliver buffered input even if paused, because no resume follows.
    private var ignoresPauses = false
    private var isProcessing = false
    /// Buffered pieces wait for a later turn.
    private var hasRest = false
    /// The greeting of a code whose first message has not arrived.
    private var greeted: RoutingToken?
    /// A connection that waits for a handshake of its network to end, or has just got the place of one.
    private var waiting: (greeting: [UInt8], network: DatagramAddress.Network?, hasPlace: Bool)?
    /// The length of a knock, or of its answer, has arrived.
    var knockIsNext = false
    private var isRestQueued = false
    /// The channel requested a read while ``mayRead`` was false.
    private var owesRead = false
    private var inputHasEnded = false

    /// An incoming connection, a dial or an exchange. Sends nothing before the channel is active.
    /// - Parameters:
    ///   - byteCount: of the first piece; 0 for a handshake.
    ///   - opening: bytes read before it got its channel.
    init(
        _ phase: Phase, expecting byteCount: Int, opening: Opening? = nil,
        admits: @escaping (RoutingToken) -> Bool = { _ in true }, transport: LinkTransport
    ) {
        id = transport.takeNumber()
        self.phase = phase
        self.admits = admits
        self.transport = transport
        expected = byteCount
        arrival = opening?.since
        inbound = InboundBytes(opening?.bytes ?? [], limits: transport.limits)
        outbound = OutboundBytes(limits: transport.limits)
    }

    var limits: TransportLimits { transport.limits }

    /// The peer's next act is due after this time.
    func awaitAct(_ time: TimeAmount) {
        actDeadline = now + time
        watchTime()
    }

    // MARK: Start

    private var now: NIODeadline { transport.loop.now }

    func start() {
        guard !hasStarted else { return }
        hasStarted = true
        let begin = arrival ?? now
        (actDeadline, wholeDeadline) = (begin + limits.actTimeout, begin + limits.handshakeTimeout)
        switch phase {
        case .beforeToken:
            let victim = transport.waiting.arrive(id, using: &transport.generator)
            if let victim { transport.streamLinks[victim]?.end(.requested, .crowdedOut) }
        case .asking(let dial):
            wholeDeadline = nil
            write(Preamble(kind: dial.kind, token: dial.token).bytes + dial.message)
        case .dialling(let dial):
            do throws(HandshakeError) {
                handshake = try .initiator(
                    identity: dial.identity.secret, remote: dial.remote, ephemeral: transport.makeEphemeral(),
                    prologue: Preamble.prologue(dial.token), encapsulation: transport.encapsulation)
                write(Preamble(kind: .link, token: dial.token).bytes + (try handshake?.write() ?? []))
            } catch { return end(.requested, .handshake(error)) }
        case .admitted, .exchanging, .open, .closing: preconditionFailure("a connection starts once")
        case .ended:
            // The dial was cancelled while it connected.
            socket?.close()
            return
        }
        // It waited too long for its channel.
        if let deadline, deadline <= now { return end(.requested, .timedOut) }
        watchTime()
        if inbound.count > 0 { process() }
    }

    /// The next timeout; `nil` for an open link.
    var deadline: NIODeadline? {
        switch (actDeadline, wholeDeadline) {
        case (let act?, let whole?): min(act, whole)
        case (let act, let whole): act ?? whole
        }
    }

    private func watchTime() {
        guard let deadline else { return }
        if let watchedUntil, watchedUntil <= deadline { return }
        watchedUntil = deadline
        transport.watch(id, until: deadline)
    }

    func timePassed(_ now: NIODeadline) {
        watchedUntil = nil
        guard let deadline else { return }
        if deadline <= now { end(.requested, .timedOut) } else { watchTime() }
    }

    private func forgetTime() {
        actDeadline = nil
        wholeDeadline = nil
    }

    // MARK: Inbound

    func received(_ bytes: ByteBuffer) {
        inbound.append(bytes)
        process()
    }

    private var expectedByteCount: Int { keys?.expectedByteCount ?? handshake?.nextAct?.byteCount ?? expected }

    /// Receives whole pieces, within the owner's pause and the limit of a turn.
    private func process() {
        guard !isProcessing, !hasRest else { return }
        handOver()
        switch phase {
        case .beforeToken, .admitted, .exchanging, .dialling, .asking:
            // At most one piece is read ahead. Only the last message of a code's exchange is longer than the limit.
            if inbound.count > max(limits.bytesBeforeAuthentication, expectedByteCount) {
                end(.requested, .disconnected)
            }
        case .open(let connection), .closing(let connection, _):
            if let byteCount = inbound.nextRead(expected: expectedByteCount) { socket?.setReads(of: byteCount) }
            transport.events.batchEnded(connection)
            if inputHasEnded, !isPaused { close(.closedByPeer) }
            queueRest()
        case .ended: inbound.clear()
        }
    }

    private func handOver() {
        isProcessing = true
        // A frame is two pieces: length and body.
        var left = 2 * limits.turnFrameCount
        while !isPaused || ignoresPauses {
            let byteCount = expectedByteCount
            guard byteCount > 0, inbound.count >= byteCount else { break }
            // After the peer's end, deliver everything at once.
            if left == 0, !inputHasEnded {
                hasRest = true
                break
            }
            left -= 1
            guard let piece = inbound.take(byteCount) else { break }
            receive(piece)
        }
        isProcessing = false
        inbound.compact()
    }

    private func queueRest() {
        guard hasRest, !isRestQueued else { return }
        isRestQueued = true
        transport.turns.add {
            self.isRestQueued = false
            self.takeRest()
            self.readIfOwed()
        }
    }

    private func takeRest() {
        hasRest = false
        process()
    }

    private func receive(_ piece: ByteBufferView) {
        switch phase {
        case .beforeToken: if let greeted { beginExchange(greeted, Array(piece)) } else { greet(Array(piece)) }
        case .admitted(_, route: nil, let token): receiveKnock(token, Array(piece))
        case .admitted(_, .some(let match), _): receiveAct(Array(piece), remote: match.remote)
        case .dialling: receiveAct(Array(piece), remote: nil)
        case .asking(let dial): receiveAnswer(to: dial, Array(piece))
        case .exchanging(_, let connection):
            expected = 0
            transport.events.codeMessage(connection, Array(piece))
        case .open(let connection), .closing(let connection, _):
            do throws(NoiseError) {
                let frame = try keys?.open(piece)
                connection.bytesIn += UInt64(piece.count)
                if let frame { received(frame, on: connection) }
            } catch { end(.notAuthentic, .disconnected) }
        case .ended: break
        }
    }

    private func received(_ frame: [UInt8], on connection: PeerConnection) {
        rekeying?.countFrame()
        if keys?.awaitsPeer == false { rekeying?.completed() }
        if Rekeying.kind(of: frame) == nil { transport.events.frame(connection, frame) } else { renew(frame) }
        rekeyIfDue()
    }

    /// A closing link asks for no new secrets, and gives none.
    private func renew(_ frame: [UInt8]) {
        let connection: PeerConnection
        switch phase {
        case .open(let open): connection = open
        // The peer seals by the new secrets what follows its answer.
        case .closing(let closing, _) where Rekeying.kind(of: frame) == .answer: connection = closing
        default: return
        }
        do throws(Rekeying.Violation) {
            guard let renewal = try rekeying?.receive(frame, at: transport.now, makeEphemeral: transport.makeEphemeral)
            else { return }
            if let answer = renewal.answer { try? queue(answer, on: connection) }
            keys?.replace(by: renewal.secrets, receivingLater: renewal.answer != nil)
            flush()
        } catch { end(.protocolViolation, .disconnected) }
    }

    /// Checked with each frame: a key that seals nothing need not change.
    private func rekeyIfDue() {
        guard case .open(let connection) = phase, let deadline = rekeying?.deadline else { return }
        let now = transport.now
        guard deadline <= now else { return }
        if rekeying?.isOverdue(at: now) ?? true { return end(.rekeyOverdue, .disconnected) }
        guard let frame = rekeying?.ask(at: now, ephemeral: transport.makeEphemeral()) else { return }
        try? queue(frame, on: connection)
        flush()
    }

    private func greet(_ bytes: [UInt8]) {
        guard let preamble = Preamble(bytes) else { return end(.requested, .unknownProtocol) }
        let token = preamble.token
        guard admits(token) else { return end(.requested, .unknownToken) }
        expected = 0
        switch preamble.kind {
        case .link:
            if awaitsPlace(token, bytes) { return }
            guard let match = transport.events.route(token) else { return end(.requested, .unknownToken) }
            guard admit(token, match) else { return }
            handshake = .responder(
                identity: match.identity.secret, ephemeral: transport.makeEphemeral(),
                prologue: Preamble.prologue(token), encapsulation: transport.encapsulation)
        case .knock:
            guard transport.events.acceptsKnock(token) else { return end(.requested, .unknownToken) }
            if admit(token, nil) { expected = 2 }
        case .code:
            guard let byteCount = transport.events.code(token) else { return end(.requested, .unknownToken) }
            guard case .beforeToken = phase else { return }
            // A greeting alone does not occupy an exchange slot: the connection stays among the pending ones.
            greeted = token
            expected = byteCount
            awaitAct(limits.codeTimeout)
        }
    }

    /// - Parameter remote: the only peer of a responder's route, if there is one.
    private func receiveAct(_ bytes: [UInt8], remote: PublicKey?) {
        do throws(HandshakeError) {
            try handshake?.read(bytes)
            var answer: [UInt8] = []
            if handshake?.isFinished == false { answer = try handshake?.write() ?? [] }
            guard handshake?.isFinished == true, let finished = handshake.take() else {
                write(answer)
                return awaitAct(limits.actTimeout)
            }
            let link = finished.finish()
            let peer = link.peer
            guard remote == nil || remote == peer.publicKey else { return failed(.wrongPeer) }
            let rootKey = link.secrets.rootKey.clone()
            keys = link.takeTransport()
            opened(peer, rootKey, answer)
        } catch { failed(.handshake(error)) }
    }

    private func failed(_ rejection: Rejection) {
        if case .admitted(let network?, _, let token) = phase {
            transport.endpoint.noteFailure(of: token.bytes, from: network, at: transport.now)
        }
        end(.requested, rejection)
    }

    private func awaitsPlace(_ token: RoutingToken, _ greeting: [UInt8]) -> Bool {
        guard case .beforeToken = phase, waiting == nil, transport.events.isKnown(token) else { return false }
        let network = DatagramAddress.Network(socket?.remoteAddress)
        guard transport.handshakes.wait(id, network, atMost: limits.handshakesWaitingPerPrefix) else { return false }
        waiting = (greeting, network, false)
        return true
    }

    /// The place is given back at the end of the handshake, or by ``end(_:_:)`` if none begins.
    func takePlace() { waiting?.hasPlace = true }

    func greetAgain() {
        guard case .beforeToken = phase, let waiting else { return }
        greet(waiting.greeting)
        process()
    }

    /// Passes the token check, if there is room and the owner has not closed everything meanwhile.
    private func admit(_ token: RoutingToken, _ match: RouteMatch?) -> Bool {
        guard case .beforeToken = phase else { return false }
        transport.waiting.leave(id)
        let network = waiting?.network ?? DatagramAddress.Network(socket?.remoteAddress)
        if waiting?.hasPlace ?? false {
            waiting = nil
        } else if let rejection = transport.handshakes.begin(network) {
            end(.requested, rejection)
            return false
        }
        phase = .admitted(network, route: match, token: token)
        return true
    }

    private func opened(_ peer: AuthenticatedPeer, _ rootKey: consuming SecretBytes, _ actThree: [UInt8]) {
        guard let socket else { return }
        let (route, token, role): (UInt64, RoutingToken, Role)
        switch phase {
        case .admitted(let network, .some(let match), let shown):
            transport.finishHandshake(network)
            (route, token, role) = (match.route, shown, .responder)
        case .dialling(let dial):
            write(actThree)
            // A failed write ends the link.
            guard case .dialling = phase else { return }
            (route, token, role) = (dial.route, dial.token, .initiator)
        case .beforeToken, .admitted, .exchanging, .asking, .open, .closing, .ended:
            preconditionFailure("only a handshake opens a link")
        }
        let connection = PeerConnection(
            id: id, peer: peer, route: route, token: token, role: role, carrier: socket.relay ?? .tcp,
            localAddress: socket.localAddress, remoteAddress: socket.remoteAddress, isRelayed: socket.relay != nil,
            loop: transport.loop, end: self)
        forgetTime()
        rekeying = Rekeying(role, rootKey: rootKey, limits: limits.rekey, at: transport.now)
        phase = .open(connection)
        socket.setOptions(limits)
        transport.opened(connection)
    }

    // MARK: Outbound

    func send(_ frame: [UInt8]) throws(LinkSendError) {
        rekeyIfDue()
        guard case .open(let connection) = phase else { throw .closed }
        try queue(frame, on: connection)
    }

    private func queue(_ frame: [UInt8], on connection: PeerConnection) throws(LinkSendError) {
        rekeying?.countFrame()
        guard keys != nil else { throw .closed }
        guard frame.count <= TransportState.maximumFrameByteCount else { throw .tooLong }
        let byteCount = frame.count + TransportState.overheadByteCount
        outbound.append(byteCount: byteCount) { keys?.seal(frame, into: $0) }
        connection.bytesOut += UInt64(byteCount)
        if outbound.isOverfull {
            abort(.outboundOverflow)
            throw .outboundOverflow
        }
        if outbound.wantsFlush { flush() }
    }

    func flush() {
        guard let socket, let bytes = outbound.take() else { return }
        let byteCount = bytes.readableBytes
        socket.write(bytes) { [weak self] error in
            // After an error the connection is about to end; received bytes are still delivered.
            if let error { self?.writeError = error as? IOError } else { self?.written(byteCount) }
        }
    }

    var roundTrip: TimeAmount? {
        socket?.kernelInfo.flatMap { $0.tcpi_rtt > 0 ? .microseconds(Int64($0.tcpi_rtt)) : nil }
    }

    var isWritable: Bool {
        guard case .open = phase else { return false }
        return outbound.isWritable
    }

    func write(_ bytes: [UInt8]) {
        guard !bytes.isEmpty else { return }
        outbound.append(byteCount: bytes.count) { $0.copyBytes(from: bytes) }
        flush()
    }

    private func written(_ byteCount: Int) {
        let becameWritable = outbound.written(byteCount)
        switch phase {
        case .open(let connection):
            if becameWritable { transport.events.becameWritable(connection) }
            readIfOwed()
        case .closing:
            readIfOwed()
            endOutputIfDrained()
        case .beforeToken, .admitted, .exchanging, .dialling, .asking, .ended: break
        }
    }

    // MARK: Reading

    /// The socket may read; deferred while ``mayRead`` is false.
    func readRequested() { if mayRead { socket?.read() } else { owesRead = true } }

    /// No reads while paused, while pieces are delivered or wait, or while too much output is queued.
    private var mayRead: Bool { !isPaused && !hasRest && !isProcessing && !outbound.stopsReading }

    func readIfOwed() {
        guard owesRead, mayRead else { return }
        owesRead = false
        socket?.read()
    }

    func pauseReading() { isPaused = true }

    func resumeReading() {
        guard isPaused else { return }
        isPaused = false
        process()
        readIfOwed()
    }

    /// The kernel sizes its own buffers.
    func welcome() {}

    // MARK: End

    func inputEnded() {
        inputHasEnded = true
        switch phase {
        case .beforeToken, .admitted, .exchanging, .dialling, .asking: endedByPeer()
        case .open, .closing: takeRest()
        case .ended: break
        }
    }

    /// A knock may have no answer.
    private func endedByPeer() {
        guard case .asking(let dial) = phase, dial.kind == .knock else { return end(.closedByPeer, .disconnected) }
        if knockIsNext || inbound.count > 0 { fail(.badAnswer) } else { end(.requested, nil) }
    }

    func broke(_ error: IOError?) {
        guard let error else { return end(.connectionLost(0), .disconnected) }
        // A reset is not a refusal: a node that refuses reads its input and closes.
        fail(DialFailure(error))
        // ETIMEDOUT also ends unanswered keep-alives; then nothing was retransmitted.
        let isUnacknowledged =
            error.errnoCode == ETIMEDOUT && socket?.kernelInfo.map { $0.tcpi_retransmits > 0 } ?? true
        end(isUnacknowledged ? .unacknowledged : .connectionLost(error.errnoCode), .disconnected)
    }

    func closed() {
        inputHasEnded = true
        if case .closing = phase { ignoresPauses = true }
        takeRest()
        // A broken pipe only says that the peer has closed.
        if let writeError, writeError.errnoCode != EPIPE { broke(writeError) }
        endedByPeer()
    }

    func close(_ reason: LinkCloseReason) {
        switch phase {
        case .open(let connection):
            flush()
            // The flush may have detected a dead socket.
            guard case .open = phase else { return }
            phase = .closing(connection, reason)
            wholeDeadline = now + limits.closeTimeout
            watchTime()
            guard isPaused else { return endOutputIfDrained() }
            // Deliver pending frames after the owner's current work.
            transport.loop.assumeIsolated().execute {
                self.resumeReading()
                self.endOutputIfDrained()
            }
        case .closing: endOutputIfDrained()
        case .beforeToken, .admitted, .exchanging, .dialling, .asking, .ended: break
        }
    }

    /// All output has left: closes our output. If the peer has ended, too, ends the link.
    private func endOutputIfDrained() {
        guard case .closing(_, let reason) = phase, outbound.count == 0, let socket else { return }
        guard inputHasEnded else { return socket.endOutput() }
        if !isPaused, !isProcessing { end(reason, .disconnected) }
    }

    func abort(_ reason: LinkCloseReason) { end(reason, .shutDown) }

    /// Ends a dial or an exchange; has no effect on others.
    func fail(_ failure: DialFailure) {
        switch phase {
        case .dialling, .asking:
            dialFailure = failure
            end(.requested, .shutDown)
        case .beforeToken, .admitted, .exchanging, .open, .closing, .ended: break
        }
    }

    /// The only exit: releases resources, notifies the owner once, and closes the channel.
    /// - Parameters:
    ///   - reason: for a link that was open.
    ///   - rejection: for a connection that was not; `nil` after a normal end.
    func end(_ reason: LinkCloseReason, _ rejection: Rejection?) {
        let last = phase
        phase = .ended
        switch last {
        case .ended: return
        case .beforeToken:
            transport.waiting.leave(id)
            if let waiting, waiting.hasPlace { transport.finishHandshake(waiting.network) }
        case .admitted(let network, _, _): transport.finishHandshake(network)
        case .exchanging(let network, _): transport.codes.finish(network)
        case .dialling(let dial):
            // A connection without act 2: the path may swallow packets of this length. A relayed one has no kernelInfo.
            let isKnown = transport.loss(of: dial.remote)?.reason == .unacknowledged
            if rejection == .timedOut, !isKnown, socket?.kernelInfo != nil {
                transport.losses.note(dial.remote, .tcp, .silent, now: now)
            }
        case .asking, .open, .closing: break
        }
        handshake = nil
        keys = nil
        rekeying = nil
        expected = 0
        forgetTime()
        transport.streamLinks[id] = nil
        socket?.close()
        switch last {
        case .beforeToken, .admitted: if let rejection { transport.events.rejected(rejection) }
        case .exchanging(_, let connection):
            if let rejection { transport.events.rejected(rejection) }
            connection.end = nil
            transport.events.codeEnded(connection)
        case .dialling: transport.attemptFailed(id, dialFailure ?? DialFailure(rejection: rejection))
        case .asking(let dial): dial.ended(rejection == nil ? nil : dialFailure ?? DialFailure(rejection: rejection))
        case .open(let connection): transport.closed(connection, reason)
        case .closing(let connection, let asked): transport.closed(connection, asked)
        case .ended: break
        }
    }
}
