import Crypto
import NIOCore
import NIOPosix

/// All UDP links of one owner, on one event loop: ``DatagramEndpoint`` with sockets and a clock. Its events,
/// connections and use equal those of ``TCPTransport``. But events caused by a call within a callback follow that
/// callback, instead of preceding the call's return.
///
/// `@unchecked Sendable` for the owner, an actor on that loop: the initialiser and every callback run on it.
package final class UDPTransport: @unchecked Sendable {
    /// Numbers of links and dials start here, to differ from the TCP transport's.
    package static let firstNumber: UInt64 = 1 << 62

    package let loop: any EventLoop
    let limits: TransportLimits
    let network: any DatagramNetwork
    package var events: TransportEvents {
        get { shared.events }
        set { shared.events = newValue }
    }
    let endpoint: DatagramEndpoint
    private let shared: Shared

    /// Work deferred until the loop has polled its sockets.
    let turns: TurnQueue
    private var sockets: [UInt32: any DatagramSocket] = [:]
    private var nextSocket: UInt32 = 1
    private var links: [UInt64: DatagramLinkEnd] = [:]
    /// Dials that wait for their socket to open.
    private var resolving: Set<UInt64> = []
    private var awaitingSocket: [Bool: [(Bool) -> Void]] = [:]
    private var knocks: [UInt64: ([UInt8]?) -> Void] = [:]
    private var observations: [UInt64: (Endpoint?) -> Void] = [:]
    private var punches: [UInt64: (Endpoint) -> Void] = [:]

    private var isClosed = false
    private var isPumping = false
    private var wantsPump = false
    private var timer: (deadline: Microseconds, task: Scheduled<Void>)?

    /// For the endpoint's closures, which must not retain the transport.
    private final class Shared {
        var events: TransportEvents
        init(_ events: TransportEvents) { self.events = events }
    }

    package init(
        loop: any EventLoop, network: any DatagramNetwork = Sockets(), limits: TransportLimits = TransportLimits(),
        datagramLimits: DatagramLimits = DatagramLimits(), turns: TurnQueue? = nil,
        events: TransportEvents = TransportEvents(),
        randomBytes: @escaping (Int) -> [UInt8] = { Crypto.randomBytes($0) },
        makeEphemeral: @escaping () -> SecretKey = { SecretKey.generate() }
    ) {
        loop.preconditionInEventLoop()
        self.loop = loop
        self.network = network
        self.limits = limits
        self.turns = turns ?? TurnQueue(on: loop, pause: limits.turnPause)
        let shared = Shared(events)
        self.shared = shared
        var key = randomBytes(32)
        endpoint = DatagramEndpoint(
            limits: datagramLimits.bounded(by: limits), cookieKey: SecretBytes(copying: key),
            source: DatagramSource(
                randomBytes: randomBytes, makeEphemeral: makeEphemeral,
                route: { token in RoutingToken(token).flatMap { shared.events.route($0) } },
                isKnown: { token in RoutingToken(token).map { shared.events.isKnown($0) } ?? false },
                acceptsKnock: { token in RoutingToken(token).map { shared.events.acceptsKnock($0) } ?? false }),
            firstNumber: Self.firstNumber)
        wipe(&key)
    }

    package var connectionCount: Int { endpoint.connectionCount + resolving.count }

    /// Statistics of the links, for measurements.
    package var summary: String {
        links.keys.sorted().compactMap { endpoint.link($0) }.map {
            "datagrams of \($0.datagramByteCount) B, \($0.lostPackets) lost, window \($0.windowByteCount) B, "
                + "round trip \($0.roundTripTime) µs"
        }.joined(separator: "; ")
    }

    var now: Microseconds { Microseconds(clamping: loop.now.uptimeNanoseconds / 1_000) }

    // MARK: Sockets

    /// Binds a socket for incoming and outgoing links.
    /// - Parameter port: 0 lets the system choose; otherwise the TCP listener's.
    /// - Returns: the bound address; fails only with ``ListenFailure``.
    package func listen(host: String, port: Int) -> EventLoopFuture<SocketAddress> {
        let number = nextSocket
        nextSocket += 1
        let bound = NIOLoopBound(self, eventLoop: loop)
        return network.bind(at: Endpoint(host: host, port: port), number: number, on: loop) { datagram in
            bound.value.received(datagram)
        }.map { socket in
            if bound.value.isClosed { socket.value.close() } else { bound.value.sockets[number] = socket.value }
            return socket.value.localAddress
        }
    }

    /// Closes a listener's socket; its links end.
    package func stopListening(at address: SocketAddress) {
        guard let number = sockets.keys.sorted().first(where: { sockets[$0]?.localAddress == address }) else { return }
        for link in links.keys.sorted() where links[link]?.connection.localAddress == address {
            endpoint.abort(link, .shutDown, at: now)
        }
        pump()
        sockets.removeValue(forKey: number)?.close()
    }

    private func socket(for address: DatagramAddress) -> UInt32? {
        let own = sockets.keys.sorted().compactMap { number in
            sockets[number].flatMap { DatagramAddress($0.localAddress, socket: number) }
        }
        return address.leaving(by: own, source: network.source(toward: address.ip))
    }

    /// No listener of the family can be used: opens one socket for all waiting dials.
    private func openSocket(isIPv4: Bool, _ whenOpen: @escaping (_ isOpen: Bool) -> Void) {
        awaitingSocket[isIPv4, default: []].append(whenOpen)
        guard awaitingSocket[isIPv4]?.count == 1 else { return }
        listen(host: isIPv4 ? "0.0.0.0" : "::", port: 0).assumeIsolated().whenComplete { result in
            let isOpen = if case .success = result { true } else { false }
            for waiting in self.awaitingSocket.removeValue(forKey: isIPv4) ?? [] { waiting(isOpen) }
        }
    }

    private func received(_ datagram: (DatagramAddress, [UInt8])?) {
        guard let (address, bytes) = datagram else { return pump() }
        endpoint.receive(bytes, from: address, at: now)
        wantsPump = true
    }

    package func close() {
        for number in links.keys.sorted() { endpoint.abort(number, .shutDown, at: now) }
        isClosed = true
        for number in resolving.sorted() + endpoint.dials { cancelDial(number) }
        pump()
        for name in knocks.keys.sorted() { knocks.removeValue(forKey: name)?(nil) }
        for name in observations.keys.sorted() { observations.removeValue(forKey: name)?(nil) }
        punches = [:]
        timer?.task.cancel()
        timer = nil
        for number in sockets.keys.sorted() { sockets[number]?.close() }
        sockets = [:]
    }

    package func networkChanged() {
        endpoint.networkChanged(at: now)
        pump()
    }

    // MARK: Dialling

    /// Dials an address; ``LinkTransport`` resolves names. `linkOpened`, with a link of this number, or `dialFailed`
    /// follows, both after the return.
    /// - Parameter isPunching: the peer's NAT may not be open yet.
    package func dial(_ dial: TCPTransport.Dial, isPunching: Bool = false) -> UInt64 {
        let number = endpoint.takeNumber()
        resolving.insert(number)
        loop.assumeIsolated().execute { self.start(dial, number, isPunching: isPunching) }
        return number
    }

    private func start(_ dial: TCPTransport.Dial, _ number: UInt64, isPunching: Bool) {
        guard resolving.contains(number) else { return }
        withTarget(dial.endpoint) { target in
            guard self.resolving.contains(number) else { return }
            let address: DatagramAddress
            do throws(DialFailure) { address = try target.get() } catch { return self.fail(number, error) }
            self.resolving.remove(number)
            var whole = DatagramDial(
                address: address, token: dial.token.bytes, identity: dial.identity, remote: dial.remote,
                route: dial.route)
            whole.isPunching = isPunching
            self.endpoint.dial(whole, number: number, at: self.now)
            self.pump()
        }
    }

    /// Delivers a sealed message without a handshake, and returns the answer (Links.md, "Knocks").
    /// - Parameter completion: called once, on the loop: with the answer, empty for none; `nil` if the knock did not
    ///   arrive.
    package func knock(
        at endpoint: Endpoint, token: RoutingToken, sealed: [UInt8], completion: @escaping ([UInt8]?) -> Void
    ) {
        withTarget(endpoint) { target in
            guard case .success(let target) = target else { return completion(nil) }
            self.knocks[self.endpoint.knock(sealed, token: token.bytes, at: target, now: self.now)] = completion
            self.pump()
        }
    }

    /// Asks a node for our address as it sees it.
    /// - Parameter completion: called once, on the loop; `nil` if there is no answer.
    package func observe(at endpoint: Endpoint, token: RoutingToken, completion: @escaping (Endpoint?) -> Void) {
        withTarget(endpoint) { target in
            guard case .success(let target) = target else { return completion(nil) }
            self.observations[self.endpoint.observe(token: token.bytes, at: target, now: self.now)] = completion
            self.pump()
        }
    }

    /// Punches through our own NAT for 5 s, and reports the sources of the peer's packets.
    package func punch(_ nonce: [UInt8], to endpoints: [Endpoint], punched: @escaping (Endpoint) -> Void) {
        let targets = endpoints.compactMap { endpoint -> DatagramAddress? in
            guard let address = SocketAddress(reaching: endpoint), let target = DatagramAddress(address, socket: 0),
                let socket = socket(for: target)
            else { return nil }
            return DatagramAddress(address, socket: socket)
        }
        let name = self.endpoint.punch(nonce, to: targets, at: now)
        punches[name] = punched
        loop.assumeIsolated().scheduleTask(in: .seconds(6)) { self.punches[name] = nil }
        pump()
    }

    /// The address with its socket, which is opened if necessary.
    private func withTarget(_ endpoint: Endpoint, _ body: @escaping (Result<DatagramAddress, DialFailure>) -> Void) {
        guard let address = SocketAddress(reaching: endpoint), let target = DatagramAddress(address, socket: 0) else {
            return body(.failure(.unresolvable))
        }
        guard !isClosed else { return body(.failure(.unreachable)) }
        guard let socket = socket(for: target), let reached = DatagramAddress(address, socket: socket) else {
            return openSocket(isIPv4: target.ip.isIPv4) { isOpen in
                if isOpen { self.withTarget(endpoint, body) } else { body(.failure(.unreachable)) }
            }
        }
        body(.success(reached))
    }

    private func fail(_ number: UInt64, _ failure: DialFailure) {
        guard resolving.remove(number) != nil else { return }
        events.dialFailed(number, failure)
    }

    /// Cancels a dial; `dialFailed` comes before the return. Has no effect on an open link.
    package func cancelDial(_ number: UInt64) {
        if resolving.contains(number) { return fail(number, .cancelled) }
        endpoint.cancelDial(number, at: now)
        pump()
    }

    // MARK: Events

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
        case .opened(let opening): opened(opening)
        case .answered(let number, let token): if let token = RoutingToken(token) { events.dialAnswered(number, token) }
        case .readable(let number): links[number]?.read()
        case .writable(let number): if let link = links[number] { events.becameWritable(link.connection) }
        case .pathChanged(let number, let address): links[number]?.connection.remoteAddress = address.socketAddress
        case .closed(let number, let reason):
            guard let link = links[number] else { return }
            link.read(all: true)
            links[number] = nil
            link.connection.end = nil
            link.update()
            events.linkClosed(link.connection, reason)
        case .dialFailed(let number, let failure): events.dialFailed(number, DialFailure(failure))
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

    private func opened(_ opening: DatagramOpening) {
        guard let token = RoutingToken(opening.token) else { return }
        let connection = PeerConnection(
            id: opening.number, peer: opening.peer, route: opening.route, token: token, role: opening.role,
            carrier: .udp, localAddress: sockets[opening.address.socket]?.localAddress,
            remoteAddress: opening.address.socketAddress, loop: loop)
        links[opening.number] = DatagramLinkEnd(connection, transport: self)
        events.linkOpened(connection)
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
        result.outboundByteCount = limits.outboundByteCount
        result.outboundHighWater = limits.outboundHighWater
        result.outboundLowWater = limits.outboundLowWater
        return result
    }
}
