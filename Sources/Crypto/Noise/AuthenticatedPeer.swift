/// Evidence that the holder of ``publicKey`` is on the other end of a link. Only ``LinkHandshake`` makes it, after a
/// finished handshake.
package struct AuthenticatedPeer: Hashable, Sendable {
    package let publicKey: PublicKey
    /// Names the handshake (Noise, section 11.2), 32 bytes.
    package let handshakeHash: [UInt8]
}
