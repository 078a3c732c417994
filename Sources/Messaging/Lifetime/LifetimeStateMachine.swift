import Cryptography

/// One member's side of the lifetime negotiation, in a conversation of two or more members (Lifetime.md).
///
/// An agreement is a proposal and the accept of every other member. It *stands* from then until the session ends. It is
/// *in force* while it stands and every current member has signed it: a leaving member changes nothing, a new one
/// suspends it until its accept arrives. Proposing never changes ``inForce``. Messages are stored only under
/// ``inForce``, or under an earlier agreement that was in force here and that the content names.
package struct LifetimeStateMachine: Hashable, Sendable {
    enum Negotiation: Hashable, Sendable {
        /// Initial, and whenever a proposal ends. Next: `proposed`, `asked`, and by a standing policy `accepted`.
        case settled
        /// We have proposed and gather accepts. Next: `settled`, and `asked` when a crossing proposal survives ours.
        case proposed(LifetimeProposal, at: Timestamp, accepts: [LifetimeAccept])
        /// Another member has proposed. Next: `settled`, `accepted`, and `proposed` when our user proposes other terms.
        case asked(LifetimeProposal, at: Timestamp)
        /// We have signed. Next: `settled`, and `asked` when a crossing proposal survives.
        case accepted(LifetimeProposal, LifetimeAccept, at: Timestamp, automatic: Bool)
    }

    struct Peer: Hashable, Sendable {
        var proposals = TokenBucket(Limits.proposalRate)
        var agreements = TokenBucket(Limits.proposalRate)
        /// When we last answered a proposal beyond the rate limit, and the newest one not answered yet.
        var answeredAt: Timestamp?
        var unanswered: ProposalID?
        /// The terms that the member would renew.
        var renewable: LifetimeTerms?
    }

    /// A proposal that has ended here, and our answer to it.
    struct EndedProposal: Hashable, Sendable {
        var id: ProposalID
        var rejected: LifetimeRejectReason?
        /// The sender of a withdrawal that overtook the proposal. The withdrawal counts if the proposer sent it.
        var by: PublicKey?
    }

    package enum Action: Hashable, Sendable {
        /// The record has changed: make it durable before the actions that follow.
        case save
        case send(LifetimeMessage)
        case sendTo(PublicKey, LifetimeMessage)
        /// The agreement is in force. `automatic`: by a standing policy, or by a new member's accept.
        case agreed(Agreement, previous: LifetimeTerms, automatic: Bool)
        case tell(Event.Kind)
        case reset(previous: LifetimeTerms, SessionEnd)
        /// A new member has yet to sign.
        case suspended(previous: LifetimeTerms)
        /// Counts a message of a peer that is unexpected, repeated, invalid or beyond a limit.
        case dropped
        /// As `dropped`, for an invalid signature.
        case forged

        /// Our user must answer.
        static func asked(_ proposal: LifetimeProposal) -> Action {
            .tell(.lifetimeProposed(proposal.terms, ours: false, proposal.id))
        }
    }

    package enum SessionEnd: Hashable, Sendable {
        /// This member or our own node was out of reach for longer than the grace, or was restarted.
        case away(PublicKey)
        /// Another member reported the end.
        case reported
        case alone
    }

    package typealias Refusal = CommandError

    package internal(set) var record: Record
    let conversation: ConversationID
    package let own: PublicKey
    package internal(set) var membership: UInt64
    /// The others, in the order of their keys.
    package internal(set) var members: [PublicKey]
    var negotiation: Negotiation = .settled
    var ownBucket = TokenBucket(Limits.proposalRate)
    var peers: [PublicKey: Peer] = [:]
    /// The terms that we said we would renew.
    var ownRenewable: LifetimeTerms?
    /// A session has ended since we last proposed to renew.
    var mayRenew = false
    /// When a renewal delayed by the rate limit is proposed; `nil` for never.
    var renewsAt: Timestamp?
    /// The newest proposal that our standing policy has made.
    var renewal: ProposalID?
    /// Renewals refused by the other side as too soon, since the session ended.
    var refusedRenewalCount = 0
    /// Newest last.
    var endedProposals: [EndedProposal] = []
    /// The newest accept of each member. Accepts of the open proposal are verified. An accept that
    /// overtook its proposal is verified when the proposal arrives.
    var heard: [PublicKey: LifetimeAccept] = [:]

    package init(conversation: ConversationID, own: PublicKey, members: [PublicKey], membership: UInt64, record: Record)
    {
        self.conversation = conversation
        self.own = own
        self.members = members.filter { $0 != own }.sorted()
        self.membership = membership
        self.record = record
        for member in self.members { peers[member] = Peer() }
    }

    /// The newest agreement, unless its session has ended.
    package var standing: Agreement? { record.isStanding ? record.head : nil }

    /// New messages are kept under this agreement; `nil`: ephemeral.
    package var inForce: Agreement? {
        guard let standing, !members.isEmpty, standing.isSigned(by: own), standing.covers(members) else { return nil }
        return standing
    }

    package var terms: LifetimeTerms { inForce?.terms ?? .ephemeral }
    package var lifetime: Lifetime { terms.lifetime }

    package var pending: (proposal: LifetimeProposal, isOurs: Bool)? {
        switch negotiation {
        case .settled: nil
        case .proposed(let proposal, _, _): (proposal, true)
        case .asked(let proposal, _), .accepted(let proposal, _, _, _): (proposal, false)
        }
    }

    var theirs: LifetimeProposal? { pending.flatMap { $0.isOurs ? nil : $0.proposal } }

    /// The members that have yet to sign the open proposal, as far as this node has heard.
    package var unanswered: [PublicKey] {
        switch negotiation {
        case .settled: []
        case .asked(let proposal, _): [own] + silent(on: proposal)
        case .accepted(let proposal, _, _, _): silent(on: proposal)
        case .proposed(_, _, let accepts): members.filter { one in !accepts.contains { $0.acceptor == one } }
        }
    }

    private func silent(on proposal: LifetimeProposal) -> [PublicKey] {
        let id = proposal.id
        return members.filter { $0 != proposal.proposer && heard[$0]?.proposal != id }
    }

    /// The terms of an agreement that was in force here and is still known.
    package func knownTerms(of agreement: AgreementID) -> LifetimeTerms? {
        record.known.last { $0.id == agreement }?.terms
    }

    /// The terms for keeping a content that names `agreement`; `nil`: not at all.
    /// - Parameter age: by the sender's clock. A false age can only shorten: no content outlives the end of an
    ///   agreement by more than its lifetime and the tolerance.
    package func storable(
        under agreement: AgreementID, age: Milliseconds = .max, now: Timestamp = Timestamp(milliseconds: 0)
    ) -> LifetimeTerms? {
        guard let known = record.known.last(where: { $0.id == agreement }) else { return nil }
        if let endedAt = known.endedAt {
            let since = now - endedAt
            guard since <= Limits.outboxLifetime, since <= Limits.transitTolerance || age >= since else { return nil }
        }
        return known.terms
    }

    private var proposalDeadline: Timestamp? {
        switch negotiation {
        case .settled: nil
        case .proposed(_, let at, _): at + Limits.proposalLifetime
        case .asked(_, let at): at + Self.answerTime
        case .accepted(_, _, let at, _): at + Self.waitTime
        }
    }

    package var nextDeadline: Timestamp? {
        let answeredAt = peers.values.lazy.compactMap { $0.unanswered == nil ? nil : $0.answeredAt }.min()
        return earliest(proposalDeadline, answeredAt.map { $0 + Limits.proposalRate.interval }, renewsAt)
    }

    /// An asked member stops before the proposer's 24 h end, so no accept is late. After its accept it waits for the
    /// bundle, longer than the proposer.
    static let answerTime = Limits.proposalLifetime - Limits.proposalClockTolerance
    static let waitTime = Limits.proposalLifetime + Limits.proposalClockTolerance

    package mutating func setPolicy(_ policy: LifetimePolicy?) -> [Action] {
        (record.policy, record.isRenewed, record.renewed) = (policy, nil, nil)
        return [.save]
    }

    /// Ends an unanswered proposal after 24 h, and answers proposals that the rate limit deferred.
    package mutating func expire(now: Timestamp) -> [Action] {
        var actions: [Action] = []
        for member in members {
            guard let id = peers[member]?.unanswered, let answeredAt = peers[member]?.answeredAt,
                answeredAt + Limits.proposalRate.interval <= now
            else { continue }
            peers[member]?.unanswered = nil
            peers[member]?.answeredAt = now
            actions.append(.sendTo(member, .reject(id, .rateLimited)))
        }
        guard let deadline = proposalDeadline, deadline <= now, let (proposal, isOurs) = pending else { return actions }
        return actions + (isOurs ? takeBack(proposal) : endTheirs()) + [.tell(.lifetimeExpired(proposal.id))]
    }
}

extension LifetimeStateMachine {
    /// Proposes `terms`, or accepts an open proposal of the same terms.
    package mutating func propose(
        _ terms: LifetimeTerms, now: Timestamp, key: IdentityKey, random: inout some RandomNumberGenerator
    ) throws(Refusal) -> [Action] {
        guard terms.isValid else { throw .invalidTerms }
        if terms == self.terms, case .settled = negotiation { throw .alreadyAgreed(terms.lifetime) }
        if case .asked(let proposal, _) = negotiation, proposal.terms == terms {
            return try accept(now: now, key: key, random: &random)
        }
        if case .accepted = negotiation { throw .alreadyAccepted }
        if let wait = ownBucket.take(now: now) { throw .tooSoon(wait) }
        var actions: [Action] = []
        var stamp = now
        switch negotiation {
        case .settled, .accepted: break
        case .proposed(let old, _, _): actions += takeBack(old)
        // A counter-proposal needs the later stamp, whatever the clocks say.
        case .asked(let other, _):
            stamp = max(now, other.proposedAt + 1)
            close(other, nil)
        }
        let known = [record.newest, record.seen, floor(of: own) ?? Ballot()].map { $0.epoch(under: membership) }
        let epoch = (known.max() ?? 0).saturatingAdd(1)
        let proposal = LifetimeProposal(
            conversation: conversation, membership: membership, epoch: epoch, previous: record.head?.id ?? .none,
            terms: terms, proposedAt: stamp, nonce: random.bytes(16), proposer: key.publicKey
        ).signed(by: key, &random)
        // Durable, so that no epoch is used twice after a crash.
        record.seen = proposal.ballot
        negotiation = .proposed(proposal, at: now, accepts: [])
        return actions + [.save, .send(.proposal(proposal))]
    }

    /// - Parameter seen: the proposal that the user saw; its proposer may have replaced it since.
    package mutating func accept(
        only seen: ProposalID? = nil, now: Timestamp, key: IdentityKey, random: inout some RandomNumberGenerator
    ) throws(Refusal) -> [Action] {
        guard case .asked(let proposal, let at) = negotiation, now < at + Self.answerTime else { throw .noProposal }
        if let seen, proposal.id != seen { throw .otherProposal }
        return consent(to: proposal, automatic: false, now: now, key: key, random: &random)
    }

    /// Rejects another member's proposal, also after our accept. Changes nothing in force.
    package mutating func reject() throws(Refusal) -> [Action] {
        guard let proposal = theirs else { throw .noProposal }
        return endTheirs(.userDeclined) + [.sendTo(proposal.proposer, .reject(proposal.id, .userDeclined))]
    }

    package mutating func withdraw() throws(Refusal) -> [Action] {
        guard case .proposed(let proposal, _, _) = negotiation else { throw .noProposal }
        return takeBack(proposal)
    }
}
