import Cryptography
import Testing
import Transport

private typealias Machine = PortMappingStateMachine

@Suite("Port mapping") struct PortMappingTests {
    /// The states, each with its pending action. Time is 0; the mapping was made at 0 for an hour.
    private enum State: CaseIterable { case idle, asking, waiting, mapped, renewing, overAsking, over }

    private func machine(_ state: State) -> Machine {
        var machine = Machine()
        if state == .idle { return machine }
        _ = machine.set(here)
        switch state {
        case .idle, .asking: break
        case .waiting: for number: UInt64 in 1...3 { _ = machine.answered(number, .failed(.silent), now: 0) }
        case .overAsking: _ = machine.stop()
        case .mapped, .renewing, .over:
            _ = machine.answered(1, .granted(grant()), now: 0)
            if state == .renewing { _ = machine.advance(now: 300_000) }
            if state == .over { _ = machine.stop() }
        }
        return machine
    }

    private func mapping(_ grant: MappingGrant = grant(), at now: Int64 = 0) -> Mapping {
        Mapping(grant, .pcp, here, now: now)
    }

    @Test func `PCP is tried first, then NAT-PMP, then UPnP; for IPv6 PCP alone; then a wait of 1, 2, 4 … 15 min`() {
        var machine = Machine()
        #expect(machine.set(here) == [.ask(1, .find(.pcp, here))])
        #expect(machine.answered(1, .failed(.unsupported), now: 5) == [.ask(2, .find(.natPMP, here))])
        #expect(machine.answered(2, .failed(.refused(2)), now: 5) == [.ask(3, .find(.upnp, here))])
        #expect(machine.answered(3, .failed(.silent), now: 10) == [])
        #expect(machine.standing == .failed(.refused(2)), "the one that says most")
        var (now, number): (Int64, UInt64) = (10, 3)
        for minutes: Int64 in [1, 2, 4, 8, 15, 15] {
            #expect(machine.nextDeadline == now + minutes * 60_000)
            now += minutes * 60_000
            #expect(machine.advance(now: now - 1) == [])
            #expect(machine.advance(now: now) == [.ask(number + 1, .find(.pcp, here))])
            for _ in 0..<3 {
                number += 1
                _ = machine.answered(number, .failed(.silent), now: now)
            }
        }
        var six = Machine()
        #expect(six.set(here6) == [.ask(1, .find(.pcp, here6))])
        #expect(six.answered(1, .failed(.silent), now: 0) == [] && six.standing == .failed(.silent))
    }

    @Test("A lease is renewed at its half, after five minutes at most; at most an hour is requested and believed")
    func renewal() {
        for (lifetime, seconds) in [(3_600, 3_600), (86_400, 3_600), (600, 600), (.max, 3_600)] as [(UInt32, Int64)] {
            var machine = Machine()
            _ = machine.set(here)
            #expect(machine.answered(1, .granted(grant(lifetime: lifetime)), now: 0) == [.changed])
            let mapping = machine.mapping
            #expect(mapping?.expiresAt == seconds * 1_000)
            let now = min(seconds * 500, 300_000)
            #expect(machine.nextDeadline == now && machine.advance(now: now - 1) == [])
            guard let mapping, case .ask(let number, .renew(mapping))? = machine.advance(now: now).first else {
                Issue.record("no renewal at \(now)")
                return
            }
            #expect(
                machine.answered(number, .granted(grant(lifetime: lifetime)), now: now) == [],
                "the same address and port")
            #expect(machine.mapping?.expiresAt == now + seconds * 1_000)
        }
    }

    @Test("A gateway that does not answer a renewal is asked again, at shrinking intervals, until the lease is over")
    func silentGateway() {
        var machine = machine(.renewing)
        var (now, number): (Int64, UInt64) = (300_000, 2)
        var asked = 0
        while machine.mapping != nil {
            let actions = machine.answered(number, .failed(.silent), now: now)
            guard actions == [], let deadline = machine.nextDeadline else { break }
            #expect(deadline - now >= MappingLimits.retryLeast || deadline == 3_600_000)
            now = deadline
            for case .ask(let next, let question) in machine.advance(now: now) {
                number = next
                if case .renew = question { asked += 1 }
            }
        }
        #expect(machine.mapping == nil && now == 3_600_000 && (5...40).contains(asked), "\(asked) at \(now)")
        #expect(machine.standing == .asking)
    }

    @Test func `A renewal changes the mapping by another outer address or port; refused, all methods are tried anew`() {
        for new in [grant(IPAddress(5, 5, 5, 3)), grant(tcp: 9), grant(udp: 9)] {
            var machine = machine(.renewing)
            #expect(machine.answered(2, .granted(new), now: 300_000) == [.changed])
            #expect(machine.mapping == mapping(new, at: 300_000) && machine.nextDeadline == 600_000)
        }
        for failure: MappingFailure in [.refused(2), .permanentOnly] {
            var machine = machine(.renewing)
            #expect(machine.answered(2, .failed(failure), now: 300_000) == [.changed, .ask(3, .find(.pcp, here))])
        }
    }

    @Test func `An answer that names a private address, port 0, no lifetime, or another family is refused`() {
        let wrong: [MappingGrant] = [
            grant(tcp: 0), grant(udp: 0), grant(udp: nil), grant(lifetime: 0), grant(lifetime: 59), grant(local6),
        ]
        for wrong in wrong {
            var machine = machine(.asking)
            let actions = machine.answered(1, .granted(wrong), now: 0)
            #expect(actions == [.remove(mapping(wrong)), .ask(2, .find(.natPMP, here))], "\(wrong)")
            #expect(machine.mapping == nil)
            // The same holds for the answer to a renewal.
            machine = self.machine(.renewing)
            let later = machine.answered(2, .granted(wrong), now: 300_000)
            #expect(later == [.remove(mapping(wrong, at: 300_000)), .changed])
            #expect(machine.standing == .failed(.malformed))
        }
        for address in [
            IPAddress(10, 0, 0, 1), IPAddress(127, 0, 0, 1), IPAddress(224, 0, 0, 1), IPAddress(0, 0, 0, 0),
        ] {
            var machine = machine(.asking)
            let useless = grant(address)
            #expect(machine.answered(1, .granted(useless), now: 0) == [.remove(mapping(useless))])
            #expect(
                machine.standing == .failed(.notGlobal(address)), "a NAT behind a NAT, and no other method is tried")
        }
        var machine = machine(.asking)
        let least = machine.answered(1, .granted(grant(tcp: 1, udp: 65_535, lifetime: 60)), now: 0)
        #expect(least == [.changed] && machine.mapping?.ports == [1, 65_535])
    }

    @Test func `A place, another place, and none have the expected effect in each state`() {
        for state in State.allCases {
            var machine = machine(state)
            let hadMapping = machine.mapping != nil
            let isOver = state == .over || state == .overAsking
            if state != .idle, !isOver { #expect(machine.set(here) == [], "\(state): the same") }
            let moved = machine.set(elsewhere)
            if isOver {
                #expect(moved == [])
            } else {
                #expect(moved.first == .changed || !hadMapping)
                guard case .ask(_, .find(.pcp, elsewhere))? = moved.last else {
                    Issue.record("\(state): \(moved)")
                    continue
                }
            }
            machine = self.machine(state)
            #expect(machine.set(nil) == (hadMapping ? [.changed] : []))
            #expect(machine.standing == .none && machine.nextDeadline == nil)
        }
    }

    @Test func `The passing of time has the expected effect in each state`() {
        let deadlines: [State: Int64] = [.waiting: 60_000, .mapped: 300_000, .renewing: 3_600_000]
        for state in State.allCases {
            var machine = machine(state)
            #expect(machine.nextDeadline == deadlines[state], "\(state)")
            guard let deadline = deadlines[state] else {
                #expect(machine.advance(now: .max / 4) == [])
                continue
            }
            #expect(machine.advance(now: deadline - 1) == [], "\(state)")
            #expect(!machine.advance(now: deadline).isEmpty, "\(state)")
        }
        // A machine that slept through the whole lease.
        var machine = machine(.mapped)
        #expect(machine.advance(now: 4_000_000) == [.changed, .ask(2, .find(.pcp, here))])
    }

    @Test func `Answers to abandoned questions change nothing, in each state`() {
        for state in State.allCases {
            for outcome: Machine.Outcome in [.granted(grant(IPAddress(6, 6, 6, 6))), .failed(.refused(1))] {
                var machine = machine(state)
                let (standing, deadline) = (machine.standing, machine.nextDeadline)
                #expect(machine.answered(77, outcome, now: 1) == [], "\(state)")
                #expect(machine.standing == standing && machine.nextDeadline == deadline)
            }
        }
    }

    @Test func `A stop removes the mapping in each state, and any mapping made after it`() {
        for state in State.allCases {
            var machine = machine(state)
            let mapping = machine.mapping
            #expect(machine.stop() == (mapping.map { [.remove($0), .changed] } ?? []), "\(state)")
            #expect(machine.standing == .none && machine.stop() == [] && machine.nextDeadline == nil)
        }
        var asking = machine(.overAsking)
        #expect(asking.answered(1, .granted(grant()), now: 0) == [.remove(mapping())])
        #expect(asking.answered(1, .granted(grant()), now: 0) == [], "once")
        // The mapping may exist although no answer came. UPnP removes by outer port, which might be another client's
        // mapping.
        asking = machine(.overAsking)
        #expect(asking.answered(1, .failed(.silent), now: 0) == [.remove(mapping(grant(local)))])
        var upnp = machine(.asking)
        for number: UInt64 in 1...2 { _ = upnp.answered(number, .failed(.unsupported), now: 0) }
        #expect(upnp.stop() == [] && upnp.answered(3, .failed(.silent), now: 0) == [])
        var renewing = machine(.renewing)
        #expect(renewing.stop() == [.remove(mapping()), .changed])
        #expect(renewing.answered(2, .granted(grant()), now: 1) == [.remove(mapping(at: 1))], "made again meanwhile")
    }

    @Test("A hundred thousand random events cause no second question at once, and no mapping after its lease or a stop")
    func anything() {
        var random = SplitMix64(state: 11)
        for _ in 0..<500 {
            var machine = Machine()
            var now: Int64 = 0
            var asked: UInt64 = 0
            for _ in 0..<200 {
                now += Int64.random(in: 0...400_000, using: &random)
                let actions: [Machine.Action]
                switch Int.random(in: 0..<12, using: &random) {
                case 0: actions = machine.set([here, elsewhere, nil].randomElement(using: &random) ?? nil)
                case 1..<5: actions = machine.advance(now: now)
                case 11 where Int.random(in: 0..<20, using: &random) == 0: actions = machine.stop()
                default:
                    let outcome: Machine.Outcome =
                        [
                            .granted(grant()), .granted(grant(tcp: 0)), .failed(.silent),
                            .granted(grant(IPAddress(10, 0, 0, 1))), .failed(.refused(1)),
                        ].randomElement(using: &random) ?? .failed(.silent)
                    actions = machine.answered(asked, outcome, now: now)
                }
                let questions = actions.compactMap { if case .ask(let number, _) = $0 { number } else { nil } }
                #expect(questions.count <= 1 && questions.allSatisfy { $0 > asked })
                asked = questions.last ?? asked
                _ = machine.advance(now: now)
                if let mapping = machine.mapping {
                    #expect(mapping.expiresAt > now && mapping.outer.isGlobal && mapping.tcp > 0)
                    #expect(mapping.expiresAt - mapping.grantedAt <= 3_600_000)
                }
            }
        }
    }
}
