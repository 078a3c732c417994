import Cryptography

/// Sessions and members (Lifetime.md, "Sessions", "Members").
extension LifetimeStateMachine {
    /// - Parameter reset: our session has ended since the last link.
    package func sessionStart(reset: Bool, policy: LifetimePolicy?) -> SessionStart {
        var open: ProposalID?
        if case .proposed(let proposal, _, _) = negotiation { open = proposal.id }
        return SessionStart(
            reset: reset, inForce: standing?.id,
            // With the signatures of current members, and ours: a receiver believes only a signer.
            head: record.head?.keeping(members + [own]), renewable: renewable(policy),
            epoch: max(signedEpoch, record.seen.epoch(under: membership)), open: open)
    }

    private func renewable(_ policy: LifetimePolicy?) -> LifetimeTerms? {
        (standing?.terms ?? record.renewable).flatMap { $0.allowsSomething && renews($0, policy) ? $0 : nil }
    }

    /// Whether our user agrees to these terms again: by a policy, or by renewing the newest agreement or proposal.
    package func renews(_ terms: LifetimeTerms, _ policy: LifetimePolicy?) -> Bool {
        guard let policy else { return false }
        if let open = pending?.proposal, open.id == record.renewed, open.terms == terms { return true }
        return policy.accepts(terms) || record.isRenewed == true && record.head?.terms == terms
    }

    /// The user renews these terms after each session: those of the open proposal once agreed, or those that stand.
    package mutating func renew(_ terms: LifetimeTerms) {
        if let open = pending?.proposal, open.terms == terms {
            record.renewed = open.id
        } else if standing?.terms == terms {
            record.isRenewed = true
        }
    }

    /// Called after the session exchange: both sides come to the same agreement, or to none.
    /// - Parameters:
    ///   - policy: ours now; it may differ from the one in `sent`.
    ///   - hasRestarted: our node was restarted, or our user closed the conversation, since the last link.
    package mutating func sessionEstablished(
        with from: PublicKey, sent: SessionStart, received: SessionStart, policy: LifetimePolicy?,
        hasRestarted: Bool = false, now: Timestamp, key: IdentityKey, random: inout some RandomNumberGenerator
    ) -> [Action] {
        guard peers[from] != nil else { return [.dropped] }
        var actions: [Action] = []
        learn(received.epoch)
        ownRenewable = sent.renewable
        peers[from]?.renewable = received.renewable

        let was = standing
        let wasInForce = inForce
        if was?.id != sent.inForce {
            // Another member has changed our agreement since we sent our session start.
            if let was {
                actions.append(.sendTo(from, .agreement(was)))
            } else if let said = sent.inForce {
                actions.append(.sendTo(from, .ended(said, renewable: sent.renewable)))
            }
        }
        let automatic = received.head.map(isAutomatic) ?? false
        var caughtUp = false
        if let head = received.head {
            switch examine(head, from: from) {
            case .known: actions += merge(head.accepts, now: now)
            case .void: actions += useUp(head.ballot)
            case .refused: break
            case .newer:
                // The code below decides whether it stands.
                if let was { end(was.id, now: now) }
                adopt(head)
                record.isStanding = false
                // Contents under it may still arrive.
                if head.covers(members) { know(head, endedAt: now) }
                caughtUp = true
                actions.append(.save)
            }
        }
        if sent.reset || received.reset {
            actions += closeOpen(with: from)
            allowRenewal()
            if !caughtUp, let was, was.id != sent.inForce {
                // All have signed it since the link opened, so it belongs to the new session.
                return actions + resume(with: from, received)
            }
            let end = SessionEnd.away(hasRestarted ? own : from)
            actions += endStanding(was, inForce: wasInForce, end, telling: from, renewable: sent.renewable, now: now)
            actions += nameRenewable(caughtUp, to: from, sent, policy)
            return actions + renew(now: now, key: key, random: &random)
        }
        if caughtUp, let head = record.head, received.inForce == head.id {
            actions += settle(head, was: wasInForce, automatic: automatic, now: now)
        } else if caughtUp ? was != nil || received.inForce != nil : !agrees(with: from, received) {
            allowRenewal()
            actions += endStanding(
                was, inForce: wasInForce, .reported, telling: from, renewable: sent.renewable, now: now)
            // The peer assumes that we adopt its agreement.
            if let theirs = received.inForce {
                actions.append(.sendTo(from, .ended(theirs, renewable: sent.renewable)))
            }
            actions += nameRenewable(caughtUp, to: from, sent, policy)
            return actions + resume(with: from, received) + renew(now: now, key: key, random: &random)
        }
        actions += resume(with: from, received)
        actions += nameRenewable(caughtUp, to: from, sent, policy)
        return actions + renew(now: now, key: key, random: &random)
    }

    /// Names the terms that we would renew if our session start named others, as before an agreement that we had
    /// missed.
    private mutating func nameRenewable(
        _ caughtUp: Bool, to from: PublicKey, _ sent: SessionStart, _ policy: LifetimePolicy?
    ) -> [Action] {
        guard standing == nil, let head = record.head else { return [] }
        if caughtUp {
            record.renewable = head.terms
            allowRenewal()
        }
        ownRenewable = renewable(policy)
        guard ownRenewable != sent.renewable else { return [] }
        return members.map { .sendTo($0, .ended(head.id, renewable: ownRenewable)) }
    }

    /// Whether the peer has the same standing agreement, or will after catching up.
    private func agrees(with from: PublicKey, _ received: SessionStart) -> Bool {
        if standing?.id == received.inForce { return true }
        guard let standing, (received.head?.ballot ?? Ballot()) < standing.ballot else { return false }
        return standing.isSigned(by: from)
    }

    /// Continues the open proposal on the new link.
    private mutating func resume(with from: PublicKey, _ received: SessionStart) -> [Action] {
        switch negotiation {
        case .settled: return []
        case .proposed(let proposal, _, let accepts):
            if accepts.contains(where: { $0.acceptor == from }) { return [] }
            return [.sendTo(from, .proposal(proposal))] + accepts.map { .sendTo(from, .accept($0)) }
        case .accepted(let proposal, let accept, _, _) where proposal.proposer != from:
            return [.sendTo(from, .accept(accept))]
        case .asked(let proposal, _), .accepted(let proposal, _, _, _):
            guard proposal.proposer == from, received.open != proposal.id else { return [] }
            return endTheirs() + [.tell(.lifetimeWithdrawn(proposal.id))]
        }
    }

    /// Ends the open proposal if this member or we have made it.
    private mutating func closeOpen(with from: PublicKey) -> [Action] {
        var voided: [Action] = []
        let isAccepted = if case .accepted = negotiation { true } else { false }
        if !isAccepted, let accepted = record.accepted {
            // Accepted before our restart.
            void(accepted.proposer, upTo: accepted.ballot)
            record.accepted = nil
            voided = [.save]
        }
        guard let (proposal, isOurs) = pending else { return voided }
        if isOurs { return takeBack(proposal) + [.tell(.lifetimeExpired(proposal.id))] }
        return voided + (proposal.proposer == from ? endTheirs() + [.tell(.lifetimeWithdrawn(proposal.id))] : [])
    }

    /// Ends the standing agreement and tells the others, which may not have seen the cause.
    /// - Parameter other: already told by our session start.
    mutating func endStanding(
        _ ended: Agreement?, inForce: Agreement?, _ end: SessionEnd, telling other: PublicKey,
        renewable: LifetimeTerms?, now: Timestamp
    ) -> [Action] {
        guard let ended else { return [] }
        record.renewable = ended.terms
        allowRenewal()
        self.end(ended.id, now: now)
        record.isStanding = false
        let reset = inForce.map { [Action.reset(previous: $0.terms, end)] } ?? []
        return [.save] + reset
            + members.filter { $0 != other }.map { .sendTo($0, .ended(ended.id, renewable: renewable)) }
    }

    /// Another member reports the end of the session. It only shortens, so it needs no proof.
    mutating func receiveEnd(
        of id: AgreementID, renewable theirs: LifetimeTerms?, from: PublicKey, policy: LifetimePolicy?, now: Timestamp,
        key: IdentityKey, random: inout some RandomNumberGenerator
    ) -> [Action] {
        if case .accepted(let proposal, _, _, _) = negotiation, AgreementID(proposal.id) == id {
            return endTheirs() + [.tell(.lifetimeWithdrawn(proposal.id))]
        }
        guard let head = record.head, head.id == id else { return [.dropped] }
        peers[from]?.renewable = theirs
        var actions: [Action] = []
        if record.isStanding {
            ownRenewable = self.renewable(policy)
            // The reporting member, too, learns from this message which terms we would renew.
            actions = endStanding(
                standing, inForce: inForce, .reported, telling: own, renewable: ownRenewable, now: now)
        }
        return actions + renew(now: now, key: key, random: &random)
    }

    /// All policies renew the last terms: the member with the smallest key proposes, later if over the rate limit.
    private mutating func renew(now: Timestamp, key: IdentityKey, random: inout some RandomNumberGenerator) -> [Action]
    {
        guard case .settled = negotiation, mayRenew, standing == nil, let terms = ownRenewable,
            let first = members.first, own < first, members.allSatisfy({ peers[$0]?.renewable == terms })
        else { return [] }
        guard !key.isWiped else {
            renewsAt = now + Limits.proposalRate.interval
            return []
        }
        do throws(Refusal) {
            let actions = try propose(terms, now: now, key: key, random: &random)
            mayRenew = false
            renewal = pending?.proposal.id
            if record.isRenewed == true { record.renewed = renewal }
            return actions
        } catch {
            if let wait = error.wait { renewsAt = now + wait } else { mayRenew = false }
            return []
        }
    }

    package mutating func renewIfDue(
        policy: LifetimePolicy?, now: Timestamp, key: IdentityKey, random: inout some RandomNumberGenerator
    ) -> [Action] {
        guard let due = renewsAt, due <= now else { return [] }
        guard !key.isWiped else {
            renewsAt = now + Limits.proposalRate.interval
            return []
        }
        renewsAt = nil
        guard let terms = ownRenewable, renews(terms, policy) else { return [] }
        return renew(now: now, key: key, random: &random)
    }

    /// The other side refused the renewal as too soon: tries again, at most ``Limits/renewalRefusalCount`` times.
    mutating func renewLater(_ refused: ProposalID, now: Timestamp) {
        guard refused == renewal, refusedRenewalCount < Limits.renewalRefusalCount else { return }
        refusedRenewalCount += 1
        mayRenew = true
        renewsAt = now + Limits.proposalRate.interval
    }

    private mutating func allowRenewal() {
        mayRenew = true
        refusedRenewalCount = 0
    }

    /// The highest epoch under this member list that we, or all members, have signed.
    var signedEpoch: UInt64 {
        let signed = [record.newest, record.accepted?.ballot ?? Ballot()] + record.floors.map(\.ballot)
        return signed.map { $0.epoch(under: membership) }.max() ?? 0
    }

    /// An unsigned epoch of another member raises our counter to at most ``Limits/epochsBelieved`` above `newest`.
    /// Members accept proposals further ahead (``Limits/epochsAhead``), so they still hear a node that believed a liar.
    mutating func learn(_ epoch: UInt64) {
        let bound = record.newest.epoch(under: membership).saturatingAdd(Limits.epochsBelieved)
        record.seen = max(record.seen, Ballot(membership: membership, epoch: min(epoch, bound)))
    }

    /// An agreement is void here but signed by all, so proposals must exceed its ballot.
    mutating func useUp(_ ballot: Ballot) -> [Action] {
        guard ballot > record.newest else { return [] }
        record.newest = ballot
        return [.save]
    }

    /// A gone member changes nothing in force; a new member has yet to sign.
    package mutating func membersChanged(to members: [PublicKey], membership: UInt64, now: Timestamp) -> [Action] {
        let was = inForce
        let others = members.filter { $0 != own }.sorted()
        var actions: [Action] = []
        if membership != self.membership || others != self.members { actions = closeAll() }
        self.members = others
        self.membership = membership
        peers = peers.filter { others.contains($0.key) }
        heard = heard.filter { others.contains($0.key) }
        for member in others where peers[member] == nil { peers[member] = Peer() }
        guard !others.isEmpty else {
            // Alone: agreements with former members never return.
            record.membershipFloor = membership.saturatingAdd(1)
            record.renewable = nil
            mayRenew = false
            renewsAt = nil
            guard let ended = standing else { return actions + [.save] }
            end(ended.id, now: now)
            record.isStanding = false
            return actions + [.save] + (was.map { [.reset(previous: $0.terms, .alone)] } ?? [])
        }
        let changed = coverage(was: was, automatic: true, now: now)
        return actions + (changed.isEmpty ? [] : [.save]) + changed
    }

    /// A proposal is for one member list.
    private mutating func closeAll() -> [Action] {
        guard let (proposal, isOurs) = pending else { return [] }
        if isOurs { return takeBack(proposal) + [.tell(.lifetimeRejected(proposal.id, .membershipChanged))] }
        return endTheirs(.stale) + [.tell(.lifetimeWithdrawn(proposal.id))]
    }

    /// Joining is consent to the agreement in the welcome.
    package mutating func joined(
        under agreement: Agreement, now: Timestamp, key: IdentityKey, random: inout some RandomNumberGenerator
    ) -> [Action] {
        // The agreement is older than our membership.
        guard record.head == nil, !members.isEmpty, agreement.proposal.membership < membership,
            agreement.isValid(conversation: conversation), !agreement.isSigned(by: own),
            agreement.accepts.count < Limits.memberCount - 1
        else { return [.dropped] }
        let accept = LifetimeAccept(agreement.proposal, at: now, by: key, &random)
        let signed = Agreement(proposal: agreement.proposal, accepts: agreement.accepts + [accept])
        return [.save] + settle(signed, was: nil, automatic: true, now: now) + [.send(.accept(accept))]
    }
}
