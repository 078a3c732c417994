import Cryptography

/// An inbox's box at its mailbox: 16 bytes that owner and mailbox derive from a label (``MailboxSecret``). The owner's
/// profile tells it to the members.
package struct BoxID: FixedBytes {
    package let value: Bytes16
    package init(_ value: Bytes16) { self.value = value }
}

/// One inbox of an owner at one mailbox; known to those two only.
package struct BoxLabel: FixedBytes {
    package let value: Bytes16
    package init(_ value: Bytes16) { self.value = value }
}

/// The capability to take and discard a slot's contents. Only sender and owner can make it: 24 secret bytes, and 8 that
/// are also in the ``SlotID``.
package struct SlotTag: FixedBytes {
    static let secretByteCount = 24
    package let value: Bytes32
    package init(_ value: Bytes32) { self.value = value }
}

/// Names a slot in its box: the first 8 bytes of BLAKE2b-128 of the tag's secret bytes, and the tag's other 8. The hash
/// hides the tag from an observer of a put.
package struct SlotID: FixedBytes {
    static let hashByteCount = 8
    package let value: Bytes16
    package init(_ value: Bytes16) { self.value = value }

    package init(_ tag: SlotTag) {
        let (secret, mark) = (tag.bytes.prefix(SlotTag.secretByteCount), tag.bytes.dropFirst(SlotTag.secretByteCount))
        self.init(unchecked: Self.hash(Array(secret)) + mark)
    }

    static func hash(_ secret: [UInt8]) -> [UInt8] {
        Array(BLAKE2b.hash(secret, byteCount: byteCount).prefix(hashByteCount))
    }
}

/// From which a mailbox and an owner derive boxes and proofs: the static-static ECDH of their contact inboxes.
package final class MailboxSecret: Sendable {
    private let shared: SecretBytes
    private let info: [UInt8]

    /// - Parameter own: the contact inbox of one of the two.
    package init(mailbox: PublicKey, owner: PublicKey, own: IdentityKey) {
        let other = own.publicKey == mailbox ? owner : mailbox
        shared = own.secret.sharedSecret(with: other)
        info = mailbox.bytes + owner.bytes
    }

    /// Deterministic on both sides. Another user of the mailbox cannot claim this box.
    package func box(_ label: BoxLabel) -> BoxID {
        BoxID(unchecked: derive("mayfly/1 mailbox box", label.bytes, BoxID.byteCount))
    }

    /// 32 bytes that prove the owner's identity over a link under another key.
    package func proof(of link: PublicKey) -> [UInt8] { derive("mayfly/1 mailbox claim", link.bytes, 32) }

    private func derive(_ purpose: String, _ argument: [UInt8], _ byteCount: Int) -> [UInt8] {
        let derived = shared.withBytes { HKDF.derive(secret: $0, info: Array(purpose.utf8) + info + argument) }
        return derived.withBytes { Array($0.prefix(byteCount)) }
    }
}

extension RelaySeed {
    /// Another label for each mailbox, and another than at a rendezvous node.
    package func boxLabel(at mailbox: PublicKey) -> BoxLabel { label("mayfly/1 mailbox label", at: mailbox) }
}

/// Our mailbox, as addresses of boxes need it.
package struct MailboxPlace: Sendable {
    let endpoint: Endpoint
    package let key: PublicKey
    let routingSecret: [UInt8]
    let secret: MailboxSecret

    /// `nil` for a card without a direct address.
    package init?(_ card: ContactCard, own: IdentityKey) {
        guard let endpoint = card.endpoints.first(where: { $0.relay == nil && $0.port > 0 }) else { return nil }
        self.endpoint = endpoint
        key = card.key
        routingSecret = card.routingSecret
        secret = MailboxSecret(mailbox: card.key, owner: own.publicKey, own: own)
    }

    package func box(of seed: RelaySeed) -> BoxID { secret.box(seed.boxLabel(at: key)) }

    /// The proof of a claim over a link under this key of ours.
    package func proof(of link: PublicKey) -> [UInt8] { secret.proof(of: link) }

    func address(of seed: RelaySeed) -> MailboxAddress? {
        let address = MailboxAddress(
            host: endpoint.host, port: endpoint.port, key: key, routingSecret: routingSecret, box: box(of: seed))
        return address.text.utf8.count <= Limits.endpointByteCount ? address : nil
    }
}

/// Where an owner's box is, in the owner's signed profile: `mailbox://HOST:PORT/` and unpadded base64url of the
/// mailbox's contact key ‖ routing secret ‖ box.
package struct MailboxAddress: Hashable, Sendable {
    package let host: String
    package let port: UInt16
    /// The mailbox's contact inbox.
    package let key: PublicKey
    package let routingSecret: [UInt8]
    package let box: BoxID

    private static let scheme = "mailbox://"
    private static let byteCount = PublicKey.byteCount + ContactCard.routingSecretByteCount + BoxID.byteCount

    package init(host: String, port: UInt16, key: PublicKey, routingSecret: [UInt8], box: BoxID) {
        (self.host, self.port, self.key, self.routingSecret, self.box) = (host, port, key, routingSecret, box)
    }

    package init?(_ text: String) {
        guard text.utf8.count <= Limits.endpointByteCount, text.hasPrefix(Self.scheme) else { return nil }
        let rest = text.dropFirst(Self.scheme.count)
        guard let slash = rest.firstIndex(of: "/"), let address = Endpoint("tcp://" + rest[..<slash]), address.port > 0
        else { return nil }
        let coded = rest[rest.index(after: slash)...]
        guard let bytes = Base64URL.decode(coded), bytes.count == Self.byteCount,
            let key = try? PublicKey(bytes.prefix(PublicKey.byteCount)), let box = BoxID(bytes.suffix(BoxID.byteCount))
        else { return nil }
        let secret = bytes.dropFirst(PublicKey.byteCount).prefix(ContactCard.routingSecretByteCount)
        self.init(host: address.host, port: address.port, key: key, routingSecret: Array(secret), box: box)
    }

    package var endpoint: Endpoint { Endpoint(host: host, port: port) }

    package var text: String {
        let address = host.contains(":") ? "[\(host)]:\(port)" : "\(host):\(port)"
        return "\(Self.scheme)\(address)/\(Base64URL.encode(key.bytes + routingSecret + box.bytes))"
    }
}
