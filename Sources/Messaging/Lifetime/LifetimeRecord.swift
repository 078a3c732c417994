import Cryptography

extension LifetimeStateMachine {
    /// The durable state, saved before any frame that depends on it is sent.
    package struct Record: Hashable, Sendable, Codable {
        /// The newest agreement.
        package var head: Agreement?
        /// ``head`` stands: its session has not ended.
        package var isStanding = false
        /// Older agreements, oldest first; kept whole as proof for messages stored under them.
        package var earlier: [Agreement] = []
        /// The highest ballot of an agreement that all members of its time have signed; proposals must exceed it.
        package var newest = Ballot()
        /// The highest ballot of our proposals, and of ballots that others named; our next proposal exceeds it. Named
        /// ballots are unsigned, so they count up to ``Limits/epochsBelieved`` above ``newest`` only.
        package var seen = Ballot()
        /// Agreements that were in force here and under which contents may still arrive, oldest first.
        package var known: [KnownAgreement] = []
        /// Per member, the ballot up to which its proposals are void: withdrawn, or our accept of them is.
        package var floors: [BallotFloor] = []
        /// Our last accept, while the signatures of others are missing.
        package var accepted: AcceptedProposal?
        /// The terms that ended with the last session, for a renewal.
        package var renewable: LifetimeTerms?
        /// True when the user renews the terms of ``head``.
        package var isRenewed: Bool?
        /// The user renews the terms of this open proposal, once it is agreed.
        package var renewed: ProposalID?
        /// `nil`: the node's default policy.
        package var policy: LifetimePolicy?
        /// `nil`: the node's default cap.
        package var cap: LifetimeCap?
        /// Agreements of earlier versions of the member list are void: we have been alone since.
        package var membershipFloor: UInt64 = 0

        package init() {}
    }

    /// The part of an agreement that its contents need.
    package struct KnownAgreement: Hashable, Sendable, Codable {
        package var id: AgreementID
        package var terms: LifetimeTerms
        /// When it ceased to be in force; it covers contents sent before.
        package var endedAt: Timestamp?
    }

    /// A member's proposals up to this ballot are void.
    package struct BallotFloor: Hashable, Sendable, Codable {
        package var proposer: PublicKey
        package var ballot: Ballot
    }

    package struct AcceptedProposal: Hashable, Sendable, Codable {
        package var id: ProposalID
        package var proposer: PublicKey
        package var ballot: Ballot
    }
}
