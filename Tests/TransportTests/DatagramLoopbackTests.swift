import Cryptography
import NIOCore
import NIOPosix
import Testing

@testable import Transport

/// A node with links over UDP, and the events it received. Confined to its loop.
private final class UDPSide: @unchecked Sendable {
    let loop: any EventLoop
    let identity: IdentityKey
    let transport: LinkTransport
    var links: [PeerConnection] = []
    var frames: [[UInt8]] = []
    var closed: [LinkCloseReason] = []
    var failures: [DialFailure] = []
    var rejections: [Rejection] = []
    var batches = 0
    var changed: () -> Void = {}
    var waiting: [[UInt8]] = []
    var echoes = false

    init(_ loop: any EventLoop, key: UInt8, limits: TransportLimits, datagramLimits: DatagramLimits) throws {
        self.loop = loop
        identity = IdentityKey(try SecretKey(SecretBytes(copying: [UInt8](repeating: key, count: 32))))
        transport = LinkTransport(
            loop: loop, network: NoTCP(), datagrams: Sockets(), limits: limits, datagramLimits: datagramLimits)
        transport.events.linkOpened = { [unowned self] in
            links.append($0)
            write()
            changed()
        }
        transport.events.frame = { [unowned self] link, frame in
            frames.append(frame)
            if echoes { try? link.send(frame) }
            changed()
        }
        transport.events.batchEnded = { [unowned self] in
            batches += 1
            $0.flush()
        }
        transport.events.becameWritable = { [unowned self] _ in write() }
        transport.events.linkClosed = { [unowned self] in
            closed.append($1)
            changed()
        }
        transport.events.rejected = { [unowned self] in
            rejections.append($0)
            changed()
        }
    }

    func write() {
        guard let link = links.last else { return }
        while link.isWritable, !waiting.isEmpty { try? link.send(waiting.removeFirst()) }
        link.flush()
    }
}

private struct UDPLoopback {
    let group = MultiThreadedEventLoopGroup(numberOfThreads: 1)
    let near: UDPSide
    let far: UDPSide
    private let listener: TCPListener
    let endpoint: Endpoint
    let token = RoutingSecret(SecretBytes(copying: [UInt8](repeating: 5, count: 32))).token(day: 1, counter: 1)

    init(
        host: String = "127.0.0.1", limits: TransportLimits = .patient,
        datagramLimits: DatagramLimits = DatagramLimits()
    ) async throws {
        let loop = group.next()
        func side(_ key: UInt8) async throws -> UDPSide {
            try await loop.submit { try UDPSide(loop, key: key, limits: limits, datagramLimits: datagramLimits) }.get()
        }
        near = try await side(0x11)
        far = try await side(0x21)
        let (near, far, token) = (near, far, token)
        listener = try await loop.flatSubmit {
            let match = RouteMatch(identity: far.identity, route: 7, remote: near.identity.publicKey)
            far.transport.events.route = { $0 == token ? match : nil }
            return far.transport.listen(host: host, port: 0)
        }.get().tcp
        endpoint = Endpoint(host: host, port: listener.address.port ?? 0)
    }

    /// Queues the frames at the far end, which reads nothing; a frame of its own tells that they were sent.
    func fill(with frames: [[UInt8]]) async throws {
        try await until(
            near, { $0.frames.count == 1 },
            after: { near, far in
                far.links[0].pauseReading()
                near.waiting = frames
                near.write()
                try? far.links[0].send([1])
                far.links[0].flush()
            })
    }

    func until(
        _ side: UDPSide, _ isDone: @escaping @Sendable (UDPSide) -> Bool,
        after action: @escaping @Sendable (UDPSide, UDPSide) -> Void
    ) async throws {
        let (near, far, loop) = (near, far, group.next())
        try await loop.flatSubmit { () -> EventLoopFuture<Void> in
            let promise = loop.makePromise(of: Void.self)
            side.changed = {
                guard isDone(side) else { return }
                side.changed = {}
                promise.succeed(())
            }
            action(near, far)
            side.changed()
            return promise.futureResult
        }.get()
    }

    func dial(_ endpoint: Endpoint? = nil, _ token: RoutingToken? = nil) async throws {
        let (endpoint, token, remote) = (endpoint ?? self.endpoint, token ?? self.token, far.identity.publicKey)
        let before = near.links.count + near.failures.count
        try await until(
            near, { $0.links.count + $0.failures.count > before },
            after: { near, _ in
                let dial = near.transport.makeDial(token, as: near.identity, to: remote, at: [endpoint]) {
                    [unowned near] failure, _ in
                    near.failures.append(failure)
                    near.changed()
                }
                _ = near.transport.dial(dial)
                // No event comes before the caller knows the dial's number.
                #expect(near.links.count + near.failures.count == before)
            })
    }

    func end() async throws {
        let (near, far) = (near, far)
        try await group.next().submit {
            near.transport.close()
            far.transport.close()
            #expect(near.transport.connectionCount <= near.links.count)
        }.get()
        try await listener.close().get()
        try await group.shutdownGracefully()
    }
}

@Suite struct DatagramLoopbackTests {
    @Test(arguments: ["127.0.0.1", "::1"]) func `a link over UDP opens, carries frames both ways and closes in order`(
        host: String
    ) async throws {
        let net = try await UDPLoopback(host: host)
        try await net.dial()
        #expect(net.near.failures.isEmpty)
        let frames =
            (0..<1_500).map { [UInt8](repeating: UInt8($0 & 0x7f), count: $0) } + [[UInt8](repeating: 1, count: 65_535)]
        try await net.until(
            net.near, { $0.frames.count == frames.count },
            after: { near, far in
                far.echoes = true
                near.waiting = frames
                near.write()
            })
        #expect(net.near.frames == frames && net.far.frames == frames)
        let (near, far) = (net.near.links[0], net.far.links[0])
        #expect(near.carrier == .udp && near.peer.handshakeHash == far.peer.handshakeHash)
        #expect(near.role == .initiator && far.role == .responder && near.route == 1 && far.route == 7)
        #expect(near.remoteAddress?.port == net.endpoint.port && far.localAddress?.port == net.endpoint.port)
        try await net.until(net.near, { $0.closed.count == 1 }, after: { near, _ in near.links[0].close() })
        #expect(net.near.closed == [.requested])
        try await net.until(net.far, { $0.closed.count == 1 }, after: { _, _ in })
        #expect(net.far.closed == [.closedByPeer])
        #expect(near.bytesOut > 1_000_000 && near.bytesIn > 1_000_000)
        #expect(!near.isWritable)
        try await net.end()
    }

    @Test func `frames sent before a close arrive, even while the other side keeps sending`() async throws {
        let net = try await UDPLoopback()
        try await net.dial()
        let frames = (0..<200).map { [UInt8](repeating: UInt8($0), count: 5_000) }
        try await net.until(
            net.near, { $0.closed.count == 1 },
            after: { near, far in
                far.echoes = true
                for frame in frames { try? near.links[0].send(frame) }
                near.links[0].close()
            })
        try await net.until(net.far, { $0.closed.count == 1 }, after: { _, _ in })
        #expect(net.far.frames == frames && net.near.closed == [.requested] && net.far.closed == [.closedByPeer])
        try await net.end()
    }

    @Test func `16 MiB arrive over UDP despite losses in the socket`() async throws {
        let net = try await UDPLoopback()
        try await net.dial()
        try await net.until(
            net.far, { $0.frames.reduce(0) { $0 + $1.count } == 16 << 20 },
            after: { near, _ in
                near.waiting = [[UInt8]](repeating: [UInt8](repeating: 3, count: 1 << 15), count: 512)
                near.write()
            })
        #expect(net.near.closed.isEmpty && net.far.batches > 0)
        try await net.end()
    }

    @Test func `a paused link hands over no frame, and all frames once it resumes`() async throws {
        let net = try await UDPLoopback()
        try await net.dial()
        let frames = (0..<100).map { [UInt8](repeating: UInt8($0), count: 100) }
        try await net.fill(with: frames)
        #expect(net.far.frames.isEmpty)
        try await net.until(net.far, { $0.frames.count == 100 }, after: { _, far in far.links[0].resumeReading() })
        #expect(net.far.frames == frames)
        try await net.end()
    }

    @Test func `a link hands over at most 128 frames in one turn of the loop`() async throws {
        let net = try await UDPLoopback()
        try await net.dial()
        let frames = (0..<500).map { [UInt8($0 >> 8), UInt8($0 & 255)] }
        try await net.fill(with: frames)
        try await net.until(
            net.far, { $0.frames.count == 500 },
            after: { _, far in
                far.links[0].resumeReading()
                #expect(far.frames.count == 128)
            })
        #expect(net.far.frames == frames && net.far.batches >= 4)
        try await net.end()
    }

    @Test func `closing a paused link hands over its waiting frames, but only after the call`() async throws {
        let net = try await UDPLoopback()
        try await net.dial()
        let frames = (0..<100).map { [UInt8](repeating: UInt8($0), count: 100) }
        try await net.fill(with: frames)
        try await net.until(
            net.far, { $0.frames.count == 100 },
            after: { _, far in
                far.links[0].close()
                #expect(far.frames.isEmpty)
            })
        #expect(net.far.frames == frames)
        try await net.end()
    }

    @Test func `a failed UDP dial reports its reason, and the socket keeps working`() async throws {
        var limits = TransportLimits()
        limits.actTimeout = .milliseconds(50)
        let net = try await UDPLoopback(limits: limits)
        let other = RoutingSecret(SecretBytes(copying: [UInt8](repeating: 6, count: 32))).token(day: 1, counter: 1)
        try await net.dial(nil, other)
        #expect(net.near.failures == [.timedOut] && net.far.rejections.first == .unknownToken)
        for port in [0, 65_536, -1] { try await net.dial(Endpoint(host: "127.0.0.1", port: port)) }
        try await net.dial(Endpoint(host: "no such host", port: 1))
        #expect(net.near.failures.dropFirst() == [.unresolvable, .unresolvable, .unresolvable, .unresolvable])
        // An unreachable address fails its dial only.
        for host in ["255.255.255.255", "0.0.0.0", "2001:db8::1", "192.0.2.1"] {
            try await net.dial(Endpoint(host: host, port: 9))
        }
        #expect(net.near.failures.count == 9 && net.near.links.isEmpty)
        // 50 ms may be too short on a busy machine, so the dial is repeated.
        for _ in 0..<100 where net.near.links.isEmpty { try await net.dial() }
        #expect(net.near.links.count == 1)
        try await net.end()
        #expect(net.near.closed == [.shutDown])
    }

    @Test func `a listener on all addresses answers from the dialled address`() async throws {
        let pair = try await UDPLoopback(host: "0.0.0.0")
        // 127.0.0.1 is also the address the kernel would choose by itself.
        for host in ["127.0.0.2", "127.0.0.3", "127.0.0.1"] {
            try await pair.dial(Endpoint(host: host, port: pair.endpoint.port))
            try #require(pair.near.links.last?.remoteAddress?.ipAddress == host && pair.near.failures.isEmpty)
        }
        try await pair.until(
            pair.far, { $0.frames.count == 3 },
            after: { near, _ in
                for link in near.links {
                    try? link.send([1])
                    link.flush()
                }
            })
        try await pair.end()
    }

    @Test func `a failed listen over UDP names the taken or invalid endpoint`() async throws {
        let net = try await UDPLoopback()
        let loop = net.group.next()
        let invalid = Endpoint(host: "127.0.0.1", port: 65_536)
        for failure in [ListenFailure.addressInUse(net.endpoint), .unresolvable(invalid)] {
            let endpoint = failure == .unresolvable(invalid) ? invalid : net.endpoint
            await #expect(throws: failure) {
                _ = try await loop.flatSubmit { Sockets().bind(at: endpoint, number: 1, on: loop) { _ in } }.get()
            }
        }
        try await net.end()
    }

    @Test func `a dial leaves by the socket bound to the source address of its route`() {
        let target = DatagramAddress(v4: 0xc633_6409, port: 9)
        func own(_ v4: UInt32, _ socket: UInt32) -> DatagramAddress { DatagramAddress(v4: v4, port: 7, socket: socket) }
        let (first, second, all) = (own(0xc000_0201, 1), own(0xc633_6401, 2), own(0, 3))
        let loopback = own(0x7f00_0001, 4)
        let source = IPAddress(v4: 0xc633_6401)
        #expect(target.leaving(by: [first, second, all], source: source) == 2)
        #expect(target.leaving(by: [first, all], source: source) == 3)
        #expect(target.leaving(by: [first, loopback], source: source) == nil)
        #expect(target.leaving(by: [first, second], source: nil) == 1)
        #expect(DatagramAddress(v4: 0x7f00_0002, port: 9).leaving(by: [first, loopback], source: source) == 4)
        let sixth = DatagramAddress(IPAddress(high: 0x2001_0db8 << 32, low: 1), port: 9)
        #expect(sixth.leaving(by: [first, second, all], source: nil) == nil)
    }

    @Test func `a link-local address keeps its interface as a socket address, an endpoint and a dial's address`() throws
    {
        // 1 is the loopback interface.
        let address = DatagramAddress(try #require(IPAddress(text: "fe80::1")).zoned(1), port: 7)
        let endpoint = Endpoint(address)
        #expect(endpoint == Endpoint(host: "fe80::1%1", port: 7))
        for socketAddress in [address.socketAddress, SocketAddress(reaching: endpoint)] {
            #expect(DatagramAddress(try #require(socketAddress), socket: 0) == address)
        }
    }
}
