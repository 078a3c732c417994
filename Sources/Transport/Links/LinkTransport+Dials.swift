import Cryptography
import NIOCore

/// The owner of a dial supplies its token and learns its outcome, on the event loop.
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

/// Dials: each races its attempts over all addresses and carriers.
extension LinkTransport {
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

    /// Evidence of a failed dial about our token.
    package enum TokenHearing: Sendable {
        case none
        /// No node answered over UDP: a node that is down and one that does not know the token are both silent.
        case silence
        /// A node answered over TCP and did not know the token.
        case unknown
    }

    struct Race {
        var machine: DialRace
        let dial: Dial
        /// The transport's number of each attempt in progress.
        var numbers: [DialRace.Attempt: UInt64] = [:]
        var timer: Scheduled<Void>?
        var isPunching = false
        /// Carries the only attempt.
        var connection: Established?
        var hearing = TokenHearing.none
    }

    /// Dials over all carriers. The owner is told after the return. The link has this number as its route.
    package func dial(_ dial: Dial) -> UInt64 {
        let machine = DialRace(
            dial.endpoints, hasDatagrams: hasDatagrams, prefersDatagrams: loss(of: dial.remote)?.carrier == .tcp,
            limits: limits)
        return beginLater(Race(machine: machine, dial: dial))
    }

    /// Dials over a connection, like ``dial(_:)``. Ignores the dial's endpoints.
    package func dial(_ dial: Dial, over connection: Established) -> UInt64 {
        let number = takeNumber()
        let machine = DialRace([Endpoint(host: "", port: 0)], hasDatagrams: false, limits: limits)
        races[number] = Race(machine: machine, dial: dial, connection: connection)
        step(number) { $0.begin(now: loop.now) }
        return number
    }

    /// Dials by UDP hole punching, while the peer punches with the same nonce of 16 bytes; like ``dial(_:)``.
    package func dial(_ dial: Dial, punchingWith nonce: [UInt8]) -> UInt64 {
        // Without UDP the race has no candidates and fails.
        let machine = DialRace(punching: hasDatagrams ? dial.endpoints : [], limits: limits)
        let number = beginLater(Race(machine: machine, dial: dial, isPunching: true))
        punch(nonce, to: []) { [weak self] endpoint in
            guard let self else { return }
            self.step(number) { $0.found(endpoint, now: self.loop.now) }
        }
        return number
    }

    /// Asynchronously, because a race without candidates ends at once, and the caller must know the number first.
    private func beginLater(_ race: Race) -> UInt64 {
        let number = takeNumber()
        races[number] = race
        loop.assumeIsolated().execute { self.step(number) { $0.begin(now: self.loop.now) } }
        return number
    }

    /// Cancels a dial; the owner is told before the return. Has no effect on an open link.
    package func cancelDial(_ number: UInt64) { step(number) { $0.cancel() } }

    func step(_ number: UInt64, _ event: (inout DialRace) -> [DialRace.Action]) {
        guard let actions = races[number].map({ _ in event(&races[number]!.machine) }) else { return }
        for action in actions {
            switch action {
            case .start(let attempt): start(attempt, of: number)
            case .cancel(let attempt): cancel(attempt, of: number)
            case .fail(let failure):
                if let race = forget(number) { race.dial.owner.failed(failure, race.hearing) }
                return
            }
        }
        setTimer(number)
    }

    private func start(_ attempt: DialRace.Attempt, of number: UInt64) {
        guard let race = races[number] else { return }
        guard let token = race.dial.owner.token() else {
            race.connection?.close()
            return loop.assumeIsolated().execute {
                self.step(number) { $0.failed(attempt, .unresolvable, now: self.loop.now) }
            }
        }
        switch attempt.carrier {
        case .tcp:
            let dial = race.dial
            let link = makeInitiator(
                .dialling(.init(token: token, identity: dial.identity, remote: dial.remote, route: number)))
            note(link.id, attempt, of: number)
            if let connection = race.connection {
                do { try run(link, over: connection) } catch {
                    loop.assumeIsolated().execute { self.attemptFailed(link.id, .system(0)) }
                }
            } else {
                // The side that lost the bytes sees them unacknowledged; the other side sees a reset.
                let loss = loss(of: race.dial.remote)
                connect(
                    to: attempt.endpoint, link,
                    hasShortSegments: loss?.carrier == .tcp || loss?.reason == .unacknowledged)
            }
        case .udp:
            guard attempt.endpoint.isAddress else {
                return addresses(of: attempt.endpoint) { addresses in
                    self.step(number) { $0.resolved(attempt, as: addresses, now: self.loop.now) }
                }
            }
            let name = endpoint.takeNumber()
            note(name, attempt, of: number)
            loop.assumeIsolated().execute { self.dialByDatagram(name, race, attempt.endpoint, token, route: number) }
            if race.hearing == .none, !race.isPunching { races[number]?.hearing = .silence }
        }
    }

    private func note(_ name: UInt64, _ attempt: DialRace.Attempt, of number: UInt64) {
        races[number]?.numbers[attempt] = name
        attempts[name] = (number, attempt)
    }

    /// Resolves a name on another thread. TCP resolves names itself.
    package func addresses(of endpoint: Endpoint, _ body: @escaping ([Endpoint]) -> Void) {
        if endpoint.isAddress { return body([endpoint]) }
        NameResolver.shared.addresses(of: endpoint.host, on: loop).assumeIsolated().whenSuccess { addresses in
            body(addresses.map { Endpoint(host: $0, port: endpoint.port) })
        }
    }

    /// Forgets the attempt before its connection reports the end: the race expects no event of it.
    private func cancel(_ attempt: DialRace.Attempt, of number: UInt64) {
        guard let name = races[number]?.numbers.removeValue(forKey: attempt) else { return }
        attempts[name] = nil
        switch attempt.carrier {
        case .tcp: streamLinks[name]?.fail(.cancelled)
        case .udp:
            endpoint.cancelDial(name, at: now)
            pump()
        }
    }

    func attemptConnected(_ name: UInt64) {
        guard let (number, attempt) = attempts[name] else { return }
        races[number]?.machine.connected(to: attempt.endpoint, now: loop.now)
        setTimer(number)
    }

    func attemptAnswered(_ name: UInt64, _ token: RoutingToken) {
        guard let (number, attempt) = attempts[name] else { return }
        races[number]?.machine.answered(attempt)
        setTimer(number)
        races[number]?.dial.owner.answered(token)
    }

    func attemptFailed(_ name: UInt64, _ failure: DialFailure) {
        guard let (number, attempt) = attempts.removeValue(forKey: name) else { return }
        races[number]?.numbers[attempt] = nil
        if failure == .closedBeforeActTwo {
            races[number]?.hearing = .unknown
            races[number]?.dial.owner.tokenRefused()
        }
        step(number) { $0.failed(attempt, failure, now: loop.now) }
    }

    /// Forgets all dials without telling their owners, which are gone.
    package func abandonDials() {
        for number in races.keys { forget(number) }
        attempts = [:]
    }

    @discardableResult func forget(_ number: UInt64) -> Race? {
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

    /// Delivers a sealed message without a handshake, and returns the answer (Links.md, "Knocks"). TCP is first; UDP
    /// follows when TCP is slow or has failed.
    /// - Parameters:
    ///   - sealed: 1…``TransportLimits/knockByteCount`` bytes.
    ///   - completion: called once, on the loop, after the return: with the answer, `nil` if the peer closed without
    ///     one, or the error.
    package func knock(
        at endpoint: Endpoint, token: RoutingToken, sealed: [UInt8],
        completion: @escaping (Result<[UInt8]?, DialFailure>) -> Void
    ) {
        guard hasDatagrams else { return connect(to: endpoint, makeKnock(token, sealed, completion)) }
        let race = KnockRace(completion)
        let link = makeKnock(token, sealed) { result in
            switch result {
            case .success: race.end(result)
            case .failure(let failure): race.failed(failure)
            }
        }
        connect(to: endpoint, link)
        race.startsDatagrams = { [weak self] in
            guard let self else { return race.failed(.cancelled) }
            self.addresses(of: endpoint) { addresses in
                let targets = addresses.prefix(Self.knockAddressCount)
                race.underWay += targets.count
                for target in targets {
                    self.withTarget(target) { target in
                        guard case .success(let target) = target else { return race.failed(.timedOut) }
                        let name = self.endpoint.knock(sealed, token: token.bytes, at: target, now: self.now)
                        self.knocks[name] = { answer in
                            guard let answer else { return race.failed(.timedOut) }
                            race.end(.success(answer.isEmpty ? nil : answer))
                        }
                        self.pump()
                    }
                }
                // The lookup counted as an attempt, too.
                race.failed(.unresolvable)
            }
        }
        race.timer = loop.assumeIsolated().scheduleTask(in: limits.dialStagger) { race.startDatagrams() }
    }

    private static let knockAddressCount = 2

    /// Asks a node over UDP for our address as it sees it.
    /// - Parameter completion: called once, on the loop; `nil` if there is no answer.
    package func observe(at endpoint: Endpoint, token: RoutingToken, completion: @escaping (Endpoint?) -> Void) {
        guard hasDatagrams else { return completion(nil) }
        addresses(of: endpoint) { addresses in
            guard let address = addresses.first else { return completion(nil) }
            self.withTarget(address) { target in
                guard case .success(let target) = target else { return completion(nil) }
                self.observations[self.endpoint.observe(token: token.bytes, at: target, now: self.now)] = completion
                self.pump()
            }
        }
    }
}
