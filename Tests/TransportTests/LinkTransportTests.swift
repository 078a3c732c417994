import Cryptography
import NIOCore
import NIOPosix
import Synchronization
import TestSupport
import Testing
import Transport

private struct Firewall: Network {
    enum Manner {
        case refuses, swallows
        /// Every connection is reset at its first bytes.
        case resets(Endpoint)
    }
    let manner: Manner

    func connect(to endpoint: Endpoint, limits: TransportLimits, on loop: any EventLoop) -> EventLoopFuture<any Channel>
    {
        switch manner {
        case .resets(let there): Sockets().connect(to: there, limits: limits, on: loop)
        case .refuses: loop.makeFailedFuture(IOError(errnoCode: 111, reason: "connect"))
        // Longer than any of these tests.
        case .swallows: loop.scheduleTask(in: .hours(1)) { throw ChannelError.connectTimeout(.hours(1)) }.futureResult
        }
    }
}

/// UDP where other programs hold the first port numbers that are tried.
private final class TakenPorts: DatagramNetwork {
    private let takenCount: Int
    private let tried = Mutex<[Int]>([])
    var ports: [Int] { tried.withLock { $0 } }

    init(_ takenCount: Int) { self.takenCount = takenCount }

    func bind(
        at endpoint: Endpoint, number: UInt32, on loop: any EventLoop,
        receive: @escaping @Sendable ((DatagramAddress, [UInt8])?) -> Void
    ) -> EventLoopFuture<NIOLoopBound<any DatagramSocket>> {
        let count = tried.withLock { tried in
            tried.append(endpoint.port)
            return tried.count
        }
        guard count > takenCount else { return loop.makeFailedFuture(ListenFailure.addressInUse(endpoint)) }
        return Sockets().bind(at: endpoint, number: number, on: loop, receive: receive)
    }
}

private final class Resetting: ChannelInboundHandler {
    typealias InboundIn = ByteBuffer

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        let now = linger(l_onoff: 1, l_linger: 0)
        (context.channel as? any SocketOptionProvider)?.setSoLinger(now).assumeIsolated().whenSuccess {
            context.close(promise: nil)
        }
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) { context.close(promise: nil) }
}

/// TCP whose connections the test holds. Confined to its loop.
private final class HeldSockets: Network, @unchecked Sendable {
    var channels: [any Channel] = []

    func connect(to endpoint: Endpoint, limits: TransportLimits, on loop: any EventLoop) -> EventLoopFuture<any Channel>
    {
        Sockets().connect(to: endpoint, limits: limits, on: loop).map { [self] channel in
            channels.append(channel)
            return channel
        }
    }
}

/// A node with links over TCP and UDP, and the events it received. Confined to its loop.
private final class BothSide: @unchecked Sendable {
    let identity: IdentityKey
    let transport: LinkTransport
    var links: [PeerConnection] = []
    var frames: [[UInt8]] = []
    var ended: [(number: UInt64, failure: DialFailure, hearing: LinkTransport.TokenHearing)] = []
    var refused = 0
    var changed: () -> Void = {}

    init(
        _ loop: any EventLoop, key: UInt8, network: any Network, datagrams: (any DatagramNetwork)?,
        patience: TimeAmount = .minutes(2), stagger: TimeAmount = TransportLimits().dialStagger
    ) throws {
        identity = IdentityKey(try SecretKey(SecretBytes(copying: [UInt8](repeating: key, count: 32))))
        var limits = TransportLimits()
        // Long, because a busy machine answers late; short where a test waits for the timeout.
        limits.datagramPatience = patience
        limits.dialStagger = stagger
        limits.datagramHeadStart = max(limits.datagramHeadStart, stagger)
        transport = LinkTransport(loop: loop, network: network, datagrams: datagrams, limits: limits)
        transport.events.linkOpened = { [unowned self] in
            links.append($0)
            changed()
        }
        transport.events.frame = { [unowned self] _, frame in
            frames.append(frame)
            changed()
        }
    }

    func dial(
        _ far: BothSide, at endpoints: [Endpoint], token: RoutingToken = BothWays.token,
        by dial: (LinkTransport, LinkTransport.Dial) -> UInt64 = { $0.dial($1) }
    ) -> UInt64 {
        let owner = TestDial(token)
        owner.onRefused = { [unowned self] in refused += 1 }
        owner.onOpened = transport.events.linkOpened
        owner.onFailed = { [unowned self, unowned owner] in
            ended.append((owner.number, $0, $1))
            changed()
        }
        owner.number = dial(
            transport,
            LinkTransport.Dial(endpoints: endpoints, identity: identity, remote: far.identity.publicKey, owner: owner))
        return owner.number
    }
}

private struct BothWays {
    let group = MultiThreadedEventLoopGroup(numberOfThreads: 1)
    let near: BothSide
    let far: BothSide
    let listening: LinkTransport.Listening
    let endpoint: Endpoint
    static let token = RoutingSecret(SecretBytes(copying: [UInt8](repeating: 5, count: 32))).token(day: 1, counter: 1)

    /// - Parameter stagger: Head start of each attempt. Long where the first attempt must win, because a busy machine is late.
    init(network: any Network = Sockets(), farHasUDP: Bool = true, stagger: TimeAmount = TransportLimits().dialStagger)
        async throws
    {
        let loop = group.next()
        let near = try await loop.submit {
            try BothSide(
                loop, key: 0x11, network: network, datagrams: Sockets(),
                patience: farHasUDP ? .minutes(2) : .milliseconds(50), stagger: stagger)
        }.get()
        let far = try await loop.submit {
            try BothSide(loop, key: 0x21, network: Sockets(), datagrams: farHasUDP ? Sockets() : nil)
        }.get()
        (self.near, self.far) = (near, far)
        listening = try await loop.flatSubmit {
            let match = RouteMatch(identity: far.identity, route: 7, remote: near.identity.publicKey)
            far.transport.events.route = { $0 == Self.token ? match : nil }
            return far.transport.listen(host: "127.0.0.1", port: 0)
        }.get()
        endpoint = Endpoint(host: "127.0.0.1", port: listening.tcp.address.port ?? 0)
    }

    func dial(_ endpoints: [Endpoint]? = nil, token: RoutingToken = Self.token) async throws -> UInt64 {
        let (near, far, loop) = (near, far, group.next())
        let endpoints = endpoints ?? [endpoint]
        return try await loop.flatSubmit { () -> EventLoopFuture<UInt64> in
            let promise = loop.makePromise(of: UInt64.self)
            let number = near.dial(far, at: endpoints, token: token)
            #expect(!near.links.contains { $0.route == number } && !near.ended.contains { $0.number == number })
            near.changed = {
                guard
                    near.links.contains(where: { $0.route == number })
                        || near.ended.contains(where: { $0.number == number })
                else { return }
                near.changed = {}
                promise.succeed(number)
            }
            return promise.futureResult
        }.get()
    }

    func exchange(_ frame: [UInt8]) async throws {
        let (near, far, loop) = (near, far, group.next())
        try await loop.flatSubmit { () -> EventLoopFuture<Void> in
            let promise = loop.makePromise(of: Void.self)
            far.changed = {
                guard far.frames.last == frame else { return }
                far.changed = {}
                promise.succeed(())
            }
            try? near.links.last?.send(frame)
            near.links.last?.flush()
            return promise.futureResult
        }.get()
    }

    func knock(_ sealed: [UInt8], answer: [UInt8]?, host: String = "127.0.0.1") async throws -> Result<
        [UInt8]?, DialFailure
    > {
        let (near, far, loop) = (near, far, group.next())
        let endpoint = Endpoint(host: host, port: endpoint.port)
        return try await loop.flatSubmit { () -> EventLoopFuture<Result<[UInt8]?, DialFailure>> in
            far.transport.events.acceptsKnock = { $0 == Self.token }
            far.transport.events.knock = { _, bytes, source in
                #expect(source == 0x7f0000, "127.0.0.0/24")
                return bytes == sealed ? answer : nil
            }
            let promise = loop.makePromise(of: Result<[UInt8]?, DialFailure>.self)
            near.transport.knock(at: endpoint, token: Self.token, sealed: sealed) { promise.succeed($0) }
            return promise.futureResult
        }.get()
    }

    func end() async throws {
        let (near, far, loop, listening) = (near, far, group.next(), listening)
        try await loop.submit {
            near.transport.close()
            far.transport.close()
        }.get()
        try await listening.tcp.close().get()
        try await group.shutdownGracefully()
    }
}

@Suite struct LinkTransportTests {
    @Test func `a dial gives TCP the head start over UDP`() async throws {
        let net = try await BothWays(stagger: .minutes(2))
        let number = try await net.dial()
        #expect(net.near.links.map(\.carrier) == [.tcp] && net.near.links.map(\.route) == [number])
        try await net.exchange([1, 2, 3])
        #expect(net.far.links.map(\.carrier) == [.tcp] && net.near.ended.isEmpty)
        #expect(net.listening.withoutDatagrams == nil)
        try await net.end()
    }

    @Test(arguments: [true, false]) func `a dial opens a link over UDP where TCP is blocked`(refuses: Bool) async throws
    {
        let net = try await BothWays(network: Firewall(manner: refuses ? .refuses : .swallows))
        _ = try await net.dial()
        #expect(net.near.links.map(\.carrier) == [.udp] && net.near.ended.isEmpty)
        try await net.exchange([4, 5, 6])
        #expect(net.far.links.map(\.carrier) == [.udp])
        try await net.end()
    }

    @Test func `a dial uses UDP when a firewall resets TCP, and its token is not refused`() async throws {
        let group = MultiThreadedEventLoopGroup(numberOfThreads: 1)
        let firewall = try await ServerBootstrap(group: group).childChannelInitializer { channel in
            channel.eventLoop.makeCompletedFuture { try channel.pipeline.syncOperations.addHandler(Resetting()) }
        }.bind(host: "127.0.0.1", port: 0).get()
        let there = Endpoint(host: "127.0.0.1", port: try #require(firewall.localAddress?.port))
        let net = try await BothWays(network: Firewall(manner: .resets(there)))
        _ = try await net.dial()
        #expect(net.near.links.map(\.carrier) == [.udp] && net.near.refused == 0)
        try await net.exchange([7, 8])
        try await net.end()
        try await firewall.close().get()
        try await group.shutdownGracefully()
    }

    @Test func `the next dial after a link lost over TCP begins with UDP`() async throws {
        let sockets = HeldSockets()
        let net = try await BothWays(network: sockets, stagger: .minutes(2))
        _ = try await net.dial()
        let (near, far, loop) = (net.near, net.far, net.group.next())
        try await loop.submit {
            #expect(near.links.map(\.carrier) == [.tcp])
            near.links[0].welcome()
            sockets.channels[0].pipeline.fireErrorCaught(IOError(errnoCode: 110, reason: "read"))
            let loss = near.transport.loss(of: far.identity.publicKey)
            // TCP sent nothing again: the kernel's keep-alive probes stayed unanswered.
            #expect(loss?.carrier == .tcp && loss?.reason == .connectionLost(110))
        }.get()
        _ = try await net.dial()
        #expect(net.near.links.map(\.carrier) == [.tcp, .udp])
        try await loop.submit { near.transport.networkChanged() }.get()
        _ = try await net.dial()
        #expect(net.near.links.map(\.carrier) == [.tcp, .udp, .tcp])
        try await net.end()
    }

    @Test func `a dial over UDP looks up a host name`() async throws {
        let net = try await BothWays(network: Firewall(manner: .refuses))
        _ = try await net.dial([Endpoint(host: "localhost", port: net.endpoint.port)])
        #expect(net.near.links.map(\.carrier) == [.udp])
        try await net.end()
    }

    @Test func `a dial to an unreachable node ends once with the reason it heard`() async throws {
        let net = try await BothWays(network: Firewall(manner: .refuses), farHasUDP: false)
        let number = try await net.dial()
        #expect(net.near.ended.map(\.number) == [number] && net.near.ended.map(\.failure) == [.refused])
        #expect(net.near.ended.map(\.hearing) == [.silence] && net.near.links.isEmpty)
        let other = try await net.dial([Endpoint(host: "no such host", port: 9)])
        #expect(net.near.ended.last?.number == other && net.near.ended.last?.failure == .refused)
        let none = try await net.dial([])
        #expect(net.near.ended.last?.number == none && net.near.ended.last?.failure == .unresolvable)
        try await net.end()
    }

    @Test func `a dial with an unknown token ends as unknown without waiting for UDP`() async throws {
        let net = try await BothWays()
        let other = RoutingSecret(SecretBytes(copying: [UInt8](repeating: 6, count: 32))).token(day: 1, counter: 1)
        let number = try await net.dial(token: other)
        #expect(net.near.ended.map(\.number) == [number] && net.near.ended.map(\.hearing) == [.unknown])
        #expect(net.near.ended.map(\.failure) == [.closedBeforeActTwo] && net.near.refused == 1)
        try await net.end()
    }

    @Test func `a dial opens a link at the second address when the first is dead`() async throws {
        // UDP to the first address is silent, and the second waits for it.
        let net = try await BothWays(stagger: .seconds(10))
        _ = try await net.dial([Endpoint(host: "127.0.0.1", port: 1), net.endpoint])
        #expect(net.near.links.map(\.carrier) == [.tcp] && net.near.ended.isEmpty)
        try await net.end()
    }

    @Test func `a dial that is cancelled or shut down ends once`() async throws {
        let net = try await BothWays(network: Firewall(manner: .swallows), farHasUDP: false)
        let (near, far, loop, endpoint) = (net.near, net.far, net.group.next(), net.endpoint)
        // All in one turn of the loop: a dial that takes long is tried over UDP, too.
        try await loop.submit {
            let early = near.dial(far, at: [endpoint])
            near.transport.cancelDial(early)
            #expect(near.ended.map(\.number) == [early])
            _ = near.dial(far, at: [endpoint])
        }.flatMap {
            loop.submit {
                #expect(near.transport.connectionCount == 1)
                near.transport.close()
            }
        }.get()
        try await net.end()
        #expect(near.ended.map(\.failure) == [.cancelled, .cancelled])
    }

    @Test(arguments: [true, false]) func `a knock is answered over UDP where TCP is blocked`(refuses: Bool) async throws
    {
        let net = try await BothWays(network: Firewall(manner: refuses ? .refuses : .swallows))
        #expect(try await net.knock([1, 2, 3], answer: [4, 5]) == .success([4, 5]))
        #expect(try await net.knock([1, 2, 3], answer: nil) == .success(nil))
        #expect(try await net.knock([1], answer: [2], host: "localhost") == .success([2]))
        try await net.end()
    }

    @Test func `a knock goes over TCP, and fails once when neither carrier works`() async throws {
        let net = try await BothWays()
        #expect(try await net.knock([1, 2, 3], answer: [4, 5]) == .success([4, 5]))
        try await net.end()
        let none = try await BothWays(network: Firewall(manner: .refuses), farHasUDP: false)
        #expect(try await none.knock([1, 2, 3], answer: [4, 5]) == .failure(.refused))
        try await none.end()
    }

    @Test func `two punching sides open a link at the address that a node observed`() async throws {
        let net = try await BothWays(network: Firewall(manner: .refuses))
        let (near, far, loop, endpoint) = (net.near, net.far, net.group.next(), net.endpoint)
        let seen = try await loop.flatSubmit { () -> EventLoopFuture<Endpoint?> in
            let promise = loop.makePromise(of: Endpoint?.self)
            near.transport.observe(at: endpoint, token: BothWays.token) { promise.succeed($0) }
            return promise.futureResult
        }.get()
        let own = try #require(seen)
        #expect(own.host == "127.0.0.1" && own.port > 0)
        let nonce = [UInt8](repeating: 4, count: 16)
        try await loop.flatSubmit { () -> EventLoopFuture<Void> in
            let promise = loop.makePromise(of: Void.self)
            far.changed = {
                guard !far.links.isEmpty else { return }
                far.changed = {}
                promise.succeed(())
            }
            // The dialer was given a wrong address, and learns the right one from the packet that arrives.
            _ = near.dial(far, at: [Endpoint(host: "127.0.0.1", port: 9)]) { $0.dial($1, punchingWith: nonce) }
            far.transport.punch(nonce, to: [own])
            return promise.futureResult
        }.get()
        #expect(far.links.map(\.carrier) == [.udp] && far.links.map(\.isPunched) == [true])
        try await net.end()
    }

    /// Listens on an address of its own and passes the outcome to `body`.
    private func listen(
        at host: String = Loopback.next(), port: Int = 0, _ datagrams: any DatagramNetwork = Sockets(),
        _ body: (LinkTransport.Listening) throws -> Void
    ) async throws {
        let group = MultiThreadedEventLoopGroup(numberOfThreads: 1)
        let loop = group.next()
        let side = try await loop.submit { try BothSide(loop, key: 1, network: Sockets(), datagrams: datagrams) }.get()
        let listening = try await loop.flatSubmit { side.transport.listen(host: host, port: port) }.get()
        try body(listening)
        try await loop.submit { side.transport.close() }.get()
        try await listening.tcp.close().get()
        try await group.shutdownGracefully()
    }

    @Test func `a listener runs on TCP alone when another program holds its UDP port`() async throws {
        let group = MultiThreadedEventLoopGroup(numberOfThreads: 1)
        let host = Loopback.next()
        let udp = try await DatagramBootstrap(group: group).bind(host: host, port: 0).get()
        let port = try #require(udp.localAddress?.port)
        try await listen(at: host, port: port) { listening in
            #expect(listening.withoutDatagrams == .addressInUse(Endpoint(host: host, port: port)))
        }
        try await udp.close().get()
        try await group.shutdownGracefully()
    }

    @Test func `a listener at port 0 finds a port free for TCP and UDP`() async throws {
        let ports = TakenPorts(3)
        try await listen(ports) { listening in
            #expect(listening.withoutDatagrams == nil)
            #expect(ports.ports.count == 4 && ports.ports.last == listening.tcp.address.port)
        }
    }

    @Test func `a listener at port 0 gives up the search and runs on TCP alone`() async throws {
        let ports = TakenPorts(.max)
        try await listen(ports) { listening in
            #expect(listening.withoutDatagrams != nil)
            #expect(ports.ports.count == TransportLimits().listenAttempts)
            #expect(ports.ports.last == listening.tcp.address.port)
        }
    }
}
