import Cryptography
import Glibc
import NIOCore
import NIOEmbedded
import Simulation
import Transport

/// Whole connections in memory, with the stream split anywhere.
let linkTargets: [FuzzTarget] = [
    // A stranger at our listener.
    FuzzTarget("link-responder", byteCountLimit: 8_192, cost: 10) {
        let recorded = try FuzzLink.record()
        var seeds = [0, 1, 17, 63].map { [UInt8($0)] + recorded.fromDialer }
        for piece in [0, 5] {
            seeds.append([UInt8(piece)] + [0x6b] + FuzzLink.knockToken.bytes + [0, 4, 1, 2, 3, 4])
            seeds.append([UInt8(piece)] + [0x6b] + FuzzLink.knockToken.bytes + [4, 1])
            for last in [2, 3] as [UInt8] {
                seeds.append([UInt8(piece)] + [0x63] + FuzzLink.codeToken.bytes + [1, 2, 3, 4, last, 6, 7])
            }
        }
        return seeds + [[0, 0x4d], [0] + Array("GET / HTTP/1.1\r\n\r\n".utf8)]
    } run: { bytes in
        let link = FuzzLink()
        let channel = try link.connection()
        try link.feed(bytes, to: channel)
        try link.finish([channel])
    },
    // A dialled peer that is the wrong one or misbehaves.
    FuzzTarget("link-dialer", byteCountLimit: 8_192, cost: 10) {
        let recorded = try FuzzLink.record()
        return [0, 1, 17, 63].map { [UInt8($0)] + recorded.fromResponder }
    } run: { bytes in
        let link = FuzzLink()
        let channel = try link.dial()
        try link.feed(bytes, to: channel)
        try link.finish([channel])
    },
    // Both ends are ours; a script sends, splits, changes, pauses and closes.
    FuzzTarget("link-session", byteCountLimit: 1_024, cost: 30) {
        [
            FuzzScript().byte(0, 0).run([1, 2, 3]).byte(1).run([4]).byte(7).bytes,
            FuzzScript().byte(1, 0).run([1, 2, 3]).byte(2).length(250, doubled: 2).byte(8, 9).bytes,
            FuzzScript().byte(40, 0).run([5]).byte(3).short(20).byte(7, 0).run([6]).byte(7).bytes,
            FuzzScript().byte(0, 4, 0).run([5]).byte(7, 5, 7, 6, 7).bytes,
            FuzzScript().byte(0, 10, 11, 12).run([9]).byte(7).bytes,
        ]
    } run: { bytes in
        try checkSession(bytes)
    },
    // Both ends are ours; a script lets time pass and sends frames of the exchange of new secrets, changed or not.
    FuzzTarget("rekey", byteCountLimit: 2_048, cost: 40) {
        [
            FuzzScript().byte(0, 61, 1).run([5]).byte(8, 2).run([6]).byte(8, 0, 61, 1).run([7]).byte(8).bytes,
            FuzzScript().byte(0, 31, 3).short(0).byte(0, 8, 1).run([5]).byte(8).bytes,
            FuzzScript().byte(0, 61, 1).run([5]).byte(6).short(0).byte(0, 8, 2).run([6]).byte(8).bytes,
            FuzzScript().byte(4).short(40).byte(1, 8, 5).short(2).byte(9, 8).bytes,
            FuzzScript().byte(7).run([1, 2, 3]).byte(8).bytes,
        ]
    } run: { bytes in
        try checkRekeys(bytes)
    },
]

/// Two transports on one embedded loop, with fixed keys, so that recorded bytes replay.
final class FuzzLink {
    static let token = RoutingSecret(SecretBytes(copying: [UInt8](repeating: 5, count: 32))).token(
        day: 20_000, counter: 1)
    static let knockToken = KnockSecret(SecretBytes(copying: [UInt8](repeating: 6, count: 32))).token(day: 20_000)

    static let codeToken = KnockSecret(SecretBytes(copying: [UInt8](repeating: 7, count: 32))).token(day: 20_000)

    static let rekey =
        [0xfe] + FuzzKeys.cid.publicKey.bytes
        + KeyEncapsulationSecret(seed: SecretBytes(copying: [UInt8](repeating: 3, count: 64))).encapsulationKey
    /// Any ciphertext is decapsulated.
    static let answer = [0xff] + FuzzKeys.cid.publicKey.bytes + [UInt8](repeating: 4, count: 1_088)

    let loop = EmbeddedEventLoop()
    // Lazy: most inputs need one of them.
    private(set) lazy var dialer = transport(0)
    private(set) lazy var responder = transport(1)
    private(set) var atDialer: PeerConnection?
    private(set) var atResponder: PeerConnection?
    private(set) var received: [[[UInt8]]] = [[], []]
    private(set) var ends = 0
    private(set) var starts = 0
    private var transports: [LinkTransport] = []

    private final class Owner: DialOwner {
        unowned let link: FuzzLink
        init(_ link: FuzzLink) { self.link = link }

        func token() -> RoutingToken? { FuzzLink.token }
        func opened(_ connection: PeerConnection) { link.atDialer = connection }
        func failed(_: DialFailure, _: LinkTransport.TokenHearing) { link.ends += 1 }
    }

    private func transport(_ side: Int) -> LinkTransport {
        let transport = LinkTransport(
            loop: loop, datagrams: nil, generator: SplitMix64(state: 1),
            makeEphemeral: { FuzzKeys.key(side == 0 ? 0x41 : 0x42).secret.clone() }, encapsulation: .repeating)
        transport.events = events(side)
        transports.append(transport)
        return transport
    }

    private func events(_ side: Int) -> TransportEvents {
        var events = TransportEvents()
        events.route = { token in
            token == Self.token ? RouteMatch(identity: FuzzKeys.bob, route: 7, remote: FuzzKeys.ann.publicKey) : nil
        }
        events.acceptsKnock = { $0 == Self.knockToken }
        events.knock = { _, sealed, _ in sealed.count.isMultiple(of: 2) ? sealed : nil }
        events.code = { $0 == Self.codeToken ? 4 : nil }
        events.codeMessage = { connection, message in
            if message.count == 4 {
                connection.answer([9, 9], expecting: 3)
            } else if message[0].isMultiple(of: 2) {
                connection.deliver([7])
            } else {
                connection.close()
            }
        }
        events.linkOpened = { [unowned self] connection in
            if side == 0 { atDialer = connection } else { atResponder = connection }
        }
        events.frame = { [unowned self] _, frame in received[side].append(frame) }
        events.batchEnded = { $0.flush() }
        events.linkClosed = { [unowned self] _, _ in ends += 1 }
        events.rejected = { [unowned self] _ in ends += 1 }
        return events
    }

    func connection() throws -> EmbeddedChannel {
        starts += 1
        let channel = EmbeddedChannel(loop: loop)
        let address = try SocketAddress(ipAddress: "192.0.2.1", port: 4_000)
        channel.remoteAddress = address
        try responder.accept(channel)
        channel.connect(to: address, promise: nil)
        return channel
    }

    func dial() throws -> EmbeddedChannel {
        starts += 1
        let channel = EmbeddedChannel(loop: loop)
        let dial = LinkTransport.Dial(identity: FuzzKeys.ann, remote: FuzzKeys.bob.publicKey, owner: Owner(self))
        _ = dialer.dial(dial, over: .channel(channel))
        channel.connect(to: try SocketAddress(ipAddress: "192.0.2.2", port: 4_000), promise: nil)
        return channel
    }

    func written(_ channel: EmbeddedChannel) throws -> [UInt8] {
        var bytes: [UInt8] = []
        while let buffer = try channel.readOutbound(as: ByteBuffer.self) { bytes += buffer.readableBytesView }
        return bytes
    }

    /// The first byte is the piece size in bytes, 0 for unsplit.
    func feed(_ bytes: [UInt8], to channel: EmbeddedChannel) throws {
        let rest = Array(bytes.dropFirst())
        try deliver(rest, to: channel, piece: Int(bytes.first ?? 0))
        loop.run()
    }

    func deliver(_ bytes: [UInt8], to channel: EmbeddedChannel, piece: Int) throws {
        let size = piece == 0 ? max(1, bytes.count) : max(piece, bytes.count / 512)
        for start in stride(from: 0, to: bytes.count, by: size) where channel.isActive {
            _ = try? channel.writeInbound(ByteBuffer(bytes: bytes[start..<min(bytes.count, start + size)]))
        }
    }

    /// Carries what both sides send until neither has more. The closure may change a stream; side 0 is the dialer's.
    func pump(
        _ near: EmbeddedChannel, _ far: EmbeddedChannel, piece: Int = 0,
        _ change: (_ side: Int, _ stream: inout [UInt8]) -> Void = { _, _ in }
    ) throws {
        atDialer?.flush()
        atResponder?.flush()
        for _ in 0..<64 {
            var isQuiet = true
            for (side, (from, to)) in [(near, far), (far, near)].enumerated() {
                var stream = try written(from)
                guard !stream.isEmpty else { continue }
                isQuiet = false
                change(side, &stream)
                try deliver(stream, to: to, piece: piece)
            }
            loop.run()
            if isQuiet { return }
        }
    }

    /// Lets time pass and closes everything: every connection must have been reported as ended, and none may remain.
    func finish(_ channels: [EmbeddedChannel]) throws {
        loop.advanceTime(by: .seconds(11))
        for transport in transports { transport.close() }
        loop.run()
        for channel in channels { _ = try? channel.finish(acceptAlreadyClosed: true) }
        let left = transports.reduce(0) { $0 + $1.connectionCount }
        try expect(left == 0, "\(left) connections are left")
        // A knock ends without a close event.
        try expect(ends <= starts, "\(ends) ends of \(starts) connections")
    }

    /// Records the bytes each side sends in a valid link.
    static func record() throws -> (fromDialer: [UInt8], fromResponder: [UInt8]) {
        let link = FuzzLink()
        let (near, far) = (try link.dial(), try link.connection())
        var sent: [[UInt8]] = [[], []]
        try link.pump(near, far) { sent[$0] += $1 }
        try expect(link.atDialer != nil && link.atResponder != nil, "the link does not open")
        for frame in [[1, 2, 3], [], [UInt8](repeating: 4, count: 300)] {
            try link.atDialer?.send(frame)
            try link.atResponder?.send(frame)
        }
        try link.pump(near, far) { sent[$0] += $1 }
        try link.finish([near, far])
        return (sent[0], sent[1])
    }
}

/// Two ends with an open link, and what each has sent.
private struct FuzzPair {
    let link = FuzzLink()
    let near: EmbeddedChannel
    let far: EmbeddedChannel
    var sent: [[[UInt8]]] = [[], []]

    init() throws { (near, far) = (try link.dial(), try link.connection()) }

    /// - Parameter side: of the receiver; 0 is the dialer's.
    mutating func send(_ frame: [UInt8], to side: Int) {
        let sender = side == 0 ? link.atResponder : link.atDialer
        if let sender, (try? sender.send(frame)) != nil { sent[side].append(frame) }
    }

    func finish(losesNothing: Bool = false) throws {
        for (sent, got) in zip(sent, link.received) {
            try expect(sent.starts(with: got), "\(got.count) frames arrived, and not as they were sent")
            try expect(!losesNothing || got == sent, "an honest exchange loses frames")
        }
        try link.finish([near, far])
    }
}

/// Frames must arrive in order however the stream is split; after a changed byte, only a prefix of them.
private func checkSession(_ bytes: [UInt8]) throws {
    var input = FuzzInput(bytes)
    var pair = try FuzzPair()
    let (link, near, far) = (pair.link, pair.near, pair.far)
    let piece = Int(input.byte())
    var change: (at: Int, value: UInt8)?

    func pump() throws {
        try link.pump(near, far, piece: piece) { _, stream in
            guard let (at, value) = change else { return }
            stream[at % stream.count] ^= value | 1
            change = nil
        }
    }
    try pump()
    FuzzTarget.preludeEnded()
    for _ in 0..<64 where !input.isAtEnd {
        let operation = input.index(below: 13)
        switch operation {
        case 0, 1: pair.send(input.run(), to: 1 - operation)
        case 2: pair.send([UInt8](repeating: 8, count: input.length()), to: 1)
        case 3: change = (Int(input.short()), input.byte())
        case 4: link.atResponder?.pauseReading()
        case 5: link.atResponder?.resumeReading()
        case 6: near.pipeline.fireUserInboundEventTriggered(ChannelEvent.inputClosed)
        case 7: try pump()
        case 8: link.atDialer?.close()
        case 9: link.atResponder?.abort(.protocolViolation)
        case 10: link.loop.advanceTime(by: .milliseconds(Int64(input.short())))
        case 11: far.pipeline.fireErrorCaught(IOError(errnoCode: ECONNRESET, reason: "read"))
        default: try link.deliver(input.run(), to: far, piece: 0)
        }
    }
    link.atResponder?.resumeReading()
    try pump()
    try pair.finish()
}

/// An honest exchange loses no frame; a forged one ends the link, and its frames never reach an owner.
private func checkRekeys(_ bytes: [UInt8]) throws {
    var input = FuzzInput(bytes)
    var pair = try FuzzPair()
    let (link, near, far) = (pair.link, pair.near, pair.far)
    try link.pump(near, far)
    FuzzTarget.preludeEnded()
    var isForged = false
    for _ in 0..<64 where !input.isAtEnd {
        let operation = input.index(below: 9)
        var frame: [UInt8]
        switch operation {
        case 0:
            link.loop.advanceTime(by: .minutes(Int64(input.byte())))
            continue
        case 1, 2:
            pair.send([8] + input.run(), to: operation & 1)
            continue
        case 3, 4, 5, 6:
            frame = operation < 5 ? FuzzLink.rekey : FuzzLink.answer
            let (at, change) = (Int(input.short()), input.byte())
            frame[1 + at % (frame.count - 1)] ^= change
        case 7: frame = [0xfe | UInt8(bytes.count & 1)] + input.run(isLong: true)
        default:
            try link.pump(near, far)
            continue
        }
        isForged = true
        try? (operation & 1 == 1 ? link.atDialer : link.atResponder)?.send(frame)
    }
    try link.pump(near, far)
    try pair.finish(losesNothing: !isForged && link.ends == 0)
}
