import Crypto

/// One member's signed proposal of terms (Lifetime.md, "Signed values").
package struct LifetimeProposal: Hashable, Sendable, Codable {
    package var conversation: ConversationID
    /// The version of the member list that it is for.
    package var membership: UInt64
    /// Number of the resulting agreement under this member list.
    package var epoch: UInt64
    /// The proposer's newest agreement.
    package var previous: AgreementID
    package var terms: LifetimeTerms
    /// By the proposer's clock; decides between crossing proposals.
    package var proposedAt: Timestamp
    /// 16 random bytes.
    package var nonce: [UInt8]
    package var proposer: PublicKey
    package var signature: SchnorrSignature

    package struct Unsigned {
        package var conversation: ConversationID
        package var membership: UInt64
        package var epoch: UInt64
        package var previous: AgreementID
        package var terms: LifetimeTerms
        package var proposedAt: Timestamp
        package var nonce: [UInt8]

        package init(
            conversation: ConversationID, membership: UInt64, epoch: UInt64, previous: AgreementID,
            terms: LifetimeTerms, proposedAt: Timestamp, nonce: [UInt8]
        ) {
            self.conversation = conversation
            self.membership = membership
            self.epoch = epoch
            self.previous = previous
            self.terms = terms
            self.proposedAt = proposedAt
            self.nonce = nonce
        }

        func digest(proposer: PublicKey) -> [UInt8] {
            var transcript = Transcript()
            transcript.append(conversation)
            transcript.append(membership)
            transcript.append(epoch)
            transcript.append(previous)
            transcript.append(Array(terms.lifetime.rawValue.utf8))
            transcript.append(proposedAt)
            transcript.append(nonce)
            transcript.append(proposer)
            transcript.append(Array((terms.attachment?.rawValue ?? "").utf8))
            transcript.append(UInt64(clamping: terms.unopened ?? 0))
            transcript.append(Array(terms.timer.rawValue.utf8))
            if terms.mailbox != .no { transcript.append(Array(terms.mailbox.rawValue.utf8)) }
            return transcript.digest("mayfly/lifetime_proposal")
        }

        /// Signs with BIP 340 over the tagged hash of all fields.
        package func signed(by key: IdentityKey, _ random: inout some RandomNumberGenerator) -> LifetimeProposal {
            let signature = key.secret.sign(digest(proposer: key.publicKey), auxiliaryRandomness: random.bytes(32))
            return LifetimeProposal(self, proposer: key.publicKey, signature: signature)
        }
    }

    package init(_ fields: Unsigned, proposer: PublicKey, signature: SchnorrSignature) {
        conversation = fields.conversation
        membership = fields.membership
        epoch = fields.epoch
        previous = fields.previous
        terms = fields.terms
        proposedAt = fields.proposedAt
        nonce = fields.nonce
        self.proposer = proposer
        self.signature = signature
    }

    private var digest: [UInt8] {
        Unsigned(
            conversation: conversation, membership: membership, epoch: epoch, previous: previous, terms: terms,
            proposedAt: proposedAt, nonce: nonce
        ).digest(proposer: proposer)
    }

    package var ballot: Ballot { Ballot(membership: membership, epoch: epoch) }
    package var lifetime: Lifetime { terms.lifetime }
    /// The hash that was signed.
    package var id: ProposalID { ProposalID(unchecked: digest) }
    package var isSignatureValid: Bool { proposer.isValid(signature, for: digest) }
}

package struct LifetimeAccept: Hashable, Sendable, Codable {
    package var conversation: ConversationID
    package var proposal: ProposalID
    package var lifetime: Lifetime
    /// By the acceptor's clock; for display.
    package var acceptedAt: Timestamp
    package var acceptor: PublicKey
    package var signature: SchnorrSignature

    package init(
        conversation: ConversationID, proposal: ProposalID, lifetime: Lifetime, acceptedAt: Timestamp,
        acceptor: PublicKey, signature: SchnorrSignature
    ) {
        self.conversation = conversation
        self.proposal = proposal
        self.lifetime = lifetime
        self.acceptedAt = acceptedAt
        self.acceptor = acceptor
        self.signature = signature
    }

    package init(
        _ proposal: LifetimeProposal, at acceptedAt: Timestamp, by key: IdentityKey,
        _ random: inout some RandomNumberGenerator
    ) {
        let digest = Self.digest(proposal.conversation, proposal.id, proposal.lifetime, acceptedAt, key.publicKey)
        self.init(
            conversation: proposal.conversation, proposal: proposal.id, lifetime: proposal.lifetime,
            acceptedAt: acceptedAt, acceptor: key.publicKey,
            signature: key.secret.sign(digest, auxiliaryRandomness: random.bytes(32)))
    }

    private static func digest(
        _ conversation: ConversationID, _ proposal: ProposalID, _ lifetime: Lifetime, _ acceptedAt: Timestamp,
        _ acceptor: PublicKey
    ) -> [UInt8] {
        var transcript = Transcript()
        transcript.append(conversation)
        transcript.append(proposal)
        transcript.append(Array(lifetime.rawValue.utf8))
        transcript.append(acceptedAt)
        transcript.append(acceptor)
        return transcript.digest("mayfly/lifetime_accept")
    }

    var digest: [UInt8] { Self.digest(conversation, proposal, lifetime, acceptedAt, acceptor) }
    package var isSignatureValid: Bool { acceptor.isValid(signature, for: digest) }
}

/// Why a proposal was rejected: a fixed value, so that no text of a peer is shown.
package enum LifetimeRejectReason: String, Sendable, Hashable, Codable {
    case userDeclined = "user_declined"
    case policy
    case unsupported
    /// The proposal builds on an agreement that is not the newest one.
    case stale
    case unknown
    case rateLimited = "rate_limited"
    /// A member has joined or left meanwhile.
    case membershipChanged = "membership_changed"
}

package enum LifetimeMessage: Hashable, Sendable {
    case proposal(LifetimeProposal)
    case accept(LifetimeAccept)
    case reject(ProposalID, LifetimeRejectReason)
    case withdraw(ProposalID)
    /// A proposal with a lifetime unknown to this version; it is rejected.
    case unsupported(ProposalID?)
    /// All have accepted: the proposer's bundle, or a newer agreement for a member that missed it.
    case agreement(Agreement)
    /// The session and this agreement have ended. Unsigned, since it only shortens. `renewable`: by the sender's
    /// policy.
    case ended(AgreementID, renewable: LifetimeTerms?)
}
