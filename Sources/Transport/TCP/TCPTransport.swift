import Crypto
import NIOCore

/// All TCP links of one owner, on one event loop. Create and use it on that loop: it is the executor of the owner's
/// actor, so socket bytes, protocol and the owner's state need no lock or hop.
///
/// `@unchecked Sendable` for that actor: the initialiser and every callback run on the loop.
package final class TCPTransport: @unchecked Sendable {
    package let loop: any EventLoop
    let limits: TransportLimits
    let network: any Network
    package var events: TransportEvents
    let makeEphemeral: () -> SecretKey

    var waiting: PendingConnections
    var handshakes: HandshakeAdmission
    var codes: HandshakeAdmission
    /// Work deferred until the loop has polled its sockets.
    let turns: TurnQueue
    private var deadlines = Deadlines()
    private var alarm: (time: NIODeadline, task: Scheduled<Void>)?
    private var links: [UInt64: StreamLink] = [:]
    private var nextID: UInt64 = 1
    private var generator: any RandomNumberGenerator

    /// - Parameters:
    ///   - turns: of the loop, if shared.
    ///   - generator: chooses the connections to drop when there are too many.
    package init(
        loop: any EventLoop, network: any Network = Sockets(), limits: TransportLimits = TransportLimits(),
        turns: TurnQueue? = nil, events: TransportEvents = TransportEvents(),
        generator: any RandomNumberGenerator = SystemRandomness(),
        makeEphemeral: @escaping () -> SecretKey = { SecretKey.generate() }
    ) {
        loop.preconditionInEventLoop()
        self.loop = loop
        self.network = network
        self.limits = limits
        self.events = events
        self.generator = generator
        self.makeEphemeral = makeEphemeral
        self.turns = turns ?? TurnQueue(on: loop, pause: limits.turnPause)
        waiting = PendingConnections(limit: limits.connectionsBeforeToken)
        handshakes = HandshakeAdmission(limit: limits.handshakesInFlight, perNetwork: limits.handshakesPerPrefix)
        codes = HandshakeAdmission(limit: limits.codeExchanges, perNetwork: limits.codeExchangesPerPrefix)
    }

    /// Incoming and outgoing connections of this transport, open or not.
    package var connectionCount: Int { links.count }

    /// Closes every link and cancels every dial, knock and exchange at once. Listeners are closed separately.
    package func close() {
        for id in links.keys.sorted() { links[id]?.end(.shutDown, .shutDown) }
        alarm?.task.cancel()
        alarm = nil
    }

    // MARK: Listening

    /// Listens on another address. An accept error, such as too many open files, does not end a listener.
    /// - Parameter port: 0 lets the system choose.
    /// - Returns: a future that fails only with ``ListenFailure``.
    package func listen(host: String, port: Int) -> EventLoopFuture<TCPListener> {
        let bound = NIOLoopBound(self, eventLoop: loop)
        let reception = Reception(
            refuses: { bytes in bound.value.refuses(bytes) },
            accept: { channel, opening in try bound.value.accept(channel, opening) },
            rejected: { rejection in bound.value.events.rejected(rejection) })
        return network.listen(at: Endpoint(host: host, port: port), limits: limits, on: loop, reception: reception)
    }

    /// Why a connection with these first bytes gets no channel.
    private func refuses(_ bytes: [UInt8]) -> Rejection? {
        guard let preamble = Preamble(Array(bytes.prefix(Preamble.byteCount))) else { return .unknownProtocol }
        switch preamble.kind {
        case .link: return events.isKnown(preamble.token) ? nil : .unknownToken
        case .knock: return events.acceptsKnock(preamble.token) ? nil : .unknownToken
        case .code: return events.code(preamble.token) == nil ? .unknownToken : nil
        }
    }

    // MARK: Connections

    /// Accepts an incoming connection whose channel is on this transport's loop.
    /// - Parameter opening: bytes read from it before.
    package func accept(_ channel: any Channel, _ opening: Opening? = nil) throws {
        let link = StreamLink(responder: takeID(), opening: opening, admits: { _ in true }, transport: self)
        links[link.id] = link
        try run(link, over: channel)
    }

    /// Accepts an incoming stream. `admits`: the tokens that it may show.
    func accept(_ stream: StreamChannel, admits: @escaping (RoutingToken) -> Bool) throws {
        let link = StreamLink(responder: takeID(), opening: nil, admits: admits, transport: self)
        links[link.id] = link
        try run(link, over: stream)
    }

    /// Starts a dial over an established connection. Returns the dial's number.
    @discardableResult package func initiate(_ dial: Dial, over channel: any Channel) throws -> UInt64 {
        let link = makeInitiator(dial)
        try run(link, over: channel)
        return link.id
    }

    private func run(_ link: StreamLink, over channel: any Channel) throws {
        do { try channel.pipeline.syncOperations.addHandler(ChannelSocket(link)) } catch {
            forget(link)
            throw error
        }
    }

    func run(_ link: StreamLink, over stream: StreamChannel) throws {
        do { try stream.attach(link) } catch {
            forget(link)
            throw error
        }
    }

    func makeInitiator(_ dial: Dial? = nil, exchange: ExchangeDial? = nil, id: UInt64? = nil) -> StreamLink {
        let link = StreamLink(initiator: id ?? takeID(), dial: dial, exchange: exchange, transport: self)
        links[link.id] = link
        return link
    }

    func makeKnock(
        _ token: RoutingToken, _ sealed: [UInt8], _ completion: @escaping (Result<[UInt8]?, DialFailure>) -> Void
    ) -> StreamLink {
        var answer: [UInt8]?
        var dial = ExchangeDial(
            token: token, message: bigEndian(UInt16(truncatingIfNeeded: sealed.count)) + sealed, expecting: 2,
            answered: {
                answer = $0
                return .end
            }, ended: { completion($0.map { .failure($0) } ?? .success(answer)) })
        dial.kind = .knock
        return makeInitiator(exchange: dial)
    }

    func link(_ id: UInt64) -> StreamLink? { links[id] }
    func forget(_ link: StreamLink) { links[link.id] = nil }

    /// A handshake has ended: the next connection of its network that waits may begin.
    func finishHandshake(_ network: DatagramAddress.Network?) {
        handshakes.finish(network)
        while let next = handshakes.takeWaiting(network) {
            guard let link = links[next] else { continue }
            return turns.add { link.greetAgain() }
        }
    }

    func arrived(_ link: StreamLink) {
        if let victim = waiting.arrive(link.id, using: &generator) { links[victim]?.end(.requested, .crowdedOut) }
    }

    // MARK: Time

    /// Calls ``StreamLink/timePassed(_:)`` at `deadline`, or soon after it when many are due at once.
    func watch(_ id: UInt64, until deadline: NIODeadline) {
        deadlines.add(id, at: deadline)
        setAlarm(deadline)
    }

    private func setAlarm(_ time: NIODeadline) {
        if let alarm, alarm.time <= time { return }
        alarm?.task.cancel()
        let task = loop.assumeIsolated().scheduleTask(deadline: time) { [weak self] () -> Void in self?.ring() }
        alarm = (time, task)
    }

    private func ring() {
        alarm = nil
        let now = loop.now
        for id in deadlines.due(at: now, limit: limits.endsPerTurn) { links[id]?.timePassed(now) }
        // Further due deadlines wait until the links had their turn.
        if let next = deadlines.next { setAlarm(max(next, now + limits.pauseBetweenTurns)) }
    }

    func takeID() -> UInt64 {
        defer { nextID += 1 }
        return nextID
    }
}
