import Cryptography
import NIOCore
import NIOPosix
import Testing
import Transport

private enum Cut: CaseIterable {
    case beforeActOne, afterActOne, afterActTwo, afterActThree

    /// Bytes of the dialer and of the listener that the relay passes over TCP: preamble and act 1, act 2, act 3.
    var byteCounts: (dialer: Int, listener: Int) {
        switch self {
        case .beforeActOne: (40, 0)
        case .afterActOne: (17 + Act.one.byteCount, 0)
        case .afterActTwo: (17 + Act.one.byteCount, Act.two.byteCount)
        case .afterActThree: (17 + Act.one.byteCount + Act.three.byteCount, Act.two.byteCount)
        }
    }

    /// Whether the relay passes a datagram kind: 1 dial, 2 answer, 3 finish, 4 cookie; all others are sealed.
    func passes(_ kind: UInt8) -> Bool {
        switch self {
        case .beforeActOne: false
        case .afterActOne: kind == 1
        case .afterActTwo: kind == 1 || kind == 2 || kind == 4
        case .afterActThree: (1...4).contains(kind)
        }
    }
}

/// A relay in front of a listener that cuts connections and datagrams. Confined to its loop.
private final class CuttingRelay: @unchecked Sendable {
    let loop: any EventLoop
    var target: SocketAddress?
    var cut: Cut?
    var whenCut: () -> Void = {}
    private(set) var address: SocketAddress?
    private var listener: (any Channel)?
    private var dialer: SocketAddress?

    init(_ loop: any EventLoop) { self.loop = loop }

    func listen(overUDP: Bool) -> EventLoopFuture<Void> {
        let bound = NIOLoopBound(self, eventLoop: loop)
        let opened: EventLoopFuture<any Channel>
        if overUDP {
            opened = DatagramBootstrap(group: loop).channelInitializer { channel in
                channel.eventLoop.makeCompletedFuture {
                    try channel.pipeline.syncOperations.addHandler(Datagrams(bound.value))
                }
            }.bind(host: "127.0.0.1", port: 0)
        } else {
            opened = ServerBootstrap(group: loop).childChannelInitializer { channel in bound.value.join(channel) }.bind(
                host: "127.0.0.1", port: 0)
        }
        return opened.map { channel in
            bound.value.listener = channel
            bound.value.address = channel.localAddress
        }
    }

    func close() -> EventLoopFuture<Void> { listener?.close() ?? loop.makeSucceededVoidFuture() }

    private func join(_ near: any Channel) -> EventLoopFuture<Void> {
        guard let target else { return near.close() }
        let bound = NIOLoopBound(self, eventLoop: loop)
        let (toListener, toDialer) = (Pipe(self, isDialer: true), Pipe(self, isDialer: false))
        let pipes = NIOLoopBound((toListener, toDialer), eventLoop: loop)
        return ClientBootstrap(group: loop).channelInitializer { channel in
            channel.eventLoop.makeCompletedFuture { try channel.pipeline.syncOperations.addHandler(pipes.value.1) }
        }.connect(to: target).flatMapThrowing { far in
            _ = bound.value
            pipes.value.0.other = far
            pipes.value.1.other = near
            try near.pipeline.syncOperations.addHandler(pipes.value.0)
        }
    }

    private final class Pipe: ChannelInboundHandler {
        typealias InboundIn = ByteBuffer
        let relay: CuttingRelay
        let isDialer: Bool
        var other: (any Channel)?
        private var passed = 0

        init(_ relay: CuttingRelay, isDialer: Bool) {
            self.relay = relay
            self.isDialer = isDialer
        }

        func channelRead(context: ChannelHandlerContext, data: NIOAny) {
            var bytes = unwrapInboundIn(data)
            let limit = relay.cut.map { isDialer ? $0.byteCounts.dialer : $0.byteCounts.listener } ?? .max
            let room = limit - passed
            if let piece = bytes.readSlice(length: min(room, bytes.readableBytes)) {
                passed += piece.readableBytes
                other?.writeAndFlush(piece, promise: nil)
            }
            guard bytes.readableBytes > 0 else { return }
            other?.close(promise: nil)
            context.close(promise: nil)
            relay.whenCut()
        }

        func channelInactive(context: ChannelHandlerContext) { other?.close(promise: nil) }
        func errorCaught(context: ChannelHandlerContext, error: any Error) { context.close(promise: nil) }
    }

    private final class Datagrams: ChannelInboundHandler {
        typealias InboundIn = AddressedEnvelope<ByteBuffer>
        let relay: CuttingRelay
        init(_ relay: CuttingRelay) { self.relay = relay }

        func channelRead(context: ChannelHandlerContext, data: NIOAny) {
            let datagram = unwrapInboundIn(data)
            if datagram.remoteAddress != relay.target { relay.dialer = datagram.remoteAddress }
            let kind = datagram.data.getInteger(at: datagram.data.readerIndex + 1, as: UInt8.self).map { $0 & 15 } ?? 0
            if let cut = relay.cut, !cut.passes(kind) { return relay.whenCut() }
            guard let to = datagram.remoteAddress == relay.target ? relay.dialer : relay.target else { return }
            context.writeAndFlush(NIOAny(AddressedEnvelope(remoteAddress: to, data: datagram.data)), promise: nil)
        }
    }
}

/// A member with its routing table, dialer and saved counters. Confined to its loop.
private final class MemberEnd: @unchecked Sendable {
    let identity: IdentityKey
    private let remote: PublicKey
    private let loop: any EventLoop
    private let overUDP: Bool
    private let day: UInt32
    private let secrets: (dial: RoutingSecret, accept: RoutingSecret)
    private var transport: LinkTransport?
    private var listener: TCPListener?
    private var table: RoutingTable
    private var tokens: DialTokens
    private var saved: (dial: DialCounters, accept: ListenerCounters) = (DialCounters(), ListenerCounters())
    let relay: CuttingRelay
    /// The current dial; its promise tells whether a frame has arrived over its link.
    private var dial: (number: UInt64, promise: EventLoopPromise<Bool>)?

    init(_ loop: any EventLoop, own: UInt8, remote: UInt8, overUDP: Bool, day: UInt32) throws {
        func key(_ byte: UInt8) throws -> IdentityKey {
            IdentityKey(try SecretKey(SecretBytes(copying: [UInt8](repeating: byte, count: 32))))
        }
        func secret(_ from: UInt8) -> RoutingSecret {
            RoutingSecret(SecretBytes(copying: [UInt8](repeating: from, count: 32)))
        }
        (self.loop, self.overUDP, self.day) = (loop, overUDP, day)
        identity = try key(own)
        self.remote = try key(remote).publicKey
        secrets = (secret(own), secret(remote))
        table = RoutingTable(day: day)
        table.addMember(1, secret: secrets.accept)
        tokens = DialTokens(secret: secrets.dial)
        relay = CuttingRelay(loop)
    }

    /// Saves the minimum, as late as permitted.
    private func save() { saved = (tokens.counters, table.counters(ofMember: 1)) }

    func start() -> EventLoopFuture<Void> {
        var limits = TransportLimits()
        limits.handshakesInFlight = 10_000
        limits.handshakesPerPrefix = 10_000
        let transport = LinkTransport(
            loop: loop, network: overUDP ? NoTCP() : Sockets(), datagrams: overUDP ? Sockets() : nil, limits: limits)
        self.transport = transport
        let match = RouteMatch(identity: identity, route: 1, remote: remote)
        transport.events.isKnown = { [unowned self] in table.match($0).map { !$0.isKnock } ?? false }
        transport.events.route = { [unowned self] token in
            guard table.match(token).map({ !$0.isKnock }) ?? false else { return nil }
            if table.show(token) { save() }
            return match
        }
        transport.events.linkOpened = { [unowned self] link in
            if table.use(link.token) { save() }
            try? link.send([1])
            link.flush()
        }
        transport.events.frame = { [unowned self] link, _ in
            guard link.role == .initiator else { return }
            if tokens.confirmed(link.token) { save() }
            end(true)
            link.abort()
        }
        transport.events.linkClosed = { [unowned self] link, _ in if link.role == .initiator { end(false) } }
        let bound = NIOLoopBound(self, eventLoop: loop)
        return transport.listen(host: "127.0.0.1", port: 0).map { listening in
            bound.value.listener = listening.tcp
            bound.value.relay.target = listening.tcp.address
        }
    }

    func stop() -> EventLoopFuture<Void> {
        transport?.close()
        return listener?.close() ?? loop.makeSucceededVoidFuture()
    }

    func crash() -> EventLoopFuture<Void> {
        stop().assumeIsolated().flatMap { [self] in
            table = RoutingTable(day: day)
            table.addMember(1, secret: secrets.accept, counters: saved.accept)
            tokens = DialTokens(secret: secrets.dial, saved: saved.dial)
            return start()
        }.nonisolated()
    }

    func dial(through relay: CuttingRelay) -> EventLoopFuture<Bool> {
        let promise = loop.makePromise(of: Bool.self)
        guard let transport, let port = relay.address?.port else { return loop.makeSucceededFuture(false) }
        let owner = TestDial(tokens.nextToken())
        owner.onAnswered = { [unowned self] in if tokens.answered($0) { save() } }
        owner.onOpened = { [unowned self] in if tokens.answered($0.token) { save() } }
        owner.onFailed = { [unowned self] _, _ in end(false) }
        let number = transport.dial(
            LinkTransport.Dial(
                endpoints: [Endpoint(host: "127.0.0.1", port: port)], identity: identity, remote: remote, owner: owner))
        dial = (number, promise)
        // Over UDP a cut dial would wait for its timeout.
        relay.whenCut = { [unowned self] in
            guard overUDP, dial?.number == number else { return }
            loop.assumeIsolated().execute {
                guard self.dial?.number == number else { return }
                self.transport?.cancelDial(number)
                self.end(false)
            }
        }
        return promise.futureResult
    }

    private func end(_ isLinked: Bool) {
        guard let dial else { return }
        self.dial = nil
        dial.promise.succeed(isLinked)
    }
}

@Suite struct CutDialTests {
    @Test(arguments: [false, true], [false, true])
    func `the first uncut dial opens a link after a thousand cuts at every act and restarts`(
        overUDP: Bool, isApart: Bool
    ) async throws {
        let group = MultiThreadedEventLoopGroup(numberOfThreads: 1)
        let loop = group.next()
        let ends = try await loop.submit {
            [
                try MemberEnd(loop, own: 0x11, remote: 0x21, overUDP: overUDP, day: 20_000),
                try MemberEnd(loop, own: 0x21, remote: 0x11, overUDP: overUDP, day: isApart ? 1 : 20_000),
            ]
        }.get()
        for end in ends {
            try await loop.flatSubmit { end.relay.listen(overUDP: overUDP) }.get()
            try await loop.flatSubmit { end.start() }.get()
        }
        var random = SplitMix64(state: overUDP ? 1 : 2)
        func links(_ dialer: Int, _ cut: Cut?) async throws -> Bool {
            let (end, relay) = (ends[dialer], ends[1 - dialer].relay)
            return try await loop.flatSubmit {
                relay.cut = cut
                return end.dial(through: relay)
            }.get()
        }
        for step in 1...1_000 {
            let dialer = Int.random(in: 0...1, using: &random)
            // Long runs of one kind alternate with runs of all kinds.
            let cut = step / 100 % 2 == 0 ? Cut.afterActTwo : Cut.allCases.randomElement(using: &random)
            let isLinked = try await links(dialer, cut)
            #expect(!isLinked)
            if step % 40 == 0 {
                let end = ends[Int.random(in: 0...1, using: &random)]
                try await loop.flatSubmit { end.crash() }.get()
            }
            guard step % 125 == 0 else { continue }
            for dialer in 0...1 {
                let isLinked = try await links(dialer, nil)
                #expect(isLinked, "after \(step) cuts, dialled by \(dialer)")
            }
        }
        for end in ends {
            try await loop.flatSubmit { end.stop() }.get()
            try await loop.flatSubmit { end.relay.close() }.get()
        }
        try await group.shutdownGracefully()
    }
}
