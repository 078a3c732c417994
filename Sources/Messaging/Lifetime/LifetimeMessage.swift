import Cryptography

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

/// One member's signed proposal of terms (Lifetime.md, "Signed values").
package struct LifetimeProposal: Signed, Hashable, Sendable, Codable {
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

    package init(
        conversation: ConversationID, membership: UInt64, epoch: UInt64, previous: AgreementID, terms: LifetimeTerms,
        proposedAt: Timestamp, nonce: [UInt8], proposer: PublicKey, signature: SchnorrSignature = .unsigned
    ) {
        (self.conversation, self.membership, self.epoch, self.previous) = (conversation, membership, epoch, previous)
        (self.terms, self.proposedAt, self.nonce, self.proposer) = (terms, proposedAt, nonce, proposer)
        self.signature = signature
    }

    package var transcript: Transcript {
        let transcript = Transcript("mayfly/lifetime_proposal").adding(conversation).adding(membership).adding(epoch)
            .adding(previous).adding(terms.lifetime.rawValue).adding(proposedAt).adding(nonce).adding(proposer).adding(
                terms.attachment?.rawValue ?? ""
            ).adding(UInt64(clamping: terms.unopened ?? 0)).adding(terms.timer.rawValue)
        return terms.mailbox == .no ? transcript : transcript.adding(terms.mailbox.rawValue)
    }

    package var ballot: Ballot { Ballot(membership: membership, epoch: epoch) }
    package var lifetime: Lifetime { terms.lifetime }
    package var id: ProposalID { ProposalID(unchecked: digest) }
    package var isSignatureValid: Bool { hasSignature(of: proposer) }
}

package struct LifetimeAccept: Signed, Hashable, Sendable, Codable {
    package var conversation: ConversationID
    package var proposal: ProposalID
    package var lifetime: Lifetime
    /// By the acceptor's clock; for display.
    package var acceptedAt: Timestamp
    package var acceptor: PublicKey
    package var signature: SchnorrSignature

    package var transcript: Transcript {
        Transcript("mayfly/lifetime_accept").adding(conversation).adding(proposal).adding(lifetime.rawValue).adding(
            acceptedAt
        ).adding(acceptor)
    }

    package var isSignatureValid: Bool { hasSignature(of: acceptor) }
}

extension LifetimeAccept {
    package init(
        _ proposal: LifetimeProposal, at acceptedAt: Timestamp, by key: IdentityKey,
        _ random: inout some RandomNumberGenerator
    ) {
        self.init(
            conversation: proposal.conversation, proposal: proposal.id, lifetime: proposal.lifetime,
            acceptedAt: acceptedAt, acceptor: key.publicKey, signature: .unsigned)
        self = signed(by: key, &random)
    }
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
