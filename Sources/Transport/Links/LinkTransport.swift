import Crypto
import NIOCore
import NIOPosix

/// Who dials: supplies the token, and is told what becomes of the dial, on the event loop.
package protocol DialOwner: AnyObject {
    /// The token to show, requested at each attempt; `nil` for none.
    func token() -> RoutingToken?
    /// Over UDP an authentic act 2 has arrived; act 3 is not sent yet.
    func answered(_ token: RoutingToken)
    /// A node closed before act 2: the shown token may be used up there.
    func tokenRefused()
    /// The last call of a dial that succeeded.
    func opened(_ connection: PeerConnection)
    /// The last call of a dial that failed.
    func failed(_ failure: DialFailure, _ hearing: LinkTransport.TokenHearing)
}

extension DialOwner {
    package func answered(_ token: RoutingToken) {}
    package func tokenRefused() {}
}

/// All links of one owner, over TCP and UDP. Listens for both on one port number, and races the dial attempts to an
/// inbox. A dial has a number of its own race, which the link returns as its `route`.
///
/// `@unchecked Sendable` for the owner, an actor on the event loop: the initialiser and every callback run on that
/// loop.
package final class LinkTransport: @unchecked Sendable {
    package struct Dial {
        /// The best first.
        package let endpoints: [Endpoint]
        package let identity: IdentityKey
        package let remote: PublicKey
        /// Retained until the dial ends.
        package let owner: any DialOwner

        package init(endpoints: [Endpoint] = [], identity: IdentityKey, remote: PublicKey, owner: any DialOwner) {
            self.endpoints = endpoints
            self.identity = identity
            self.remote = remote
            self.owner = owner
        }
    }

    package struct Listening: Sendable {
        package let tcp: TCPListener
        /// Why UDP is missing; `nil` if it works or is disabled.
        package let withoutDatagrams: ListenFailure?
    }

    private struct Race {
        var machine: DialRace
        let dial: Dial
        /// The transport's number of each attempt in progress.
        var numbers: [DialRace.Attempt: UInt64] = [:]
        var timer: Scheduled<Void>?
        var isPunching = false
        /// Carries the one attempt of a dial over it.
        var stream: StreamChannel?
        var hearing = TokenHearing.none
    }

    package let loop: any EventLoop
    private let limits: TransportLimits
    private let tcp: TCPTransport
    private let udp: UDPTransport?
    /// Those of dials go to their owners.
    package var events = TransportEvents() { didSet { shareEvents() } }
    /// What a failed dial has shown about our token.
    package enum TokenHearing: Sendable {
        case none
        /// No node answered over UDP: a node that is down and one that does not know the token are both silent.
        case silence
        /// A node answered over TCP and did not know the token.
        case unknown
    }

    private var races: [UInt64: Race] = [:]
    private var attempts: [UInt64: (race: UInt64, attempt: DialRace.Attempt)] = [:]
    private var losses: LinkLosses
    /// Punched hosts, and until when a link from there counts as punched.
    private var punchedHosts: [String: NIODeadline] = [:]

    /// `datagrams` is `nil` for TCP alone. `turns`: of the event loop, if shared.
    package init(
        loop: any EventLoop, network: any Network = Sockets(), datagrams: (any DatagramNetwork)?,
        limits: TransportLimits = TransportLimits(), turns: TurnQueue? = nil
    ) {
        self.loop = loop
        self.limits = limits
        losses = LinkLosses(limits: limits)
        let turns = turns ?? TurnQueue(on: loop, pause: limits.turnPause)
        tcp = TCPTransport(loop: loop, network: network, limits: limits, turns: turns)
        udp = datagrams.map { UDPTransport(loop: loop, network: $0, limits: limits, turns: turns) }
        shareEvents()
    }

    /// Passes the owner's events to both transports. Events of dials and the end of links pass through this object.
    private func shareEvents() {
        var shared = events
        shared.dialAnswered = { [weak self] name, token in
            guard let self, let (number, attempt) = self.attempts[name] else { return }
            self.step(number) {
                $0.answered(attempt)
                return []
            }
            self.races[number]?.dial.owner.answered(token)
        }
        shared.linkOpened = { [weak self] connection in
            guard let self else { return connection.abort() }
            self.linkOpened(connection)
        }
        shared.linkClosed = { [weak self] in self?.linkClosed($0, $1) }
        shared.dialFailed = { [weak self] in self?.dialFailed($0, $1) }
        tcp.events = shared
        udp?.events = shared
    }

    package var hasDatagrams: Bool { udp != nil }

    /// Connections and handshakes over both carriers, open or not.
    package var connectionCount: Int { tcp.connectionCount + (udp?.connectionCount ?? 0) }

    // MARK: Listening

    /// Listens for TCP, and for UDP on the same port number. For port 0 the system chooses a number that is free for
    /// TCP. If UDP has it in use, another number is tried.
    /// - Returns: a future that fails with ``ListenFailure`` if TCP cannot listen.
    package func listen(host: String, port: Int) -> EventLoopFuture<Listening> {
        listen(host: host, port: port, attempts: port == 0 ? limits.listenAttempts : 1)
    }

    private func listen(host: String, port: Int, attempts: Int) -> EventLoopFuture<Listening> {
        let bound = NIOLoopBound(self, eventLoop: loop)
        return tcp.listen(host: host, port: port).flatMap { listener in
            let transport = bound.value
            guard let udp = transport.udp, let number = listener.address.port else {
                return transport.loop.makeSucceededFuture(Listening(tcp: listener, withoutDatagrams: nil))
            }
            return udp.listen(host: host, port: number).map { _ in Listening(tcp: listener, withoutDatagrams: nil) }
                .flatMapError { error in
                    let transport = bound.value
                    let failure = error as? ListenFailure ?? .system(Endpoint(host: host, port: number), 0)
                    guard attempts > 1, case .addressInUse = failure else {
                        return transport.loop.makeSucceededFuture(Listening(tcp: listener, withoutDatagrams: failure))
                    }
                    return listener.close().flatMap {
                        bound.value.listen(host: host, port: port, attempts: attempts - 1)
                    }
                }
        }
    }

    /// Closes the UDP socket at a listener's bound address, if there is one. Its links end.
    package func stopDatagrams(at address: SocketAddress) { udp?.stopListening(at: address) }

    /// Closes every link, dial, knock and socket at once, except TCP's listeners.
    package func close() {
        for number in races.keys.sorted() { cancelDial(number) }
        tcp.close()
        udp?.close()
    }

    /// The machine's addresses changed: UDP links migrate.
    package func networkChanged() {
        losses.forget()
        udp?.networkChanged()
    }

    /// How the last link to a peer was lost, if that was within ``TransportLimits/lossMemory``.
    package func loss(of peer: PublicKey) -> LinkLoss? { losses.loss(of: peer, now: loop.now) }

    // MARK: Dialling

    /// Dials over all carriers. The owner is told after the return. The link has this number as its route.
    package func dial(_ dial: Dial) -> UInt64 {
        let number = tcp.takeID()
        let machine = DialRace(
            dial.endpoints, hasDatagrams: udp != nil, prefersDatagrams: loss(of: dial.remote)?.carrier == .tcp,
            limits: limits)
        races[number] = Race(machine: machine, dial: dial)
        // Asynchronously, because a race without candidates ends at once, and the caller must know the number first.
        loop.assumeIsolated().execute { self.step(number) { $0.begin(now: self.loop.now) } }
        return number
    }

    /// Dials over an existing stream, like ``dial(_:)``. Ignores the dial's endpoints.
    package func dial(_ dial: Dial, over channel: StreamChannel) -> UInt64 {
        let number = tcp.takeID()
        let machine = DialRace([Endpoint(host: "", port: 0)], hasDatagrams: false, limits: limits)
        races[number] = Race(machine: machine, dial: dial, stream: channel)
        step(number) { $0.begin(now: loop.now) }
        return number
    }

    /// Accepts an incoming stream. `admits`: the tokens that it may show.
    package func accept(_ channel: StreamChannel, admits: @escaping (RoutingToken) -> Bool = { _ in true }) throws {
        try tcp.accept(channel, admits: admits)
    }

    /// Knocks over an existing stream, like ``knock(at:token:sealed:completion:)``.
    package func knock(
        over channel: StreamChannel, token: RoutingToken, sealed: [UInt8],
        completion: @escaping (Result<[UInt8]?, DialFailure>) -> Void
    ) { tcp.knock(over: channel, token: token, sealed: sealed, completion: completion) }

    /// Dials by UDP hole punching, while the peer punches with the same nonce of 16 bytes; like ``dial(_:)``.
    package func dial(_ dial: Dial, punchingWith nonce: [UInt8]) -> UInt64 {
        let number = tcp.takeID()
        // Without UDP the race has no candidates and fails.
        let endpoints = udp == nil ? [] : dial.endpoints
        races[number] = Race(machine: DialRace(punching: endpoints, limits: limits), dial: dial, isPunching: true)
        udp?.punch(nonce, to: []) { [weak self] endpoint in
            guard let self else { return }
            self.step(number) { $0.found(endpoint, now: self.loop.now) }
        }
        loop.assumeIsolated().execute { self.step(number) { $0.begin(now: self.loop.now) } }
        return number
    }

    /// Punches through our own NAT for the peer's dial; the link arrives like any other.
    package func punch(_ nonce: [UInt8], to endpoints: [Endpoint]) {
        forgetPunchedHosts()
        for endpoint in endpoints { punchedHosts[endpoint.host] = loop.now + limits.punchPatience * 2 }
        udp?.punch(nonce, to: endpoints) { _ in }
    }

    /// Asks a node over UDP for our address as it sees it.
    /// - Parameter completion: called once, on the loop; `nil` if there is no answer.
    package func observe(at endpoint: Endpoint, token: RoutingToken, completion: @escaping (Endpoint?) -> Void) {
        guard let udp else { return completion(nil) }
        addresses(of: endpoint) { addresses in
            guard let address = addresses.first else { return completion(nil) }
            udp.observe(at: address, token: token, completion: completion)
        }
    }

    /// Whether an incoming link came by our hole punching.
    private func wasPunched(_ connection: PeerConnection) -> Bool {
        forgetPunchedHosts()
        return connection.carrier == .udp
            && connection.remoteAddress?.ipAddress.map { punchedHosts[$0] != nil } ?? false
    }

    private func forgetPunchedHosts() {
        let now = loop.now
        punchedHosts = punchedHosts.filter { $0.value > now }
    }

    /// Cancels a dial; the owner is told before the return. Has no effect on an open link.
    package func cancelDial(_ number: UInt64) { step(number) { $0.cancel() } }

    /// See ``TCPTransport/knock(at:token:sealed:completion:)``: over TCP, and over UDP when TCP is slow or has failed.
    package func knock(
        at endpoint: Endpoint, token: RoutingToken, sealed: [UInt8],
        completion: @escaping (Result<[UInt8]?, DialFailure>) -> Void
    ) {
        guard let udp else { return tcp.knock(at: endpoint, token: token, sealed: sealed, completion: completion) }
        let race = KnockRace(completion)
        tcp.knock(at: endpoint, token: token, sealed: sealed) { result in
            switch result {
            case .success: race.end(result)
            case .failure(let failure): race.failed(failure)
            }
        }
        race.startsDatagrams = { [weak self] in
            guard let self else { return race.failed(.cancelled) }
            self.addresses(of: endpoint) { addresses in
                let targets = addresses.prefix(Self.knockAddressCount)
                race.underWay += targets.count
                for target in targets {
                    udp.knock(at: target, token: token, sealed: sealed) { answer in
                        guard let answer else { return race.failed(.timedOut) }
                        race.end(.success(answer.isEmpty ? nil : answer))
                    }
                }
                // The lookup counted as an attempt, too.
                race.failed(.unresolvable)
            }
        }
        race.timer = loop.assumeIsolated().scheduleTask(in: limits.dialStagger) { race.startDatagrams() }
    }

    /// Runs a code's exchange over TCP, the only carrier of codes.
    package func exchange(_ dial: ExchangeDial, at endpoint: Endpoint) { tcp.exchange(dial, at: endpoint) }

    /// Addresses of a name that are tried for a knock.
    private static let knockAddressCount = 2

    private func step(_ number: UInt64, _ event: (inout DialRace) -> [DialRace.Action]) {
        guard let actions = races[number].map({ _ in event(&races[number]!.machine) }) else { return }
        for action in actions {
            switch action {
            case .start(let attempt): start(attempt, of: number)
            case .cancel(let attempt): cancel(attempt, of: number)
            case .fail(let failure): return end(number, failure)
            }
        }
        setTimer(number)
    }

    private func start(_ attempt: DialRace.Attempt, of number: UInt64) {
        guard let race = races[number] else { return }
        guard let token = race.dial.owner.token() else {
            race.stream?.fail()
            return failLater(attempt, of: number, .unresolvable)
        }
        var dial = TCPTransport.Dial(
            endpoint: attempt.endpoint, token: token, identity: race.dial.identity, remote: race.dial.remote,
            route: number)
        // The side that lost the bytes sees them unacknowledged; the other side sees a reset.
        let loss = loss(of: race.dial.remote)
        dial.hasShortSegments = loss?.carrier == .tcp || loss?.reason == .unacknowledged
        let name: UInt64
        switch attempt.carrier {
        case .tcp:
            if let stream = race.stream {
                let link = tcp.makeInitiator(dial)
                note(link.id, attempt, of: number)
                do { try tcp.run(link, over: stream) } catch { failLater(attempt, of: number, .system(0)) }
                return
            } else {
                name = tcp.dial(dial)
            }
        case .udp:
            guard let udp else { return failLater(attempt, of: number, .unresolvable) }
            guard attempt.endpoint.isAddress else { return lookUp(attempt, of: number) }
            name = udp.dial(dial, isPunching: race.isPunching)
            if race.hearing == .none, !race.isPunching { races[number]?.hearing = .silence }
        }
        note(name, attempt, of: number)
    }

    private func note(_ name: UInt64, _ attempt: DialRace.Attempt, of number: UInt64) {
        races[number]?.numbers[attempt] = name
        attempts[name] = (number, attempt)
    }

    private func lookUp(_ attempt: DialRace.Attempt, of number: UInt64) {
        addresses(of: attempt.endpoint) { addresses in
            self.step(number) { $0.resolved(attempt, as: addresses, now: self.loop.now) }
        }
    }

    /// Resolves a name on another thread. TCP resolves names itself.
    package func addresses(of endpoint: Endpoint, _ body: @escaping ([Endpoint]) -> Void) {
        if endpoint.isAddress { return body([endpoint]) }
        NameResolver.shared.addresses(of: endpoint.host, on: loop).assumeIsolated().whenSuccess { addresses in
            body(addresses.map { Endpoint(host: $0, port: endpoint.port) })
        }
    }

    private func failLater(_ attempt: DialRace.Attempt, of number: UInt64, _ failure: DialFailure) {
        loop.assumeIsolated().execute { self.step(number) { $0.failed(attempt, failure, now: self.loop.now) } }
    }

    /// Forgets the attempt before its transport reports the end: the race expects no event of it.
    private func cancel(_ attempt: DialRace.Attempt, of number: UInt64) {
        guard let name = races[number]?.numbers.removeValue(forKey: attempt) else { return }
        attempts[name] = nil
        switch attempt.carrier {
        case .tcp: tcp.cancelDial(name)
        case .udp: udp?.cancelDial(name)
        }
    }

    private func linkOpened(_ connection: PeerConnection) {
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
    private func linkClosed(_ connection: PeerConnection, _ reason: LinkCloseReason) {
        if connection.isWelcome, !connection.isRelayed {
            losses.note(connection.peer.publicKey, connection.carrier, reason, now: loop.now)
        }
        events.linkClosed(connection, reason)
    }

    private func dialFailed(_ name: UInt64, _ failure: DialFailure) {
        guard let (number, attempt) = attempts.removeValue(forKey: name) else { return }
        races[number]?.numbers[attempt] = nil
        if failure == .closedBeforeActTwo {
            races[number]?.hearing = .unknown
            races[number]?.dial.owner.tokenRefused()
        }
        step(number) { $0.failed(attempt, failure, now: loop.now) }
    }

    private func end(_ number: UInt64, _ failure: DialFailure) {
        guard let race = forget(number) else { return }
        race.dial.owner.failed(failure, race.hearing)
    }

    /// Forgets all dials without telling their owners, which are gone.
    package func abandonDials() {
        for number in races.keys { forget(number) }
        attempts = [:]
    }

    @discardableResult private func forget(_ number: UInt64) -> Race? {
        let race = races.removeValue(forKey: number)
        race?.timer?.cancel()
        return race
    }

    private func setTimer(_ number: UInt64) {
        guard let race = races[number] else { return }
        race.timer?.cancel()
        races[number]?.timer = race.machine.nextDeadline.map { deadline in
            loop.assumeIsolated().scheduleTask(deadline: deadline) { [weak self] in
                guard let self else { return }
                self.step(number) { $0.advance(now: self.loop.now) }
            }
        }
    }
}
