import Cryptography
import NIOCore
import NIOEmbedded
import Testing

@testable import Transport

extension TransportLimits {
    /// Limits for tests over sockets that do not test timeouts: a busy machine answers late.
    static var patient: TransportLimits {
        var limits = TransportLimits()
        limits.actTimeout = .minutes(2)
        limits.handshakeTimeout = .minutes(4)
        limits.closeTimeout = .minutes(2)
        limits.silence = .minutes(4)
        limits.datagramPatience = .minutes(2)
        return limits
    }
}

/// The owner of a test's dial. Confined to its loop.
final class TestDial: DialOwner {
    private let shown: RoutingToken?
    var number: UInt64 = 0
    var onRefused: () -> Void = {}
    var onOpened: (PeerConnection) -> Void = { _ in }
    var onFailed: (DialFailure, LinkTransport.TokenHearing) -> Void = { _, _ in }

    init(_ token: RoutingToken?) { shown = token }

    func token() -> RoutingToken? { shown }
    func answered(_ token: RoutingToken) {}
    func tokenRefused() { onRefused() }
    func opened(_ connection: PeerConnection) { onOpened(connection) }
    func failed(_ failure: DialFailure, _ hearing: LinkTransport.TokenHearing) { onFailed(failure, hearing) }
}

/// One node's transport, and the events it received. Confined to its loop.
final class Side: @unchecked Sendable {
    private final class Counter { var count = 0 }

    private let drawn: Counter
    var keysDrawn: Int { drawn.count }
    let transport: LinkTransport
    let identity: IdentityKey
    var routes: [RoutingToken: RouteMatch] = [:]
    /// Tokens that are known, but lead nowhere.
    var known: Set<RoutingToken> = []
    var routesAsked = 0
    var knockTokens: Set<RoutingToken> = []
    var answer: [UInt8]?

    var links: [PeerConnection] = []
    var frames: [[UInt8]] = []
    var batches = 0
    var closed: [LinkCloseReason] = []
    /// Dials that have failed.
    var ended: [(number: UInt64, failure: DialFailure, hearing: LinkTransport.TokenHearing)] = []
    var failures: [DialFailure] { ended.map(\.failure) }
    /// How often a dial's token was refused.
    var refused = 0
    var rejections: [Rejection] = []
    var knocks: [[UInt8]] = []
    var writable = 0
    var onFrame: (PeerConnection, [UInt8]) -> Void = { _, _ in }
    /// Called after each event.
    var changed: () -> Void = {}
    /// Sent over the last link as it becomes writable.
    var waiting: [[UInt8]] = []

    init(
        _ loop: any EventLoop, key: UInt8, network: any Network = Sockets(), datagrams: (any DatagramNetwork)? = nil,
        limits: TransportLimits = TransportLimits()
    ) throws {
        identity = IdentityKey(try SecretKey(SecretBytes(copying: [UInt8](repeating: key, count: 32))))
        let drawn = Counter()
        self.drawn = drawn
        transport = LinkTransport(
            loop: loop, network: network, datagrams: datagrams, limits: limits,
            generator: SplitMix64(state: UInt64(key)),
            makeEphemeral: {
                drawn.count += 1
                return SecretKey.generate()
            })
        var events = TransportEvents()
        events.route = { [unowned self] in
            routesAsked += 1
            return routes[$0]
        }
        events.isKnown = { [unowned self] in routes[$0] != nil || known.contains($0) }
        events.acceptsKnock = { [unowned self] in knockTokens.contains($0) }
        events.knock = { [unowned self] _, sealed, _ in
            knocks.append(sealed)
            return answer
        }
        events.linkOpened = { [unowned self] in
            links.append($0)
            write()
            changed()
        }
        events.frame = { [unowned self] in
            frames.append($1)
            onFrame($0, $1)
            changed()
        }
        events.batchEnded = { [unowned self] in
            batches += 1
            $0.flush()
        }
        events.becameWritable = { [unowned self] _ in
            writable += 1
            write()
        }
        events.linkClosed = { [unowned self] in
            closed.append($1)
            changed()
        }
        events.rejected = { [unowned self] in
            rejections.append($0)
            changed()
        }
        transport.events = events
    }

    func echo() { onFrame = { link, frame in try? link.send(frame) } }

    func write() {
        guard let link = links.last, !waiting.isEmpty else { return }
        while link.isWritable, !waiting.isEmpty { try? link.send(waiting.removeFirst()) }
        link.flush()
    }

    /// A dial whose link and failure are events of this side.
    /// - Returns: its number.
    @discardableResult func dial(
        _ remote: PublicKey, _ token: RoutingToken, at endpoints: [Endpoint] = [],
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
            transport, LinkTransport.Dial(endpoints: endpoints, identity: identity, remote: remote, owner: owner))
        return owner.number
    }

    func accepts(_ token: RoutingToken, from remote: PublicKey?) {
        routes[token] = RouteMatch(identity: identity, route: 7, remote: remote)
    }
}

final class Wire {
    let loop = EmbeddedEventLoop()
    let dialer: Side
    let responder: Side
    let token: RoutingToken
    private var dialled: [EmbeddedChannel] = []
    private var accepted: [EmbeddedChannel] = []
    /// The latest dial's channel, and the latest connection's.
    var near: EmbeddedChannel { dialled[dialled.count - 1] }
    var far: EmbeddedChannel { accepted[accepted.count - 1] }

    typealias Change = (inout TransportLimits) -> Void

    init(_ change: Change = { _ in }) throws {
        var limits = TransportLimits()
        change(&limits)
        dialer = try Side(loop, key: 0x11, limits: limits)
        responder = try Side(loop, key: 0x21, limits: limits)
        token = RoutingSecret(SecretBytes(copying: [UInt8](repeating: 5, count: 32))).token(day: 20_000, counter: 1)
        responder.accepts(token, from: dialer.identity.publicKey)
    }

    deinit {
        dialer.transport.close()
        responder.transport.close()
        loop.run()
    }

    /// - Parameter opening: what has come before the channel.
    func connection(from address: String = "192.0.2.1", _ opening: Opening? = nil) throws -> EmbeddedChannel {
        let channel = EmbeddedChannel(loop: loop)
        accepted.append(channel)
        channel.remoteAddress = try SocketAddress(ipAddress: address, port: 4_000)
        try responder.transport.accept(channel, opening)
        try channel.connect(to: SocketAddress(ipAddress: address, port: 4_000)).wait()
        return channel
    }

    /// A dial whose preamble and act 1 wait in the channel.
    func dial(to remote: PublicKey? = nil, token: RoutingToken? = nil) throws -> EmbeddedChannel {
        let channel = EmbeddedChannel(loop: loop)
        dialled.append(channel)
        dialer.dial(remote ?? responder.identity.publicKey, token ?? self.token) {
            $0.dial($1, over: .channel(channel))
        }
        try channel.connect(to: SocketAddress(ipAddress: "192.0.2.2", port: 4_000)).wait()
        return channel
    }

    func link() throws {
        _ = try (dial(), connection())
        try pump()
        try #require(dialer.links.count == 1 && responder.links.count == 1)
    }

    /// A dial and a connection that have exchanged nothing yet.
    static func met(_ change: Change = { _ in }) throws -> (Wire, near: EmbeddedChannel, far: EmbeddedChannel) {
        let wire = try Wire(change)
        return (wire, try wire.dial(), try wire.connection())
    }

    static func linked(_ change: Change = { _ in }) throws -> Wire {
        let wire = try Wire(change)
        try wire.link()
        return wire
    }

    /// Sends frames over a side's link, by default the dialer's, into its channel.
    func say(_ frames: [[UInt8]], from side: Side? = nil) throws {
        let link = (side ?? dialer).links[0]
        for frame in frames { try link.send(frame) }
        link.flush()
    }

    func pass(_ frames: [[UInt8]], from side: Side? = nil) throws {
        try say(frames, from: side)
        try pump()
    }

    func pump(piece: Int? = nil) throws {
        while true {
            let there = try carry(near, far, piece: piece)
            let back = try carry(far, near, piece: piece)
            loop.run()
            if !there, !back { return }
        }
    }

    private func carry(_ from: EmbeddedChannel, _ to: EmbeddedChannel, piece: Int?) throws -> Bool {
        let bytes = try written(from)
        guard !bytes.isEmpty else { return false }
        for start in stride(from: 0, to: bytes.count, by: piece ?? bytes.count) {
            guard to.isActive else { return true }
            try to.writeInbound(ByteBuffer(bytes: bytes[start..<min(bytes.count, start + (piece ?? bytes.count))]))
        }
        return true
    }

    func written(_ channel: EmbeddedChannel) throws -> [UInt8] {
        var bytes: [UInt8] = []
        while let buffer = try channel.readOutbound(as: ByteBuffer.self) { bytes += buffer.readableBytesView }
        return bytes
    }

    func send(_ bytes: [UInt8], to channel: EmbeddedChannel) throws {
        if channel.isActive { try channel.writeInbound(ByteBuffer(bytes: bytes)) }
        loop.run()
    }
}

extension Network {
    func listen(at endpoint: Endpoint, limits: TransportLimits, on loop: any EventLoop, reception: Reception)
        -> EventLoopFuture<TCPListener>
    { Sockets().listen(at: endpoint, limits: limits, on: loop, reception: reception) }
}

/// A network on which every TCP connection fails, for a reason that says least.
struct NoTCP: Network {
    func connect(to endpoint: Endpoint, limits: TransportLimits, on loop: any EventLoop) -> EventLoopFuture<any Channel>
    { loop.makeFailedFuture(SocketAddressError.unsupported) }
}
