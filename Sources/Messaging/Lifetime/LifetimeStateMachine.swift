import Crypto

/// One member's side of the lifetime negotiation of a conversation (Lifetime.md). Two members or more.
///
///                     propose                      receive a proposal
///      ┌──────────┐ ───────────▶ ┌──────────┐   ┌───────┐ ◀─────────── ┌──────────┐
///      │ settled  │              │ proposed │   │ asked │              │ settled  │
///      └──────────┘ ◀─────────── └──────────┘   └───────┘ ───────────▶ └──────────┘
///                  all have accepted,           rejected, withdrawn, 24 h; two members: accepted
///                  rejected, withdrawn, 24 h
///
///      asked ──accepted, three members or more──▶ accepted ──bundle, rejected, withdrawn, 24 h──▶ settled
///      proposed, accepted ──a proposal that survives ours──▶ asked
///      asked ──the user proposes something else──▶ proposed
///
/// An agreement is a proposal and the accept of every other member. It *stands* from then until the session ends, and is
/// *in force* while it stands and every current member has signed it: a leaving member changes nothing, a new one
/// suspends it until its accept has come. Proposing never changes ``inForce``. Nothing is stored unless under
/// ``inForce``, or under an earlier agreement that a content names and that was in force here.
package struct LifetimeStateMachine: Hashable, Sendable {
    enum Negotiation: Hashable, Sendable {
        /// Entered at start, and whenever a proposal ends. May go to `proposed`, `asked` and, by a standing policy, to
        /// `accepted`.
        case settled
        /// We have proposed and gather accepts. May go to `settled`, and to `asked` when a crossing proposal survives
        /// ours.
        case proposed(LifetimeProposal, at: Timestamp, accepts: [LifetimeAccept])
        /// Another member has proposed and our user is asked. May go to `settled`, to `accepted`, and to `proposed` when
        /// our user answers with another value.
        case asked(LifetimeProposal, at: Timestamp)
        /// Three members or more: we have signed and wait for the others' signatures. May go to `settled`, and to `asked`
        /// when a crossing proposal survives.
        case accepted(LifetimeProposal, LifetimeAccept, at: Timestamp, automatic: Bool)
    }

    /// What is remembered of one other member while the node runs.
    struct Peer: Hashable, Sendable {
        var proposals = TokenBucket(interval: Limits.proposalInterval, burst: Limits.proposalBurst)
        var agreements = TokenBucket(interval: Limits.proposalInterval, burst: Limits.proposalBurst)
        /// When a proposal beyond the rate was last answered, and the newest one that was not.
        var answeredAt: Timestamp?
        var unanswered: ProposalID?
        /// What it has said it would renew.
        var renewable: LifetimeTerms?
    }

    /// A proposal that is over here, and how we have answered it.
    struct EndedProposal: Hashable, Sendable {
        var id: ProposalID
        var rejected: LifetimeRejectReason?
        /// The sender of a withdrawal that came before the proposal. The withdrawal counts if the proposer sent it.
        var by: PublicKey?
    }

    /// What follows from an event, in order.
    package enum Action: Hashable, Sendable {
        /// The record has changed: make it durable before what follows.
        case save
        /// To every other member.
        case send(LifetimeMessage)
        case sendTo(PublicKey, LifetimeMessage)
        /// All have signed, and it is in force. `automatic`: a standing policy answered, or a new member's consent.
        case agreed(Agreement, previous: LifetimeTerms, automatic: Bool)
        /// Our user is to answer.
        case asked(LifetimeProposal)
        /// A member has signed the open proposal, and others have not.
        case signed(ProposalID, by: PublicKey)
        /// The open proposal was turned down.
        case rejected(ProposalID, LifetimeRejectReason)
        /// Another member's proposal is gone.
        case withdrawn(ProposalID)
        /// A proposal was answered by nobody for 24 hours, or the session has ended.
        case expired(ProposalID)
        /// The session has ended and the agreement with it.
        case reset(previous: LifetimeTerms, SessionEnd)
        /// A new member has yet to sign.
        case suspended(previous: LifetimeTerms)
        /// We had accepted what the proposer took back: whatever was stored under it goes.
        case rolledBack(AgreementID)
        /// A peer's message that answers nothing, repeats, floods or does not verify. Counted.
        case dropped
        /// As `dropped`: its signature does not hold.
        case forged
    }

    /// Why a session has ended.
    package enum SessionEnd: Hashable, Sendable {
        /// This member, or our own node, was out of reach for longer than the grace, or was restarted.
        case away(PublicKey)
        /// Another member has seen the end.
        case reported
        /// No other member is left.
        case alone
    }

    /// Why our user cannot do this now.
    package enum Refusal: Error, Hashable, Sendable {
        /// Nothing waits for an answer, or nothing of ours is open.
        case noProposal
        /// What waits for an answer now is not what our user has seen.
        case otherProposal
        /// Too many proposals; the next one may be made after this long.
        case tooSoon(Milliseconds)
        /// These terms are in force already.
        case alreadyAgreed(Lifetime)
        /// We have accepted a proposal and the others have not answered yet.
        case alreadyAccepted
        /// Nothing would be kept, or a time is out of its range.
        case invalidTerms
    }

    /// The record as it is to be saved.
    package internal(set) var record: Record
    let conversation: ConversationID
    package let own: PublicKey
    /// Version of the member list.
    package internal(set) var membership: UInt64
    /// Everyone else, in the order of the keys.
    package internal(set) var members: [PublicKey]
    var negotiation: Negotiation = .settled
    var ownBucket = TokenBucket(interval: Limits.proposalInterval, burst: Limits.proposalBurst)
    var peers: [PublicKey: Peer] = [:]
    /// What we have said that we would renew.
    var ownRenewable: LifetimeTerms?
    /// A session has ended since we last proposed to renew.
    var mayRenew = false
    /// When the renewal is proposed that would have come too soon; `nil` for never.
    var renewsAt: Timestamp?
    /// The newest proposal that a standing policy of ours has made.
    var renewal: ProposalID?
    /// How many of these came too soon for the other side since the session ended.
    var refusedRenewalCount = 0
    /// Newest last.
    var endedProposals: [EndedProposal] = []
    /// The newest accept of each other member, with three members or more. Accepts of the open proposal are verified.
    /// An accept of another proposal may have overtaken it, and is verified when that proposal comes.
    var heard: [PublicKey: LifetimeAccept] = [:]

    /// - Parameter members: everyone else, in whatever order.
    package init(conversation: ConversationID, own: PublicKey, members: [PublicKey], membership: UInt64, record: Record)
    {
        self.conversation = conversation
        self.own = own
        self.members = members.filter { $0 != own }.sorted()
        self.membership = membership
        self.record = record
        for member in self.members { peers[member] = Peer() }
    }

    // MARK: Where it stands

    /// Two members: the acceptor agrees when it accepts.
    var isPair: Bool { members.count == 1 }

    /// The newest agreement, unless the session has ended since.
    package var standing: Agreement? { record.isStanding ? record.head : nil }

    /// What new messages are kept under; `nil`: ephemeral.
    package var inForce: Agreement? {
        guard let standing, !members.isEmpty, standing.isSigned(by: own), standing.covers(members) else { return nil }
        return standing
    }

    /// The terms of new messages.
    package var terms: LifetimeTerms { inForce?.terms ?? .ephemeral }
    /// The lifetime of new texts.
    package var lifetime: Lifetime { terms.lifetime }

    /// The proposal on the table, and whether it is ours.
    package var pending: (proposal: LifetimeProposal, isOurs: Bool)? {
        switch negotiation {
        case .settled: nil
        case .proposed(let proposal, _, _): (proposal, true)
        case .asked(let proposal, _), .accepted(let proposal, _, _, _): (proposal, false)
        }
    }

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

    /// The terms under which a content that names `agreement` may be kept; `nil`: not at all.
    /// - Parameter age: of the content, by its sender's clock. A false one can only shorten: nothing outlives the end of
    ///   an agreement by more than its lifetime and the tolerance.
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

    /// The proposer has used this agreement, so it holds it.
    package mutating func confirm(_ agreement: AgreementID) {
        if record.head?.id == agreement { record.confirmed = agreement }
    }

    /// When there is something to do; `nil` for never.
    package var nextDeadline: Timestamp? {
        var earliest: Timestamp? =
            switch negotiation {
            case .settled: nil
            case .proposed(_, let at, _): at + Limits.proposalLifetime
            case .asked(_, let at): at + Self.answerTime
            case .accepted(_, _, let at, _): at + Self.waitTime
            }
        for peer in peers.values where peer.unanswered != nil {
            guard let answeredAt = peer.answeredAt else { continue }
            let due = answeredAt + Limits.proposalInterval
            earliest = min(earliest ?? due, due)
        }
        if let renewsAt { earliest = min(earliest ?? renewsAt, renewsAt) }
        return earliest
    }

    /// The side that is asked stops a little before the proposer does, so that an accept is never sent too late; and it
    /// waits a little longer than the proposer for the others.
    static let answerTime = Limits.proposalLifetime - Limits.proposalClockTolerance
    static let waitTime = Limits.proposalLifetime + Limits.proposalClockTolerance

    /// - Parameter policy: `nil` follows the node's default.
    package mutating func setPolicy(_ policy: LifetimePolicy?) -> [Action] {
        record.policy = policy
        return [.save]
    }

    // MARK: Time

    /// Ends a proposal that nobody has answered (section 6, point 5), and answers what came too fast.
    package mutating func expire(now: Timestamp) -> [Action] {
        var actions: [Action] = []
        for member in members {
            guard let id = peers[member]?.unanswered, let answeredAt = peers[member]?.answeredAt,
                answeredAt + Limits.proposalInterval <= now
            else { continue }
            peers[member]?.unanswered = nil
            peers[member]?.answeredAt = now
            actions.append(.sendTo(member, .reject(id, .rateLimited)))
        }
        switch negotiation {
        case .settled: break
        case .proposed(let proposal, let at, _):
            guard at + Limits.proposalLifetime <= now else { break }
            actions += takeBack(proposal) + [.expired(proposal.id)]
        case .asked(let proposal, let at):
            guard at + Self.answerTime <= now else { break }
            close(proposal, nil)
            actions.append(.expired(proposal.id))
        case .accepted(let proposal, _, let at, _):
            guard at + Self.waitTime <= now else { break }
            voidAccepted(proposal)
            actions += [.save, .expired(proposal.id)]
        }
        return actions
    }
}
