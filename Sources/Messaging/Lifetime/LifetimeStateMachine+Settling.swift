import Cryptography

/// How an agreement comes into force and ends, and which proposals are void.
extension LifetimeStateMachine {
    /// Signs an accept. All members learn of it; the proposer gathers the agreement.
    mutating func consent(
        to proposal: LifetimeProposal, automatic: Bool, now: Timestamp, key: IdentityKey,
        random: inout some RandomNumberGenerator
    ) -> [Action] {
        guard !key.isWiped else {
            // The storage was locked meanwhile, so our user is asked instead.
            negotiation = .asked(proposal, at: now)
            return automatic ? [] : [.asked(proposal)]
        }
        let accept = LifetimeAccept(proposal, at: now, by: key, &random)
        negotiation = .accepted(proposal, accept, at: now, automatic: automatic)
        record.accepted = AcceptedProposal(id: proposal.id, proposer: proposal.proposer, ballot: proposal.ballot)
        return [.save, .send(.accept(accept)), .tell(.lifetimeSigned(proposal.id, by: own))]
    }

    /// Replaces the standing agreement.
    /// - Parameter was: the last one in force; it may have ended.
    mutating func settle(_ agreement: Agreement, was: Agreement?, automatic: Bool, now: Timestamp) -> [Action] {
        let closed = closeOthers(than: agreement.proposal)
        if let standing { end(standing.id, now: now) }
        record.renewable = nil
        for member in members { peers[member]?.renewable = nil }
        heard = [:]
        mayRenew = false
        renewsAt = nil
        adopt(agreement)
        record.isStanding = true
        return closed + coverage(was: was, automatic: automatic, now: now)
    }

    /// Makes this the newest agreement; the caller decides whether it stands.
    mutating func adopt(_ agreement: Agreement) {
        if record.head?.id != agreement.id {
            (record.isRenewed, record.renewed) = (record.renewed == agreement.proposal.id ? true : nil, nil)
        }
        if let head = record.head, head.id != agreement.id {
            record.earlier.append(head)
            if record.earlier.count > Limits.agreementRecordCount { record.earlier.removeFirst() }
        }
        record.head = agreement
        record.newest = max(record.newest, agreement.ballot)
    }

    /// Reports a change of the agreement in force.
    mutating func coverage(was: Agreement?, automatic: Bool, now: Timestamp) -> [Action] {
        let agreement = inForce
        if agreement?.id == was?.id { return [] }
        let previous = was?.terms ?? .ephemeral
        guard let agreement else {
            // The two differ, so there was one.
            if let was { end(was.id, now: now) }
            return [.suspended(previous: previous)]
        }
        know(agreement, endedAt: nil)
        return [.agreed(agreement, previous: previous, automatic: automatic)]
    }

    /// - Parameter endedAt: `nil` for an agreement in force.
    mutating func know(_ agreement: Agreement, endedAt: Timestamp?) {
        if let index = record.known.lastIndex(where: { $0.id == agreement.id }) {
            if endedAt == nil { record.known[index].endedAt = nil }
            return
        }
        record.known.append(KnownAgreement(id: agreement.id, terms: agreement.terms, endedAt: endedAt))
        if record.known.count > Limits.agreementCount { record.known.removeFirst() }
    }

    mutating func end(_ agreement: AgreementID, now: Timestamp) {
        for index in record.known.indices where record.known[index].id == agreement {
            record.known[index].endedAt = record.known[index].endedAt ?? now
        }
    }

    /// Ends an open proposal other than the one that became the agreement.
    private mutating func closeOthers(than proposal: LifetimeProposal) -> [Action] {
        defer { negotiation = .settled }
        record.accepted = nil
        switch negotiation {
        case .settled: return []
        case .proposed(let ours, _, _):
            if ours.id == proposal.id { return [] }
            return takeBack(ours) + [.tell(.lifetimeExpired(ours.id))]
        case .asked(let other, _), .accepted(let other, _, _, _):
            close(other, nil)
            return other.id == proposal.id ? [] : [.tell(.lifetimeWithdrawn(other.id))]
        }
    }

    mutating func takeBack(_ proposal: LifetimeProposal) -> [Action] {
        void(proposal)
        negotiation = .settled
        return [.save, .send(.withdraw(proposal.id))]
    }

    /// Ends another member's proposal here. `rejected`: our answer, given again if the proposal is repeated.
    mutating func close(_ proposal: LifetimeProposal, _ rejected: LifetimeRejectReason?) {
        negotiation = .settled
        noteEnded(proposal.id, rejected)
    }

    /// Ends the open proposal of another member, and withdraws our accept of it.
    mutating func endTheirs(_ rejected: LifetimeRejectReason? = nil) -> [Action] {
        guard let proposal = theirs else { return [] }
        let isAccepted = if case .accepted = negotiation { true } else { false }
        close(proposal, rejected)
        guard isAccepted else { return [] }
        void(proposal)
        record.accepted = nil
        return [.save]
    }

    mutating func noteEnded(_ id: ProposalID, _ rejected: LifetimeRejectReason?, by member: PublicKey? = nil) {
        endedProposals.removeAll { $0.id == id }
        endedProposals.append(EndedProposal(id: id, rejected: rejected, by: member))
        if endedProposals.count > Limits.endedProposalCount { endedProposals.removeFirst() }
    }

    mutating func void(_ proposal: LifetimeProposal) { void(proposal.proposer, upTo: proposal.ballot) }

    mutating func void(_ proposer: PublicKey, upTo ballot: Ballot) {
        if let index = record.floors.firstIndex(where: { $0.proposer == proposer }) {
            record.floors[index].ballot = max(record.floors[index].ballot, ballot)
            return
        }
        record.floors.append(BallotFloor(proposer: proposer, ballot: ballot))
        if record.floors.count > Limits.ballotFloorCount,
            let index = record.floors.firstIndex(where: { $0.proposer != own && !members.contains($0.proposer) })
        {
            record.floors.remove(at: index)
        }
    }

    func floor(of proposer: PublicKey) -> Ballot? { record.floors.first { $0.proposer == proposer }?.ballot }

    /// Withdrawn by its proposer, or by us after our accept.
    func isVoid(_ proposal: LifetimeProposal) -> Bool {
        floor(of: proposal.proposer).map { proposal.ballot <= $0 } ?? false
    }
}
