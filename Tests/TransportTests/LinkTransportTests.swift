import Cryptography
import NIOCore
import NIOPosix
import Synchronization
import TestSupport
import Testing

@testable import Transport

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

extension SocketPair {
    fileprivate func exchange(_ frame: [UInt8]) async throws {
        try await until { _, far in
            far.frames.last == frame
        } after: { near, _ in
            try? near.links.last?.send(frame)
            near.links.last?.flush()
        }
    }

    fileprivate func knock(_ sealed: [UInt8], answer: [UInt8]?, host: String = "127.0.0.1") async throws -> Result<
        [UInt8]?, DialFailure
    > {
        try await act { _, far in
            far.transport.events.acceptsKnock = { $0 == Self.token }
            far.transport.events.knock = { _, bytes, source in
                #expect(source == 0x7f0000, "127.0.0.0/24")
                return bytes == sealed ? answer : nil
            }
        }
        return try await knock(sealed, at: Endpoint(host: host, port: endpoint.port))
    }
}

@Suite struct LinkTransportTests {
    /// - Parameter stagger: Head start of each attempt. Long where the first must win, because a busy machine is late.
    private func bothWays(
        network: any Network = Sockets(), farHasUDP: Bool = true, stagger: TimeAmount = TransportLimits().dialStagger
    ) async throws -> SocketPair {
        try await SocketPair { loop, key in
            let isNear = key == 0x11
            var limits = TransportLimits()
            // Long, because a busy machine answers late; short where a test waits for the timeout.
            limits.datagramPatience = farHasUDP ? .minutes(2) : .milliseconds(50)
            limits.dialStagger = stagger
            if farHasUDP { (limits.actTimeout, limits.handshakeTimeout) = (.minutes(2), .minutes(2)) }
            limits.datagramHeadStart = max(limits.datagramHeadStart, stagger)
            return try Side(
                loop, key: key, network: isNear ? network : Sockets(), datagrams: isNear || farHasUDP ? Sockets() : nil,
                limits: limits)
        }
    }

    @Test func `a dial gives TCP the head start over UDP, and a knock goes over TCP`() async throws {
        let net = try await bothWays(stagger: .minutes(2))
        let number = try await net.dial()
        #expect(net.near.links.map(\.carrier) == [.tcp] && net.near.links.map(\.route) == [number])
        try await net.exchange([1, 2, 3])
        #expect(net.far.links.map(\.carrier) == [.tcp] && net.near.ended.isEmpty)
        #expect(net.listening.withoutDatagrams == nil)
        #expect(try await net.knock([1, 2, 3], answer: [4, 5]) == .success([4, 5]))
        try await net.end()
    }

    @Test(arguments: [true, false]) func `a dial and a knock go over UDP where TCP is blocked`(refuses: Bool)
        async throws
    {
        let net = try await bothWays(network: Firewall(manner: refuses ? .refuses : .swallows))
        try await net.dial()
        #expect(net.near.links.map(\.carrier) == [.udp] && net.near.ended.isEmpty)
        try await net.exchange([4, 5, 6])
        #expect(net.far.links.map(\.carrier) == [.udp])
        #expect(try await net.knock([1, 2, 3], answer: [4, 5]) == .success([4, 5]))
        #expect(try await net.knock([1, 2, 3], answer: nil) == .success(nil))
        #expect(try await net.knock([1], answer: [2], host: "localhost") == .success([2]))
        try await net.end()
    }

    @Test func `a dial uses UDP when a firewall resets TCP, and its token is not refused`() async throws {
        let firewall = try await ServerBootstrap(group: NIOSingletons.posixEventLoopGroup).childChannelInitializer {
            channel in
            channel.eventLoop.makeCompletedFuture { try channel.pipeline.syncOperations.addHandler(Resetting()) }
        }.bind(host: "127.0.0.1", port: 0).get()
        let there = Endpoint(host: "127.0.0.1", port: try #require(firewall.localAddress?.port))
        let net = try await bothWays(network: Firewall(manner: .resets(there)))
        try await net.dial()
        #expect(net.near.links.map(\.carrier) == [.udp] && net.near.refused == 0)
        try await net.exchange([7, 8])
        try await net.end()
        try await firewall.close().get()
    }

    @Test func `the next dial after a link lost over TCP begins with UDP`() async throws {
        let sockets = HeldSockets()
        let net = try await bothWays(network: sockets, stagger: .minutes(2))
        try await net.dial()
        let (near, far, loop) = (net.near, net.far, net.loop)
        try await loop.submit {
            #expect(near.links.map(\.carrier) == [.tcp])
            near.links[0].welcome()
            sockets.channels[0].pipeline.fireErrorCaught(IOError(errnoCode: 110, reason: "read"))
            let loss = near.transport.loss(of: far.identity.publicKey)
            // TCP sent nothing again: the kernel's keep-alive probes stayed unanswered.
            #expect(loss?.carrier == .tcp && loss?.reason == .connectionLost(110))
        }.get()
        try await net.dial()
        #expect(net.near.links.map(\.carrier) == [.tcp, .udp])
        try await loop.submit { near.transport.networkChanged() }.get()
        try await net.dial()
        #expect(net.near.links.map(\.carrier) == [.tcp, .udp, .tcp])
        try await net.end()
    }

    @Test func `a dial or knock to an unreachable node ends once with the reason it heard`() async throws {
        let net = try await bothWays(network: Firewall(manner: .refuses), farHasUDP: false)
        let number = try await net.dial()
        #expect(net.near.ended.map(\.number) == [number] && net.near.ended.map(\.failure) == [.refused])
        #expect(net.near.ended.map(\.hearing) == [.silence] && net.near.links.isEmpty)
        let other = try await net.dial([Endpoint(host: "no such host", port: 9)])
        #expect(net.near.ended.last?.number == other && net.near.ended.last?.failure == .refused)
        let none = try await net.dial([])
        #expect(net.near.ended.last?.number == none && net.near.ended.last?.failure == .unresolvable)
        #expect(try await net.knock([1, 2, 3], answer: [4, 5]) == .failure(.refused))
        try await net.end()
    }

    @Test func `a dial with an unknown token ends as unknown without waiting for UDP`() async throws {
        let net = try await bothWays()
        let number = try await net.dial(nil, SocketPair.unknownToken)
        #expect(net.near.ended.map(\.number) == [number] && net.near.ended.map(\.hearing) == [.unknown])
        #expect(net.near.ended.map(\.failure) == [.closedBeforeActTwo] && net.near.refused == 1)
        try await net.end()
    }

    @Test func `a dial that is cancelled or shut down ends once`() async throws {
        let net = try await bothWays(network: Firewall(manner: .swallows), farHasUDP: false)
        let (near, far, loop, endpoint) = (net.near, net.far, net.loop, net.endpoint)
        // All in one turn of the loop: a dial that takes long is tried over UDP, too.
        try await loop.submit {
            let early = near.dial(far.identity.publicKey, SocketPair.token, at: [endpoint])
            near.transport.cancelDial(early)
            #expect(near.ended.map(\.number) == [early])
            near.dial(far.identity.publicKey, SocketPair.token, at: [endpoint])
        }.flatMap {
            loop.submit {
                #expect(near.transport.connectionCount == 1)
                near.transport.close()
            }
        }.get()
        try await net.end()
        #expect(near.ended.map(\.failure) == [.cancelled, .cancelled])
    }

    @Test func `two punching sides open a link at the address that a node observed`() async throws {
        let net = try await bothWays(network: Firewall(manner: .refuses))
        let (near, far, loop, endpoint) = (net.near, net.far, net.loop, net.endpoint)
        let seen = try await loop.flatSubmit { () -> EventLoopFuture<Endpoint?> in
            let promise = loop.makePromise(of: Endpoint?.self)
            near.transport.observe(at: endpoint, token: SocketPair.token) { promise.succeed($0) }
            return promise.futureResult
        }.get()
        let own = try #require(seen)
        #expect(own.host == "127.0.0.1" && own.port > 0)
        let nonce = [UInt8](repeating: 4, count: 16)
        try await net.until { _, far in
            !far.links.isEmpty
        } after: { near, far in
            // The dialer was given a wrong address, and learns the right one from the packet that arrives.
            near.dial(far.identity.publicKey, SocketPair.token, at: [Endpoint(host: "127.0.0.1", port: 9)]) {
                $0.dial($1, punchingWith: nonce)
            }
            far.transport.punch(nonce, to: [own])
        }
        #expect(far.links.map(\.carrier) == [.udp] && far.links.map(\.isPunched) == [true])
        try await net.end()
    }

    @Test func `a listener runs on TCP alone when another program holds its UDP port`() async throws {
        let host = Loopback.next()
        let udp = try await DatagramBootstrap(group: NIOSingletons.posixEventLoopGroup).bind(host: host, port: 0).get()
        let port = try #require(udp.localAddress?.port)
        let net = try await SocketPair(host: host, port: port) { try Side($0, key: $1, datagrams: Sockets()) }
        #expect(net.listening.withoutDatagrams == .addressInUse(Endpoint(host: host, port: port)))
        try await net.end()
        try await udp.close().get()
    }

    @Test(arguments: [(3, 4), (.max, TransportLimits().listenAttempts)])
    func `a listener at port 0 finds a port free for TCP and UDP, or gives up the search and runs on TCP alone`(
        takenCount: Int, attempts: Int
    ) async throws {
        let ports = TakenPorts(takenCount)
        let net = try await SocketPair(host: Loopback.next()) { try Side($0, key: $1, datagrams: ports) }
        #expect((net.listening.withoutDatagrams == nil) == (takenCount < attempts))
        #expect(ports.ports.count == attempts && ports.ports.last == net.listening.tcp.address.port)
        try await net.end()
    }
}
