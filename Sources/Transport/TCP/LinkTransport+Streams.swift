import Cryptography
import Glibc
import NIOCore
import NIOPosix

extension LinkTransport {
    /// A connection that is established already.
    package enum Established {
        case channel(any Channel)
        case stream(RelayedSocket)

        func attach(_ link: StreamLink) throws {
            switch self {
            case .channel(let channel): try channel.pipeline.syncOperations.addHandler(ChannelSocket(link))
            case .stream(let stream): try stream.attach(link)
            }
        }

        func close() {
            switch self {
            case .channel(let channel): channel.close(promise: nil)
            case .stream(let stream): stream.fail()
            }
        }
    }

    var reception: Reception {
        let bound = NIOLoopBound(self, eventLoop: loop)
        return Reception(
            refuses: { opening in bound.value.refuses(opening) },
            accept: { channel, opening in try bound.value.accept(channel, opening) },
            rejected: { rejection in bound.value.events.rejected(rejection) })
    }

    /// Why a connection with these first bytes gets no channel.
    private func refuses(_ opening: Opening) -> Rejection? {
        guard let preamble = Preamble(Array(opening.bytes.prefix(Preamble.byteCount))) else { return .unknownProtocol }
        switch preamble.kind {
        case .link:
            guard events.isKnown(preamble.token) else { return .unknownToken }
            let fails = endpoint.failsOften(preamble.token.bytes, from: opening.network, at: now)
            return fails ? .tooManyFromPrefix : nil
        case .knock: return events.acceptsKnock(preamble.token) ? nil : .unknownToken
        case .code: return events.code(preamble.token) == nil ? .unknownToken : nil
        }
    }

    /// Accepts an incoming connection whose channel is on this transport's loop.
    /// - Parameter opening: bytes read from it before.
    package func accept(_ channel: any Channel, _ opening: Opening? = nil) throws {
        let link = StreamLink(.beforeToken, expecting: Preamble.byteCount, opening: opening, transport: self)
        try run(link, over: .channel(channel))
    }

    /// Accepts an incoming stream. `admits`: the tokens that it may show.
    package func accept(_ stream: RelayedSocket, admits: @escaping (RoutingToken) -> Bool = { _ in true }) throws {
        let link = StreamLink(.beforeToken, expecting: Preamble.byteCount, admits: admits, transport: self)
        try run(link, over: .stream(stream))
    }

    func run(_ link: StreamLink, over connection: Established) throws {
        streamLinks[link.id] = link
        do { try connection.attach(link) } catch {
            streamLinks[link.id] = nil
            throw error
        }
    }

    /// A handshake has ended: its place passes to the next connection of its network that waits.
    func finishHandshake(_ network: DatagramAddress.Network?) {
        while let next = handshakes.finish(network) {
            guard let link = streamLinks[next] else { continue }
            link.takePlace()
            return loop.assumeIsolated().execute { link.greetAgain() }
        }
    }

    func makeInitiator(_ phase: StreamLink.Phase, expecting byteCount: Int = 0) -> StreamLink {
        let link = StreamLink(phase, expecting: byteCount, transport: self)
        streamLinks[link.id] = link
        return link
    }

    /// In a later turn, because the system may refuse at once, and the caller must know the dial's number first.
    func connect(to endpoint: Endpoint, _ link: StreamLink, hasShortSegments: Bool = false) {
        var limits = limits
        if hasShortSegments { limits.segmentByteCount = limits.shortSegmentByteCount }
        loop.assumeIsolated().execute {
            guard self.streamLinks[link.id] != nil else { return }
            guard (1...65_535).contains(endpoint.port) else { return link.fail(.unresolvable) }
            // A name may have several addresses, so the link is added to the winning connection.
            self.network.connect(to: endpoint, limits: limits, on: self.loop).assumeIsolated().whenComplete { result in
                do {
                    try Established.channel(try result.get()).attach(link)
                    self.attemptConnected(link.id)
                } catch { link.fail(DialFailure(error)) }
            }
        }
    }

    /// Connects and runs a code's exchange over TCP, the only carrier of codes. ``ExchangeDial/ended`` is called after
    /// the return.
    package func exchange(_ dial: ExchangeDial, at endpoint: Endpoint) {
        connect(to: endpoint, makeInitiator(.asking(dial), expecting: dial.byteCount))
    }

    /// Knocks over an existing stream, like ``knock(at:token:sealed:completion:)``.
    package func knock(
        over stream: RelayedSocket, token: RoutingToken, sealed: [UInt8],
        completion: @escaping (Result<[UInt8]?, DialFailure>) -> Void
    ) {
        let link = makeKnock(token, sealed, completion)
        do { try stream.attach(link) } catch { loop.assumeIsolated().execute { link.fail(DialFailure(error)) } }
    }

    func makeKnock(
        _ token: RoutingToken, _ sealed: [UInt8], _ completion: @escaping (Result<[UInt8]?, DialFailure>) -> Void
    ) -> StreamLink {
        precondition((1...limits.knockByteCount).contains(sealed.count), "a knock has that many bytes")
        var answer: [UInt8]?
        var dial = ExchangeDial(
            token: token, message: bigEndian(UInt16(truncatingIfNeeded: sealed.count)) + sealed, expecting: 2,
            answered: {
                answer = $0
                return .end
            }, ended: { completion($0.map { .failure($0) } ?? .success(answer)) })
        dial.kind = .knock
        return makeInitiator(.asking(dial), expecting: dial.byteCount)
    }

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
        for id in deadlines.due(at: now, limit: limits.endsPerTurn) { streamLinks[id]?.timePassed(now) }
        // Further due deadlines wait until the links had their turn.
        let next = deadlines.next { id in
            guard let link = streamLinks[id], link.deadline == nil else { return streamLinks[id] != nil }
            // It may set another deadline later.
            link.timePassed(now)
            return false
        }
        if let next { setAlarm(max(next, now + limits.pauseBetweenTurns)) }
    }
}

extension DialFailure {
    init(_ error: any Error) {
        switch error {
        case let error as IOError:
            switch error.errnoCode {
            case ECONNREFUSED: self = .refused
            case ETIMEDOUT: self = .timedOut
            case ENETUNREACH, EHOSTUNREACH, ENETDOWN, EHOSTDOWN: self = .unreachable
            default: self = .system(error.errnoCode)
            }
        case let error as ChannelError:
            if case .connectTimeout = error { self = .timedOut } else { self = .closedBeforeActTwo }
        case let error as NIOConnectionError:
            self = error.connectionErrors.last.map { DialFailure($0.error) } ?? .unresolvable
        case is SocketAddressError: self = .unresolvable
        default: self = .system(0)
        }
    }
}
