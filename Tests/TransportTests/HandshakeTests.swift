import Cryptography
import NIOCore
import NIOEmbedded
import Testing
import Transport

@Suite struct RefusalTests {
    @Test func `a dial with an unknown token gets no answer at all`() throws {
        let wire = try Wire()
        wire.responder.routes = [:]
        let (near, far) = try (wire.dial(), wire.connection())
        try wire.send(wire.written(near), to: far)
        #expect(!far.isActive)
        #expect(try wire.written(far).isEmpty)
        #expect(wire.responder.rejections == [.unknownToken])
        _ = try? near.finish()
        #expect(wire.dialer.failures == [.closedBeforeActTwo])
    }

    @Test func `a dialer that is not the route's member is dropped at act 3`() throws {
        let wire = try Wire()
        let other = try SecretKey(SecretBytes(copying: [UInt8](repeating: 0x31, count: 32))).publicKey
        wire.responder.accepts(wire.token, from: other)
        let (near, far) = try (wire.dial(), wire.connection())
        try wire.pump()
        #expect(!far.isActive)
        #expect(wire.responder.rejections == [.wrongPeer])
        #expect(wire.responder.links.isEmpty && wire.responder.closed.isEmpty)
        // In XK the dialer opens before the responder has checked act 3; it learns of the end.
        _ = try? near.finish()
        #expect(wire.dialer.closed == [.closedByPeer])
    }

    @Test func `a route for anyone admits any dialer and reports its key`() throws {
        let wire = try Wire()
        wire.responder.accepts(wire.token, from: nil)
        try wire.link()
        #expect(wire.responder.links[0].peer.publicKey == wire.dialer.identity.publicKey)
    }

    @Test(arguments: [true, false]) func `a dial for another key, or a token changed on the way, fails at act 1`(
        isChanged: Bool
    ) throws {
        let wire = try Wire()
        let token = RoutingSecret(SecretBytes(copying: [UInt8](repeating: 5, count: 32))).token(day: 1, counter: 1)
        wire.responder.accepts(token, from: nil)
        let other = try SecretKey(SecretBytes(copying: [UInt8](repeating: 0x31, count: 32))).publicKey
        let (near, far) = try (wire.dial(to: isChanged ? nil : other), wire.connection())
        var bytes = try wire.written(near)
        if isChanged { bytes.replaceSubrange(1..<17, with: token.bytes) }
        try wire.send(bytes, to: far)
        #expect(wire.responder.rejections == [.handshake(.badCiphertext(.one))])
        #expect(try wire.written(far).isEmpty)
    }

    @Test func `an unknown token costs no curve operation, and a good one draws one ephemeral key`() throws {
        let wire = try Wire()
        var random = SplitMix64(state: 1)
        func connect(_ bytes: [UInt8]) throws {
            let channel = try wire.connection()
            try wire.send(bytes, to: channel)
            #expect(try wire.written(channel).isEmpty)
            _ = try? channel.finish()
        }
        for _ in 0..<1_000 {
            let bytes = random.bytes(66)
            for kind in [0x4d, 0x6b] as [UInt8] { try connect([kind] + bytes) }
        }
        // Reading act 1 uses the node's own key and the ephemeral key: neither was used.
        #expect(wire.responder.keysDrawn == 0 && wire.responder.routesAsked == 1_000)
        try connect([0x4d] + wire.token.bytes + [UInt8](repeating: 0, count: Act.one.byteCount))
        #expect(wire.responder.keysDrawn == 1)
    }

    @Test func `a node does not dial its own inbox`() throws {
        let wire = try Wire()
        let near = try wire.dial(to: wire.dialer.identity.publicKey)
        #expect(wire.dialer.failures == [.authenticationFailed(.reflection)])
        #expect(try wire.written(near).isEmpty)
        #expect(!near.isActive)
    }

    @Test func `a connection with a flood of bytes before its handshake is closed at once`() throws {
        for first in [[0x4d], [0x6b], [0x00]] as [[UInt8]] {
            let wire = try Wire()
            wire.responder.knockTokens = [wire.token]
            let channel = try wire.connection()
            try wire.send(first + wire.token.bytes + [UInt8](repeating: 0xff, count: 1 << 20), to: channel)
            #expect(!channel.isActive)
            #expect(try wire.written(channel).isEmpty)
            #expect(wire.responder.rejections.count == 1)
            #expect(wire.responder.transport.connectionCount == 0)
        }
    }
}

@Suite struct DeadlineTests {
    @Test func `a preamble or act 1 that stops anywhere times out after five seconds`() throws {
        for byteCount in [0, 1, 16, 17, 18, 16 + Act.one.byteCount] {
            let (wire, near, far) = try Wire.met()
            try wire.send(Array(wire.written(near).prefix(byteCount)), to: far)
            wire.loop.advanceTime(by: .milliseconds(4_999))
            #expect(far.isActive && wire.responder.rejections.isEmpty)
            wire.loop.advanceTime(by: .milliseconds(1))
            #expect(!far.isActive)
            #expect(wire.responder.rejections == [.timedOut])
            #expect(wire.dialer.failures == [.timedOut])
            #expect(wire.responder.transport.connectionCount == 0)
        }
    }

    @Test(arguments: [0, 1, 65]) func `an act 3 that stops anywhere times out five seconds after act 2`(byteCount: Int)
        throws
    {
        let (wire, near, far) = try Wire.met()
        wire.loop.advanceTime(by: .seconds(3))
        try wire.send(wire.written(near), to: far)
        try wire.send(wire.written(far), to: near)
        try wire.send(Array(wire.written(near).prefix(byteCount)), to: far)
        wire.loop.advanceTime(by: .milliseconds(4_999))
        #expect(far.isActive)
        wire.loop.advanceTime(by: .milliseconds(1))
        #expect(!far.isActive)
        #expect(wire.responder.rejections == [.timedOut])
    }

    @Test func `the whole handshake has ten seconds, however long an act has`() throws {
        let (wire, near, far) = try Wire.met { $0.actTimeout = .seconds(8) }
        wire.loop.advanceTime(by: .seconds(7))
        try wire.send(wire.written(near), to: far)
        wire.loop.advanceTime(by: .milliseconds(2_999))
        #expect(far.isActive)
        wire.loop.advanceTime(by: .milliseconds(1))
        #expect(!far.isActive)
        #expect(wire.responder.rejections == [.timedOut])
    }

    @Test func `a byte every second does not extend a handshake's deadline`() throws {
        let wire = try Wire()
        let far = try wire.connection()
        for _ in 0..<10 where far.isActive {
            try wire.send([0x4d], to: far)
            wire.loop.advanceTime(by: .seconds(1))
        }
        #expect(!far.isActive)
        #expect(wire.responder.rejections == [.timedOut])
    }
}

@Suite struct AdmissionTests {
    /// A connection that has sent its preamble.
    private func greet(_ wire: Wire, from address: String) throws -> EmbeddedChannel {
        let channel = try wire.connection(from: address)
        try wire.send([0x4d] + wire.token.bytes, to: channel)
        return channel
    }

    @Test func `one network gets at most eight handshakes in flight`() throws {
        let wire = try Wire { $0.handshakesWaitingPerPrefix = 0 }
        let channels = try (1...9).map { try greet(wire, from: "192.0.2.\($0)") }
        #expect(channels.map(\.isActive) == [Bool](repeating: true, count: 8) + [false])
        #expect(wire.responder.rejections == [.tooManyFromPrefix])
        // Other networks are not limited, and a closed connection makes room.
        #expect(try greet(wire, from: "192.0.3.1").isActive)
        _ = try? channels[0].finish()
        #expect(try greet(wire, from: "192.0.2.10").isActive)
    }

    @Test func `more of a network wait, and a place passes to the first that is still there`() throws {
        let wire = try Wire { ($0.handshakesPerPrefix, $0.handshakesWaitingPerPrefix) = (1, 2) }
        let channels = try (1...4).map { try greet(wire, from: "192.0.2.\($0)") }
        #expect(channels.map(\.isActive) == [true, true, true, false])
        #expect(wire.responder.rejections == [.tooManyFromPrefix])
        #expect(wire.responder.routesAsked == 2)
        // The second has gone when its turn comes, so the third gets the place, and a newcomer waits.
        _ = try? channels[1].finish()
        _ = try? channels[0].finish()
        wire.loop.run()
        let fifth = try greet(wire, from: "192.0.2.5")
        #expect(wire.responder.routesAsked == 3 && channels[2].isActive && fifth.isActive)
        // A connection whose route is gone passes its place on.
        wire.responder.known = [wire.token]
        wire.responder.routes = [:]
        let sixth = try greet(wire, from: "192.0.2.6")
        _ = try? channels[2].finish()
        for _ in 0..<3 { wire.loop.run() }
        #expect(wire.responder.routesAsked == 5 && !fifth.isActive && !sixth.isActive)
        #expect(wire.responder.rejections.suffix(2) == [.unknownToken, .unknownToken])
        wire.responder.accepts(wire.token, from: nil)
        #expect(try greet(wire, from: "192.0.2.7").isActive)
        #expect(wire.responder.routesAsked == 6)
    }

    @Test func `an IPv6 network counts by 48 bits, and mapped IPv4 counts as IPv4`() throws {
        let wire = try Wire { ($0.handshakesPerPrefix, $0.handshakesWaitingPerPrefix) = (1, 0) }
        let addresses = [
            "2001:db8:1:1::1", "2001:db8:1:2::1", "2001:db8:2:1::1", "192.0.2.1", "::ffff:192.0.2.200",
            "::ffff:192.0.3.1",
        ]
        let areAdmitted = try addresses.map { try greet(wire, from: $0).isActive }
        #expect(areAdmitted == [true, false, true, true, false, true])
    }

    @Test func `all networks together get a limited number of handshakes, and open links do not count`() throws {
        let wire = try Wire { $0.handshakesInFlight = 2 }
        try wire.link()
        #expect(wire.near.isActive && wire.far.isActive)
        let areAdmitted = try (1...3).map { try greet(wire, from: "198.51.\($0).1").isActive }
        #expect(areAdmitted == [true, true, false])
        #expect(wire.responder.rejections == [.tooManyHandshakes])
    }

    @Test func `a new silent connection beyond the limit replaces an older one`() throws {
        let wire = try Wire { $0.connectionsBeforeToken = 10 }
        var channels: [EmbeddedChannel] = []
        for _ in 0..<30 {
            let channel = try wire.connection()
            #expect(channel.isActive)
            channels.append(channel)
        }
        #expect(channels.filter(\.isActive).count == 10)
        #expect(wire.responder.rejections == [Rejection](repeating: .crowdedOut, count: 20))
        // The newest connections are kept.
        #expect(channels.suffix(5).allSatisfy { $0.isActive })
    }
}

@Suite struct KnockTests {
    private let sealed = [UInt8](repeating: 0xee, count: 300)
    private let wire: Wire

    init() throws {
        wire = try Wire()
        wire.responder.knockTokens = [wire.token]
    }

    private func knock(_ body: [UInt8], declared: Int? = nil) throws -> EmbeddedChannel {
        let channel = try wire.connection()
        try wire.send([0x6b] + wire.token.bytes + bigEndian(UInt16(declared ?? body.count)) + body, to: channel)
        return channel
    }

    @Test func `a knock reaches the owner, and its answer comes back framed`() throws {
        wire.responder.answer = [1, 2, 3]
        let channel = try knock(sealed)
        #expect(wire.responder.knocks == [sealed])
        #expect(try wire.written(channel) == [0, 3, 1, 2, 3])
        #expect(!channel.isActive && wire.responder.rejections.isEmpty)
        #expect(wire.responder.transport.connectionCount == 0)
    }

    @Test func `an unanswered knock and one with an unknown token are closed without a byte`() throws {
        let unanswered = try knock(sealed)
        #expect(wire.responder.knocks == [sealed] && wire.responder.rejections.isEmpty)
        wire.responder.knockTokens = []
        let unknown = try knock(sealed)
        #expect(wire.responder.rejections == [.unknownToken] && wire.responder.knocks.count == 1)
        for channel in [unknown, unanswered] {
            #expect(!channel.isActive)
            #expect(try wire.written(channel).isEmpty)
        }
    }

    @Test(arguments: [0, 1_024, 1_025, 65_535]) func `a knock of 1 to 1,024 bytes is read, and no other`(count: Int)
        throws
    {
        let isRead = count == 1_024
        let channel = try knock([UInt8](repeating: 1, count: isRead ? count : 0), declared: count)
        #expect(!channel.isActive && wire.responder.knocks.map(\.count) == (isRead ? [count] : []))
        #expect(wire.responder.rejections == (isRead ? [] : [.knockTooLong]))
    }

    @Test func `an incomplete knock times out after five seconds`() throws {
        let channel = try knock([1], declared: 2)
        wire.loop.advanceTime(by: .seconds(5))
        #expect(!channel.isActive && wire.responder.rejections == [.timedOut])
    }
}
