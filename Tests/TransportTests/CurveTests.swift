import Cryptography
import NIOCore
import NIOEmbedded
import Testing
import Transport

/// Computation that an unauthenticated peer can cause (page Links, "Preamble").
@Suite struct CurveTests {
    @Test func `an unknown token costs no curve operation, and a good one draws one ephemeral key`() throws {
        let loop = EmbeddedEventLoop()
        var drawn = 0
        var asked = 0
        let identity = IdentityKey(try SecretKey(SecretBytes(copying: [UInt8](repeating: 0x21, count: 32))))
        let good = RoutingSecret(SecretBytes(copying: [UInt8](repeating: 5, count: 32))).token(day: 20_000, counter: 1)
        let transport = LinkTransport(
            loop: loop, datagrams: nil,
            makeEphemeral: {
                drawn += 1
                return SecretKey.generate()
            })
        transport.events.route = { token in
            asked += 1
            return token == good ? RouteMatch(identity: identity, route: 1, remote: nil) : nil
        }
        defer {
            transport.close()
            loop.run()
        }
        var random = SplitMix64(state: 1)
        func connect(_ bytes: [UInt8]) throws {
            let channel = EmbeddedChannel(loop: loop)
            try transport.accept(channel)
            try channel.connect(to: SocketAddress(ipAddress: "192.0.2.1", port: 4_000)).wait()
            try channel.writeInbound(ByteBuffer(bytes: bytes))
            #expect(try channel.readOutbound(as: ByteBuffer.self) == nil)
            _ = try? channel.finish()
        }
        for _ in 0..<1_000 {
            let bytes = (0..<66).map { _ in UInt8.random(in: 0...255, using: &random) }
            try connect([0x4D] + bytes)
            try connect([0x6B] + bytes)
        }
        // Reading act 1 uses the node's own key and the ephemeral key: neither was used.
        #expect(drawn == 0 && asked == 1_000)
        try connect([0x4D] + good.bytes + [UInt8](repeating: 0, count: 50))
        #expect(drawn == 1)
    }
}
