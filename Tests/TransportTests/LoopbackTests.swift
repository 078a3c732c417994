import Cryptography
import NIOCore
import NIOPosix
import Testing

@testable import Transport

@Suite struct LoopbackTests {
    @Test(arguments: [
        (LinkCarrier.tcp, "127.0.0.1", "localhost"), (.udp, "127.0.0.1", "localhost"), (.udp, "::1", "::1"),
    ]) func `a link opens, carries frames both ways and closes in order`(
        carrier: LinkCarrier, host: String, name: String
    ) async throws {
        let net = try await SocketPair(carrier, host: host)
        try await net.dial([Endpoint(host: name, port: net.endpoint.port)])
        let frames =
            (0..<1_500).map { [UInt8](repeating: UInt8($0 & 0x7f), count: $0) } + [[UInt8](repeating: 1, count: 65_535)]
        try await net.until { near, _ in
            near.frames.count == frames.count
        } after: { near, far in
            far.echo()
            near.waiting = frames
            near.write()
        }
        #expect(net.near.frames == frames && net.far.frames == frames && net.near.failures.isEmpty)
        let endpoint = net.endpoint
        try await net.act { near, far in
            let keys = [near, far].map(\.identity.publicKey)
            let (near, far) = (near.links[0], far.links[0])
            #expect([far, near].map(\.peer.publicKey) == keys)
            #expect(near.carrier == carrier && near.peer.handshakeHash == far.peer.handshakeHash)
            #expect(near.role == .initiator && far.role == .responder && near.route == 1 && far.route == 7)
            #expect([near, far].map(\.token) == [SocketPair.token, SocketPair.token])
            #expect(near.remoteAddress?.port == endpoint.port && far.localAddress?.port == endpoint.port)
            #expect(near.bytesOut > 1_000_000 && near.bytesIn > 1_000_000)
        }
        try await net.until { near, far in
            near.closed.count == 1 && far.closed.count == 1
        } after: { near, _ in
            near.links[0].close()
        }
        #expect(net.near.closed == [.requested] && net.far.closed == [.closedByPeer])
        #expect(!net.near.links[0].isWritable)
        try await net.end()
    }

    @Test(arguments: [LinkCarrier.tcp, .udp])
    func `frames sent before a close arrive, even while the other side keeps sending`(carrier: LinkCarrier) async throws
    {
        let net = try await SocketPair(carrier)
        try await net.dial()
        let frames = (0..<200).map { [UInt8](repeating: UInt8($0), count: 5_000) }
        try await net.until { near, far in
            near.closed.count == 1 && far.closed.count == 1
        } after: { near, far in
            far.echo()
            for frame in frames { try? near.links[0].send(frame) }
            near.links[0].close()
        }
        #expect(net.far.frames == frames && net.near.closed == [.requested] && net.far.closed == [.closedByPeer])
        try await net.end()
    }

    @Test func `a channel's read size follows its setting, not its earlier reads`() {
        let limits = TransportLimits()
        var pool = NIOPooledRecvBufferAllocator(capacity: 1, recvAllocator: limits.firstReads)
        func read() -> Int {
            let (_, count) = pool.buffer(allocator: ByteBufferAllocator()) { buffer in buffer.writableBytes }
            pool.record(actualReadBytes: count)
            return count
        }
        #expect(read() == limits.bytesBeforeAuthentication / 2)
        for byteCount in [limits.quietByteCount, limits.turnByteCount, 100_000, 33, limits.quietByteCount] {
            pool.recvAllocator = ExactReads(byteCount: byteCount)
            #expect(read() == byteCount)
            #expect(read() == byteCount)
        }
    }

    private func listen(_ net: SocketPair, host: String = "127.0.0.1", port: Int = 0) async throws -> TCPListener {
        let far = net.far
        return try await net.loop.flatSubmit { far.transport.listen(host: host, port: port) }.get().tcp
    }

    @Test func `a node has several listeners, and a failed listen names its endpoint`() async throws {
        let net = try await SocketPair(.tcp)
        let second = try await listen(net)
        #expect(second.address.port != net.endpoint.port)
        for (endpoint, failure) in [
            (net.endpoint, ListenFailure.addressInUse),
            (Endpoint(host: "192.0.2.1", port: 0), ListenFailure.addressNotAvailable),
            (Endpoint(host: "127.0.0.1", port: 65_536), ListenFailure.unresolvable),
            (Endpoint(host: "no such host", port: 1), ListenFailure.unresolvable),
        ] {
            await #expect(throws: failure(endpoint)) { try await listen(net, host: endpoint.host, port: endpoint.port) }
        }
        // The port of the closed listener is free again.
        try await net.listening.tcp.close().get()
        let again = try await listen(net, port: net.endpoint.port)
        #expect(again.address.port == net.endpoint.port)
        try await again.close().get()
        try await second.close().get()
        try await net.end()
    }

    @Test func `a failed TCP dial reports its reason`() async throws {
        let net = try await SocketPair(.tcp)
        try await net.listening.tcp.close().get()
        try await net.dial()
        for port in [0, 65_536, -1] { try await net.dial([Endpoint(host: "127.0.0.1", port: port)]) }
        try await net.dial([Endpoint(host: "no such host", port: 1)])
        let endpoint = net.endpoint
        try await net.act { near, far in
            near.transport.cancelDial(near.dial(far.identity.publicKey, SocketPair.token, at: [endpoint]))
        }
        #expect(net.near.failures == [.refused] + [DialFailure](repeating: .unresolvable, count: 4) + [.cancelled])
        try await net.end()
    }

    @Test func `a dial and a knock at a silent responder time out`() async throws {
        var limits = TransportLimits.patient
        limits.actTimeout = .milliseconds(50)
        let net = try await SocketPair(.tcp, limits: limits)
        let silent = try await ServerBootstrap(group: net.group).bind(host: "127.0.0.1", port: 0).get()
        let endpoint = Endpoint(host: "127.0.0.1", port: silent.localAddress?.port ?? 0)
        try await net.dial([endpoint])
        #expect(net.near.failures == [.timedOut])
        // The next dial announces short segments.
        let carrier = try await net.act { near, far in near.transport.loss(of: far.identity.publicKey)?.carrier }
        #expect(carrier == .tcp)
        #expect(try await net.knock([1], at: endpoint) == .failure(.timedOut))
        try await silent.close().get()
        try await net.end()
    }

    /// Sends the same bytes to every connection, then closes.
    private final class Parrot: ChannelInboundHandler {
        typealias InboundIn = ByteBuffer
        typealias OutboundOut = ByteBuffer
        let line: [UInt8]
        init(_ line: [UInt8]) { self.line = line }

        func channelRead(context: ChannelHandlerContext, data: NIOAny) {
            context.writeAndFlush(wrapOutboundOut(ByteBuffer(bytes: line)), promise: nil)
            context.close(promise: nil)
        }
    }

    @Test(arguments: [[0], [0, 0], [0, 2, 1], [0, 1, 1, 1], [4, 1, 7], [255, 255]] as [[UInt8]])
    func `a knock with a malformed answer fails`(line: [UInt8]) async throws {
        let net = try await SocketPair(.tcp)
        let parrot = try await ServerBootstrap(group: net.group).childChannelInitializer { channel in
            channel.eventLoop.makeCompletedFuture { try channel.pipeline.syncOperations.addHandler(Parrot(line)) }
        }.bind(host: "127.0.0.1", port: 0).get()
        let endpoint = Endpoint(host: "127.0.0.1", port: parrot.localAddress?.port ?? 0)
        #expect(try await net.knock([1], at: endpoint) == .failure(.badAnswer))
        // The bytes are not a valid act 2, either.
        try await net.dial([endpoint])
        #expect(net.near.failures == [.closedBeforeActTwo])
        try await parrot.close().get()
        try await net.end()
    }
}

@Suite struct DatagramLoopbackTests {
    @Test func `16 MiB arrive over UDP despite losses in the socket`() async throws {
        let net = try await SocketPair(.udp)
        try await net.dial()
        try await net.until { _, far in
            far.frames.reduce(0) { $0 + $1.count } == 16 << 20
        } after: { near, _ in
            near.waiting = [[UInt8]](repeating: [UInt8](repeating: 3, count: 1 << 15), count: 512)
            near.write()
        }
        #expect(net.near.closed.isEmpty && net.far.batches > 0)
        try await net.end()
    }

    /// Queues the frames at the far end, which reads nothing, until all their bytes are acknowledged.
    private func fill(_ net: SocketPair, with frames: [[UInt8]]) async throws {
        try await net.act { near, far in
            far.links[0].pauseReading()
            for frame in frames { try near.links[0].send(frame) }
            near.links[0].flush()
        }
        func isWaiting() async throws -> Bool {
            try await net.act { near, _ in near.transport.endpoint.link(near.links[0].id)?.outbound.byteCount ?? 0 > 0 }
        }
        while try await isWaiting() {}
        #expect(net.near.closed.isEmpty)
    }

    @Test(arguments: [true, false])
    func `a paused link hands over at most 128 frames in a turn as it resumes, and all after the call that closes it`(
        resumes: Bool
    ) async throws {
        let net = try await SocketPair(.udp)
        try await net.dial()
        let frames = (0..<500).map { [UInt8($0 >> 8), UInt8($0 & 255)] }
        try await fill(net, with: frames)
        try await net.until { _, far in
            far.frames.count == 500
        } after: { _, far in
            #expect(far.frames.isEmpty)
            if resumes { far.links[0].resumeReading() } else { far.links[0].close() }
            #expect(far.frames.count == (resumes ? 128 : 0))
        }
        #expect(net.far.frames == frames && (!resumes || net.far.batches >= 4))
        try await net.end()
    }

    @Test func `a failed UDP dial reports its reason, and the socket keeps working`() async throws {
        var limits = TransportLimits()
        limits.actTimeout = .milliseconds(50)
        let net = try await SocketPair(.udp, limits: limits)
        try await net.dial(nil, SocketPair.unknownToken)
        try await net.until { _, far in !far.rejections.isEmpty }
        #expect(net.near.failures == [.timedOut] && net.far.rejections.first == .unknownToken)
        for port in [0, 65_536, -1] { try await net.dial([Endpoint(host: "127.0.0.1", port: port)]) }
        try await net.dial([Endpoint(host: "no such host", port: 1)])
        #expect(net.near.failures.dropFirst() == [.unresolvable, .unresolvable, .unresolvable, .unresolvable])
        // An unreachable address fails its dial only.
        for host in ["255.255.255.255", "0.0.0.0", "2001:db8::1", "192.0.2.1"] {
            try await net.dial([Endpoint(host: host, port: 9)])
        }
        #expect(net.near.failures.count == 9 && net.near.links.isEmpty)
        // 50 ms may be too short on a busy machine, so the dial is repeated.
        for _ in 0..<100 where net.near.links.isEmpty { try await net.dial() }
        #expect(net.near.links.count == 1)
        try await net.end()
        #expect(net.near.closed == [.shutDown])
    }

    @Test func `a listener on all addresses answers from the dialled address`() async throws {
        let net = try await SocketPair(.udp, host: "0.0.0.0")
        // 127.0.0.1 is also the address the kernel would choose by itself.
        for host in ["127.0.0.2", "127.0.0.3", "127.0.0.1"] {
            try await net.dial([Endpoint(host: host, port: net.endpoint.port)])
            try #require(net.near.links.last?.remoteAddress?.ipAddress == host && net.near.failures.isEmpty)
        }
        try await net.until { _, far in
            far.frames.count == 3
        } after: { near, _ in
            for link in near.links {
                try? link.send([1])
                link.flush()
            }
        }
        try await net.end()
    }

    @Test func `a failed listen over UDP names the taken or invalid endpoint`() async throws {
        let net = try await SocketPair(.udp)
        let loop = net.loop
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
