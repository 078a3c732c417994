import Cryptography
import NIOCore
import NIOPosix
import Testing

@testable import Transport

/// An actor whose executor is the transport's event loop, like the daemon's node.
private actor Node {
    nonisolated let loop: any EventLoop
    nonisolated var unownedExecutor: UnownedSerialExecutor { loop.executor.asUnownedSerialExecutor() }
    private var side: Side?

    init(_ loop: any EventLoop) { self.loop = loop }

    func start(key: UInt8, limits: TransportLimits = TransportLimits()) throws -> PublicKey {
        let side = try Side(loop, key: key, limits: limits)
        self.side = side
        return side.identity.publicKey
    }

    func listen(host: String = "127.0.0.1", port: Int = 0) async throws -> TCPListener {
        try await running.transport.listen(host: host, port: port).get().tcp
    }

    func accepts(_ token: RoutingToken, from remote: PublicKey?) throws { try running.accepts(token, from: remote) }

    func acceptsKnocks(_ token: RoutingToken, answer: [UInt8]?) throws {
        try running.knockTokens = [token]
        try running.answer = answer
    }

    func echo() throws { try running.onFrame = { link, frame in try? link.send(frame) } }

    func dial(_ endpoint: Endpoint, _ token: RoutingToken, _ remote: PublicKey) async throws -> DialFailure? {
        let side = try running
        defer {
            side.onOpened = {}
            side.onFailed = {}
        }
        return await withCheckedContinuation { continuation in
            side.onOpened = { continuation.resume(returning: nil) }
            side.onFailed = { continuation.resume(returning: side.failures.last) }
            let before = side.failures.count
            _ = side.transport.dial(side.dial(remote, token, at: [endpoint]))
            // No event comes before the caller knows the dial's number.
            #expect(side.failures.count == before)
        }
    }

    func loss(of peer: PublicKey) throws -> LinkLoss? { try running.transport.loss(of: peer) }

    func exchange(_ frames: [[UInt8]]) async throws -> [[UInt8]] {
        let side = try running
        await withCheckedContinuation { (continuation: CheckedContinuation<Void, Never>) in
            side.onFrame = { _, _ in if side.frames.count == frames.count { continuation.resume() } }
            guard let link = side.links.last else { return continuation.resume() }
            for frame in frames { try? link.send(frame) }
            link.flush()
        }
        return side.frames
    }

    func sendAndClose(_ frames: [[UInt8]]) async throws -> LinkCloseReason? {
        let side = try running
        defer { side.onClosed = {} }
        await withCheckedContinuation { (continuation: CheckedContinuation<Void, Never>) in
            side.onClosed = { continuation.resume() }
            guard let link = side.links.last else { return continuation.resume() }
            for frame in frames { try? link.send(frame) }
            link.close()
        }
        return side.closed.last
    }

    func awaitClosed() async throws -> (reasons: [LinkCloseReason], frames: [[UInt8]]) {
        let side = try running
        if side.closed.isEmpty {
            await withCheckedContinuation { continuation in side.onClosed = { continuation.resume() } }
            side.onClosed = {}
        }
        return (side.closed, side.frames)
    }

    func knock(_ endpoint: Endpoint, _ token: RoutingToken, _ sealed: [UInt8]) async throws -> Result<
        [UInt8]?, DialFailure
    > {
        let side = try running
        return await withCheckedContinuation { continuation in
            side.transport.knock(at: endpoint, token: token, sealed: sealed) { continuation.resume(returning: $0) }
        }
    }

    func cancelled(_ endpoint: Endpoint, _ token: RoutingToken, _ remote: PublicKey) throws -> [DialFailure] {
        let side = try running
        side.transport.cancelDial(side.transport.dial(side.dial(remote, token, at: [endpoint])))
        return side.failures
    }

    func longestBatch() throws -> Int { try running.longestBatch }
    func rejections() throws -> [Rejection] { try running.rejections }
    func stop() throws { try running.transport.close() }

    private var running: Side { get throws { try #require(side) } }
}

private struct Loopback {
    let group = MultiThreadedEventLoopGroup(numberOfThreads: 1)
    let near: Node
    let far: Node
    let farKey: PublicKey
    let listener: TCPListener
    let token = RoutingSecret(SecretBytes(copying: [UInt8](repeating: 5, count: 32))).token(day: 1, counter: 1)

    init(farLimits: TransportLimits = .patient, nearLimits: TransportLimits = .patient) async throws {
        let loop = group.next()
        near = Node(loop)
        far = Node(loop)
        let nearKey = try await near.start(key: 0x11, limits: nearLimits)
        farKey = try await far.start(key: 0x21, limits: farLimits)
        listener = try await far.listen()
        try await far.accepts(token, from: nearKey)
    }

    var endpoint: Endpoint { Endpoint(host: "127.0.0.1", port: listener.address.port ?? 0) }

    func end() async throws {
        try await near.stop()
        try await far.stop()
        try await listener.close().get()
        try await group.shutdownGracefully()
    }
}

@Suite struct LoopbackTests {
    @Test func `a link over TCP opens, carries frames both ways and closes in order`() async throws {
        let net = try await Loopback()
        try await net.far.echo()
        #expect(try await net.near.dial(net.endpoint, net.token, net.farKey) == nil)
        let frames =
            (0..<1_500).map { [UInt8](repeating: UInt8($0 & 0x7f), count: $0) } + [[UInt8](repeating: 1, count: 65_535)]
        #expect(try await net.near.exchange(frames) == frames)
        #expect(try await net.near.sendAndClose([]) == .requested)
        #expect(try await net.far.awaitClosed().reasons == [.closedByPeer])
        try await net.end()
    }

    @Test func `a link hands over no more frames in one turn than its share`() async throws {
        let net = try await Loopback()
        try await net.far.echo()
        #expect(try await net.near.dial(net.endpoint, net.token, net.farKey) == nil)
        let short = (0..<10_000).map { [UInt8(truncatingIfNeeded: $0 >> 8), UInt8(truncatingIfNeeded: $0)] }
        let frames = short[..<5_000] + [[UInt8](repeating: 1, count: 65_535)] + short[5_000...]
        #expect(try await net.near.exchange(Array(frames)) == Array(frames))
        let share = TransportLimits().turnFrameCount + 1
        #expect(try await net.near.longestBatch() <= share)
        #expect(try await net.far.longestBatch() <= share)
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

    @Test func `frames sent before a close arrive, even while the other side keeps sending`() async throws {
        let net = try await Loopback()
        try await net.far.echo()
        #expect(try await net.near.dial(net.endpoint, net.token, net.farKey) == nil)
        let frames = (0..<200).map { [UInt8](repeating: UInt8($0), count: 5_000) }
        #expect(try await net.near.sendAndClose(frames) == .requested)
        let end = try await net.far.awaitClosed()
        #expect(end.frames == frames)
        #expect(end.reasons == [.closedByPeer])
        try await net.end()
    }

    @Test func `a dial opens a link by host name`() async throws {
        let net = try await Loopback()
        let named = Endpoint(host: "localhost", port: net.endpoint.port)
        #expect(try await net.near.dial(named, net.token, net.farKey) == nil)
        try await net.end()
    }

    @Test func `a node has several listeners, and a failed listen names its endpoint`() async throws {
        let net = try await Loopback()
        let second = try await net.far.listen()
        #expect(second.address.port != net.endpoint.port)
        await #expect(throws: ListenFailure.addressInUse(net.endpoint)) {
            try await net.far.listen(port: net.endpoint.port)
        }
        let strange = Endpoint(host: "192.0.2.1", port: 0)
        await #expect(throws: ListenFailure.addressNotAvailable(strange)) {
            try await net.far.listen(host: strange.host, port: strange.port)
        }
        await #expect(throws: ListenFailure.unresolvable(Endpoint(host: "127.0.0.1", port: 65_536))) {
            try await net.far.listen(port: 65_536)
        }
        await #expect(throws: ListenFailure.unresolvable(Endpoint(host: "no such host", port: 1))) {
            try await net.far.listen(host: "no such host", port: 1)
        }
        // The port of the closed listener is free again.
        try await net.listener.close().get()
        let again = try await net.far.listen(port: net.endpoint.port)
        #expect(again.address.port == net.endpoint.port)
        try await again.close().get()
        try await second.close().get()
        try await net.end()
    }

    @Test func `a failed TCP dial reports its reason`() async throws {
        let net = try await Loopback()
        try await net.listener.close().get()
        #expect(try await net.near.dial(net.endpoint, net.token, net.farKey) == .refused)
        for port in [0, 65_536, -1] {
            let endpoint = Endpoint(host: "127.0.0.1", port: port)
            #expect(try await net.near.dial(endpoint, net.token, net.farKey) == .unresolvable)
        }
        let nowhere = Endpoint(host: "no such host", port: 1)
        #expect(try await net.near.dial(nowhere, net.token, net.farKey) == .unresolvable)
        #expect(try await net.near.cancelled(net.endpoint, net.token, net.farKey).last == .cancelled)
        try await net.end()
    }

    @Test func `a dial with an unknown token or another inbox's key is closed before act 2`() async throws {
        let net = try await Loopback()
        let other = RoutingSecret(SecretBytes(copying: [UInt8](repeating: 6, count: 32))).token(day: 1, counter: 1)
        #expect(try await net.near.dial(net.endpoint, other, net.farKey) == .closedBeforeActTwo)
        let nobody = try SecretKey(SecretBytes(copying: [UInt8](repeating: 0x31, count: 32))).publicKey
        #expect(try await net.near.dial(net.endpoint, net.token, nobody) == .closedBeforeActTwo)
        #expect(try await net.far.rejections() == [.unknownToken, .handshake(.badCiphertext(.one))])
        try await net.end()
    }

    @Test func `a dial and a knock at a silent responder time out`() async throws {
        var limits = TransportLimits.patient
        limits.actTimeout = .milliseconds(50)
        let net = try await Loopback(nearLimits: limits)
        let silent = try await ServerBootstrap(group: net.group).bind(host: "127.0.0.1", port: 0).get()
        let endpoint = Endpoint(host: "127.0.0.1", port: silent.localAddress?.port ?? 0)
        #expect(try await net.near.dial(endpoint, net.token, net.farKey) == .timedOut)
        // The next dial announces short segments.
        #expect(try await net.near.loss(of: net.farKey)?.carrier == .tcp)
        let result = try await net.near.knock(endpoint, net.token, [1])
        #expect(result == .failure(.timedOut))
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
        let net = try await Loopback()
        let parrot = try await ServerBootstrap(group: net.group).childChannelInitializer { channel in
            channel.eventLoop.makeCompletedFuture { try channel.pipeline.syncOperations.addHandler(Parrot(line)) }
        }.bind(host: "127.0.0.1", port: 0).get()
        let endpoint = Endpoint(host: "127.0.0.1", port: parrot.localAddress?.port ?? 0)
        #expect(try await net.near.knock(endpoint, net.token, [1]) == .failure(.badAnswer))
        // The bytes are not a valid act 2, either.
        #expect(try await net.near.dial(endpoint, net.token, net.farKey) == .closedBeforeActTwo)
        try await parrot.close().get()
        try await net.end()
    }

    @Test func `a knock reaches a listener, and its answer comes back`() async throws {
        let net = try await Loopback()
        let sealed = [UInt8](repeating: 9, count: 1_024)
        #expect(try await net.near.knock(net.endpoint, net.token, sealed) == .success(nil))
        try await net.far.acceptsKnocks(net.token, answer: [4, 5, 6])
        #expect(try await net.near.knock(net.endpoint, net.token, sealed) == .success([4, 5, 6]))
        try await net.far.acceptsKnocks(net.token, answer: nil)
        #expect(try await net.near.knock(net.endpoint, net.token, sealed) == .success(nil))
        try await net.listener.close().get()
        #expect(try await net.near.knock(net.endpoint, net.token, sealed) == .failure(.refused))
        try await net.end()
    }
}
