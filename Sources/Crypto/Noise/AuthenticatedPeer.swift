/// Evidence that the holder of ``publicKey`` is on the other end of a link. Only a finished handshake makes one:
/// the initialiser is internal to this module and used by ``LinkHandshake/finish()`` alone.
package struct AuthenticatedPeer: Hashable, Sendable {
    package let publicKey: PublicKey
    /// Names the handshake that is the evidence (Noise, section 11.2), 32 bytes.
    package let handshakeHash: [UInt8]
}
