import Cryptography
import NIOCore
import NIOEmbedded
import NIOPosix
import Testing

@testable import Transport

/// A listener's socket, and connections that send any bytes.
private struct Street {
    let net: SocketPair
    let knock = [0x6b] + SocketPair.token.bytes + [0, 3, 1, 2, 3]

    /// - Parameter patience: Timeout of act 1. Long by default, because a busy machine answers late.
    init(patience: TimeAmount = .hours(1), crowd: Int = 10_000) async throws {
        net = try await SocketPair { loop, key in
            var limits = TransportLimits()
            (limits.actTimeout, limits.handshakeTimeout) = (patience, .hours(1))
            limits.connectionsBeforeToken = crowd
            return try Side(loop, key: key, limits: limits)
        }
        try await net.act { _, far in (far.knockTokens, far.answer) = ([SocketPair.token], [7]) }
    }

    private final class Ear: ChannelInboundHandler {
        typealias InboundIn = ByteBuffer
        let end: EventLoopPromise<[UInt8]>
        var bytes: [UInt8] = []

        init(_ end: EventLoopPromise<[UInt8]>) { self.end = end }

        func channelRead(context: ChannelHandlerContext, data: NIOAny) {
            bytes += unwrapInboundIn(data).readableBytesView
        }
        func errorCaught(context: ChannelHandlerContext, error: any Error) { context.close(promise: nil) }
        func handlerRemoved(context: ChannelHandlerContext) { end.succeed(bytes) }
    }

    /// A silent connection, and the bytes it receives until it closes.
    func connect() async throws -> (channel: any Channel, heard: EventLoopFuture<[UInt8]>) {
        let loop = net.loop
        let end = loop.makePromise(of: [UInt8].self)
        let channel = try await ClientBootstrap(group: loop).channelOption(.tcpOption(.tcp_nodelay), value: 1)
            .channelInitializer { channel in
                channel.eventLoop.makeCompletedFuture { try channel.pipeline.syncOperations.addHandler(Ear(end)) }
            }.connect(to: net.listening.tcp.address).get()
        return (channel, end.futureResult)
    }

    func say(_ bytes: [UInt8], _ channel: any Channel) async throws {
        try await channel.writeAndFlush(ByteBuffer(bytes: bytes)).get()
    }

    /// Connects and knocks, so that all earlier connections have been accepted.
    func knockAndListen() async throws {
        let (channel, heard) = try await connect()
        try await say(knock, channel)
        #expect(try await heard.get() == [0, 1, 7])
    }

    func rejections() async throws -> [Rejection] { try await net.act { _, far in far.rejections } }
    func routesAsked() async throws -> Int { try await net.act { _, far in far.routesAsked } }
    func connectionCount() async throws -> Int { try await net.act { _, far in far.transport.connectionCount } }
    func end() async throws { try await net.end() }
}

@Suite struct DoorwayTests {
    @Test func `a silent connection is closed in time and never reaches the node's loop`() async throws {
        let street = try await Street(patience: .milliseconds(200))
        var ends: [EventLoopFuture<[UInt8]>] = []
        for number in 0..<100 {
            let (channel, heard) = try await street.connect()
            // Half of the connections send part of a preamble.
            if number.isMultiple(of: 2) { try? await street.say([0x4d, 1, 2], channel) }
            ends.append(heard)
        }
        #expect(try await street.connectionCount() == 0)
        for end in ends { #expect(try await end.get() == []) }
        #expect(try await street.connectionCount() == 0)
        var rejections: [Rejection] = []
        while rejections.count < 100 { rejections = try await street.rejections() }
        #expect(rejections == [Rejection](repeating: .timedOut, count: 100))
        try await street.end()
    }

    @Test func `a preamble may come byte by byte`() async throws {
        let street = try await Street()
        let (channel, heard) = try await street.connect()
        for byte in street.knock { try await street.say([byte], channel) }
        #expect(try await heard.get() == [0, 1, 7])
        try await street.end()
    }

    @Test func `connections with unknown tokens or protocols are closed before they reach the node's loop`()
        async throws
    {
        let street = try await Street()
        var ends: [EventLoopFuture<[UInt8]>] = []
        for number in 0..<300 {
            let (channel, heard) = try await street.connect()
            let kind: UInt8 = [0x4d, 0x6b, 0x47][number % 3]
            try await street.say([kind] + [UInt8](repeating: UInt8(number % 251), count: 66), channel)
            ends.append(heard)
        }
        for end in ends { #expect(try await end.get() == []) }
        try await street.knockAndListen()
        let rejections = try await street.rejections()
        #expect(rejections.count { $0 == .unknownToken } == 200 && rejections.count { $0 == .unknownProtocol } == 100)
        #expect(try await street.routesAsked() == 0)
        try await street.end()
    }

    @Test func `noise behind a known token gets eight handshakes, then one a second`() async throws {
        let (street, start) = (try await Street(), ContinuousClock.now)
        for _ in 0..<100 {
            let (channel, heard) = try await street.connect()
            try? await street.say([0x4d] + SocketPair.token.bytes + [UInt8](repeating: 9, count: 2_000), channel)
            #expect(try await heard.get() == [])
        }
        try await street.knockAndListen()
        let (asked, seconds) = (try await street.routesAsked(), (ContinuousClock.now - start) / .seconds(1))
        #expect((8...9 + Int(seconds)).contains(asked))
        let refused = try await street.rejections().count { $0 == .tooManyFromPrefix }
        #expect(refused == 100 - asked)
        try await street.end()
    }

    @Test func `a crowded listener drops older silent connections and still hears a knock`() async throws {
        let street = try await Street(crowd: 10)
        var connections: [(channel: any Channel, heard: EventLoopFuture<[UInt8]>)] = []
        for _ in 0..<30 { connections.append(try await street.connect()) }
        // Connections are accepted in order, so after this knock all are there.
        try await street.knockAndListen()
        let rejections = try await street.rejections()
        #expect(rejections == [Rejection](repeating: .crowdedOut, count: rejections.count))
        #expect((20...21).contains(rejections.count))
        // The newest connections are kept.
        try await street.say(street.knock, connections[29].channel)
        #expect(try await connections[29].heard.get() == [0, 1, 7])
        try await street.net.listening.tcp.close().get()
        for connection in connections { _ = try await connection.heard.get() }
        try await street.end()
    }

    @Test func `a connection that hangs up at once leaves nothing behind`() async throws {
        let street = try await Street()
        for _ in 0..<50 {
            let (channel, heard) = try await street.connect()
            // The listener may have closed it before.
            try? await channel.close().get()
            _ = try await heard.get()
        }
        try await street.knockAndListen()
        let rejections = try await street.rejections()
        #expect(rejections == [Rejection](repeating: .disconnected, count: rejections.count))
        try await street.end()
    }
}

/// Timeouts, and bytes received before the channel is set up.
@Suite struct OpeningTests {
    @Test func `connections that time out together are closed a few per turn`() throws {
        let wire = try Wire()
        for _ in 0..<100 { _ = try wire.connection() }
        wire.loop.advanceTime(by: TransportLimits().actTimeout - .nanoseconds(1))
        #expect(wire.responder.rejections.isEmpty)
        wire.loop.advanceTime(by: .nanoseconds(1))
        let share = TransportLimits().endsPerTurn
        #expect(wire.responder.rejections.count == share)
        wire.loop.advanceTime(by: TransportLimits().pauseBetweenTurns)
        #expect(wire.responder.rejections.count == 2 * share)
        wire.loop.advanceTime(by: .milliseconds(20))
        #expect(wire.responder.rejections == [Rejection](repeating: .timedOut, count: 100))
        #expect(wire.responder.transport.connectionCount == 0)
    }

    @Test func `bytes and time before a connection's channel exists count for its handshake`() throws {
        let wire = try Wire()
        let near = try wire.dial()
        let greeting = try wire.written(near)
        func accept(_ bytes: [UInt8], after age: TimeAmount) throws -> EmbeddedChannel {
            wire.loop.advanceTime(by: age)
            return try wire.connection(Opening(bytes: bytes, since: wire.loop.now - age, network: nil))
        }
        let far = try accept(greeting, after: .seconds(4))
        try wire.pump()
        #expect(wire.dialer.links.count == 1 && wire.responder.links.count == 1)
        // The preamble alone has arrived: act 1 has the rest of its five seconds.
        let slow = try accept(Array(greeting.prefix(17)), after: .seconds(4))
        #expect(slow.isActive)
        wire.loop.advanceTime(by: .milliseconds(999))
        #expect(slow.isActive)
        wire.loop.advanceTime(by: .milliseconds(1))
        #expect(!slow.isActive && wire.responder.rejections == [.timedOut])
        // The first bytes arrive after the timeout.
        let late = try accept(greeting, after: .seconds(11))
        wire.loop.run()
        #expect(!late.isActive)
        _ = try? near.finish()
        _ = try? far.finish()
    }
}
