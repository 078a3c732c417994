import Cryptography
import NIOCore
import NIOPosix
import Testing

@testable import Transport

/// Two nodes on one loop. The far one listens on the machine's sockets and takes the dials of the near one.
struct SocketPair {
    let group = MultiThreadedEventLoopGroup(numberOfThreads: 1)
    var loop: any EventLoop { group.next() }
    let near: Side
    let far: Side
    let listening: LinkTransport.Listening
    let endpoint: Endpoint
    private var isDatagramOnly = false
    static let token = routingToken(5)
    static let unknownToken = routingToken(6)

    private static func routingToken(_ secret: UInt8) -> RoutingToken {
        RoutingSecret(SecretBytes(copying: [UInt8](repeating: secret, count: 32))).token(day: 1, counter: 1)
    }

    /// Over one carrier.
    init(_ carrier: LinkCarrier, host: String = "127.0.0.1", limits: TransportLimits = .patient) async throws {
        try await self.init(host: host) { loop, key in
            switch carrier {
            case .tcp: try Side(loop, key: key, limits: limits)
            case .udp: try Side(loop, key: key, network: NoTCP(), datagrams: Sockets(), limits: limits)
            }
        }
        isDatagramOnly = carrier == .udp
    }

    /// - Parameter makeSide: makes a node with this key, first the near one, then the far one.
    init(
        host: String = "127.0.0.1", port: Int = 0,
        _ makeSide: @escaping @Sendable (any EventLoop, _ key: UInt8) throws -> Side
    ) async throws {
        let loop = group.next()
        let near = try await loop.submit { try makeSide(loop, 0x11) }.get()
        let far = try await loop.submit { try makeSide(loop, 0x21) }.get()
        (self.near, self.far) = (near, far)
        listening = try await loop.flatSubmit {
            far.accepts(Self.token, from: near.identity.publicKey)
            return far.transport.listen(host: host, port: port)
        }.get()
        endpoint = Endpoint(host: host, port: listening.tcp.address.port ?? 0)
    }

    /// Acts on the loop, and waits until an event makes the condition true and its turn is over.
    func until(
        _ isDone: @escaping @Sendable (_ near: Side, _ far: Side) -> Bool,
        after action: @escaping @Sendable (_ near: Side, _ far: Side) -> Void = { _, _ in }
    ) async throws {
        let (near, far, loop) = (near, far, group.next())
        try await loop.flatSubmit { () -> EventLoopFuture<Void> in
            let promise = loop.makePromise(of: Void.self)
            for side in [near, far] {
                side.changed = {
                    guard isDone(near, far) else { return }
                    (near.changed, far.changed) = ({}, {})
                    loop.execute { promise.succeed(()) }
                }
            }
            action(near, far)
            near.changed()
            return promise.futureResult
        }.get()
    }

    /// - Returns: the number of the dial, which has a link or has ended.
    @discardableResult func dial(
        _ endpoints: [Endpoint]? = nil, _ token: RoutingToken = Self.token, to remote: PublicKey? = nil
    ) async throws -> UInt64 {
        let (near, loop) = (near, group.next())
        let (endpoints, remote) = (endpoints ?? [endpoint], remote ?? far.identity.publicKey)
        return try await loop.flatSubmit { () -> EventLoopFuture<UInt64> in
            let promise = loop.makePromise(of: UInt64.self)
            let number = near.dial(remote, token, at: endpoints)
            func hasEnded() -> Bool {
                near.links.contains { $0.route == number } || near.ended.contains { $0.number == number }
            }
            // No event comes before the caller knows the dial's number.
            #expect(!hasEnded())
            near.changed = {
                guard hasEnded() else { return }
                near.changed = {}
                loop.execute { promise.succeed(number) }
            }
            return promise.futureResult
        }.get()
    }

    func knock(_ sealed: [UInt8], at endpoint: Endpoint? = nil) async throws -> Result<[UInt8]?, DialFailure> {
        let (near, loop, endpoint) = (near, group.next(), endpoint ?? self.endpoint)
        return try await loop.flatSubmit { () -> EventLoopFuture<Result<[UInt8]?, DialFailure>> in
            let promise = loop.makePromise(of: Result<[UInt8]?, DialFailure>.self)
            near.transport.knock(at: endpoint, token: Self.token, sealed: sealed) { promise.succeed($0) }
            return promise.futureResult
        }.get()
    }

    /// Acts on the loop.
    @discardableResult func act<Value: Sendable>(
        _ action: @escaping @Sendable (_ near: Side, _ far: Side) throws -> Value
    ) async throws -> Value {
        let (near, far) = (near, far)
        return try await group.next().submit { try action(near, far) }.get()
    }

    func end() async throws {
        let isDatagramOnly = isDatagramOnly
        try await act { near, far in
            near.transport.close()
            far.transport.close()
            // TCP's connections end a little later.
            #expect(!isDatagramOnly || near.transport.connectionCount <= near.links.count)
        }
        try await listening.tcp.close().get()
        try await group.shutdownGracefully()
    }
}
