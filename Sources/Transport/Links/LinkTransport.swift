import Cryptography
import NIOCore

/// All links of one owner, over TCP, UDP and relayed streams, on one event loop. Create and use it on that loop: it is
/// the executor of the owner's actor, so socket bytes, protocol and the owner's state need no lock or hop.
///
/// Over TCP, events caused by a call precede its return. Over UDP, those caused by a call within a callback follow that
/// callback.
///
/// `@unchecked Sendable` for that actor: the initialiser and every callback run on the loop.
package final class LinkTransport: @unchecked Sendable {
    package struct Listening: Sendable {
        package let tcp: TCPListener
        /// Why UDP is missing; `nil` if it works or is disabled.
        package let withoutDatagrams: ListenFailure?
    }

    package let loop: any EventLoop
    let limits: TransportLimits
    let network: any Network
    /// `nil` for TCP alone.
    let datagrams: (any DatagramNetwork)?
    /// Events of links. Events of a dial go to its owner.
    package var events = TransportEvents()
    let makeEphemeral: () -> SecretKey
    let encapsulation: KeyEncapsulationSource
    private let datagramLimits: DatagramLimits
    /// Work deferred until the loop has polled its sockets.
    let turns: TurnQueue
    private var nextNumber: UInt64 = 1

    // TCP and relayed streams.
    var waiting: PendingConnections
    var handshakes: HandshakeAdmission
    var codes: HandshakeAdmission
    var streamLinks: [UInt64: StreamLink] = [:]
    var deadlines = Deadlines()
    var alarm: (time: NIODeadline, task: Scheduled<Void>)?
    var generator: any RandomNumberGenerator

    // UDP.
    private(set) lazy var endpoint = DatagramEndpoint(
        limits: datagramLimits.bounded(by: limits), cookieKey: SecretBytes(randomByteCount: 32),
        source: DatagramSource(
            randomBytes: { randomBytes($0) }, makeEphemeral: makeEphemeral, encapsulation: encapsulation,
            route: { [unowned self] in RoutingToken($0).flatMap { events.route($0) } },
            isKnown: { [unowned self] in RoutingToken($0).map { events.isKnown($0) } ?? false },
            acceptsKnock: { [unowned self] in RoutingToken($0).map { events.acceptsKnock($0) } ?? false }),
        firstNumber: Self.firstDatagramNumber)
    var sockets: [UInt32: any DatagramSocket] = [:]
    var nextSocket: UInt32 = 1
    var datagramLinks: [UInt64: DatagramLinkEnd] = [:]
    var awaitingSocket: [Bool: [(Bool) -> Void]] = [:]
    var knocks: [UInt64: ([UInt8]?) -> Void] = [:]
    var observations: [UInt64: (Endpoint?) -> Void] = [:]
    var punches: [UInt64: (Endpoint) -> Void] = [:]
    var isClosed = false
    var isPumping = false
    var wantsPump = false
    var timer: (deadline: Microseconds, task: Scheduled<Void>)?

    // Dials.
    var races: [UInt64: Race] = [:]
    var attempts: [UInt64: (race: UInt64, attempt: DialRace.Attempt)] = [:]
    var losses: LinkLosses
    /// Punched hosts, and until when a link from there counts as punched.
    private var punchedHosts: [String: NIODeadline] = [:]

    /// - Parameters:
    ///   - datagrams: `nil` for TCP alone.
    ///   - turns: of the loop, if shared.
    ///   - generator: chooses the connections to drop when there are too many.
    package init(
        loop: any EventLoop, network: any Network = Sockets(), datagrams: (any DatagramNetwork)?,
        limits: TransportLimits = TransportLimits(), datagramLimits: DatagramLimits = DatagramLimits(),
        turns: TurnQueue? = nil, generator: any RandomNumberGenerator = SystemRandomness(),
        makeEphemeral: @escaping () -> SecretKey = { SecretKey.generate() },
        encapsulation: KeyEncapsulationSource = KeyEncapsulationSource()
    ) {
        loop.preconditionInEventLoop()
        self.loop = loop
        self.network = network
        self.datagrams = datagrams
        self.limits = limits
        self.datagramLimits = datagramLimits
        self.generator = generator
        self.makeEphemeral = makeEphemeral
        self.encapsulation = encapsulation
        self.turns = turns ?? TurnQueue(on: loop, pause: limits.turnPause)
        losses = LinkLosses(limits: limits)
        waiting = PendingConnections(limit: limits.connectionsBeforeToken)
        handshakes = HandshakeAdmission(limit: limits.handshakesInFlight, perNetwork: limits.handshakesPerPrefix)
        codes = HandshakeAdmission(limit: limits.codeExchanges, perNetwork: limits.codeExchangesPerPrefix)
    }

    /// Numbers of links over UDP start here, to differ from all others.
    private static let firstDatagramNumber: UInt64 = 1 << 62

    package var hasDatagrams: Bool { datagrams != nil }

    /// Connections and handshakes over both carriers, open or not.
    package var connectionCount: Int { streamLinks.count + (hasDatagrams ? endpoint.connectionCount : 0) }

    func takeNumber() -> UInt64 {
        defer { nextNumber += 1 }
        return nextNumber
    }

    /// Listens for TCP, and for UDP on the same port number. For port 0 the system chooses a number that is free for
    /// TCP. If UDP has it in use, another number is tried. An accept error, such as too many open files, does not end a
    /// listener.
    /// - Returns: a future that fails with ``ListenFailure`` if TCP cannot listen.
    package func listen(host: String, port: Int) -> EventLoopFuture<Listening> {
        listen(host: host, port: port, attempts: port == 0 ? limits.listenAttempts : 1)
    }

    private func listen(host: String, port: Int, attempts: Int) -> EventLoopFuture<Listening> {
        let bound = NIOLoopBound(self, eventLoop: loop)
        return network.listen(at: Endpoint(host: host, port: port), limits: limits, on: loop, reception: reception)
            .flatMap { listener in
                let transport = bound.value
                guard transport.hasDatagrams, let number = listener.address.port else {
                    return transport.loop.makeSucceededFuture(Listening(tcp: listener, withoutDatagrams: nil))
                }
                return transport.bind(host: host, port: number).map { Listening(tcp: listener, withoutDatagrams: nil) }
                    .flatMapError { error in
                        let transport = bound.value
                        let failure = error as? ListenFailure ?? .system(Endpoint(host: host, port: number), 0)
                        guard attempts > 1, case .addressInUse = failure else {
                            return transport.loop.makeSucceededFuture(
                                Listening(tcp: listener, withoutDatagrams: failure))
                        }
                        return listener.close().flatMap {
                            bound.value.listen(host: host, port: port, attempts: attempts - 1)
                        }
                    }
            }
    }

    /// Closes every link, dial, knock and socket at once, except TCP's listeners.
    package func close() {
        for number in races.keys.sorted() { cancelDial(number) }
        for id in streamLinks.keys.sorted() { streamLinks[id]?.end(.shutDown, .shutDown) }
        alarm?.task.cancel()
        alarm = nil
        if hasDatagrams { closeDatagrams() }
    }

    /// The machine's addresses changed: UDP links migrate.
    package func networkChanged() {
        losses.forget()
        guard hasDatagrams else { return }
        endpoint.networkChanged(at: now)
        pump()
    }

    func opened(_ connection: PeerConnection) {
        guard connection.role == .initiator else {
            connection.isPunched = wasPunched(connection)
            return events.linkOpened(connection)
        }
        guard let (number, attempt) = attempts.removeValue(forKey: connection.id), let race = races[number] else {
            return connection.abort()
        }
        races[number]?.numbers[attempt] = nil
        connection.isPunched = race.isPunching
        step(number) { $0.opened(attempt) }
        forget(number)
        race.dial.owner.opened(connection)
    }

    /// Losses of anonymous peers are not recorded: they would evict the members'.
    func closed(_ connection: PeerConnection, _ reason: LinkCloseReason) {
        connection.end = nil
        if connection.isWelcome, !connection.isRelayed {
            losses.note(connection.peer.publicKey, connection.carrier, reason, now: loop.now)
        }
        events.linkClosed(connection, reason)
    }

    /// How the last link to a peer was lost, if that was within ``TransportLimits/lossMemory``.
    package func loss(of peer: PublicKey) -> LinkLoss? { losses.loss(of: peer, now: loop.now) }

    /// Punches through our own NAT for the peer's dial; the link arrives like any other.
    package func punch(_ nonce: [UInt8], to endpoints: [Endpoint]) {
        forgetPunchedHosts()
        for endpoint in endpoints { punchedHosts[endpoint.host] = loop.now + limits.punchPatience * 2 }
        punch(nonce, to: endpoints) { _ in }
    }

    private func wasPunched(_ connection: PeerConnection) -> Bool {
        forgetPunchedHosts()
        return connection.carrier == .udp
            && connection.remoteAddress?.ipAddress.map { punchedHosts[$0] != nil } ?? false
    }

    private func forgetPunchedHosts() {
        let now = loop.now
        punchedHosts = punchedHosts.filter { $0.value > now }
    }
}
