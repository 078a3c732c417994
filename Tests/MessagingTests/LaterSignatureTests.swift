import Cryptography
import Messaging
import Testing

/// Signatures that arrive after the agreement, one by one, and invalid ones.
@Suite struct LaterSignatureTests {
    /// An agreement, after which the first member has learnt of a new member, but not of its consent.
    private func admit(_ count: Int, leaving: [Int] = []) -> (
        council: Council, agreement: Agreement, newcomer: IdentityKey
    ) {
        var council = Council(count)
        council.agree(on: .oneDay)
        let agreement = council.machines[0].inForce!
        let newcomer = makeKey(&council.random)
        let members = (1..<count).filter { !leaving.contains($0) }.map(council.key) + [newcomer.publicKey]
        _ = council.machines[0].membersChanged(to: members, membership: 2, now: council.now)
        return (council, agreement, newcomer)
    }

    private func accept(_ agreement: Agreement, by key: IdentityKey, _ council: inout Council) -> LifetimeAccept {
        LifetimeAccept(agreement.proposal, at: council.now, by: key, &council.random)
    }

    @Test func `a new member's accept puts the agreement in force again, from any sender`() {
        for (from, isBundle) in [(1, false), (2, false), (1, true), (2, true)] {
            var (council, agreement, newcomer) = admit(3)
            #expect(council.machines[0].inForce == nil && council.machines[0].standing?.id == agreement.id)
            let accept = accept(agreement, by: newcomer, &council)
            let bundle = Agreement(proposal: agreement.proposal, accepts: [accept])
            let actions = council.receive(isBundle ? .agreement(bundle) : .accept(accept), from: from, 0)
            #expect(actions.first == .save)
            #expect(actions.contains { if case .agreed(_, .ephemeral, true) = $0 { true } else { false } })
            #expect(council.machines[0].inForce?.id == agreement.id && council.machines[0].terms == .oneDay)
            #expect(council.receive(.accept(accept), from: from, 0) == [.dropped])
        }
    }

    @Test func `a forged or mismatched accept of a new member puts no agreement in force`() {
        var (council, agreement, newcomer) = admit(3)
        let genuine = accept(agreement, by: newcomer, &council)
        var laterForged = genuine
        laterForged.acceptedAt = laterForged.acceptedAt + 1
        var otherLifetime = genuine
        otherLifetime.lifetime = .thirtyDays
        var otherMember = accept(agreement, by: council.keys[1], &council)
        otherMember.acceptor = newcomer.publicKey
        for accept in [laterForged, otherLifetime, otherMember] {
            #expect(council.receive(.accept(accept), from: 1, 0) == [.forged])
            let bundle = Agreement(proposal: agreement.proposal, accepts: [accept])
            #expect(council.receive(.agreement(bundle), from: 2, 0) == [.forged])
            #expect(council.machines[0].inForce == nil)
            #expect(council.machines[0].standing?.isSigned(by: newcomer.publicKey) == false)
        }
        council.receive(.accept(genuine), from: 1, 0)
        #expect(council.machines[0].inForce?.id == agreement.id)
    }

    @Test func `a full agreement replaces a departed member's signature only with a new member's`() {
        var (council, agreement, newcomer) = admit(Limits.memberCount, leaving: [9])
        #expect(agreement.accepts.count == Limits.memberCount - 1)
        let stranger = makeKey(&council.random)
        let unknown = accept(agreement, by: stranger, &council)
        #expect(council.receive(.accept(unknown), from: 1, 0) == [.dropped])
        #expect(council.machines[0].standing?.accepts == agreement.accepts)
        let accept = accept(agreement, by: newcomer, &council)
        council.receive(.accept(accept), from: 1, 0)
        let signed = council.machines[0].inForce
        #expect(signed?.accepts.count == Limits.memberCount - 1 && signed?.isSigned(by: newcomer.publicKey) == true)
        #expect(signed?.isSigned(by: council.key(9)) == false)
        #expect(council.receive(.accept(unknown), from: 1, 0) == [.dropped])
        #expect(council.machines[0].inForce == signed)
    }

    @Test func `the later of two complete agreements with one epoch is kept`() {
        for isLater in [true, false] {
            var council = Council(3)
            council.now = council.now + .hour
            council.agree(on: .oneDay)
            let ours = council.machines[2].inForce!
            let other = LifetimeProposal(
                conversation: council.conversation, membership: council.membership, epoch: ours.ballot.epoch,
                previous: .none, terms: .sevenDays, proposedAt: ours.proposal.proposedAt + (isLater ? 1 : -1),
                nonce: council.random.bytes(16), proposer: council.keys[1].publicKey
            ).signed(by: council.keys[1], &council.random)
            let accepts = [0, 2].map { LifetimeAccept(other, at: council.now, by: council.keys[$0], &council.random) }
            let shown = Agreement(proposal: other, accepts: accepts)
            let actions = council.receive(.agreement(shown), from: 1, 2)
            #expect(council.machines[2].inForce?.id == (isLater ? shown.id : ours.id))
            // A member with the other agreement learns of ours.
            if !isLater { #expect(actions == [.dropped, .sendTo(council.key(1), .agreement(ours))]) }
        }
    }

    @Test func `an agreement reached during a session's start belongs to the new session`() {
        var council = Council(3)
        let said = council.machines[0].sessionStart(reset: false, policy: .ask)
        council.agree(on: .oneDay)
        let agreement = council.machines[0].inForce!
        let received = SessionStart(reset: true, inForce: nil, head: nil, renewable: nil)
        let actions = council.machines[0].sessionEstablished(
            with: council.key(2), sent: said, received: received, policy: .ask, now: council.now, key: council.keys[0],
            random: &council.random)
        #expect(council.machines[0].inForce?.id == agreement.id)
        #expect(actions == [.sendTo(council.key(2), .agreement(agreement))])
        // An earlier agreement ends with the session.
        let later = council.machines[0].sessionStart(reset: false, policy: .ask)
        _ = council.machines[0].sessionEstablished(
            with: council.key(2), sent: later, received: received, policy: .ask, now: council.now, key: council.keys[0],
            random: &council.random)
        #expect(council.machines[0].inForce == nil)
    }

    @Test func `invalid terms are rejected to their proposer only`() {
        var council = Council(3)
        var invalid: LifetimeProposal {
            LifetimeProposal(
                conversation: council.conversation, membership: council.membership, epoch: 1, previous: .none,
                terms: LifetimeTerms(.oneDay, unopened: LifetimeTerms.unopenedRange.upperBound + 1),
                proposedAt: council.now, nonce: [UInt8](repeating: 5, count: 16), proposer: council.keys[1].publicKey
            ).signed(by: council.keys[1], &council.random)
        }
        let proposal = invalid
        let answer = LifetimeMessage.reject(proposal.id, .unsupported)
        #expect(council.receive(.proposal(proposal), from: 2, 0) == [.dropped])
        #expect(council.receive(.proposal(proposal), from: 1, 0) == [.sendTo(council.key(1), answer)])
        #expect(council.machines[0].pending == nil)
    }

    @Test func `withdrawn proposals are remembered up to a bound, current members' before departed ones'`() {
        var council = Council(3)
        var membership: UInt64 = 1
        /// The first member accepts this one's proposal, which is then withdrawn.
        func takeBack(_ proposer: Int) {
            let proposal = LifetimeProposal(
                conversation: council.conversation, membership: membership, epoch: membership, previous: .none,
                terms: .oneDay, proposedAt: council.now, nonce: council.random.bytes(16),
                proposer: council.keys[proposer].publicKey
            ).signed(by: council.keys[proposer], &council.random)
            council.receive(.proposal(proposal), from: proposer, 0)
            #expect(council.accept(0) == nil)
            council.receive(.withdraw(proposal.id), from: proposer, 0)
        }
        takeBack(1)
        for _ in 0...Limits.ballotFloorCount {
            council.keys.append(makeKey(&council.random))
            membership += 1
            let newcomer = council.keys.count - 1
            let members = [council.key(1), council.key(newcomer)]
            council.perform(
                council.machines[0].membersChanged(to: members, membership: membership, now: council.now), by: 0)
            takeBack(newcomer)
        }
        let floors = council.machines[0].record.floors.map(\.proposer)
        #expect(floors.count == Limits.ballotFloorCount)
        #expect(floors.contains(council.key(1)) && floors.contains(council.key(council.keys.count - 1)))
        #expect(!floors.contains(council.key(3)))
    }
}
