import Cryptography
import Testing

@testable import Messaging

/// A member that lies about epochs, in unsigned messages and in proposals of its own. Unsigned lies never keep the
/// honest members from agreeing; signed ones do so at most until its removal.
@Suite struct LyingMembers {
    private static let lies: [UInt64] = [
        0, 1, 1 << 19, 1 << 20, 1 << 21, 1 << 31, 1 << 32, 1 << 48, 1 << 63, .max - 1, .max,
    ]

    /// Opens a link on which the liar claims a false epoch.
    private func lie(_ epoch: UInt64, by liar: Int, to one: Int, _ council: inout Council) {
        council.unlink(liar, one)
        council.link(liar, one)
        if case .start(var start)? = council.wires[[liar, one]]?.first {
            start.epoch = epoch
            council.wires[[liar, one]]?[0] = .start(start)
        }
        council.deliverAll()
    }

    /// Each honest member proposes and all others are asked. With all signatures the proposal is in force.
    private func expectAgreement(_ honest: [Int], _ council: inout Council, _ note: String) {
        for proposer in honest {
            council.now = council.now + 4 * Limits.proposalRate.interval
            let terms = LifetimeTerms(.oneHour, unopened: Milliseconds(proposer + 1) * .minute)
            #expect(council.propose(terms, proposer) == nil, "\(note)")
            council.deliverAll()
            for other in honest where other != proposer {
                #expect(council.machines[other].pending?.proposal.terms == terms, "\(note): \(proposer) to \(other)")
            }
            for other in council.present where other != proposer { council.accept(other) }
            council.deliverAll()
            for one in honest { #expect(council.machines[one].terms == terms, "\(note): \(proposer), held by \(one)") }
        }
    }

    @Test func `honest members can still agree after a liar claims epoch 2^64−1 in twelve sessions`() {
        var council = Council(3)
        for _ in 0..<12 { lie(.max, by: 2, to: 0, &council) }
        expectAgreement([0, 1], &council, "with the liar")
        for _ in 0..<12 { lie(.max, by: 2, to: 1, &council) }
        council.leave(2)
        council.restart(0)
        council.restart(1)
        council.heal()
        expectAgreement([0, 1], &council, "without it")
    }

    @Test(arguments: [2, 3], [1, 2])
    func `honest members still agree with each other despite any unsigned lies about epochs`(
        honestCount: Int, liarCount: Int
    ) {
        let honest = Array(0..<honestCount)
        let liars = Array(honestCount..<honestCount + liarCount)
        for seed in 1...40 as ClosedRange<UInt64> {
            var council = Council(honestCount + liarCount, seed: seed)
            func roll(_ bound: Int) -> Int { Int(council.random.next() % UInt64(bound)) }
            for _ in 0..<30 {
                council.now = council.now + Milliseconds(roll(4_000))
                let one = honest[roll(honestCount)]
                switch roll(8) {
                case 0: council.restart(one)
                case 1: council.propose(.oneDay, one)
                case 2: council.withdraw(one)
                case 3: council.heal()
                default: lie(Self.lies[roll(Self.lies.count)], by: liars[roll(liarCount)], to: one, &council)
                }
            }
            council.heal()
            for one in honest { council.withdraw(one) }
            council.deliverAll()
            expectAgreement(honest, &council, "seed \(seed)")
        }
    }

    /// A proposal of the liar with any epoch, shown to some.
    private func propose(_ epoch: UInt64, by liar: Int, to some: [Int], _ council: inout Council) -> LifetimeProposal {
        let proposal = LifetimeProposal(
            conversation: council.conversation, membership: council.membership, epoch: epoch, previous: .none,
            terms: .sevenDays, proposedAt: council.now, nonce: council.random.bytes(16),
            proposer: council.keys[liar].publicKey
        ).signed(by: council.keys[liar], &council.random)
        for one in some { council.receive(.proposal(proposal), from: liar, one) }
        return proposal
    }

    @Test(arguments: [2, 3]) func `honest members can agree after a liar's removal despite its signed proposals`(
        honestCount: Int
    ) {
        let honest = Array(0..<honestCount)
        let liar = honestCount
        for seed in 1...60 as ClosedRange<UInt64> {
            var council = Council(honestCount + 1, seed: seed)
            func roll(_ bound: Int) -> Int { Int(council.random.next() % UInt64(bound)) }
            for _ in 0..<10 {
                council.now = council.now + 2 * Limits.proposalRate.interval
                let base = honest.map { council.machines[$0].record.newest.epoch }.max() ?? 0
                let ahead = Limits.epochsAhead
                let steps = [1, Limits.epochsBelieved, ahead - 1, ahead, ahead + 1]
                let some = honest.filter { _ in roll(3) > 0 }
                let proposal = propose(base + steps[roll(steps.count)], by: liar, to: some, &council)
                var accepts: [LifetimeAccept] = []
                for one in some where council.accept(one) == nil {
                    accepts.append(LifetimeAccept(proposal, at: council.now, by: council.keys[one], &council.random))
                }
                if roll(3) == 0, let one = some.first { council.reject(one) }
                let bundle = Agreement(proposal: proposal, accepts: accepts)
                for one in honest where roll(2) == 0 { council.receive(.agreement(bundle), from: liar, one) }
                if roll(3) == 0 { council.restart(honest[roll(honestCount)]) }
                council.heal()
                lie(.max, by: liar, to: honest[roll(honestCount)], &council)
            }
            council.leave(liar)
            for one in honest { council.restart(one) }
            #expect(council.heal() && council.isAgreed && council.unsigned.isEmpty, "seed \(seed)")
            // A later member has signed nothing.
            let newcomer = council.join()
            council.heal()
            expectAgreement(honest + [newcomer], &council, "seed \(seed)")
        }
    }

    @Test func `an agreement that lacks a member's signature uses up no epoch`() throws {
        var council = Council(3)
        let proposal = propose(Limits.epochsAhead, by: 2, to: [0], &council)
        #expect(council.accept(0) == nil)
        let accept = LifetimeAccept(proposal, at: council.now, by: council.keys[0], &council.random)
        council.receive(.agreement(Agreement(proposal: proposal, accepts: [accept])), from: 2, 0)
        #expect(council.machines[0].record.newest == Ballot() && council.machines[0].terms == .ephemeral)
        // The highest epoch neither traps nor lasts.
        var record = council.machines[0].record
        record.newest = Ballot(membership: council.membership, epoch: .max)
        council.machines[0] = LifetimeStateMachine(
            conversation: council.conversation, own: council.key(0), members: council.others(0),
            membership: council.membership, record: record)
        council.now = council.now + .minute
        council.propose(.oneDay, 0)
        council.leave(2)
        council.heal()
        expectAgreement([0, 1], &council, "after the last epoch")
    }
}
