import Cryptography
import Foundation
import Transport

/// The least possible costs on this machine at this time.
enum Floors {
    static func measure() -> String {
        let near = SecretKey.generate()
        let far = SecretKey.generate()
        let product = microseconds(2_000) { _ = near.sharedSecret(with: far.publicKey) }
        let key = microseconds(2_000) { _ = SecretKey.generate() }
        var table = RoutingTable(day: 20_000)
        for id in 0..<1_000 { table.addShared(UInt64(id), secret: RoutingSecret(SecretBytes(randomByteCount: 32))) }
        let unknown = (0..<1_000).compactMap { _ in RoutingToken(randomBytes(RoutingToken.byteCount)) }
        var matches = 0
        let probe = microseconds(100) { for token in unknown where table.match(token) != nil { matches += 1 } }
        let handshakes = (0..<500).map { _ in answer(near, far) }.reduce(0, +) / 500
        return String(
            format: """
                floors: an unknown token among 1,000 routes %.2f us; an ECDH %.0f us, a key %.0f us; \
                the responder's part of a handshake (a key and three ECDH) %.0f us \
                without any connection: at most %.0f/s on a core
                """, probe / Double(unknown.count), product, key, handshakes, 1_000_000 / handshakes)
    }

    private static func microseconds(_ count: Int, _ body: () -> Void) -> Double {
        let start = ContinuousClock.now
        for _ in 0..<count { body() }
        return (ContinuousClock.now - start) / .microseconds(1) / Double(count)
    }

    /// The responder's time for its part, in microseconds.
    private static func answer(_ near: borrowing SecretKey, _ far: borrowing SecretKey) -> Double {
        do {
            var initiator = try LinkHandshake.initiator(
                identity: near, remote: far.publicKey, ephemeral: SecretKey.generate(), prologue: [1])
            let one = try initiator.write()
            let start = ContinuousClock.now
            var responder = LinkHandshake.responder(identity: far, ephemeral: SecretKey.generate(), prologue: [1])
            try responder.read(one)
            let two = try responder.write()
            let between = ContinuousClock.now
            try initiator.read(two)
            let three = try initiator.write()
            let last = ContinuousClock.now
            try responder.read(three)
            return (between - start + (.now - last)) / .microseconds(1)
        } catch { return .infinity }
    }
}
