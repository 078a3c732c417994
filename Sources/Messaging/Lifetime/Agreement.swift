import Crypto

extension AgreementID {
    /// The id of the agreement that a proposal becomes. It rests on the proposal alone, so that an agreement keeps its id
    /// when a new member's accept is added.
    package init(_ proposal: ProposalID) {
        var transcript = Transcript()
        transcript.append(proposal)
        self.init(unchecked: transcript.digest("mayfly/lifetime_agreement"))
    }
}

/// A proposal with the consent of the other members: what storing rests on. It is in force while every member has
/// signed.
package struct Agreement: Hashable, Sendable, Codable {
    package let proposal: LifetimeProposal
    /// One of each acceptor, in the order of their keys.
    package private(set) var accepts: [LifetimeAccept]
    /// Two hashes of the proposal, which every stored content is compared with: computed once.
    package let id: AgreementID

    /// Sorts, and keeps the first accept of each member.
    package init(proposal: LifetimeProposal, accepts: [LifetimeAccept]) {
        self.proposal = proposal
        self.accepts = []
        id = AgreementID(proposal.id)
        for accept in accepts { insert(accept) }
    }

    private enum CodingKeys: String, CodingKey { case proposal, accepts }

    package init(from decoder: any Decoder) throws {
        let container = try decoder.container(keyedBy: CodingKeys.self)
        proposal = try container.decode(LifetimeProposal.self, forKey: .proposal)
        accepts = try container.decode([LifetimeAccept].self, forKey: .accepts)
        id = AgreementID(proposal.id)
    }

    package var terms: LifetimeTerms { proposal.terms }
    package var lifetime: Lifetime { proposal.lifetime }
    /// Agreements of a conversation are ordered by it.
    package var ballot: Ballot { proposal.ballot }

    /// Whether this member has proposed or accepted.
    package func isSigned(by member: PublicKey) -> Bool {
        proposal.proposer == member || accepts.contains { $0.acceptor == member }
    }

    /// Whether it was made between two: the acceptor holds it first. Of more, the proposer does, who gathers it.
    var isOfTwo: Bool { accepts.count == 1 }

    /// Whether all of these have signed.
    package func covers(_ members: some Sequence<PublicKey>) -> Bool { members.allSatisfy(isSigned) }

    /// The proposer first, then in the order of the keys.
    package var signers: [PublicKey] { [proposal.proposer] + accepts.map(\.acceptor) }

    /// All signatures hold, and all speak of the same thing.
    package func isValid(conversation: ConversationID) -> Bool {
        let id = proposal.id
        return proposal.conversation == conversation && proposal.terms.isValid && !accepts.isEmpty
            && accepts.count < Limits.memberCount && accepts.allSatisfy { $0.fits(proposal, id) }
            && proposal.isSignatureValid && accepts.allSatisfy(\.isSignatureValid)
    }

    /// Adds a verified accept; one of a member that has signed already changes nothing.
    mutating func insert(_ accept: LifetimeAccept) {
        guard !isSigned(by: accept.acceptor) else { return }
        let index = accepts.firstIndex { accept.acceptor < $0.acceptor } ?? accepts.endIndex
        accepts.insert(accept, at: index)
    }

    /// Only the signatures of these.
    func keeping(_ members: [PublicKey]) -> Agreement {
        Agreement(proposal: proposal, accepts: accepts.filter { members.contains($0.acceptor) })
    }

    mutating func remove(_ acceptor: PublicKey) { accepts.removeAll { $0.acceptor == acceptor } }
}

extension LifetimeProposal {
    /// The one order in which all members put proposals that are open at once (section 6, point 4): the later one
    /// survives; of equal stamps that with the smaller hash. A stamp too far ahead would count as the receiver's now,
    /// which is not before its own stamps either; so all compare the same stamps and come to the same answer, whatever
    /// their clocks say.
    func survives(_ other: LifetimeProposal) -> Bool {
        if proposedAt != other.proposedAt { return proposedAt > other.proposedAt }
        return id < other.id
    }
}

extension LifetimeAccept {
    /// Whether it answers this proposal; the signature is not looked at.
    func fits(_ proposal: LifetimeProposal, _ id: ProposalID) -> Bool {
        conversation == proposal.conversation && self.proposal == id && lifetime == proposal.lifetime
            && acceptor != proposal.proposer
    }
}
