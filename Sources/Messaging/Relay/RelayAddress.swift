import Cryptography

/// An inbox's place at one of its rendezvous nodes: 16 bytes that both nodes derive from a label (``RelaySecret``).
package struct ReservationID: FixedBytes {
    package let value: Bytes16
    package init(_ value: Bytes16) { self.value = value }
}

/// The part of an endpoint `relay://HOST:PORT/…` behind the rendezvous node's address: unpadded base64url of key ‖
/// routing secret ‖ reservation.
package struct RelayAddress: Hashable, Sendable {
    /// The rendezvous node's contact inbox.
    package let key: PublicKey
    package let routingSecret: [UInt8]
    package let reservation: ReservationID

    private static let byteCount = PublicKey.byteCount + ContactCard.routingSecretByteCount + ReservationID.byteCount

    package var text: String { Base64URL.encode(key.bytes + routingSecret + reservation.bytes) }
}

extension RelayAddress {
    package init?(_ text: some StringProtocol) {
        guard let bytes = Base64URL.decode(text), bytes.count == Self.byteCount else { return nil }
        let secret = bytes.dropFirst(PublicKey.byteCount).prefix(ContactCard.routingSecretByteCount)
        guard let key = try? PublicKey(bytes.prefix(PublicKey.byteCount)),
            let reservation = ReservationID(bytes.suffix(ReservationID.byteCount))
        else { return nil }
        self.init(key: key, routingSecret: Array(secret), reservation: reservation)
    }
}
