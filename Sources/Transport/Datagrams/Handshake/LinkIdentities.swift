import Crypto

/// The keys by which the two sides of a link show themselves in handshakes for new keys (``Rekeying``). Each side draws
/// one for the link alone and sends it in sealed packets, right after the handshake that has shown who is there. So an
/// inbox's own key is not needed, and not held, while its links are open.
struct LinkIdentities {
    private enum Sending { case owed, inFlight, acknowledged }

    private(set) var own: IdentityKey?
    private(set) var remote: PublicKey?
    private var sending = Sending.owed

    var isOwed: Bool { sending == .owed }

    /// Whether each side has the other's.
    var areKnown: Bool { sending == .acknowledged && remote != nil }

    /// Our key, to be sent.
    mutating func send(_ make: () -> SecretKey) -> PublicKey {
        let key = own ?? IdentityKey(make())
        own = key
        sending = .inFlight
        return key.publicKey
    }

    mutating func acknowledged() { sending = .acknowledged }
    mutating func lost() { if sending == .inFlight { sending = .owed } }

    /// - Returns: false for what the peer may not send: no key, ours, or another than before.
    mutating func receive(_ bytes: [UInt8]) -> Bool {
        if let remote { return remote.bytes == bytes }
        guard let key = try? PublicKey(bytes), key != own?.publicKey else { return false }
        remote = key
        return true
    }
}
