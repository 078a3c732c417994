import Cryptography
import Glibc
import NIOCore

/// Links over UDP: ``DatagramEndpoint`` with sockets and a clock.
extension LinkTransport {
    /// Statistics of the links over UDP, for measurements.
    package var summary: String {
        datagramLinks.keys.sorted().compactMap { endpoint.link($0) }.map {
            "datagrams of \($0.datagramByteCount) B, \($0.lostPackets) lost, "
                + "window \(Int($0.path.congestion.window)) B, round trip \($0.roundTripTime) µs"
        }.joined(separator: "; ")
    }

    var now: Microseconds { Microseconds(clamping: loop.now.uptimeNanoseconds / 1_000) }

    /// Binds a socket for incoming and outgoing links.
    /// - Parameter port: 0 lets the system choose; otherwise the TCP listener's.
    /// - Returns: fails only with ``ListenFailure``.
    func bind(host: String, port: Int) -> EventLoopFuture<Void> {
        guard let datagrams else { preconditionFailure("UDP is disabled") }
        let number = nextSocket
        nextSocket += 1
        let bound = NIOLoopBound(self, eventLoop: loop)
        return datagrams.bind(at: Endpoint(host: host, port: port), number: number, on: loop) { datagram in
            bound.value.received(datagram)
        }.map { socket in
            if bound.value.isClosed { socket.value.close() } else { bound.value.sockets[number] = socket.value }
        }
    }

    /// Closes the UDP socket at a listener's bound address, if there is one. Its links end.
    package func stopDatagrams(at address: SocketAddress) {
        guard let number = sockets.keys.sorted().first(where: { sockets[$0]?.localAddress == address }) else { return }
        for link in datagramLinks.keys.sorted() where datagramLinks[link]?.connection.localAddress == address {
            endpoint.abort(link, .shutDown, at: now)
        }
        pump()
        sockets.removeValue(forKey: number)?.close()
    }

    /// The address by the socket that reaches it; `nil` without one.
    private func reached(_ address: DatagramAddress) -> DatagramAddress? {
        let own = sockets.keys.sorted().compactMap { number in
            sockets[number].flatMap { DatagramAddress($0.localAddress, socket: number) }
        }
        let socket = address.leaving(by: own, source: datagrams?.source(toward: address.ip))
        return socket.map { DatagramAddress(address.ip, port: address.port, socket: $0) }
    }

    /// No listener of the family can be used: opens one socket for all waiting dials.
    private func openSocket(isIPv4: Bool, _ whenOpen: @escaping (_ isOpen: Bool) -> Void) {
        awaitingSocket[isIPv4, default: []].append(whenOpen)
        guard awaitingSocket[isIPv4]?.count == 1 else { return }
        bind(host: isIPv4 ? "0.0.0.0" : "::", port: 0).assumeIsolated().whenComplete { result in
            let isOpen = if case .success = result { true } else { false }
            for waiting in self.awaitingSocket.removeValue(forKey: isIPv4) ?? [] { waiting(isOpen) }
        }
    }

    /// The address with its socket, which is opened if necessary.
    func withTarget(_ endpoint: Endpoint, _ body: @escaping (Result<DatagramAddress, DialFailure>) -> Void) {
        guard let target = SocketAddress(reaching: endpoint).flatMap({ DatagramAddress($0, socket: 0) }) else {
            return body(.failure(.unresolvable))
        }
        guard !isClosed else { return body(.failure(.unreachable)) }
        guard let reached = reached(target) else {
            return openSocket(isIPv4: target.ip.isIPv4) { isOpen in
                if isOpen { self.withTarget(endpoint, body) } else { body(.failure(.unreachable)) }
            }
        }
        body(.success(reached))
    }

    private func received(_ datagram: (DatagramAddress, [UInt8])?) {
        guard let (address, bytes) = datagram else { return pump() }
        endpoint.receive(bytes, from: address, at: now)
        wantsPump = true
    }

    func closeDatagrams() {
        for number in datagramLinks.keys.sorted() { endpoint.abort(number, .shutDown, at: now) }
        isClosed = true
        pump()
        for name in knocks.keys.sorted() { knocks.removeValue(forKey: name)?(nil) }
        for name in observations.keys.sorted() { observations.removeValue(forKey: name)?(nil) }
        punches = [:]
        timer?.task.cancel()
        timer = nil
        for number in sockets.keys.sorted() { sockets[number]?.close() }
        sockets = [:]
    }

    func dialByDatagram(_ name: UInt64, _ race: Race, _ endpoint: Endpoint, _ token: RoutingToken, route: UInt64) {
        guard attempts[name] != nil else { return }
        withTarget(endpoint) { target in
            guard self.attempts[name] != nil else { return }
            do throws(DialFailure) {
                var dial = DatagramDial(
                    address: try target.get(), token: token.bytes, identity: race.dial.identity,
                    remote: race.dial.remote, route: route)
                dial.isPunching = race.isPunching
                self.endpoint.dial(dial, number: name, at: self.now)
                self.pump()
            } catch { self.attemptFailed(name, error) }
        }
    }

    /// Punches through our own NAT for 5 s, and reports the sources of the peer's packets.
    func punch(_ nonce: [UInt8], to endpoints: [Endpoint], punched: @escaping (Endpoint) -> Void) {
        guard hasDatagrams else { return }
        let addresses = endpoints.compactMap { SocketAddress(reaching: $0).flatMap { DatagramAddress($0, socket: 0) } }
        let targets = addresses.compactMap(reached)
        let name = self.endpoint.punch(nonce, to: targets, at: now)
        punches[name] = punched
        loop.assumeIsolated().scheduleTask(in: .seconds(6)) { self.punches[name] = nil }
        pump()
    }

    func pump() {
        guard !isPumping else {
            wantsPump = true
            return
        }
        isPumping = true
        repeat {
            wantsPump = false
            while let event = endpoint.nextEvent() { handle(event) }
            while let transmit = endpoint.poll(at: now) {
                sockets[transmit.address.socket]?.send(transmit.bytes, to: transmit.address)
            }
            // A fixed order: the effects reach the network.
            for number in sockets.keys.sorted() { sockets[number]?.flush() }
        } while wantsPump || endpoint.hasEvents
        isPumping = false
        setTimer()
    }

    private func setTimer() {
        guard let deadline = endpoint.nextDeadline else { return }
        if let timer, timer.deadline <= deadline { return }
        timer?.task.cancel()
        let wait = TimeAmount.microseconds(deadline > now ? deadline - now : 0)
        let task = loop.assumeIsolated().scheduleTask(in: wait) { [weak self] in
            guard let self else { return }
            self.timer = nil
            self.endpoint.timeout(at: self.now)
            self.pump()
        }
        timer = (deadline, task)
    }

    private func handle(_ event: DatagramEvent) {
        switch event {
        case .opened(let opening):
            guard let token = RoutingToken(opening.token) else { return }
            let connection = PeerConnection(
                id: opening.number, peer: opening.peer, route: opening.route, token: token, role: opening.role,
                carrier: .udp, localAddress: sockets[opening.address.socket]?.localAddress,
                remoteAddress: opening.address.socketAddress, loop: loop)
            datagramLinks[opening.number] = DatagramLinkEnd(connection, transport: self)
            opened(connection)
        case .answered(let number, let token): if let token = RoutingToken(token) { attemptAnswered(number, token) }
        case .readable(let number): datagramLinks[number]?.read()
        case .writable(let number): if let link = datagramLinks[number] { events.becameWritable(link.connection) }
        case .pathChanged(let number, let address):
            datagramLinks[number]?.connection.remoteAddress = address.socketAddress
        case .closed(let number, let reason):
            guard let link = datagramLinks[number] else { return }
            link.read(all: true)
            datagramLinks[number] = nil
            link.update()
            closed(link.connection, reason)
        case .dialFailed(let number, let failure): attemptFailed(number, DialFailure(failure))
        case .knocked(let knock):
            guard let token = RoutingToken(knock.token) else { return }
            let source = DatagramAddress.Network(knock.address).number
            endpoint.answer(knock, with: events.knock(token, knock.sealed, source))
        case .knockEnded(let name, let answer): knocks.removeValue(forKey: name)?(answer)
        case .observed(let name, let address): observations.removeValue(forKey: name)?(address.map(Endpoint.init))
        case .punched(let name, let address): punches[name]?(Endpoint(address))
        case .rejected(let rejection): if rejection.endsConnection { events.rejected(rejection) }
        }
    }
}

extension DatagramLimits {
    /// The same limits as over TCP, where both have them.
    func bounded(by limits: TransportLimits) -> DatagramLimits {
        var result = self
        result.actTimeout = limits.actTimeout.nanoseconds / 1_000
        result.handshakeTimeout = limits.handshakeTimeout.nanoseconds / 1_000
        result.handshakesInFlight = limits.handshakesInFlight
        result.handshakesPerPrefix = limits.handshakesPerPrefix
        result.silence = limits.silence.nanoseconds / 1_000
        result.keepAlive = result.silence / 3
        result.closeTimeout = limits.closeTimeout.nanoseconds / 1_000
        result.rekey = limits.rekey
        result.outboundByteCount = limits.outboundByteCount
        result.outboundHighWater = limits.outboundHighWater
        result.outboundLowWater = limits.outboundLowWater
        return result
    }
}

final class DatagramLinkEnd: LinkEnd {
    private unowned let transport: LinkTransport
    let connection: PeerConnection
    private var isPaused = false
    private var isReading = false
    /// Frames wait for delivery in a later turn.
    private var hasRest = false

    init(_ connection: PeerConnection, transport: LinkTransport) {
        self.connection = connection
        self.transport = transport
        connection.end = self
    }

    private var number: UInt64 { connection.id }

    var isWritable: Bool { transport.endpoint.link(number)?.isWritable ?? false }

    var roundTrip: TimeAmount? { transport.endpoint.link(number).map { .microseconds($0.roundTripTime) } }

    func send(_ frame: [UInt8]) throws(LinkSendError) {
        do throws(LinkSendError) { try transport.endpoint.send(frame, on: number, at: transport.now) } catch {
            if error == .outboundOverflow { transport.pump() }
            throw error
        }
    }

    func flush() {
        update()
        transport.pump()
    }

    func pauseReading() { isPaused = true }

    func resumeReading() {
        guard isPaused else { return }
        isPaused = false
        read()
        transport.pump()
    }

    private func queueRest() {
        guard !hasRest else { return }
        hasRest = true
        transport.turns.add { [weak self] in
            guard let self else { return }
            hasRest = false
            read()
            transport.pump()
        }
    }

    func welcome() {
        transport.endpoint.welcome(number)
        transport.pump()
    }

    func close(_ reason: LinkCloseReason) {
        transport.endpoint.close(number, reason, at: transport.now)
        transport.pump()
        // Deliver unread frames after the owner's current work.
        if isPaused { transport.loop.assumeIsolated().execute { self.resumeReading() } }
    }

    func abort(_ reason: LinkCloseReason) {
        transport.endpoint.abort(number, reason, at: transport.now)
        transport.pump()
    }

    /// Delivers frames, within the owner's pause and the turn's limit. `all`: the link is closed, no turn follows.
    func read(all: Bool = false) {
        guard !isReading, !hasRest || all else { return }
        isReading = true
        defer { isReading = false }
        update()
        let limit = all ? .max : transport.limits.turnFrameCount
        var left = limit
        while !isPaused, left > 0, let frame = transport.endpoint.read(number, at: transport.now) {
            left -= 1
            transport.events.frame(connection, frame)
        }
        if left == 0 { queueRest() }
        if left < limit { transport.events.batchEnded(connection) }
    }

    func update() {
        guard let link = transport.endpoint.link(number) else { return }
        connection.bytesIn = link.bytesIn
        connection.bytesOut = link.bytesOut
    }
}

extension DialFailure {
    init(_ failure: DatagramDialFailure) {
        switch failure {
        case .noAnswer, .noConfirmation: self = .timedOut
        case .reflection: self = .authenticationFailed(.reflection)
        case .tooManyConnections: self = .system(EMFILE)
        case .cancelled: self = .cancelled
        }
    }
}
