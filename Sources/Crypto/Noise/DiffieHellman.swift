/// DH functions of the Noise specification (section 4.1), on the type of their secret keys.
///
/// Links use secp256k1 with the conventions of BOLT 8: 33-byte keys, ECDH = SHA-256 of the compressed point. The tests
/// conform X25519, which has published vectors.
package protocol DiffieHellman: ~Copyable, Sendable {
    /// A public key whose encoding has been checked.
    associatedtype Point: Hashable & Sendable

    /// The DH part of the protocol name.
    static var name: String { get }
    /// Bytes of an encoded public key, DHLEN in the specification.
    static var pointByteCount: Int { get }

    static func point(_ bytes: ArraySlice<UInt8>) throws(CurveError) -> Point
    static func bytes(of point: Point) -> [UInt8]

    var publicKey: Point { get }

    /// DH(self, other): 32 bytes.
    /// - Throws: ``CurveError/invalidPublicKey`` if the point has no usable product.
    borrowing func sharedSecret(with other: Point) throws(CurveError) -> SecretBytes
}

extension SecretKey: DiffieHellman {
    package static var name: String { "secp256k1" }
    package static var pointByteCount: Int { PublicKey.byteCount }

    package static func point(_ bytes: ArraySlice<UInt8>) throws(CurveError) -> PublicKey { try PublicKey(bytes) }
    package static func bytes(of point: PublicKey) -> [UInt8] { point.bytes }
}
