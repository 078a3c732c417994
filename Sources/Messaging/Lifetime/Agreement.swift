import Cryptography

extension AgreementID {
    /// The id depends on the proposal alone, so an agreement keeps it when a new member's accept is added.
    package init(_ proposal: ProposalID) {
        self.init(unchecked: Transcript("mayfly/lifetime_agreement").adding(proposal).digest)
    }
}

/// A proposal with the accepts of the other members. Storing needs one in force: signed by every current member.
package struct Agreement: Hashable, Sendable, Codable {
    package let proposal: LifetimeProposal
    /// At most one per acceptor, in the order of their keys.
    package private(set) var accepts: [LifetimeAccept]
    /// Computed once, since every stored content is compared with it. Two hashes of the proposal.
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
    /// Orders the agreements of a conversation.
    package var ballot: Ballot { proposal.ballot }

    package func isSigned(by member: PublicKey) -> Bool {
        proposal.proposer == member || accepts.contains { $0.acceptor == member }
    }

    package func covers(_ members: some Sequence<PublicKey>) -> Bool { members.allSatisfy(isSigned) }

    /// The proposer first, then in the order of the keys.
    package var signers: [PublicKey] { [proposal.proposer] + accepts.map(\.acceptor) }

    /// All signatures are valid and name the same proposal.
    package func isValid(conversation: ConversationID) -> Bool {
        let id = proposal.id
        return proposal.conversation == conversation && proposal.terms.isValid && !accepts.isEmpty
            && accepts.count < Limits.memberCount && accepts.allSatisfy { $0.fits(proposal, id) }
            && proposal.isSignatureValid && accepts.allSatisfy(\.isSignatureValid)
    }

    /// Adds a verified accept, unless its member has signed already.
    mutating func insert(_ accept: LifetimeAccept) {
        guard !isSigned(by: accept.acceptor) else { return }
        let index = accepts.firstIndex { accept.acceptor < $0.acceptor } ?? accepts.endIndex
        accepts.insert(accept, at: index)
    }

    /// Drops the accepts of all others.
    func keeping(_ members: [PublicKey]) -> Agreement {
        Agreement(proposal: proposal, accepts: accepts.filter { members.contains($0.acceptor) })
    }

    /// The higher ballot is newer; of equal ballots the one that survives a crossing.
    func isNewer(than other: Agreement) -> Bool {
        ballot != other.ballot ? ballot > other.ballot : proposal.survives(other.proposal)
    }

    mutating func remove(_ acceptor: PublicKey) { accepts.removeAll { $0.acceptor == acceptor } }
}

extension LifetimeProposal {
    /// Orders crossing proposals alike at all members (Lifetime.md, "Crossing proposals"): the later raw stamp
    /// survives, of equal ones the smaller id. Clocks of the receivers do not matter.
    func survives(_ other: LifetimeProposal) -> Bool {
        if proposedAt != other.proposedAt { return proposedAt > other.proposedAt }
        return id < other.id
    }
}

extension LifetimeAccept {
    /// Whether it answers this proposal; does not check the signature.
    func fits(_ proposal: LifetimeProposal, _ id: ProposalID) -> Bool {
        conversation == proposal.conversation && self.proposal == id && lifetime == proposal.lifetime
            && acceptor != proposal.proposer
    }
}
