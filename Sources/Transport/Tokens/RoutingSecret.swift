import Cryptography

/// Shown before any cryptography: 16 bytes that look random without their secret (Links.md, "Routing tokens").
package struct RoutingToken: Hashable, Sendable {
    package static let byteCount = 16
    /// The first 8 bytes, big-endian: the key of the routing table.
    package let head: UInt64
    let tail: UInt64

    /// Takes the first ``byteCount`` bytes; `nil` for fewer.
    package init?(_ bytes: some Collection<UInt8>) {
        guard bytes.count >= Self.byteCount else { return nil }
        head = bytes.prefix(8).reduce(0) { $0 << 8 | UInt64($1) }
        tail = bytes.dropFirst(8).prefix(8).reduce(0) { $0 << 8 | UInt64($1) }
    }

    /// HMAC-SHA-256(secret, message), cut to 16 bytes.
    fileprivate init(_ secret: borrowing SecretBytes, _ message: [UInt8]) {
        let code = secret.withBytes { HMACSHA256.authenticate(key: $0, message) }
        guard let token = RoutingToken(code) else { preconditionFailure("a code has 32 bytes") }
        self = token
    }

    package var bytes: [UInt8] { bigEndian(head) + bigEndian(tail) }
}

/// R: the 32-byte secret of the routing tokens of one direction of one link. A class, so that table and dialer share
/// it; the last reference wipes it.
package final class RoutingSecret: Sendable {
    package static let byteCount = 32
    private let secret: SecretBytes

    package init(_ secret: consuming SecretBytes) {
        precondition(secret.byteCount == Self.byteCount, "a routing secret has 32 bytes")
        self.secret = secret
    }

    /// The key of knocks, which reveals no other secret. Derived at each call.
    package var knock: KnockSecret { KnockSecret(HKDF.derive(secret: secret, info: "mayfly/1 knock")) }

    /// The key of LAN discovery tags, which reveals no other secret. Derived at each call.
    package var lan: LanSecret { secret.withBytes { LanSecret(routingSecret: $0) } }

    /// The secret of one direction between two members. Each side can derive both directions.
    /// - Parameter role: our own role in the links of this direction.
    package static func derive(own: IdentityKey, remote: PublicKey, conversation: [UInt8], role: Role) -> RoutingSecret
    {
        let (ours, theirs) = (own.publicKey.bytes, remote.bytes)
        let parties = role == .initiator ? ours + theirs : theirs + ours
        let shared = own.secret.sharedSecret(with: remote)
        return RoutingSecret(
            shared.withBytes {
                HKDF.derive(secret: $0, salt: conversation, info: Array("mayfly/1 routing member".utf8) + parties)
            })
    }

    /// The 32 bytes, to be sealed, only during `body`.
    package func withBytes<Result>(_ body: (UnsafeRawBufferPointer) -> Result) -> Result { secret.withBytes(body) }

    /// The secret that many dialers share, of a contact card or an invite.
    /// - Parameter purpose: `card` or `invite`, for separate domains.
    package static func derive(shared: borrowing SecretBytes, purpose: String) -> RoutingSecret {
        RoutingSecret(HKDF.derive(secret: shared, info: "mayfly/1 routing " + purpose))
    }

    package func token(day: UInt32, counter: UInt32) -> RoutingToken {
        RoutingToken(secret, bigEndian(UInt64(day) << 32 | UInt64(counter)))
    }

    /// A member's token, independent of clocks.
    package func token(_ generation: TokenGeneration, counter: UInt32) -> RoutingToken {
        RoutingToken(secret, bigEndian(UInt64(generation.day) << 32 | UInt64(generation.counter)) + bigEndian(counter))
    }

    /// A shared secret's token, independent of clocks.
    package func token(counter: UInt32) -> RoutingToken { RoutingToken(secret, bigEndian(counter)) }

    /// One of the 16 tokens of a shared secret, at random, of a day or of any day.
    package func sharedToken(day: UInt32?, using generator: inout some RandomNumberGenerator) -> RoutingToken {
        let counter = UInt32.random(in: 1...TokenLimits.shared, using: &generator)
        return day.map { token(day: $0, counter: counter) } ?? token(counter: counter)
    }
}

/// The key of knocks, derived from a routing secret and used for nothing else, so that a tombstone can keep it after
/// the inbox's keys are destroyed (Explode.md, "Knocks").
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

    package func token(day: UInt32) -> RoutingToken { RoutingToken(secret, bigEndian(day)) }

    /// The token of any day: HMAC-SHA-256(K, no bytes), cut to 16 bytes.
    package var token: RoutingToken { RoutingToken(secret, []) }

    /// The key that seals a knock's question, so that an observer of a token cannot ask.
    package var sealingKey: SecretBytes { HKDF.derive(secret: secret, info: "mayfly/1 knock seal") }
}
