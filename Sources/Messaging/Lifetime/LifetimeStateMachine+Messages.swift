import Cryptography

extension LifetimeStateMachine {
    /// - Parameter policy: our standing answer; `nil` while the storage is locked, since consent must be durable.
    package mutating func receive(
        _ message: LifetimeMessage, from: PublicKey, policy: LifetimePolicy?, now: Timestamp, key: IdentityKey,
        random: inout some RandomNumberGenerator
    ) -> [Action] {
        guard peers[from] != nil else { return [.dropped] }
        switch message {
        case .proposal(let proposal):
            if let answer = answerAgain(proposal, from: from) { return answer }
            if peers[from]?.proposals.take(now: now) != nil { return limit(proposal.id, from: from, now: now) }
            peers[from]?.unanswered = nil
            return receive(proposal, from: from, policy: policy, now: now, key: key, random: &random)
        case .unsupported(let id):
            if peers[from]?.proposals.take(now: now) != nil { return [.dropped] }
            return id.map { [.sendTo(from, .reject($0, .unsupported))] } ?? [.dropped]
        case .accept(let accept): return receive(accept, from: from, now: now)
        case .reject(let id, let reason): return receiveRejection(of: id, reason, from: from, now: now)
        case .withdraw(let id): return receiveWithdrawal(of: id, from: from)
        case .agreement(let agreement): return receive(agreement, from: from, now: now)
        case .ended(let id, let renewable):
            return receiveEnd(
                of: id, renewable: renewable, from: from, policy: policy, now: now, key: key, random: &random)
        }
    }

    /// Answers a known proposal, open or ended, that a new link or another member repeats. Free of the rate limit.
    private func answerAgain(_ proposal: LifetimeProposal, from: PublicKey) -> [Action]? {
        switch negotiation {
        case .settled: break
        case .proposed(let open, _, _), .asked(let open, _): if open == proposal { return [.dropped] }
        case .accepted(let open, let accept, _, _):
            if open == proposal { return from == open.proposer ? [.sendTo(from, .accept(accept))] : [.dropped] }
        }
        let ended = endedProposals.last { $0.id == proposal.id && ($0.by == nil || $0.by == proposal.proposer) }
        guard let ended else { return nil }
        guard from == proposal.proposer else { return [.dropped] }
        // The counter-proposal or withdrawal that ended the proposal here may be lost on the way to its proposer.
        let answer = [Action.sendTo(from, .reject(proposal.id, ended.rejected ?? .stale))]
        // The member may have dropped our proposal for its own, which this rejection ends.
        if case .proposed(let ours, _, _) = negotiation { return answer + [.sendTo(from, .proposal(ours))] }
        return answer
    }

    /// Rejects a proposal beyond the rate limit, so that its proposer does not wait for an answer. One rejection goes
    /// out in each interval of ``Limits/proposalRate``; at its end ``expire(now:)`` rejects the newest proposal left.
    private mutating func limit(_ id: ProposalID, from: PublicKey, now: Timestamp) -> [Action] {
        if let answeredAt = peers[from]?.answeredAt, now - answeredAt < Limits.proposalRate.interval {
            peers[from]?.unanswered = id
            return [.dropped]
        }
        peers[from]?.answeredAt = now
        return [.dropped, .sendTo(from, .reject(id, .rateLimited))]
    }

    private mutating func receive(
        _ proposal: LifetimeProposal, from: PublicKey, policy: LifetimePolicy?, now: Timestamp, key: IdentityKey,
        random: inout some RandomNumberGenerator
    ) -> [Action] {
        guard proposal.conversation == conversation, peers[proposal.proposer] != nil else { return [.dropped] }
        guard proposal.isSignatureValid else { return [.forged] }
        guard proposal.terms.isValid else {
            return from == proposal.proposer ? [.sendTo(from, .reject(proposal.id, .unsupported))] : [.dropped]
        }
        guard proposal.membership == membership, proposal.epoch > 0, proposal.ballot > record.newest, !isVoid(proposal),
            proposal.epoch <= signedEpoch.saturatingAdd(Limits.epochsAhead)
        else { return from == proposal.proposer ? [.sendTo(from, .reject(proposal.id, .stale))] : [.dropped] }
        learn(proposal.epoch)
        let id = proposal.id
        // Drops accepts that overtook their proposal and do not fit it, or are forged.
        heard = heard.filter { $0.value.proposal != id || ($0.value.fits(proposal, id) && $0.value.isSignatureValid) }
        let signers = heard.filter { $0.value.proposal == id }.keys.sorted()
        let asked = [Action.asked(proposal)] + signers.map { Action.tell(.lifetimeSigned(proposal.id, by: $0)) }

        if let (open, _) = pending, !proposal.survives(open) {
            // Shows the better of two crossing proposals, so that the worse one's proposer gives way.
            return from == open.proposer ? [.dropped] : [.dropped, .sendTo(from, .proposal(open))]
        }
        var actions: [Action] = []
        switch negotiation {
        case .settled: break
        case .asked(let old, _):
            close(old, nil)
            if old.proposer != proposal.proposer { actions.append(.tell(.lifetimeWithdrawn(old.id))) }
        case .accepted(let old, _, _, _): actions += endTheirs() + [.tell(.lifetimeWithdrawn(old.id))]
        case .proposed(let ours, _, _):
            actions += takeBack(ours)
            if ours.terms == proposal.terms {
                // Both proposed the same terms: our signed proposal is our consent.
                if record.renewed == ours.id { record.renewed = proposal.id }
                return actions + consent(to: proposal, automatic: false, now: now, key: key, random: &random)
            }
        }
        let isRenewal = standing == nil && record.renewable == proposal.terms && renews(proposal.terms, policy)
        if isRenewal, record.isRenewed == true { record.renewed = proposal.id }
        if policy == .refuse, !isRenewal {
            close(proposal, .policy)
            return actions + [.sendTo(proposal.proposer, .reject(proposal.id, .policy))]
        }
        if isRenewal || policy?.accepts(proposal.terms) == true {
            return actions + asked + consent(to: proposal, automatic: true, now: now, key: key, random: &random)
        }
        negotiation = .asked(proposal, at: now)
        return actions + asked
    }

    private mutating func receive(_ accept: LifetimeAccept, from: PublicKey, now: Timestamp) -> [Action] {
        if case .proposed(let proposal, let at, let accepts) = negotiation, accept.proposal == proposal.id {
            guard accept.fits(proposal, proposal.id), peers[accept.acceptor] != nil,
                !accepts.contains(where: { $0.acceptor == accept.acceptor })
            else { return [.dropped] }
            guard accept.isSignatureValid else { return [.forged] }
            let agreement = Agreement(proposal: proposal, accepts: accepts + [accept])
            guard agreement.covers(members) else {
                negotiation = .proposed(proposal, at: at, accepts: agreement.accepts)
                return [.tell(.lifetimeSigned(proposal.id, by: accept.acceptor))]
            }
            return [.save] + settle(agreement, was: inForce, automatic: false, now: now) + [
                .send(.agreement(agreement))
            ]
        }
        if let head = record.head, head.proposal.id == accept.proposal {
            guard record.isStanding, !head.isSigned(by: accept.acceptor) else { return [.dropped] }
            let merged = merge([accept], now: now)
            return merged.isEmpty ? [.dropped] : merged
        }
        if let known = hear(accept, from: from) { return known }
        // The accept is for a proposal that we withdrew or that a crossing one replaced: the acceptor must not wait.
        return [.dropped, .sendTo(from, .withdraw(accept.proposal))]
    }

    /// Notes an accept of another member's proposal, for display: the agreement comes from the proposer. The acceptor
    /// sends it, or the proposer over a new link.
    /// - Returns: `nil` when the accept is not for the open proposal.
    private mutating func hear(_ accept: LifetimeAccept, from: PublicKey) -> [Action]? {
        guard accept.acceptor != own, peers[accept.acceptor] != nil else { return nil }
        guard let open = theirs, open.id == accept.proposal else {
            // The accept may have overtaken its proposal on another link. It replaces no verified accept: two accepts
            // in turns would cost a signature check each.
            if from == accept.acceptor, heard[from] == nil || heard[from]?.proposal != pending?.proposal.id {
                heard[from] = accept
            }
            return nil
        }
        guard from == accept.acceptor || from == open.proposer, accept.acceptor != open.proposer,
            heard[accept.acceptor]?.proposal != accept.proposal, accept.fits(open, accept.proposal)
        else { return [.dropped] }
        guard accept.isSignatureValid else { return [.forged] }
        heard[accept.acceptor] = accept
        return [.tell(.lifetimeSigned(accept.proposal, by: accept.acceptor))]
    }

    /// Adds signatures to the newest agreement; a new member's accept may put it in force again.
    mutating func merge(_ accepts: [LifetimeAccept], now: Timestamp) -> [Action] {
        guard var head = record.head else { return [] }
        let was = inForce
        let id = head.proposal.id
        var isChanged = false
        var marks: [Action] = []
        for accept in accepts where !head.isSigned(by: accept.acceptor) {
            // Honest members send no invalid accept, so such a frame costs one check only.
            guard accept.fits(head.proposal, id), accept.isSignatureValid else {
                marks = [.forged]
                break
            }
            if head.accepts.count >= Limits.memberCount - 1 {
                // A former member's accept makes room for a present member's. A member not known yet gets no room.
                guard peers[accept.acceptor] != nil || accept.acceptor == own,
                    let gone = head.accepts.first(where: { peers[$0.acceptor] == nil && $0.acceptor != own })
                else { continue }
                head.remove(gone.acceptor)
            }
            head.insert(accept)
            isChanged = true
        }
        guard isChanged else { return marks }
        record.head = head
        return marks + [.save] + coverage(was: was, automatic: true, now: now)
    }

    private mutating func receiveRejection(
        of id: ProposalID, _ reason: LifetimeRejectReason, from: PublicKey, now: Timestamp
    ) -> [Action] {
        guard let (proposal, isOurs) = pending, proposal.id == id, isOurs || proposal.proposer == from else {
            return [.dropped]
        }
        guard isOurs else { return endTheirs() + [.tell(.lifetimeRejected(id, reason))] }
        // One rejection ends the proposal for all.
        void(proposal)
        negotiation = .settled
        if reason == .rateLimited { renewLater(id, now: now) }
        return [.save, .tell(.lifetimeRejected(id, reason))]
            + members.filter { $0 != from }.map { .sendTo($0, .reject(id, reason)) }
    }

    private mutating func receiveWithdrawal(of id: ProposalID, from: PublicKey) -> [Action] {
        if let proposal = theirs, proposal.id == id, proposal.proposer == from {
            return endTheirs() + [.tell(.lifetimeWithdrawn(id))]
        }
        // The proposal may still arrive, from its proposer or from a member that missed the withdrawal.
        if record.head?.proposal.id != id, pending?.proposal.id != id, !endedProposals.contains(where: { $0.id == id })
        {
            noteEnded(id, nil, by: from)
        }
        return [.dropped]
    }

    /// Our verdict on an agreement that another member shows.
    enum Shown: Hashable, Sendable {
        /// Our newest one, perhaps with more signatures.
        case known
        /// Newer than ours and signed by us: it becomes our newest one.
        case newer
        /// Signed by all, but we have withdrawn our proposal or our accept: it is void, and its ballot is used up.
        case void
        /// Forged, older, or without the signatures it needs.
        case refused
    }

    func examine(_ agreement: Agreement, from: PublicKey) -> Shown {
        guard agreement.id != record.head?.id else { return .known }
        let proposal = agreement.proposal
        guard proposal.conversation == conversation, proposal.membership >= record.membershipFloor,
            agreement.isSigned(by: own), agreement.isSigned(by: from), isNews(agreement)
        else { return .refused }
        // An agreement not signed by all must not raise `newest`: two members could block the rest.
        let isOfAll = agreement.covers(members)
        if proposal.membership == membership, !isOfAll { return .refused }
        guard agreement.isValid(conversation: conversation) else { return .refused }
        if isVoid(proposal) { return .void }
        // For our own proposal we gather the accepts ourselves.
        if proposal.proposer == own, !isOfAll { return .refused }
        return .newer
    }

    private func isNews(_ agreement: Agreement) -> Bool {
        guard let head = record.head, head.ballot == agreement.ballot else { return agreement.ballot > record.newest }
        return agreement.isNewer(than: head)
    }

    private mutating func receive(_ agreement: Agreement, from: PublicKey, now: Timestamp) -> [Action] {
        if agreement.id == record.head?.id {
            let merged = merge(agreement.accepts, now: now)
            return merged.isEmpty ? [.dropped] : merged
        }
        // Verification costs one signature check per member.
        if peers[from]?.agreements.take(now: now) != nil { return [.dropped] }
        let shown = examine(agreement, from: from)
        switch shown {
        case .newer: return [.save] + settle(agreement, was: inForce, automatic: isAutomatic(agreement), now: now)
        case .known: return [.dropped]
        case .void, .refused:
            guard agreement.proposal.conversation == conversation else { return [.dropped] }
            let noted = shown == .void ? useUp(agreement.ballot) : []
            if let standing, standing.isNewer(than: agreement) {
                return noted + [.dropped, .sendTo(from, .agreement(standing))]
            }
            // An agreement holds at all members or at none: theirs ends, and so does ours, which it has replaced there.
            return noted + [.dropped, .sendTo(from, .ended(agreement.id, renewable: nil))]
                + endStanding(standing, inForce: inForce, .reported, telling: own, renewable: nil, now: now)
        }
    }

    /// Whether our standing policy gave our accept.
    func isAutomatic(_ agreement: Agreement) -> Bool {
        if case .accepted(let proposal, _, _, true) = negotiation {
            proposal.id == agreement.proposal.id
        } else {
            false
        }
    }
}
