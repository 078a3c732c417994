import Crypto
import Glibc
import NIOCore
import NIOPosix

extension TCPTransport {
    package struct Dial: Sendable {
        package let endpoint: Endpoint
        package let token: RoutingToken
        package let identity: IdentityKey
        /// The expected peer, authenticated by act 2.
        package let remote: PublicKey
        /// The owner's identifier of the route, returned with the link.
        package let route: UInt64
        /// The last link to this peer was lost with unacknowledged bytes: use segments that fit any path.
        var hasShortSegments = false

        package init(endpoint: Endpoint, token: RoutingToken, identity: IdentityKey, remote: PublicKey, route: UInt64) {
            self.endpoint = endpoint
            self.token = token
            self.identity = identity
            self.remote = remote
            self.route = route
        }
    }

    /// Dials. `linkOpened`, with a link of this number, or `dialFailed` follows, both after the return.
    ///
    /// The responder may close an open link at once if it rejects us: XK shows our key only in the last act.
    package func dial(_ dial: Dial) -> UInt64 {
        let link = makeInitiator(dial)
        var limits = limits
        if dial.hasShortSegments { limits.segmentByteCount = limits.shortSegmentByteCount }
        connect(to: dial.endpoint, link, limits)
        return link.id
    }

    /// Cancels a dial; `dialFailed` comes before the return. Has no effect on an open link.
    package func cancelDial(_ id: UInt64) { link(id)?.fail(.cancelled) }

    /// Delivers a sealed message without a handshake, and returns the answer (Links.md, "Knocks").
    /// - Parameters:
    ///   - sealed: 1…``TransportLimits/knockByteCount`` bytes.
    ///   - completion: called once, on the loop, after the return: with the answer, `nil` if the peer closed without
    ///     one, or the error.
    package func knock(
        at endpoint: Endpoint, token: RoutingToken, sealed: [UInt8],
        completion: @escaping (Result<[UInt8]?, DialFailure>) -> Void
    ) {
        precondition((1...limits.knockByteCount).contains(sealed.count), "a knock has that many bytes")
        connect(to: endpoint, makeKnock(token, sealed, completion), limits)
    }

    /// Knocks over a stream, like ``knock(at:token:sealed:completion:)``.
    package func knock(
        over stream: StreamChannel, token: RoutingToken, sealed: [UInt8],
        completion: @escaping (Result<[UInt8]?, DialFailure>) -> Void
    ) {
        let link = makeKnock(token, sealed, completion)
        do { try stream.attach(link) } catch { loop.assumeIsolated().execute { link.fail(DialFailure(error)) } }
    }

    /// Connects and runs a code's exchange. ``ExchangeDial/ended`` is called after the return.
    package func exchange(_ dial: ExchangeDial, at endpoint: Endpoint) {
        connect(to: endpoint, makeInitiator(exchange: dial), limits)
    }

    /// In a later turn, because the system may refuse at once, and the caller must know the dial's number first.
    private func connect(to endpoint: Endpoint, _ link: StreamLink, _ limits: TransportLimits) {
        loop.assumeIsolated().execute {
            guard self.link(link.id) != nil else { return }
            guard (1...65_535).contains(endpoint.port) else { return link.fail(.unresolvable) }
            // A name may have several addresses, so the link is added to the winning connection.
            self.network.connect(to: endpoint, limits: limits, on: self.loop).assumeIsolated().whenComplete { result in
                do { try result.get().pipeline.syncOperations.addHandler(ChannelSocket(link)) } catch {
                    link.fail(DialFailure(error))
                }
            }
        }
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
