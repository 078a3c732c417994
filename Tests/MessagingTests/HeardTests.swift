import Cryptography
import TestSupport
import Testing

@testable import Messaging

private let place = Endpoint(host: "10.0.0.7", port: 7_440)

extension World {
    fileprivate static func cut() throws -> World {
        var all = try joined(2)
        for link in all.links.keys.sorted() { all.step(0) { core, turn in core.linkClosed(link, &turn) } }
        return all
    }

    /// The dials that a step asks for. They are not performed.
    fileprivate mutating func dials(_ node: Int, _ body: (inout NodeStateMachine, inout Turn) -> Void) -> [NodeAction
        .Dial]
    {
        var result: [NodeAction.Dial] = []
        step(node) { core, turn in
            for action in turn.apart({ body(&core, &$0) }) {
                if case .dial(_, let dial) = action { result.append(dial) } else { turn.add(action) }
            }
        }
        return result
    }

    /// - Parameters:
    ///   - member: the other node by default.
    ///   - client: the node's own inbox by default.
    fileprivate mutating func found(
        _ member: PublicKey? = nil, at endpoint: Endpoint = place, by node: Int = 0, client: ClientID? = nil
    ) -> [NodeAction.Dial] {
        let (client, member) = (client ?? clients[node], member ?? keys[1 - node].publicKey)
        return dials(node) { core, turn in core.found(client, member, at: endpoint, &turn) }
    }

    fileprivate mutating func advance(by time: Milliseconds, _ node: Int = 0) -> [NodeAction.Dial] {
        now = now + time
        return dials(node) { core, turn in core.advance(&turn) }
    }
}

@Suite("Members heard on this network") struct HeardTests {
    private let keys: [PublicKey]
    private var random = Randomness.seeded(4)

    init() { keys = [makeKey(&random).publicKey, makeKey(&random).publicKey].sorted() }

    private func machine(_ side: Int, isDialable: Bool = true) -> LinkStateMachine {
        LinkStateMachine(own: keys[side], remote: keys[1 - side], isDialable: isDialable, now: noon)
    }

    @Test func `idle: the smaller key dials at once, the larger 400 ms later, never later than the next due dial`() {
        for isDialable in [true, false] {
            var small = machine(0, isDialable: isDialable)
            #expect(small.found(now: noon).isEmpty && small.advance(now: noon) == [.dial])
            var large = machine(1, isDialable: isDialable)
            #expect(large.found(now: noon).isEmpty && large.nextDeadline == noon + Limits.redialYield)
        }
        var late = machine(1)
        #expect(late.found(now: noon + 100).isEmpty && late.nextDeadline == noon + Limits.redialYield)
    }

    @Test func `idle after many failures: dialled at once, and the backoff starts again`() {
        var random = Randomness.seeded(1)
        var machine = machine(0)
        var now = noon
        for _ in 0..<20 {
            now = max(now, machine.nextDeadline ?? now)
            _ = machine.advance(now: now)
            machine.dialFailed(now: now, random: &random)
        }
        #expect(machine.found(now: now).isEmpty && machine.advance(now: now) == [.dial])
        machine.dialFailed(now: now, random: &random)
        #expect(machine.nextDeadline.map { $0 - now <= Limits.redial.first * 6 } == true)
    }

    @Test func `at rest: a member that announces itself is dialled`() {
        var machine = machine(0)
        machine.rest()
        #expect(!machine.isMissed(now: noon) && machine.found(now: noon).isEmpty)
        #expect(machine.advance(now: noon) == [.dial] && machine.isMissed(now: noon))
    }

    @Test func `dialling: at most three dials run; the link is idle when the last has failed`() {
        var random = Randomness.seeded(1)
        var machine = machine(0)
        _ = machine.advance(now: noon)
        #expect(machine.found(now: noon) == [.dial] && machine.found(now: noon) == [.dial])
        #expect(machine.found(now: noon).isEmpty)
        for left in [2, 1, 0] {
            machine.dialFailed(now: noon, random: &random)
            #expect((machine.nextDeadline == nil) == (left > 0))
        }
        machine.dialFailed(now: noon, random: &random)
        #expect(machine.nextDeadline != nil && machine.isMissed(now: noon))
    }

    @Test func `up: a link of 10 s or more is probed, and its member dialled if no answer comes`() {
        var machine = machine(0)
        _ = machine.opened(LinkID(1), dialer: keys[0], now: noon)
        #expect(machine.found(now: noon + 9_999).isEmpty)
        let asked = noon + 10_000
        #expect(machine.found(now: asked) == [.ping(LinkID(1))])
        #expect(machine.found(now: asked + Limits.pingPatience - 1).isEmpty)
        #expect(!machine.isMissed(now: asked + Limits.pingPatience - 1))
        #expect(machine.isMissed(now: asked + Limits.pingPatience))
        var answered = machine
        answered.heard(LinkID(1), now: asked + 100)
        #expect(!answered.isMissed(now: asked + Limits.pingPatience))
        #expect(answered.found(now: asked + Limits.pingPatience) == [.ping(LinkID(1))])
        #expect(machine.found(now: asked + Limits.pingPatience) == [.dial])
        // The link in use is unchanged until another one opens or its probe times out.
        var random = Randomness.seeded(2)
        machine.dialFailed(now: asked, random: &random)
        #expect(machine.link == LinkID(1))
        var replaced = machine
        let later = asked + 2 * Limits.pingPatience
        #expect(replaced.opened(LinkID(2), dialer: keys[0], now: later) == [.use(LinkID(2)), .retire(LinkID(1))])
        #expect(!replaced.isMissed(now: later))
        #expect(machine.advance(now: noon + Limits.keepaliveTimeout) == [.drop(LinkID(1))])
    }

    @Test func `a link is probed once until it answers; without a link nothing is probed`() {
        var machine = machine(0)
        #expect(machine.ask(now: noon).isEmpty)
        _ = machine.advance(now: noon)
        #expect(machine.ask(now: noon).isEmpty)
        _ = machine.opened(LinkID(1), dialer: keys[0], now: noon)
        #expect(machine.ask(now: noon) == [.ping(LinkID(1))] && machine.ask(now: noon).isEmpty)
        #expect(machine.advance(now: noon + Limits.keepaliveInterval).isEmpty)
        machine.heard(LinkID(1), now: noon + 1)
        #expect(machine.ask(now: noon + 2) == [.ping(LinkID(1))])
    }

    @Test func `our addresses changed: a link answers in 3 s or is given up, and its member is dialled at once`() {
        for side in [0, 1] {
            var silent = machine(side)
            _ = silent.opened(LinkID(1), dialer: keys[0], now: noon)
            let moved = noon + 5_000
            var dials: ChangeDials? = ChangeDials()
            #expect(silent.addressesChanged(now: moved, &dials) == [.ping(LinkID(1))])
            var answered = silent
            let late = moved + Limits.pingPatience
            #expect(silent.nextDeadline == late && silent.advance(now: late - 1).isEmpty)
            #expect(silent.advance(now: late) == [.drop(LinkID(1))])
            #expect(silent.lostAt == late && silent.nextDeadline == late && silent.advance(now: late) == [.dial])
            answered.heard(LinkID(1), now: late - 1)
            #expect(answered.advance(now: late).isEmpty && answered.link == LinkID(1))
        }
    }

    @Test func `our addresses changed again: the link is probed again; the link that replaces it is not`() {
        var machine = machine(0)
        var dials: ChangeDials? = ChangeDials()
        _ = machine.opened(LinkID(1), dialer: keys[1], now: noon)
        #expect(machine.addressesChanged(now: noon, &dials) == [.ping(LinkID(1))])
        #expect(machine.addressesChanged(now: noon + 1_000, &dials) == [.ping(LinkID(1))])
        #expect(machine.nextDeadline == noon + 1_000 + Limits.pingPatience)
        _ = machine.opened(LinkID(2), dialer: keys[0], now: noon + 1_500)
        #expect(machine.advance(now: noon + 1_000 + Limits.pingPatience).isEmpty && machine.link == LinkID(2))
    }

    @Test func `our addresses changed without a link: the member is dialled at once if a link is wanted`() {
        var random = Randomness.seeded(1)
        var dials: ChangeDials? = ChangeDials()
        var machine = machine(0)
        _ = machine.advance(now: noon)
        #expect(machine.addressesChanged(now: noon, &dials).isEmpty && machine.nextDeadline == nil)
        machine.dialFailed(now: noon, random: &random)
        #expect(machine.addressesChanged(now: noon, &dials).isEmpty && machine.advance(now: noon) == [.dial])
        machine.rest()
        #expect(machine.addressesChanged(now: noon, &dials).isEmpty && machine.nextDeadline == nil)
        var unknown = self.machine(0, isDialable: false)
        #expect(unknown.addressesChanged(now: noon, &dials).isEmpty && unknown.nextDeadline == nil)
        _ = unknown.opened(LinkID(1), dialer: keys[1], now: noon)
        _ = unknown.addressesChanged(now: noon, &dials)
        #expect(unknown.advance(now: noon + Limits.pingPatience) == [.drop(LinkID(1))] && unknown.nextDeadline == nil)
    }

    @Test func `our addresses changed to none that is new: a member without a link keeps its backoff`() {
        var random = Randomness.seeded(1)
        var none: ChangeDials?
        var machine = machine(0)
        _ = machine.advance(now: noon)
        machine.dialFailed(now: noon, random: &random)
        let dialAt = machine.nextDeadline
        #expect(machine.addressesChanged(now: noon, &none).isEmpty && machine.nextDeadline == dialAt)
        #expect(machine.unlocked(now: noon).isEmpty && machine.nextDeadline == noon)
    }

    @Test("frequent address changes: thirty absent members share one dial rate, each dialled within eight seconds")
    func manyChanges() {
        var random = Randomness.seeded(1)
        var dials: ChangeDials? = ChangeDials()
        var machines = (0..<30).map { _ in machine(0) }
        // They have been absent for long, so their backoff is at its maximum.
        for index in machines.indices {
            for round in 0..<12 {
                _ = machines[index].advance(now: machines[index].nextDeadline ?? noon)
                machines[index].dialFailed(now: noon - Milliseconds(12 - round), random: &random)
            }
        }
        var dialled = [Timestamp?](repeating: nil, count: machines.count)
        var count = 0
        for now in (0..<600).map({ noon + $0 * 100 }) {
            // Forty pairs of virtual cables appear and disappear.
            if (now - noon) % 700 == 0 {
                dials?.begin(now: now)
                for index in machines.indices { _ = machines[index].addressesChanged(now: now, &dials) }
            }
            for index in machines.indices where machines[index].nextDeadline.map({ $0 <= now }) ?? false {
                #expect(machines[index].advance(now: now) == [.dial])
                machines[index].dialFailed(now: now, random: &random)
                dialled[index] = dialled[index] ?? now
                count += 1
            }
        }
        #expect(dialled.allSatisfy { $0.map { $0 - noon <= 8_000 } ?? false }, "\(dialled)")
        // One dial per 250 ms for the changes, plus the regular ones; it was 2,580.
        #expect(count <= 4 + 240 + 30 * 6, "\(count)")
    }

    @Test func `the peer closed the other of two links: the link in use is probed`() {
        var silent = machine(1)
        _ = silent.opened(LinkID(1), dialer: keys[0], now: noon)
        let now = noon + 1_000
        #expect(silent.opened(LinkID(2), dialer: keys[1], now: now) == [.retire(LinkID(2))])
        #expect(silent.nextDeadline.map { $0 <= now } == true && silent.advance(now: now) == [.ping(LinkID(1))])
        #expect(silent.advance(now: now).isEmpty)
        _ = silent.opened(LinkID(3), dialer: keys[1], now: now + 1_000)
        #expect(silent.advance(now: now + 1_000).isEmpty)
        var answered = silent
        #expect(silent.advance(now: now + Limits.pingPatience) == [.drop(LinkID(1))])
        #expect(silent.advance(now: now + Limits.pingPatience) == [.dial])
        answered.heard(LinkID(1), now: now + 1)
        #expect(answered.advance(now: now + Limits.pingPatience).isEmpty && answered.link == LinkID(1))
    }

    @Test func `a member is dialled first at the address where it was heard, then at its described ones`() throws {
        var all = try World.cut()
        let known = all.nodes[0].conversation(all.clients[0])?.currentMembers.first?.endpoints ?? []
        #expect(known.count == 1)
        #expect(all.found().isEmpty)
        #expect(all.nodes[0].missedMembers(now: all.now).map(\.member) == [all.keys[1].publicKey])
        #expect(all.advance(by: 500).map(\.endpoints) == [[place] + known])
        let other = Endpoint(host: "fe80::1%7", port: 7_440)
        #expect(all.found(at: other).map(\.endpoints) == [[other]])
    }

    @Test func `four heard addresses are kept, newest first, each once, for ten minutes`() throws {
        var all = try World.cut()
        let places = (1...6).map { Endpoint(host: "10.0.0.\($0)", port: 7_440) }
        for place in places + [places[4]] { _ = all.found(at: place) }
        let member = all.keys[1].publicKey
        func heard() -> [Endpoint] {
            all.nodes[0].conversation(all.clients[0])?.peer(member)?.heard.endpoints(now: all.now) ?? []
        }
        #expect(heard() == [places[4], places[5], places[3], places[2]])
        all.now = all.now + Limits.heardLifetime - 1
        #expect(heard().count == 4)
        all.now = all.now + 1
        #expect(heard().isEmpty)
    }

    @Test func `a heard address is neither saved nor sent to others`() throws {
        var all = try World.joined(3)
        for link in all.links.keys.sorted() { all.step(0) { core, turn in core.linkClosed(link, &turn) } }
        let before = all.nodes[0].record(all.clients[0])
        let sentBefore = all.sent.count
        _ = all.found()
        #expect(all.nodes[0].record(all.clients[0]) == before)
        all.run()
        for node in 0..<3 {
            let text = "\(String(describing: all.nodes[node].record(all.clients[node])))"
            #expect(!text.contains("10.0.0.7"))
        }
        // They have met again and exchanged their addresses.
        let sent = all.sent[sentBefore...]
        #expect(sent.contains { "\($0)".contains("n0") } && !sent.contains { "\($0)".contains("10.0.0.7") })
    }

    @Test func `an announcement of a stranger, or for an unknown or sleeping inbox, is ignored`() throws {
        var all = try World.cut()
        let client = all.clients[0]
        #expect(all.found(keys[0]).isEmpty && all.found(client: ClientID.generate(&all.random)).isEmpty)
        all.now = all.now + .day
        all.sleep(client, of: 0)
        #expect(all.nodes[0].isSleeping(client) && all.found().isEmpty)
        #expect(all.nodes[0].missedMembers(now: all.now).isEmpty)
    }
}

@Suite("Creators heard on this network") struct HeardCreatorTests {
    private func joining() throws -> World {
        var all = World(2)
        all.cut = [[0, 1]]
        all.create()
        try all.join(1)
        return all
    }

    @Test("a joiner looks for its creator until it has a link, and dials first where the creator was heard")
    func found() throws {
        var all = try joining()
        let (client, creator, invite) = (all.clients[1], all.keys[0].publicKey, all.invites[0].invite)
        let missed = all.nodes[1].missedCreators(now: all.now)
        #expect(missed.map(\.client) == [client] && missed.map(\.creator) == [creator])
        #expect(missed.map(\.invite) == [invite.id])
        #expect(all.nodes[0].missedCreators(now: all.now).isEmpty && all.found(by: 1).isEmpty)
        let next = all.advance(by: Limits.redialYield, 1)
        #expect(next.map(\.endpoints) == [[place] + invite.endpoints] && next.map(\.route) == [.invite(invite.id)])
        let other = Endpoint(host: "10.0.0.8", port: 1)
        #expect(all.found(at: other, by: 1).map(\.endpoints) == [[other]])
        all.step(1) { core, turn in core.linkOpened(LinkID(99), client: client, remote: creator, weDialled: true, &turn)
        }
        #expect(all.nodes[1].missedCreators(now: all.now).isEmpty)
    }

    @Test func `a joiner dials only its creator, and stops when the join has ended`() throws {
        var all = try joining()
        let client = all.clients[1]
        let stranger = makeKey(&all.random).publicKey
        _ = all.found(stranger, by: 1)
        #expect(!all.advance(by: .minute, 1).contains { $0.endpoints.contains(place) })
        all.step(1) { core, turn in core.cancelJoin(client, &turn) }
        #expect(all.found(by: 1).isEmpty && all.nodes[1].missedCreators(now: all.now).isEmpty)
    }
}
