import Cryptography
import Messaging
import Transport

/// An owner of mailbox boxes: a contact inbox among the mailbox's named peers, with hand-coded links.
package struct BoxOwner: Sendable {
    package let identity: IdentityKey
    private let card: ContactCard
    private let day: UInt32
    private let secret: MailboxSecret

    /// - Parameters:
    ///   - mailbox: The mailbox's card with one direct address on this machine.
    ///   - day: Days since the start of 1970.
    package init(_ identity: IdentityKey, mailbox card: ContactCard, day: UInt32) {
        (self.identity, self.card, self.day) = (identity, card, day)
        secret = MailboxSecret(mailbox: card.key, owner: identity.publicKey, own: identity)
    }

    /// The owner's card for the mailbox; its address is unused.
    package var ownCard: ContactCard { .unused(identity) }

    package func box(_ label: BoxLabel) -> BoxID { secret.box(label) }

    /// A link to the mailbox with its own key, for the owner or a sender.
    package func link(from source: Source) throws -> HostileLink {
        try HostileLink(
            RawConnection(from: source, to: NodeAddress(of: card)),
            token: SharedTokens(card: card, day: day)[Int.random(in: 0..<Int(TokenLimits.shared))],
            identity: makeIdentity(), remote: card.key)
    }

    /// Claims these boxes over a link of ``link(from:)``.
    package func claim(_ labels: [BoxLabel], over link: HostileLink) -> Frame {
        let proof = secret.proof(of: link.identity.publicKey)
        return .mailboxRequest(.claim(owner: identity.publicKey, proof: proof, labels))
    }

    /// Claims boxes and waits for the grant; throws if it is refused.
    package func hold(_ labels: [BoxLabel], over link: HostileLink) throws {
        try link.send(claim(labels, over: link))
        while let frame = try link.receive() {
            switch frame {
            case .mailboxAnswer(.granted): return
            case .mailboxAnswer(.refused(let reason)): throw Failure("the mailbox refuses: \(reason)")
            default: break
            }
        }
        throw Failure("the mailbox does not answer a claim")
    }
}

extension NodeAddress {
    package init(of card: ContactCard) throws(Failure) {
        guard let endpoint = card.endpoints.first else { throw Failure("the card names no endpoint") }
        self.init(host: endpoint.host, port: endpoint.port)
    }
}

extension ContactCard {
    /// A card with an address at which nothing listens.
    package static func unused(_ identity: IdentityKey) -> ContactCard {
        ContactCard(
            key: identity.publicKey, routingSecret: randomBytes(routingSecretByteCount),
            endpoints: [Endpoint(host: "127.0.0.1", port: 9)])
    }
}
