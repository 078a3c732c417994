import Cryptography
import Messaging
import Testing

@Suite struct LifetimeCells {
    /// The seed's test 3 and case 4.
    @Test(arguments: [(.oneDay, .sevenDays), (.thirtyDays, .ephemeral)] as [(LifetimeTerms, LifetimeTerms)])
    func `a change, also one to ephemeral, keeps the old agreement for contents that name it`(
        before: LifetimeTerms, after: LifetimeTerms
    ) throws {
        var talk = Council.agreed(on: before)
        let old = try #require(talk.agreements[0])
        talk.propose(after, 0)
        #expect(talk.lifetime(0) == before.lifetime)
        talk.deliverAll()
        #expect(talk.lifetime(1) == before.lifetime)
        talk.accept(1)
        talk.deliverAll()
        #expect(talk.lifetime(0) == after.lifetime && talk.isAgreed)
        for machine in talk.machines {
            #expect(machine.storable(under: old) == before && machine.storable(under: .none) == nil)
        }
    }

    @Test func `an accept with a wrong signature, value, conversation or acceptor has no effect`() {
        var start = Council(2)
        start.propose(.oneDay, 0)
        let proposal = start.pending(0)!.proposal
        start.loseAll()
        var wrongValue = start.acceptance(of: proposal, by: 1)
        wrongValue.lifetime = .thirtyDays
        let byOurselves = start.acceptance(of: proposal, by: 0)
        var foreign = start.acceptance(of: proposal, by: 1)
        foreign.conversation = ConversationID.random(&start.random)
        let strangerKey = makeKey(&start.random)
        let stranger = LifetimeAccept(proposal, at: start.now, by: strangerKey, &start.random)
        for accept in [wrongValue, byOurselves, foreign, stranger] {
            var talk = start
            #expect(talk.receive(.accept(accept), 0) == [.dropped] && talk.agreements[0] == nil)
        }
        var wrongSignature = start.acceptance(of: proposal, by: 1)
        wrongSignature.acceptedAt = wrongSignature.acceptedAt + 1
        #expect(start.receive(.accept(wrongSignature), 0) == [.forged] && start.agreements[0] == nil)
        let right = start.acceptance(of: proposal, by: 1)
        start.receive(.accept(right), 0)
        #expect(start.lifetime(0) == .oneDay && start.receive(.accept(right), 0) == [.dropped])
    }

    @Test func `the later of two crossing proposals survives, and the other side is asked`() {
        var talk = Council(2)
        talk.propose(.oneDay, 0)
        talk.now = talk.now + 10
        talk.propose(.sevenDays, 1)
        talk.deliverAll()
        #expect(talk.pending(0)?.proposal.lifetime == .sevenDays && talk.pending(0)?.isOurs == false)
        #expect(talk.pending(1)?.isOurs == true && talk.agreements == [nil, nil])
        talk.accept(0)
        talk.deliverAll()
        #expect(talk.lifetime(1) == .sevenDays && talk.isAgreed)
    }

    @Test(arguments: [-3 * Milliseconds.hour, -1, 0, 1, 3 * .hour, 3650 * .day])
    func `crossing proposals and counter-proposals settle with any difference between the clocks`(skew: Milliseconds) {
        var talk = Council(2)
        talk.skews[1] = skew
        talk.propose(.oneDay, 0)
        talk.propose(.sevenDays, 1)
        talk.deliverAll()
        #expect(talk.pending(0)?.proposal.id == talk.pending(1)?.proposal.id)
        // The asked side answers with another value, so the other side is asked.
        let asked: Int = talk.pending(0)!.isOurs ? 1 : 0
        talk.propose(.oneHour, asked)
        talk.deliverAll()
        #expect(talk.pending(asked)?.isOurs == true && talk.pending(1 - asked)?.proposal.lifetime == .oneHour)
        #expect(talk.pending(1 - asked)?.isOurs == false)
    }

    @Test func `a member may propose three times at once and then every five seconds`() {
        var talk = Council(2)
        for lifetime in [LifetimeTerms.oneHour, .sixHours, .oneDay] { #expect(talk.propose(lifetime, 0) == nil) }
        #expect(talk.propose(.sevenDays, 0) == .tooSoon(5_000))
        talk.now = talk.now + 4_999
        #expect(talk.propose(.sevenDays, 0) == .tooSoon(1))
        talk.now = talk.now + 1
        #expect(talk.propose(.sevenDays, 0) == nil && talk.propose(.thirtyDays, 0) == .tooSoon(5_000))
    }

    @Test func `a flood of proposals is dropped and leaves one open`() {
        var talk = Council(2)
        var dropped = 0
        var last: ProposalID?
        for index in 0..<1_000 {
            let proposal = talk.proposal(by: 1, at: talk.now + Milliseconds(index))
            last = proposal.id
            if talk.receive(.proposal(proposal), 0).first == .dropped { dropped += 1 }
        }
        #expect(dropped == 997)
        // One answer: without it an honest member would wait for ever.
        #expect(talk.arriving(1).count == 1)
        func answers() -> [ProposalID] {
            talk.arriving(1).compactMap { if case .reject(let id, .rateLimited) = $0 { id } else { nil } }
        }
        #expect(answers().count == 1)
        // The last one is answered, too, once the rate allows it.
        let due = talk.machines[0].nextDeadline!
        #expect(due == talk.now + Limits.proposalRate.interval)
        talk.perform(talk.machines[0].expire(now: due), by: 0)
        #expect(answers().last == last && answers().count == 2)
    }

    @Test func `only a standing policy accepts a proposal without the user`() {
        var talk = Council(2)
        talk.policies[1] = .acceptUpTo(.oneDay)
        talk.propose(.oneDay, 0)
        talk.deliverAll()
        #expect(talk.lifetime(0) == .oneDay && talk.isAgreed)
        talk.propose(.sevenDays, 0)
        talk.deliverAll()
        #expect(talk.lifetime(0) == .oneDay && talk.pending(1)?.isOurs == false)
        talk.policies[1] = .refuse
        talk.propose(.thirtyDays, 0)
        talk.deliverAll()
        #expect(talk.pending(0) == nil && talk.pending(1) == nil)
        #expect(talk.lifetime(0) == .oneDay && talk.isAgreed)
    }
}

@Suite struct LifetimeSessions {
    private static let renewing = [LifetimePolicy.acceptUpTo(.sevenDays), .acceptUpTo(.oneDay)]

    /// p: a member proposes; d: a message arrives; a: it accepts; w: it withdraws; b: the link breaks, and a session
    /// follows; l: all messages in flight are lost. `asked`: the proposal that the second side is asked to accept.
    @Test(
        arguments: [
            // A lost accept, and a lost proposal, which the next session repeats; a lost agreement.
            ("p0 d1 a1 b", .oneDay, nil), ("p0 b", .ephemeral, .oneDay), ("p0 d1 a1 d0 b", .oneDay, nil),
            // An accept of a proposal that was withdrawn, whose withdrawal was lost, or that another has replaced.
            ("p0 d1 a1 w0 b", .ephemeral, nil), ("p0 d1 w0 l a1", .ephemeral, nil),
            ("p0 p1 d0 w1 d1 a1", .ephemeral, nil),
        ] as [(String, Lifetime, Lifetime?)]) func `lost and crossing messages take effect at both sides or at none`(
            path: String, inForce: Lifetime, asked: Lifetime?
        )
    {
        var talk = Council(2)
        for step in path.split(separator: " ") {
            let side = step.last == "1" ? 1 : 0
            switch step.first {
            case "p": #expect(talk.propose(side == 0 ? .oneDay : .sevenDays, side) == nil)
            case "a": #expect(talk.accept(side) == nil)
            case "w": #expect(talk.withdraw(side) == nil)
            case "d":
                #expect(!talk.arriving(side).isEmpty)
                talk.deliver(side)
            case "b": talk.session()
            default: talk.loseAll()
            }
            talk.now = talk.now + 10
        }
        if path.hasSuffix("a1") { #expect(talk.lifetime(1) == .ephemeral) }
        talk.deliverAll()
        #expect(talk.isAgreed && (talk.agreements[0] == nil) == (inForce == .ephemeral))
        #expect(talk.lifetime(0) == inForce && talk.pending(1)?.proposal.lifetime == asked)
        #expect(asked != nil || talk.pending(0) == nil)
    }

    @Test(arguments: [[false, false], [true, false], [false, true], [true, true]])
    func `a reset by either side ends the agreement on both, even if one side missed it`(resets: [Bool]) {
        for heard in [[true, true], [true, false], [false, true]] {
            var talk = Council.agreed(on: .oneDay)
            talk.session(resets: resets, heard: heard)
            // A side whose reset was not heard repeats it.
            let again = (0..<2).map { resets[$0] && !heard[$0] }
            talk.session(resets: again)
            talk.deliverAll()
            #expect(talk.isAgreed)
            #expect(talk.lifetime(0) == (resets == [false, false] ? .oneDay : .ephemeral), "\(resets) \(heard)")
        }
    }

    @Test func `standing policies on both sides renew the last agreement and show it`() {
        for heard in [[true, true], [true, false], [false, true]] {
            var talk = Council.agreed(on: .oneDay, policies: Self.renewing)
            talk.session(resets: [true, false], heard: heard)
            if heard != [true, true] { talk.session(resets: [!heard[0], false]) }
            talk.deliverAll()
            #expect(talk.lifetime(0) == .oneDay && talk.isAgreed, "\(heard)")
            #expect(talk.told[1].contains { if case .agreed(_, _, true) = $0 { true } else { false } })
        }
    }

    @Test(arguments: [[false, false], [true, false], [false, true], [true, true]])
    func `a renewal accepts the terms of its agreement again, after a restart too, and no others`(restarts: [Bool]) {
        var talk = Council(2)
        talk.propose(.oneDay, 0)
        talk.machines[0].renew(LifetimeTerms(.oneDay))
        talk.deliverAll()
        talk.accept(1)
        talk.machines[1].renew(LifetimeTerms(.oneDay))
        talk.deliverAll()
        for _ in 0..<2 {
            for side in [0, 1] where restarts[side] { talk.restart(side) }
            talk.session(resets: [true, false])
            talk.deliverAll()
            #expect(talk.isAgreed && talk.lifetime(1) == .oneDay)
        }
        talk.now = talk.now + 20_000
        for proposer in [0, 1] {
            talk.propose(.oneHour, proposer)
            talk.deliverAll()
            #expect(talk.pending(1 - proposer)?.isOurs == false && talk.lifetime(0) == .oneDay)
            talk.reject(1 - proposer)
            talk.deliverAll()
        }
        // Another agreement ends the renewal of the earlier one.
        talk.agree(on: .oneHour)
        talk.session(resets: [true, false])
        talk.deliverAll()
        #expect(talk.agreements == [nil, nil])
    }

    @Test(arguments: [0, 1]) func `a proposal reaches a member whose own one has been rejected without its knowledge`(
        side: Int
    ) {
        var talk = Council(2, seed: 1)
        talk.policies = [.refuse, .refuse]
        talk.propose(.oneDay, side)
        talk.deliver(1 - side)
        talk.policies = [.ask, .ask]
        // If two proposals cross, the one with the later stamp survives.
        talk.now = talk.now + -1
        talk.propose(.sevenDays, 1 - side)
        talk.session()
        talk.deliverAll()
        #expect(talk.pending(1 - side)?.isOurs == true && talk.pending(side)?.proposal.terms.lifetime == .sevenDays)
    }

    @Test(arguments: [0, 1]) func `a proposer that restarts before the accept arrives renews the agreement in force`(
        proposer: Int
    ) {
        var talk = Council.agreed(on: .sixHours, policies: Self.renewing)
        talk.propose(.oneDay, proposer)
        talk.deliver(1 - proposer)
        talk.loseAll()
        talk.restart(proposer)
        talk.session(resets: [proposer == 0, proposer == 1])
        talk.deliverAll()
        #expect(talk.lifetime(0) == .sixHours && talk.isAgreed)
    }

    @Test func `an agreement ended by quick successive sessions is renewed once the rate limit allows`() throws {
        var talk = Council.agreed(on: .oneDay, policies: Self.renewing)
        for _ in 0..<6 {
            talk.session(resets: [true, false])
            talk.deliverAll()
        }
        #expect(talk.agreements == [nil, nil] && talk.machines[1].nextDeadline == nil)
        let due = try #require(talk.machines[0].nextDeadline)
        talk.renewIfDue(0, at: due + -1)
        #expect(talk.arriving(0).isEmpty && talk.arriving(1).isEmpty)
        talk.renewIfDue(0, at: due)
        talk.deliverAll()
        #expect(talk.lifetime(0) == .oneDay && talk.isAgreed && talk.machines[0].nextDeadline == nil)
    }

    @Test func `a due renewal is not proposed after a new policy or another agreement`() throws {
        for isAgreed in [false, true] {
            var talk = Council.agreed(on: .oneDay, policies: Self.renewing)
            for _ in 0..<4 {
                talk.session(resets: [true, false])
                talk.deliverAll()
            }
            let due = try #require(talk.machines[0].nextDeadline)
            if isAgreed { talk.agree(on: .oneHour, proposer: 1) } else { talk.policies[0] = .ask }
            talk.renewIfDue(0, at: due)
            talk.deliverAll()
            #expect(talk.lifetime(0) == (isAgreed ? .oneHour : .ephemeral) && talk.machines[0].nextDeadline == nil)
        }
    }

    @Test func `a renewal rejected as too frequent is retried a limited number of times`() throws {
        var talk = Council.agreed(on: .oneDay, policies: Self.renewing)
        talk.session(resets: [true, false])
        for attempt in 0...Limits.renewalRefusalCount {
            let open = try #require(talk.machines[0].pending, "\(attempt)")
            #expect(open.isOurs)
            talk.loseAll()
            talk.receive(.reject(open.proposal.id, .rateLimited), 0)
            guard let due = talk.machines[0].nextDeadline else {
                #expect(attempt == Limits.renewalRefusalCount)
                return
            }
            talk.renewIfDue(0, at: due)
        }
        Issue.record("it is tried again without end")
    }

    @Test func `an agreement of other members in a session start is not believed`() throws {
        var talk = Council(2)
        let foreign = try #require(Council.agreed(on: .thirtyDays, seed: 2).machines[0].record.head)
        talk.hear(of: foreign)
        #expect(talk.agreements[0] == nil && talk.machines[0].storable(under: foreign.id) == nil)
    }

    @Test func `lifetime records stay within their bounds and survive a restart`() {
        var talk = Council(2)
        for index in 0..<200 {
            talk.now = talk.now + 20_000
            talk.agree(on: index.isMultiple(of: 2) ? .oneDay : .oneHour, proposer: index % 3 == 0 ? 0 : 1)
            talk.now = talk.now + 20_000
            talk.propose(.sevenDays, 0)
            talk.withdraw(0)
            talk.deliverAll()
        }
        #expect(talk.isAgreed && talk.agreements[0] != nil)
        #expect(talk.machines[0].record.known.count == Limits.agreementCount)
        #expect(talk.machines[0].record.earlier.count == Limits.agreementRecordCount)
        #expect(talk.machines[0].record.floors.count <= 2)
        talk.restart(0)
        talk.session(resets: [true, false])
        #expect(talk.agreements == [nil, nil])
    }
}

/// Attempts of a hostile member to get around consent, found in a review.
@Suite struct LifetimeAttacks {
    @Test func `a proposer cannot withdraw an agreement that it has used`() throws {
        var talk = Council.agreed(on: .thirtyDays)
        talk.agree(on: .oneHour, proposer: 0)
        let head = try #require(talk.machines[1].record.head)
        #expect(talk.receive(.withdraw(head.proposal.id), 1) == [.dropped] && talk.lifetime(1) == .oneHour)
    }

    @Test func `an ended agreement covers only messages sent before its end`() throws {
        var talk = Council.agreed(on: .thirtyDays)
        let old = try #require(talk.agreements[1])
        talk.session(resets: [true, false])
        let machine = talk.machines[1]
        let later = talk.now + .hour
        #expect(machine.storable(under: old, age: 0, now: later) == nil)
        #expect(machine.storable(under: old, age: .hour, now: later) == .thirtyDays)
        #expect(machine.storable(under: old, age: 0, now: talk.now + .second) == .thirtyDays)
        #expect(machine.storable(under: old, age: .max, now: talk.now + 8 * .day) == nil)
    }

    @Test func `an agreement of an earlier membership does not come back with a new link`() throws {
        var talk = Council.agreed(on: .thirtyDays)
        let head = try #require(talk.machines[0].record.head)
        _ = talk.machines[1].membersChanged(to: [], membership: head.proposal.membership, now: talk.now)
        var record = LifetimeStateMachine.Record()
        record.membershipFloor = talk.machines[1].record.membershipFloor
        talk.machines[1] = LifetimeStateMachine(
            conversation: talk.conversation, own: talk.keys[1].publicKey, members: [talk.keys[0].publicKey],
            membership: head.proposal.membership + 1, record: record)
        talk.hear(of: head, 1)
        #expect(talk.lifetime(1) == .ephemeral && talk.machines[1].storable(under: head.id) == nil)
    }

    @Test func `a withdrawn proposal stays withdrawn however many proposals follow`() throws {
        var talk = Council(2)
        talk.propose(.thirtyDays, 0)
        let first = try #require(talk.pending(0)?.proposal)
        talk.withdraw(0)
        for _ in 0...16 {
            talk.now = talk.now + Limits.proposalRate.interval
            talk.propose(.oneHour, 0)
            talk.withdraw(0)
        }
        let head = Agreement(proposal: first, accepts: [talk.acceptance(of: first, by: 1)])
        #expect(talk.hear(of: head).contains(.sendTo(talk.keys[1].publicKey, .ended(head.id, renewable: nil))))
        #expect(talk.lifetime(0) == .ephemeral && talk.machines[0].storable(under: head.id) == nil)
    }
}
