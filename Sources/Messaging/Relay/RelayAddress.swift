import Crypto

/// The place of one inbox at a rendezvous node of its: 16 bytes that its node and the rendezvous node compute from a label
/// (``RelaySecret``), and that its members are told.
package struct ReservationID: FixedBytes {
    package let value: Bytes16
    package init(_ value: Bytes16) { self.value = value }
}

/// What stands in an endpoint `relay://HOST:PORT/…` behind the address of a rendezvous node: what a stranger needs to
/// reach its contact inbox, and to whom it is to pass the stream on. Text form: unpadded base64url of key ‖ routing secret
/// ‖ reservation.
package struct RelayAddress: Hashable, Sendable {
    /// Of the rendezvous node's contact inbox.
    package let key: PublicKey
    /// As in its contact card.
    package let routingSecret: [UInt8]
    package let reservation: ReservationID

    private static let byteCount = PublicKey.byteCount + ContactCard.routingSecretByteCount + ReservationID.byteCount

    package init(key: PublicKey, routingSecret: [UInt8], reservation: ReservationID) {
        self.key = key
        self.routingSecret = routingSecret
        self.reservation = reservation
    }

    /// `nil` unless `text` is the whole text form.
    package init?(_ text: some StringProtocol) {
        guard let bytes = Base64URL.decode(text), bytes.count == Self.byteCount,
            // One text for each address.
            Base64URL.encode(bytes) == text
        else { return nil }
        let secret = bytes.dropFirst(PublicKey.byteCount).prefix(ContactCard.routingSecretByteCount)
        guard let key = try? PublicKey(bytes.prefix(PublicKey.byteCount)),
            let reservation = ReservationID(bytes.suffix(ReservationID.byteCount))
        else { return nil }
        self.init(key: key, routingSecret: Array(secret), reservation: reservation)
    }

    package var text: String { Base64URL.encode(key.bytes + routingSecret + reservation.bytes) }
}
