import CSodium
import Crypto

/// X25519 (RFC 7748), a second Diffie-Hellman function for our Noise implementation. The published Noise vectors, which
/// do not use secp256k1, so exercise the same code.
struct X25519SecretKey: ~Copyable, Sendable {
    static let byteCount = 32
    private let secret: SecretBytes
    let publicKey: [UInt8]

    /// - Precondition: `secret` has 32 bytes.
    init(_ secret: consuming SecretBytes) {
        precondition(secret.byteCount == Self.byteCount)
        var publicKey = [UInt8](repeating: 0, count: 32)
        let result = secret.withBytes {
            crypto_scalarmult_curve25519_base(&publicKey, $0.baseAddress!.assumingMemoryBound(to: UInt8.self))
        }
        precondition(result == 0)
        self.secret = secret
        self.publicKey = publicKey
    }

    /// - Throws: ``CurveError/invalidPublicKey`` for a point of small order.
    borrowing func sharedSecret(with other: [UInt8]) throws(CurveError) -> SecretBytes {
        guard other.count == 32 else { throw .invalidPublicKey }
        return try secret.withBytes { secret throws(CurveError) in
            try SecretBytes(byteCount: 32) { output throws(CurveError) in
                let result = crypto_scalarmult_curve25519(
                    output.baseAddress!.assumingMemoryBound(to: UInt8.self),
                    secret.baseAddress!.assumingMemoryBound(to: UInt8.self), other)
                guard result == 0 else { throw .invalidPublicKey }
            }
        }
    }
}

extension X25519SecretKey: DiffieHellman {
    static var name: String { "25519" }
    static var pointByteCount: Int { 32 }

    static func point(_ bytes: ArraySlice<UInt8>) throws(CurveError) -> [UInt8] {
        guard bytes.count == 32 else { throw .invalidPublicKey }
        return Array(bytes)
    }
    static func bytes(of point: [UInt8]) -> [UInt8] { point }
}
