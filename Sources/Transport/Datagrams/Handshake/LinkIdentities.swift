import Crypto

/// The rekey static keys of a link: they authenticate the handshakes of ``Rekeying``. Each side draws one per link and
/// sends it in sealed packets right after the first handshake. So the inbox's own key is neither needed nor held in
/// memory while its links are open.
struct LinkIdentities {
    private enum Sending { case owed, inFlight, acknowledged }

    private(set) var own: IdentityKey?
    private(set) var remote: PublicKey?
    private var sending = Sending.owed

    var isOwed: Bool { sending == .owed }

    /// Both sides have each other's key.
    var areKnown: Bool { sending == .acknowledged && remote != nil }

    mutating func send(_ make: () -> SecretKey) -> PublicKey {
        let key = own ?? IdentityKey(make())
        own = key
        sending = .inFlight
        return key.publicKey
    }

    mutating func acknowledged() { sending = .acknowledged }
    mutating func lost() { if sending == .inFlight { sending = .owed } }

    /// - Returns: false for an invalid key, our own, or a different one than before.
    mutating func receive(_ bytes: [UInt8]) -> Bool {
        if let remote { return remote.bytes == bytes }
        guard let key = try? PublicKey(bytes), key != own?.publicKey else { return false }
        remote = key
        return true
    }
}
