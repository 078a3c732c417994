import Messaging
import Testing

/// Messages of two members on a relayed link for hole punching: each event in each state.
@Suite struct PunchStateMachineTests {
    private typealias Action = PunchStateMachine.Action
    private let ours = [Endpoint(host: "192.0.2.1", port: 1)]
    private let theirs = [Endpoint(host: "198.51.100.2", port: 2), Endpoint(host: "2001:db8::2", port: 3)]
    private let other = PunchNonce([UInt8](repeating: 9, count: 16))!

    private func message(_ step: PunchMessage.Step, _ nonce: PunchNonce, _ candidates: [Endpoint] = []) -> PunchMessage
    { PunchMessage(step: step, nonce: nonce, candidates: candidates) }

    private func offered() throws -> (PunchStateMachine, PunchNonce) {
        var machine = PunchStateMachine(offers: true)
        var random = Randomness.seeded(1)
        #expect(machine.start(now: noon, random: &random) == [.gather])
        let actions = machine.gathered(ours, now: noon)
        guard case .say(let offer)? = actions.first, offer.step == .offer, offer.candidates == ours else {
            throw CancellationError()
        }
        return (machine, offer.nonce)
    }

    private func answered() -> PunchStateMachine {
        var machine = PunchStateMachine(offers: false)
        #expect(machine.receive(message(.offer, other, theirs), now: noon) == [.gather])
        let answer = message(.answer, other, ours)
        #expect(machine.gathered(ours, now: noon) == [.say(answer)])
        return machine
    }

    @Test func `the offering side dials half a round trip after go`() throws {
        var (machine, nonce) = try offered()
        let later = noon + 80
        let answer = message(.answer, nonce, theirs)
        #expect(machine.receive(answer, now: later) == [.say(message(.go, nonce))])
        #expect(machine.nextDeadline == later + 40 && machine.advance(now: later + 39).isEmpty)
        #expect(machine.advance(now: later + 40) == [.dial(nonce, theirs)])
        #expect(machine.nextDeadline == nil && machine.advance(now: later + 41).isEmpty)
    }

    @Test func `the answering side punches once, at go`() {
        var machine = answered()
        let go = message(.go, other)
        #expect(machine.receive(go, now: noon) == [.punch(other, theirs)])
        #expect(machine.receive(go, now: noon).isEmpty && machine.nextDeadline == nil)
    }

    @Test func `the side of the larger key does not offer, and the smaller key's does not answer`() {
        var random = Randomness.seeded(2)
        var larger = PunchStateMachine(offers: false)
        #expect(larger.start(now: noon, random: &random).isEmpty)
        var smaller = PunchStateMachine(offers: true)
        #expect(smaller.receive(message(.offer, other, theirs), now: noon).isEmpty)
    }

    @Test func `a side without candidates makes no offer, and an empty answer ends the attempt`() throws {
        var random = Randomness.seeded(3)
        var machine = PunchStateMachine(offers: true)
        _ = machine.start(now: noon, random: &random)
        #expect(machine.gathered([], now: noon).isEmpty && machine.nextDeadline == nil)
        var (asked, nonce) = try offered()
        #expect(asked.receive(message(.answer, nonce), now: noon).isEmpty && asked.nextDeadline == nil)
        var answering = PunchStateMachine(offers: false)
        _ = answering.receive(message(.offer, other, theirs), now: noon)
        #expect(answering.gathered([], now: noon) == [.say(message(.answer, other))] && answering.nextDeadline == nil)
        #expect(answering.receive(message(.offer, other), now: noon).isEmpty)
    }

    @Test func `a long silence or another link ends the attempt in any state`() throws {
        var random = Randomness.seeded(4)
        var gathering = PunchStateMachine(offers: true)
        _ = gathering.start(now: noon, random: &random)
        var (waiting, nonce) = try offered()
        let offered = waiting
        _ = waiting.receive(message(.answer, nonce, theirs), now: noon + 100)
        for machine in [gathering, offered, answered()] {
            var silent = machine
            #expect(silent.nextDeadline == noon + Limits.punchPatience)
            #expect(silent.advance(now: noon + Limits.punchPatience - 1).isEmpty && silent.nextDeadline != nil)
            #expect(silent.advance(now: noon + Limits.punchPatience).isEmpty && silent.nextDeadline == nil)
        }
        for var machine in [gathering, offered, waiting, answered(), PunchStateMachine(offers: true)] {
            machine.linkChanged()
            #expect(machine.nextDeadline == nil && machine.gathered(ours, now: noon).isEmpty)
        }
    }

    @Test func `a message with a wrong nonce or step changes nothing`() throws {
        var random = Randomness.seeded(5)
        var gathering = PunchStateMachine(offers: true)
        _ = gathering.start(now: noon, random: &random)
        var (waiting, nonce) = try offered()
        let offered = waiting
        _ = waiting.receive(message(.answer, nonce, theirs), now: noon)
        let idle = PunchStateMachine(offers: true)
        // A wrong nonce fits in no state; the right one only with the awaited message.
        for machine in [idle, gathering, offered, waiting, answered()] {
            for step in [PunchMessage.Step.answer, .go] {
                var changed = machine
                let wrong = PunchNonce([UInt8](repeating: 1, count: 16))!
                #expect(changed.receive(message(step, wrong, theirs), now: noon).isEmpty && changed == machine)
            }
        }
        for machine in [idle, gathering, offered, waiting] {
            for step in [PunchMessage.Step.offer, .go] {
                var changed = machine
                #expect(changed.receive(message(step, nonce, theirs), now: noon).isEmpty && changed == machine)
            }
        }
        var twice = waiting
        #expect(twice.receive(message(.answer, nonce, theirs), now: noon).isEmpty && twice == waiting)
        for machine in [offered, waiting, answered()] {
            var changed = machine
            #expect(changed.gathered(ours, now: noon).isEmpty && changed == machine)
            #expect(changed.start(now: noon, random: &random).isEmpty && changed == machine)
        }
    }

    @Test func `offers are answered only within the rate limit`() {
        var machine = PunchStateMachine(offers: false)
        func offer(_ time: Timestamp) -> Bool { !machine.receive(message(.offer, other, theirs), now: time).isEmpty }
        #expect((0..<5).map { _ in offer(noon) } == [true, true, false, false, false])
        #expect(!offer(noon + Limits.punchRate.interval - 1) && offer(noon + Limits.punchRate.interval))
    }

    @Test func `a nonce has 16 bytes`() {
        for count in 0..<40 { #expect((PunchNonce([UInt8](repeating: 0, count: count)) != nil) == (count == 16)) }
    }
}
