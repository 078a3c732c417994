import CSecp256k1
import Synchronization

package enum CurveError: Error, Equatable {
    /// Not the 33-byte compressed encoding of a point on secp256k1 (SEC 1, 2.3.4).
    case invalidPublicKey
    /// Zero, or not below the group order.
    case invalidSecretKey
    /// Not a signature encoding, or a recovery id outside 0…3.
    case invalidSignature
}

/// Immutable after its start, so any thread may use it.
enum Secp256k1 {
    // nonisolated(unsafe): never written after initialisation.
    nonisolated(unsafe) static let context: OpaquePointer = {
        guard let context = secp256k1_context_create(UInt32(SECP256K1_CONTEXT_NONE)) else {
            fatalError("libsecp256k1 could not be initialised")
        }
        let blinding = SecretBytes(randomByteCount: 32)
        let randomised = blinding.withBytes { secp256k1_context_randomize(context, $0.octets) }
        precondition(randomised == 1)
        return context
    }()
}

/// A secp256k1 public key: 33 compressed bytes (SEC 1, 2.3.3), a point on the curve by construction.
package struct PublicKey: Hashable, Sendable, Comparable {
    package static let byteCount = 33
    package let value: Bytes33

    package var bytes: [UInt8] { value.bytes }

    package func _rawHashValue(seed: Int) -> Int { value._rawHashValue(seed: seed) }

    package init(_ bytes: some Collection<UInt8>) throws(CurveError) { self = try Point(bytes).key }

    fileprivate init(value: Bytes33) { self.value = value }

    /// For keys that we sealed ourselves: parsing them again would be the largest cost of a start.
    /// - Returns: `nil` for bytes that cannot be a compressed key.
    package init?(unchecked bytes: some Sequence<UInt8>) {
        guard let value = Bytes33(bytes), value.head == 2 || value.head == 3 else { return nil }
        self.value = value
    }

    init(serializing key: inout secp256k1_pubkey) {
        value = withUnsafeTemporaryAllocation(byteCount: Self.byteCount, alignment: 1) { buffer in
            var count = Self.byteCount
            secp256k1_ec_pubkey_serialize(
                Secp256k1.context, buffer.octets, &count, &key, UInt32(SECP256K1_EC_COMPRESSED))
            return Bytes33(copying: UnsafeRawBufferPointer(buffer))
        }
    }

    /// BIP 340 verification under this key's x coordinate.
    package func isValid(_ signature: SchnorrSignature, for message: [UInt8]) -> Bool {
        var (point, xOnly) = (Point(self).parsed, secp256k1_xonly_pubkey())
        _ = secp256k1_xonly_pubkey_from_pubkey(Secp256k1.context, &xOnly, nil, &point)
        return secp256k1_schnorrsig_verify(Secp256k1.context, signature.bytes, message, message.count, &xOnly) == 1
    }

    /// Order of the compressed bytes: the tie-break of simultaneous dialling.
    package static func < (left: PublicKey, right: PublicKey) -> Bool { left.value < right.value }
}

/// A public key with its parsed point, for several uses. Parsing a compressed key takes a square root (5 µs).
struct Point: Sendable {
    let key: PublicKey
    fileprivate var parsed = secp256k1_pubkey()

    // A PublicKey is valid by construction.
    init(_ key: PublicKey) { self = try! Point(key.bytes) }

    init(_ bytes: some Collection<UInt8>) throws(CurveError) {
        let bytes = Array(bytes)
        guard bytes.count == PublicKey.byteCount, bytes[0] == 2 || bytes[0] == 3 else { throw .invalidPublicKey }
        guard secp256k1_ec_pubkey_parse(Secp256k1.context, &parsed, bytes, bytes.count) == 1 else {
            throw .invalidPublicKey
        }
        key = PublicKey(value: bytes.withUnsafeBytes { Bytes33(copying: $0) })
    }
}

/// A BIP 340 signature: 64 bytes, checked only by verification.
package struct SchnorrSignature: Hashable, Sendable {
    package static let byteCount = 64
    package let bytes: [UInt8]

    /// - Throws: ``CurveError/invalidSignature`` unless there are 64 bytes.
    package init(_ bytes: some Collection<UInt8>) throws(CurveError) {
        guard bytes.count == Self.byteCount else { throw .invalidSignature }
        self.bytes = Array(bytes)
    }
}

/// A recoverable ECDSA signature of an invite: 64 compact bytes and the recovery id. Its s is in the lower half of the
/// group order (BIP 62, rule 5), so others cannot derive a second signature from it.
package struct RecoverableSignature: Hashable, Sendable {
    package static let byteCount = 65
    package let bytes: [UInt8]

    package init(_ bytes: some Collection<UInt8>) throws(CurveError) {
        let bytes = Array(bytes)
        guard bytes.count == Self.byteCount, bytes[64] < 4 else { throw .invalidSignature }
        var parsed = secp256k1_ecdsa_recoverable_signature()
        guard
            secp256k1_ecdsa_recoverable_signature_parse_compact(Secp256k1.context, &parsed, bytes, Int32(bytes[64]))
                == 1
        else { throw .invalidSignature }
        var plain = secp256k1_ecdsa_signature()
        secp256k1_ecdsa_recoverable_signature_convert(Secp256k1.context, &plain, &parsed)
        // 1: s was high.
        guard secp256k1_ecdsa_signature_normalize(Secp256k1.context, nil, &plain) == 0 else { throw .invalidSignature }
        self.bytes = bytes
    }

    /// The key that made this signature over a 32-byte digest.
    /// - Throws: ``CurveError/invalidSignature`` if there is none.
    package func recoverKey(digest: [UInt8]) throws(CurveError) -> PublicKey {
        precondition(digest.count == 32)
        var parsed = secp256k1_ecdsa_recoverable_signature()
        secp256k1_ecdsa_recoverable_signature_parse_compact(Secp256k1.context, &parsed, bytes, Int32(bytes[64]))
        var key = secp256k1_pubkey()
        guard secp256k1_ecdsa_recover(Secp256k1.context, &key, &parsed, digest) == 1 else { throw .invalidSignature }
        return PublicKey(serializing: &key)
    }
}

package struct SecretKey: ~Copyable, Sendable {
    package static let byteCount = 32
    private let secret: SecretBytes
    package let publicKey: PublicKey

    package init(_ secret: consuming SecretBytes) throws(CurveError) {
        guard secret.byteCount == Self.byteCount else { throw .invalidSecretKey }
        var key = secp256k1_pubkey()
        let result = secret.withBytes { secp256k1_ec_pubkey_create(Secp256k1.context, &key, $0.octets) }
        guard result == 1 else { throw .invalidSecretKey }
        self.publicKey = PublicKey(serializing: &key)
        self.secret = secret
    }

    /// From the operating system's generator.
    package static func generate() -> SecretKey {
        while true {
            // One draw in 2^127 is not below the group order.
            if let key = try? SecretKey(SecretBytes(randomByteCount: byteCount)) { return key }
        }
    }

    /// A copy with an owner of its own.
    package borrowing func clone() -> SecretKey { SecretKey(secret: secret.clone(), publicKey: publicKey) }

    private init(secret: consuming SecretBytes, publicKey: PublicKey) {
        self.secret = secret
        self.publicKey = publicKey
    }

    /// ECDH as in BOLT 8: SHA-256 of the compressed shared point.
    package borrowing func sharedSecret(with other: PublicKey) -> SecretBytes { sharedSecret(with: Point(other)) }

    borrowing func sharedSecret(with other: Point) -> SecretBytes {
        var point = other.parsed
        return secret.withBytes { secret in
            SecretBytes(byteCount: 32) { output in
                let result = secp256k1_ecdh(Secp256k1.context, output.octets, &point, secret.octets, nil, nil)
                precondition(result == 1, "both keys are valid by construction")
            }
        }
    }

    /// BIP 340 signature of a 32-byte digest.
    /// - Parameter auxiliaryRandomness: 32 bytes that harden the nonce; an argument so that runs and vectors replay.
    package borrowing func sign(_ digest: [UInt8], auxiliaryRandomness: [UInt8]) -> SchnorrSignature {
        precondition(digest.count == 32 && auxiliaryRandomness.count == 32)
        var pair = secp256k1_keypair()
        defer { withUnsafeMutableBytes(of: &pair) { wipe($0) } }
        let made = secret.withBytes { secp256k1_keypair_create(Secp256k1.context, &pair, $0.octets) }
        var signature = [UInt8](repeating: 0, count: SchnorrSignature.byteCount)
        let result = secp256k1_schnorrsig_sign32(Secp256k1.context, &signature, digest, &pair, auxiliaryRandomness)
        precondition(made == 1 && result == 1)
        return try! SchnorrSignature(signature)
    }

    /// Recoverable ECDSA signature of a 32-byte digest (deterministic nonce, RFC 6979).
    package borrowing func signRecoverably(_ digest: [UInt8]) -> RecoverableSignature {
        precondition(digest.count == 32)
        var signature = secp256k1_ecdsa_recoverable_signature()
        let result = secret.withBytes {
            secp256k1_ecdsa_sign_recoverable(Secp256k1.context, &signature, digest, $0.octets, nil, nil)
        }
        precondition(result == 1)
        var bytes = [UInt8](repeating: 0, count: RecoverableSignature.byteCount)
        var recoveryID: Int32 = 0
        secp256k1_ecdsa_recoverable_signature_serialize_compact(Secp256k1.context, &bytes, &recoveryID, &signature)
        bytes[64] = UInt8(truncatingIfNeeded: recoveryID)
        return try! RecoverableSignature(bytes)
    }

    /// For derivations and sealing only.
    package borrowing func withBytes<Result: ~Copyable, Failure: Error>(
        _ body: (UnsafeRawBufferPointer) throws(Failure) -> Result
    ) throws(Failure) -> Result { try secret.withBytes(body) }
}

/// A shared reference to one inbox's secret key for links, tables and the key ring. The last reference wipes the key;
/// ``wipe()`` wipes it for all references.
package final class IdentityKey: Sendable {
    package let publicKey: PublicKey
    private let held: Mutex<SecretKey?>

    package init(_ secret: consuming SecretKey) {
        publicKey = secret.publicKey
        held = Mutex(secret)
    }

    /// Wipes the secret until ``restore(from:)``.
    package func wipe() { held.withLock { $0 = nil } }

    /// - Parameter other: the same key, derived again.
    package func restore(from other: IdentityKey) {
        guard other.publicKey == publicKey, !other.isWiped else { return }
        let secret = other.secret
        held.withLock { $0 = secret.clone() }
    }

    /// Whether the secret is wiped for now. Check this before using ``secret``.
    package var isWiped: Bool { held.withLock { $0 == nil } }

    /// A copy of the secret key. While ``isWiped`` it is a random key, so an unchecked use fails like a wrong key: its
    /// signatures verify nowhere, and its shared secrets match no other side's.
    package var secret: SecretKey { held.withLock { $0?.clone() ?? SecretKey.generate() } }
}
