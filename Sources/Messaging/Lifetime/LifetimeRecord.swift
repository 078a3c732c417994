import Crypto

extension LifetimeStateMachine {
    /// What survives a restart. Saved before anything that rests on it is sent.
    package struct Record: Hashable, Sendable, Codable {
        /// The newest agreement.
        package var head: Agreement?
        /// ``head`` stands: its session has not ended.
        package var isStanding = false
        /// What stood before, for a withdrawal that crosses our accept.
        package var before: Agreement?
        /// Older agreements whole, so that what is stored under them can be proven; oldest first.
        package var earlier: [Agreement] = []
        /// The highest ballot of an agreement that all members of its time have signed; proposals must exceed it.
        package var newest = Ballot()
        /// The highest ballot of our own proposals, and of those that others have named, which nobody signs: never more
        /// than ``Limits/epochsBelieved`` above ``newest`` by the word of others. Our own proposals exceed it.
        package var seen = Ballot()
        /// Agreements that were in force here and under which a content may still arrive, oldest first.
        package var known: [KnownAgreement] = []
        /// Up to which ballot the proposals of a member are void: taken back, or consent to them is.
        package var floors: [BallotFloor] = []
        /// What we have signed last without having seen the others' signatures.
        package var accepted: AcceptedProposal?
        /// The newest agreement that the proposer has shown to hold: it cannot take it back any more.
        package var confirmed: AgreementID?
        /// When the agreement that stands came to be.
        package var settledAt: Timestamp?
        /// What a standing policy of all members would renew.
        package var renewable: LifetimeTerms?
        /// `nil`: the node's default policy.
        package var policy: LifetimePolicy?
        /// `nil`: the node's default cap.
        package var cap: LifetimeCap?
        /// Agreements of an earlier version of the member list count no more: we were alone since.
        package var membershipFloor: UInt64 = 0

        package init() {}
    }

    /// What is kept of an agreement.
    package struct KnownAgreement: Hashable, Sendable, Codable {
        package var id: AgreementID
        package var terms: LifetimeTerms
        /// When it ceased to be in force: it covers what was sent before.
        package var endedAt: Timestamp?
    }

    /// Proposals of a member that are void.
    package struct BallotFloor: Hashable, Sendable, Codable {
        package var proposer: PublicKey
        package var ballot: Ballot
    }

    /// A proposal that we have accepted.
    package struct AcceptedProposal: Hashable, Sendable, Codable {
        package var id: ProposalID
        package var proposer: PublicKey
        package var ballot: Ballot
    }
}
