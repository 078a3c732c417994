import Crypto

/// The key of knocks, derived from a routing secret and used for nothing else, so that a tombstone can keep it after
/// the inbox's keys are destroyed (Explode.md, "Knocks"). One for each direction of a pair of members, one for an
/// invite.
package final class KnockSecret: Sendable {
    package static let byteCount = 32
    private let secret: SecretBytes

    package init(_ secret: consuming SecretBytes) {
        precondition(secret.byteCount == Self.byteCount, "a knock secret has 32 bytes")
        self.secret = secret
    }

    /// From a tombstone; `nil` unless there are 32 bytes.
    package init?(bytes: [UInt8]) {
        guard bytes.count == Self.byteCount else { return nil }
        secret = SecretBytes(copying: bytes)
    }

    package var bytes: [UInt8] { secret.withBytes { Array($0) } }

    /// The token of a day: HMAC-SHA-256(K, day as 32 bits, big-endian), cut to 16 bytes.
    /// - Parameter day: days since the start of 1970, UTC.
    package func token(day: UInt32) -> RoutingToken { RoutingToken(secret, bigEndian(day)) }

    /// The token of any day: HMAC-SHA-256(K, no bytes), cut to 16 bytes.
    package var token: RoutingToken { RoutingToken(secret, []) }

    /// The key that seals a knock's question, so that an observer of a token cannot ask.
    package var sealingKey: SecretBytes { HKDF.derive(secret: secret, info: "mayfly/1 knock seal") }
}
