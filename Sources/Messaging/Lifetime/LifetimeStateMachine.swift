import Primitives

/// One member's side of the lifetime negotiation of a conversation of two (section 6).
///
///                     propose                      receive a proposal
///      ┌──────────┐ ───────────▶ ┌──────────┐   ┌───────┐ ◀─────────── ┌──────────┐
///      │ settled  │              │ proposed │   │ asked │              │ settled  │
///      └──────────┘ ◀─────────── └──────────┘   └───────┘ ───────────▶ └──────────┘
///                    accepted, rejected,          accepted, rejected,
///                    withdrawn, 24 h              withdrawn, 24 h
///
///      proposed ──a crossing proposal survives ours──▶ asked
///      asked ──the user proposes something else──▶ proposed
///
/// Proposing never changes ``inForce``. Nothing is stored unless ``inForce``, or an earlier agreement that a content
/// names, was signed by both members.
package struct LifetimeStateMachine: Hashable, Sendable {
    /// What survives a restart. Saved before anything that rests on it is sent.
    package struct Record: Hashable, Sendable, Codable {
        /// The agreement in force; `nil`: ephemeral.
        package var inForce: Agreement?
        /// What was in force before, for a withdrawal that crosses our accept.
        package var before: Agreement?
        /// The newest agreement, in force or not.
        package var head: Agreement?
        /// Highest epoch seen; proposals must exceed it.
        package var epoch: UInt64 = 0
        /// Agreements under which a content may still arrive, oldest first.
        package var known: [KnownAgreement] = []
        /// Our own proposals that we took back and whose accept may be on its way.
        package var withdrawn: [ProposalID] = []
        /// The highest epoch of a proposal of ours that was taken back: no accept of one up to it counts, however late.
        package var ownFloor: UInt64?
        /// The newest agreement that the proposer has shown to hold: it cannot take it back any more.
        package var confirmed: AgreementID?
        /// When the agreement in force came to be.
        package var settledAt: Timestamp?
        /// What a standing policy on both sides would renew.
        package var renewable: Lifetime?
        /// `nil`: the node's default policy.
        package var policy: LifetimePolicy?

        package init() {}
    }

    /// What is kept of an earlier agreement.
    package struct KnownAgreement: Hashable, Sendable, Codable {
        package var id: AgreementID
        package var lifetime: Lifetime
        /// When it ceased to be in force: it covers what was sent before.
        package var endedAt: Timestamp?
    }

    private enum Negotiation: Hashable, Sendable {
        /// Entered at start, and whenever a proposal ends. May go to `proposed` and `asked`.
        case settled
        /// We have proposed and wait. May go to `settled`, and to `asked` when a crossing proposal survives ours.
        case proposed(LifetimeProposal, at: Timestamp)
        /// The other member has proposed and our user is asked. May go to `settled`, and to `proposed` when our user
        /// answers with another value.
        case asked(LifetimeProposal, at: Timestamp)
    }

    /// What follows from an event, in order.
    package enum Action: Hashable, Sendable {
        /// The record has changed: make it durable before what follows.
        case save
        case send(LifetimeMessage)
        /// Both have signed. `automatic`: a standing policy answered.
        case agreed(Agreement, previous: Lifetime, automatic: Bool)
        /// Our user is to answer.
        case asked(LifetimeProposal)
        /// Our proposal was turned down.
        case rejected(ProposalID, LifetimeRejectReason)
        /// The other member's proposal is gone.
        case withdrawn(ProposalID)
        /// A proposal was answered by nobody for 24 hours.
        case expired(ProposalID)
        /// The session has ended and the agreement with it.
        case reset(previous: Lifetime)
        /// We had accepted what the proposer took back: whatever was stored under it goes.
        case rolledBack(AgreementID)
        /// A peer's message that answers nothing, repeats, floods or does not verify. Counted.
        case dropped
    }

    /// Why our user cannot do this now.
    package enum Refusal: Error, Hashable, Sendable {
        /// Nothing waits for an answer, or nothing of ours is open.
        case noProposal
        /// Too many proposals; the next one may be made after this long.
        case tooSoon(Milliseconds)
        /// This lifetime is in force already.
        case alreadyAgreed(Lifetime)
    }

    /// The record as it is to be saved.
    package private(set) var record: Record
    private let conversation: ConversationID
    private let membership: UInt64
    private let own: PublicKey
    private let peer: PublicKey
    private var negotiation: Negotiation = .settled
    private var ownBucket = TokenBucket(interval: Limits.proposalInterval, burst: Limits.proposalBurst)
    private var peerBucket = TokenBucket(interval: Limits.proposalInterval, burst: Limits.proposalBurst)
    /// Highest epoch that the peer has named; ours must exceed it too.
    private var peerEpoch: UInt64 = 0

    package init(
        conversation: ConversationID,
        membership: UInt64,
        own: PublicKey,
        peer: PublicKey,
        record: Record
    ) {
        self.conversation = conversation
        self.membership = membership
        self.own = own
        self.peer = peer
        self.record = record
    }

    /// The lifetime of new messages.
    package var lifetime: Lifetime { record.inForce?.lifetime ?? .ephemeral }

    /// The proposal on the table, and whether it is ours.
    package var pending: (proposal: LifetimeProposal, isOurs: Bool)? {
        switch negotiation {
        case .settled: nil
        case .proposed(let proposal, _): (proposal, true)
        case .asked(let proposal, _): (proposal, false)
        }
    }

    /// The lifetime under which a content that names `agreement` may be stored; `nil`: not at all.
    /// - Parameter age: of the content, by its sender's clock. A false one can only shorten: nothing outlives the end of
    ///   an agreement by more than its lifetime and the tolerance.
    package func storable(
        under agreement: AgreementID,
        age: Milliseconds = .max,
        now: Timestamp = Timestamp(milliseconds: 0)
    ) -> Lifetime? {
        guard let known = record.known.last(where: { $0.id == agreement }) else { return nil }
        if let endedAt = known.endedAt {
            let since = now - endedAt
            guard since <= Limits.outboxLifetime, since <= Limits.transitTolerance || age >= since else {
                return nil
            }
        }
        return known.lifetime
    }

    /// The other member has used this agreement, so it holds it.
    package mutating func confirm(_ agreement: AgreementID) {
        if record.head?.id == agreement { record.confirmed = agreement }
    }

    /// When the open proposal ends; `nil` without one.
    package var nextDeadline: Timestamp? {
        switch negotiation {
        case .settled: nil
        case .proposed(_, let at): at + Limits.proposalLifetime
        case .asked(_, let at): at + Self.answerTime
        }
    }

    /// The side that is asked stops a little before the proposer does, so that an accept is never sent too late.
    private static let answerTime = Limits.proposalLifetime - Limits.proposalClockTolerance

    // MARK: The user

    /// Proposes `lifetime`; if the other member has proposed the same, accepts that.
    package mutating func propose(
        _ lifetime: Lifetime,
        now: Timestamp,
        key: IdentityKey,
        random: inout some RandomNumberGenerator
    ) throws(Refusal) -> [Action] {
        if lifetime == self.lifetime, case .settled = negotiation { throw .alreadyAgreed(lifetime) }
        if case .asked(let proposal, _) = negotiation, proposal.lifetime == lifetime {
            return try accept(now: now, key: key, random: &random)
        }
        if let wait = ownBucket.take(now: now) { throw .tooSoon(wait) }
        var actions: [Action] = []
        var stamp = now
        switch negotiation {
        case .settled: break
        case .proposed(let old, _): actions += takeBack(old)
        // Our answer is later than what it answers, whatever the two clocks say.
        case .asked(let other, _): stamp = max(now, other.proposedAt + 1)
        }
        let proposal = LifetimeProposal.Unsigned(
            conversation: conversation,
            membership: membership,
            epoch: max(record.epoch, peerEpoch, record.ownFloor ?? 0) + 1,
            previous: record.head?.id ?? .none,
            lifetime: lifetime,
            proposedAt: stamp,
            nonce: random.bytes(16)
        ).signed(by: key, &random)
        negotiation = .proposed(proposal, at: now)
        actions.append(.send(.proposal(proposal)))
        return actions
    }

    /// Accepts what the other member has proposed.
    package mutating func accept(
        now: Timestamp,
        key: IdentityKey,
        random: inout some RandomNumberGenerator
    ) throws(Refusal) -> [Action] {
        guard case .asked(let proposal, let at) = negotiation, now < at + Self.answerTime else { throw .noProposal }
        return consent(to: proposal, automatic: false, now: now, key: key, random: &random)
    }

    /// Turns down what the other member has proposed. Changes nothing in force.
    package mutating func reject(_ reason: LifetimeRejectReason = .userDeclined) throws(Refusal) -> [Action] {
        guard case .asked(let proposal, _) = negotiation else { throw .noProposal }
        negotiation = .settled
        return [.send(.reject(proposal.id, reason))]
    }

    /// Takes back our own proposal. Changes nothing in force.
    package mutating func withdraw() throws(Refusal) -> [Action] {
        guard case .proposed(let proposal, _) = negotiation else { throw .noProposal }
        negotiation = .settled
        return takeBack(proposal)
    }

    /// - Parameter policy: `nil` follows the node's default.
    package mutating func setPolicy(_ policy: LifetimePolicy?) -> [Action] {
        record.policy = policy
        return [.save]
    }

    // MARK: The other member

    /// - Parameter policy: our standing answer; `.ask` while the storage is locked, since consent must be durable.
    package mutating func receive(
        _ message: LifetimeMessage,
        policy: LifetimePolicy,
        now: Timestamp,
        key: IdentityKey,
        random: inout some RandomNumberGenerator
    ) -> [Action] {
        switch message {
        case .proposal(let proposal):
            if peerBucket.take(now: now) != nil { return [.dropped] }
            return receive(proposal, policy: policy, now: now, key: key, random: &random)
        case .unsupported(let id):
            if peerBucket.take(now: now) != nil { return [.dropped] }
            return id.map { [.send(.reject($0, .unsupported))] } ?? [.dropped]
        case .accept(let accept): return receive(accept, now: now)
        case .reject(let id, let reason):
            guard case .proposed(let proposal, _) = negotiation, proposal.id == id else { return [.dropped] }
            negotiation = .settled
            return [.rejected(id, reason)]
        case .withdraw(let id): return receiveWithdrawal(of: id, now: now)
        }
    }

    private mutating func receive(
        _ proposal: LifetimeProposal,
        policy: LifetimePolicy,
        now: Timestamp,
        key: IdentityKey,
        random: inout some RandomNumberGenerator
    ) -> [Action] {
        guard proposal.conversation == conversation, proposal.proposer == peer, proposal.isSignatureValid else {
            return [.dropped]
        }
        guard proposal.membership == membership, proposal.epoch > record.epoch,
            proposal.epoch - record.epoch <= Self.epochsAhead
        else { return [.send(.reject(proposal.id, .stale))] }
        peerEpoch = max(peerEpoch, proposal.epoch - 1)

        var actions: [Action] = []
        switch negotiation {
        case .settled: break
        case .asked(let old, _):
            if old.id == proposal.id || proposal.proposedAt < old.proposedAt { return [.dropped] }
        case .proposed(let ours, _):
            guard Self.survives(proposal, ours) else { return [.dropped] }
            noteTakenBack(ours)
            actions.append(.save)
            if ours.lifetime == proposal.lifetime {
                // Both have proposed the same: our own signed wish is our consent.
                return actions + consent(to: proposal, automatic: false, now: now, key: key, random: &random)
            }
        }
        if policy == .refuse {
            negotiation = .settled
            return actions + [.send(.reject(proposal.id, .policy))]
        }
        if policy.accepts(proposal.lifetime) {
            return actions + [.asked(proposal)]
                + consent(to: proposal, automatic: true, now: now, key: key, random: &random)
        }
        negotiation = .asked(proposal, at: now)
        return actions + [.asked(proposal)]
    }

    /// Which of two crossing proposals survives (section 6, point 4): the later one; of equal ones that with the
    /// smaller hash. A stamp too far ahead would count as our now, which is not before our own stamp either; so both
    /// sides compare the same two stamps and come to the same answer, whatever their clocks say.
    private static func survives(_ theirs: LifetimeProposal, _ ours: LifetimeProposal) -> Bool {
        if theirs.proposedAt != ours.proposedAt { return theirs.proposedAt > ours.proposedAt }
        return theirs.id < ours.id
    }

    private mutating func receive(_ accept: LifetimeAccept, now: Timestamp) -> [Action] {
        guard case .proposed(let proposal, _) = negotiation, accept.proposal == proposal.id else {
            if record.head?.proposal.id == accept.proposal { return [.dropped] }
            // It answers what we took back, or what a crossing proposal has replaced: the acceptor must not keep it.
            return [.dropped, .send(.withdraw(accept.proposal))]
        }
        let agreement = Agreement(proposal: proposal, accept: accept)
        guard agreement.isValid(conversation: conversation, between: own, and: peer) else { return [.dropped] }
        return [.save, settle(agreement, automatic: false, now: now)]
    }

    private mutating func receiveWithdrawal(of id: ProposalID, now: Timestamp) -> [Action] {
        if case .asked(let proposal, _) = negotiation, proposal.id == id {
            negotiation = .settled
            return [.withdrawn(id)]
        }
        guard let head = record.head, head.proposal.id == id, head.proposal.proposer == peer,
            record.confirmed != head.id
        else { return [.dropped] }
        // It crossed our accept: the proposer never held this agreement.
        record.known.removeAll { $0.id == head.id }
        if record.inForce?.id == head.id {
            // What was in force before comes back at once or not at all, when it is the longer one: a proposer may not
            // undo a tightening later.
            let isPrompt = record.settledAt.map { now - $0 <= Limits.withdrawalWindow } ?? false
            record.inForce = record.before.flatMap { isPrompt || $0.lifetime <= head.lifetime ? $0 : nil }
            if let before = record.inForce { reopen(before.id) }
        }
        record.before = nil
        record.head = nil
        return [.save, .rolledBack(head.id), .withdrawn(id)]
    }

    // MARK: Time

    /// Ends a proposal that nobody has answered (section 6, point 5).
    package mutating func expire(now: Timestamp) -> [Action] {
        guard let deadline = nextDeadline, deadline <= now else { return [] }
        switch negotiation {
        case .settled: return []
        case .proposed(let proposal, _):
            negotiation = .settled
            return takeBack(proposal) + [.expired(proposal.id)]
        case .asked(let proposal, _):
            negotiation = .settled
            return [.expired(proposal.id)]
        }
    }

    // MARK: Sessions

    /// Where we stand, for the other member.
    /// - Parameters:
    ///   - reset: our session has ended since the last link.
    ///   - policy: our standing answer now; decides what we would renew.
    package func sessionStart(reset: Bool, policy: LifetimePolicy) -> SessionStart {
        let last = record.inForce?.lifetime ?? record.renewable
        return SessionStart(
            reset: reset,
            inForce: record.inForce?.id,
            head: record.head,
            renewable: last.flatMap { $0 != .ephemeral && policy.accepts($0) ? $0 : nil }
        )
    }

    /// Both sides have said where they stand. They come to the same agreement in force, or to none.
    package mutating func sessionEstablished(
        sent: SessionStart,
        received: SessionStart,
        now: Timestamp,
        key: IdentityKey,
        random: inout some RandomNumberGenerator
    ) -> [Action] {
        var actions: [Action] = []
        var caughtUp = false
        if let head = received.head, head.epoch > record.epoch, head.epoch - record.epoch <= Self.epochsAhead,
            head.proposal.membership == membership,
            head.isValid(conversation: conversation, between: own, and: peer)
        {
            if isTakenBack(head.proposal) {
                peerEpoch = max(peerEpoch, head.epoch)
                actions.append(.send(.withdraw(head.proposal.id)))
            } else {
                remember(head)
                // In force or not is decided below.
                end(head.id, now: now)
                caughtUp = true
                actions.append(.save)
            }
        }
        if sent.reset || received.reset {
            return actions + reset(now: now) + renew(sent, received, now: now, key: key, random: &random)
        }
        if let head = record.head, received.inForce == head.id { record.confirmed = head.id }
        if caughtUp, let head = record.head, received.inForce == head.id {
            actions.append(settle(head, automatic: false, now: now))
        } else if agreesInForce(sent, received) {
            if case .proposed(let proposal, _) = negotiation { actions.append(.send(.proposal(proposal))) }
        } else {
            actions += reset(now: now) + renew(sent, received, now: now, key: key, random: &random)
        }
        return actions
    }

    /// Whether what is in force here is so there too, or will be once the other side has caught up with our head.
    private func agreesInForce(_ sent: SessionStart, _ received: SessionStart) -> Bool {
        if sent.inForce == received.inForce { return true }
        let ours = sent.head?.epoch ?? 0
        let theirs = received.head?.epoch ?? 0
        if ours > theirs { return sent.inForce == sent.head?.id && sent.head?.proposal.proposer == peer }
        // The peer accepted what we took back; it will roll back to what is in force here.
        return received.head.map { $0.id == received.inForce && isTakenBack($0.proposal) } ?? false
    }

    private mutating func reset(now: Timestamp) -> [Action] {
        var actions: [Action] = []
        switch negotiation {
        case .settled: break
        case .proposed(let proposal, _):
            noteTakenBack(proposal)
            actions += [.save, .expired(proposal.id)]
        case .asked(let proposal, _): actions.append(.withdrawn(proposal.id))
        }
        negotiation = .settled
        guard let ended = record.inForce else { return actions }
        record.renewable = ended.lifetime
        end(ended.id, now: now)
        record.inForce = nil
        record.before = nil
        return actions + [.save, .reset(previous: ended.lifetime)]
    }

    /// A standing policy on both sides renews the last agreement; the member with the smaller key asks.
    private mutating func renew(
        _ sent: SessionStart,
        _ received: SessionStart,
        now: Timestamp,
        key: IdentityKey,
        random: inout some RandomNumberGenerator
    ) -> [Action] {
        guard let lifetime = sent.renewable, received.renewable == lifetime, own < peer else { return [] }
        return (try? propose(lifetime, now: now, key: key, random: &random)) ?? []
    }

    // MARK: Steps

    private static let epochsAhead: UInt64 = 1 << 20

    private mutating func consent(
        to proposal: LifetimeProposal,
        automatic: Bool,
        now: Timestamp,
        key: IdentityKey,
        random: inout some RandomNumberGenerator
    ) -> [Action] {
        let accept = LifetimeAccept(proposal, at: now, by: key, &random)
        let agreed = settle(Agreement(proposal: proposal, accept: accept), automatic: automatic, now: now)
        return [.save, .send(.accept(accept)), agreed]
    }

    private mutating func settle(_ agreement: Agreement, automatic: Bool, now: Timestamp) -> Action {
        let previous = lifetime
        negotiation = .settled
        if let inForce = record.inForce { end(inForce.id, now: now) }
        record.settledAt = now
        record.before = record.inForce
        record.inForce = agreement
        record.renewable = nil
        remember(agreement)
        // As proposer we hold both signatures; as acceptor we wait for a sign that the proposer does.
        if agreement.accept.acceptor == peer { record.confirmed = agreement.id }
        reopen(agreement.id)
        return .agreed(agreement, previous: previous, automatic: automatic)
    }

    private mutating func remember(_ agreement: Agreement) {
        record.head = agreement
        record.epoch = max(record.epoch, agreement.epoch)
        if !record.known.contains(where: { $0.id == agreement.id }) {
            record.known.append(KnownAgreement(id: agreement.id, lifetime: agreement.lifetime))
        }
        if record.known.count > Limits.agreementCount { record.known.removeFirst() }
    }

    private mutating func end(_ agreement: AgreementID, now: Timestamp) {
        for index in record.known.indices where record.known[index].id == agreement {
            record.known[index].endedAt = record.known[index].endedAt ?? now
        }
    }

    private mutating func reopen(_ agreement: AgreementID) {
        for index in record.known.indices where record.known[index].id == agreement {
            record.known[index].endedAt = nil
        }
    }

    private mutating func takeBack(_ proposal: LifetimeProposal) -> [Action] {
        noteTakenBack(proposal)
        return [.save, .send(.withdraw(proposal.id))]
    }

    private func isTakenBack(_ proposal: LifetimeProposal) -> Bool {
        record.withdrawn.contains(proposal.id)
            || proposal.proposer == own && record.ownFloor.map { proposal.epoch <= $0 } ?? false
    }

    private mutating func noteTakenBack(_ proposal: LifetimeProposal) {
        record.ownFloor = max(record.ownFloor ?? 0, proposal.epoch)
        record.withdrawn.append(proposal.id)
        if record.withdrawn.count > Limits.withdrawnCount { record.withdrawn.removeFirst() }
    }
}
