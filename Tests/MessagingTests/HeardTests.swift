import Crypto
import Testing

@testable import Messaging

@Suite("Members heard on this network") struct HeardTests {
    private let keys: [PublicKey]
    private var random = Randomness.seeded(4)
    private let place = Endpoint(host: "10.0.0.7", port: 7_440)

    init() { keys = [makeKey(&random).publicKey, makeKey(&random).publicKey].sorted() }

    private func machine(_ side: Int, isDialable: Bool = true) -> LinkStateMachine {
        LinkStateMachine(own: keys[side], remote: keys[1 - side], isDialable: isDialable, now: noon)
    }

    // MARK: The link machine

    @Test("idle: the smaller key dials at once, the larger 400 ms later, never later than the next due dial")
    func idle() {
        for isDialable in [true, false] {
            var small = machine(0, isDialable: isDialable)
            #expect(small.found(now: noon).isEmpty)
            #expect(small.advance(now: noon) == [.dial])
            var large = machine(1, isDialable: isDialable)
            #expect(large.found(now: noon).isEmpty)
            #expect(large.nextDeadline == noon + Limits.redialYield)
        }
        var late = machine(1)
        #expect(late.found(now: noon + 100).isEmpty)
        #expect(late.nextDeadline == noon + Limits.redialYield)
    }

    @Test("idle after many failures: dialled at once, and the backoff starts again") func failed() {
        var random = Randomness.seeded(1)
        var machine = machine(0)
        var now = noon
        for _ in 0..<20 {
            now = max(now, machine.nextDeadline ?? now)
            _ = machine.advance(now: now)
            machine.dialFailed(now: now, random: &random)
        }
        #expect(machine.found(now: now).isEmpty)
        #expect(machine.advance(now: now) == [.dial])
        machine.dialFailed(now: now, random: &random)
        #expect(machine.nextDeadline.map { $0 - now <= Limits.redial.first * 6 } == true)
    }

    @Test("at rest: a member that announces itself is dialled") func resting() {
        var machine = machine(0)
        machine.rest()
        #expect(!machine.isMissed(now: noon))
        #expect(machine.found(now: noon).isEmpty)
        #expect(machine.advance(now: noon) == [.dial])
        #expect(machine.isMissed(now: noon))
    }

    @Test("dialling: at most three dials run; the link is idle when the last has failed") func dialling() {
        var random = Randomness.seeded(1)
        var machine = machine(0)
        _ = machine.advance(now: noon)
        #expect(machine.found(now: noon) == [.dial])
        #expect(machine.found(now: noon) == [.dial])
        #expect(machine.found(now: noon).isEmpty)
        for left in [2, 1, 0] {
            machine.dialFailed(now: noon, random: &random)
            #expect((machine.nextDeadline == nil) == (left > 0))
        }
        machine.dialFailed(now: noon, random: &random)
        #expect(machine.nextDeadline != nil)
        #expect(machine.isMissed(now: noon))
    }

    @Test("up: a link of 10 s or more is probed, and its member dialled if no answer comes") func up() {
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

    @Test("a link is probed once until it answers; without a link nothing is probed") func asking() {
        var machine = machine(0)
        #expect(machine.ask(now: noon).isEmpty)
        _ = machine.advance(now: noon)
        #expect(machine.ask(now: noon).isEmpty)
        _ = machine.opened(LinkID(1), dialer: keys[0], now: noon)
        #expect(machine.ask(now: noon) == [.ping(LinkID(1))])
        #expect(machine.ask(now: noon).isEmpty)
        #expect(machine.advance(now: noon + Limits.keepaliveInterval).isEmpty)
        machine.heard(LinkID(1), now: noon + 1)
        #expect(machine.ask(now: noon + 2) == [.ping(LinkID(1))])
    }

    @Test("our addresses changed: a link answers in 3 s or is given up, and its member is dialled at once") func moved()
    {
        for side in [0, 1] {
            var silent = machine(side)
            _ = silent.opened(LinkID(1), dialer: keys[0], now: noon)
            let moved = noon + 5_000
            var dials: ChangeDials? = ChangeDials()
            #expect(silent.addressesChanged(now: moved, &dials) == [.ping(LinkID(1))])
            var answered = silent
            let late = moved + Limits.pingPatience
            #expect(silent.nextDeadline == late)
            #expect(silent.advance(now: late - 1).isEmpty)
            #expect(silent.advance(now: late) == [.drop(LinkID(1))])
            #expect(silent.lostAt == late && silent.nextDeadline == late)
            #expect(silent.advance(now: late) == [.dial])
            answered.heard(LinkID(1), now: late - 1)
            #expect(answered.advance(now: late).isEmpty)
            #expect(answered.link == LinkID(1))
        }
    }

    @Test("our addresses changed again: the link is probed again; the link that replaces it is not") func movedTwice() {
        var machine = machine(0)
        var dials: ChangeDials? = ChangeDials()
        _ = machine.opened(LinkID(1), dialer: keys[1], now: noon)
        #expect(machine.addressesChanged(now: noon, &dials) == [.ping(LinkID(1))])
        #expect(machine.addressesChanged(now: noon + 1_000, &dials) == [.ping(LinkID(1))])
        #expect(machine.nextDeadline == noon + 1_000 + Limits.pingPatience)
        _ = machine.opened(LinkID(2), dialer: keys[0], now: noon + 1_500)
        #expect(machine.advance(now: noon + 1_000 + Limits.pingPatience).isEmpty)
        #expect(machine.link == LinkID(2))
    }

    @Test("our addresses changed without a link: the member is dialled at once if a link is wanted") func movedWithout()
    {
        var random = Randomness.seeded(1)
        var dials: ChangeDials? = ChangeDials()
        var machine = machine(0)
        _ = machine.advance(now: noon)
        #expect(machine.addressesChanged(now: noon, &dials).isEmpty)
        #expect(machine.nextDeadline == nil)
        machine.dialFailed(now: noon, random: &random)
        #expect(machine.addressesChanged(now: noon, &dials).isEmpty)
        #expect(machine.advance(now: noon) == [.dial])
        machine.rest()
        #expect(machine.addressesChanged(now: noon, &dials).isEmpty)
        #expect(machine.nextDeadline == nil)
        var unknown = self.machine(0, isDialable: false)
        #expect(unknown.addressesChanged(now: noon, &dials).isEmpty)
        #expect(unknown.nextDeadline == nil)
        _ = unknown.opened(LinkID(1), dialer: keys[1], now: noon)
        _ = unknown.addressesChanged(now: noon, &dials)
        #expect(unknown.advance(now: noon + Limits.pingPatience) == [.drop(LinkID(1))])
        #expect(unknown.nextDeadline == nil)
    }

    @Test("our addresses changed to none that is new: a member without a link keeps its backoff") func movedAway() {
        var random = Randomness.seeded(1)
        var none: ChangeDials?
        var machine = machine(0)
        _ = machine.advance(now: noon)
        machine.dialFailed(now: noon, random: &random)
        let dialAt = machine.nextDeadline
        #expect(machine.addressesChanged(now: noon, &none).isEmpty)
        #expect(machine.nextDeadline == dialAt)
        #expect(machine.unlocked(now: noon).isEmpty)
        #expect(machine.nextDeadline == noon)
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

    @Test("the peer closed the other of two links: the link in use is probed") func doubted() {
        var silent = machine(1)
        _ = silent.opened(LinkID(1), dialer: keys[0], now: noon)
        let now = noon + 1_000
        #expect(silent.opened(LinkID(2), dialer: keys[1], now: now) == [.retire(LinkID(2))])
        #expect(silent.nextDeadline.map { $0 <= now } == true)
        #expect(silent.advance(now: now) == [.ping(LinkID(1))])
        #expect(silent.advance(now: now).isEmpty)
        _ = silent.opened(LinkID(3), dialer: keys[1], now: now + 1_000)
        #expect(silent.advance(now: now + 1_000).isEmpty)
        var answered = silent
        #expect(silent.advance(now: now + Limits.pingPatience) == [.drop(LinkID(1))])
        #expect(silent.advance(now: now + Limits.pingPatience) == [.dial])
        answered.heard(LinkID(1), now: now + 1)
        #expect(answered.advance(now: now + Limits.pingPatience).isEmpty)
        #expect(answered.link == LinkID(1))
    }

    // MARK: The conversation

    private func cut() throws -> (all: Assembly, dials: [NodeAction.Dial]) {
        var all = try Assembly.joined(2)
        let open = all.links.keys.sorted()
        for link in open { all.step(0) { core, turn in core.linkClosed(link, &turn) } }
        return (all, [])
    }

    private func dials(_ all: inout Assembly, _ body: (inout NodeStateMachine, inout Turn) -> Void) -> [NodeAction.Dial]
    {
        var result: [NodeAction.Dial] = []
        all.step(0) { core, turn in
            for action in turn.apart({ body(&core, &$0) }) {
                if case .dial(_, let dial) = action { result.append(dial) } else { turn.add(action) }
            }
        }
        return result
    }

    private func found(_ all: inout Assembly, _ endpoint: Endpoint) -> [NodeAction.Dial] {
        let (client, member) = (all.clients[0], all.keys[1].publicKey)
        return dials(&all) { core, turn in core.found(client, member, at: endpoint, &turn) }
    }

    private func advance(_ all: inout Assembly, by time: Milliseconds) -> [NodeAction.Dial] {
        all.now = all.now + time
        return dials(&all) { core, turn in core.advance(&turn) }
    }

    @Test("a member is dialled first at the address where it was heard, then at its described ones") func order() throws
    {
        var (all, _) = try cut()
        let known = all.nodes[0].conversation(all.clients[0])?.currentMembers.first?.endpoints ?? []
        #expect(known.count == 1)
        #expect(found(&all, place).isEmpty)
        #expect(all.nodes[0].missedMembers(now: all.now).map(\.member) == [all.keys[1].publicKey])
        #expect(advance(&all, by: 500).map(\.endpoints) == [[place] + known])
        let other = Endpoint(host: "fe80::1%7", port: 7_440)
        #expect(found(&all, other).map(\.endpoints) == [[other]])
    }

    @Test("four heard addresses are kept, newest first, each once, for ten minutes") func bounds() throws {
        var (all, _) = try cut()
        let places = (1...6).map { Endpoint(host: "10.0.0.\($0)", port: 7_440) }
        for place in places + [places[4]] { _ = found(&all, place) }
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

    @Test("a heard address is neither saved nor sent to others") func silence() throws {
        var all = try Assembly.joined(3)
        for link in all.links.keys.sorted() { all.step(0) { core, turn in core.linkClosed(link, &turn) } }
        let before = all.nodes[0].record(all.clients[0])
        let sentBefore = all.sent.count
        _ = found(&all, place)
        #expect(all.nodes[0].record(all.clients[0]) == before)
        all.run()
        for node in 0..<3 {
            let text = "\(String(describing: all.nodes[node].record(all.clients[node])))"
            #expect(!text.contains("10.0.0.7"))
        }
        // They have met again and exchanged their addresses.
        let sent = all.sent[sentBefore...]
        #expect(sent.contains { "\($0)".contains("n0") })
        #expect(!sent.contains { "\($0)".contains("10.0.0.7") })
    }

    @Test("an announcement of a stranger, or for an unknown or sleeping inbox, is ignored") func strangers() throws {
        var (all, _) = try cut()
        let stranger = keys[0]
        let (client, member) = (all.clients[0], all.keys[1].publicKey)
        let unknown = ClientID.generate(&all.random)
        let place = place
        #expect(dials(&all) { core, turn in core.found(client, stranger, at: place, &turn) }.isEmpty)
        #expect(dials(&all) { core, turn in core.found(unknown, member, at: place, &turn) }.isEmpty)
        all.now = all.now + Limits.day
        all.step(0) { core, turn in _ = try? core.sleep(client, &turn) }
        all.step(0) { core, turn in core.fallAsleep(client, &turn) }
        #expect(all.nodes[0].isSleeping(client))
        #expect(dials(&all) { core, turn in core.found(client, member, at: place, &turn) }.isEmpty)
        #expect(all.nodes[0].missedMembers(now: all.now).isEmpty)
    }
}

@Suite("Creators heard on this network") struct HeardCreatorTests {
    private let place = Endpoint(host: "10.0.0.7", port: 7_440)

    private func joining() throws -> Assembly {
        var all = Assembly(2)
        all.cut = [[0, 1]]
        all.create()
        try all.join(1)
        return all
    }

    private func dials(_ all: inout Assembly, _ body: (inout NodeStateMachine, inout Turn) -> Void) -> [NodeAction.Dial]
    {
        var result: [NodeAction.Dial] = []
        all.step(1) { core, turn in
            for action in turn.apart({ body(&core, &$0) }) {
                if case .dial(_, let dial) = action { result.append(dial) } else { turn.add(action) }
            }
        }
        return result
    }

    @Test("a joiner looks for its creator until it has a link, and dials first where the creator was heard")
    func found() throws {
        var all = try joining()
        let (client, creator, invite) = (all.clients[1], all.keys[0].publicKey, all.invites[0].invite)
        let missed = all.nodes[1].missedCreators(now: all.now)
        #expect(missed.map(\.client) == [client] && missed.map(\.creator) == [creator])
        #expect(missed.map(\.invite) == [invite.id])
        #expect(all.nodes[0].missedCreators(now: all.now).isEmpty)
        let place = place
        #expect(dials(&all) { core, turn in core.found(client, creator, at: place, &turn) }.isEmpty)
        all.now = all.now + Limits.redialYield
        let next = dials(&all) { core, turn in core.advance(&turn) }
        #expect(next.map(\.endpoints) == [[place] + invite.endpoints])
        #expect(next.map(\.route) == [.invite(invite.id)])
        let other = Endpoint(host: "10.0.0.8", port: 1)
        #expect(
            dials(&all) { core, turn in core.found(client, creator, at: other, &turn) }.map(\.endpoints) == [[other]])
        all.step(1) { core, turn in core.linkOpened(LinkID(99), client: client, remote: creator, weDialled: true, &turn)
        }
        #expect(all.nodes[1].missedCreators(now: all.now).isEmpty)
    }

    @Test("a joiner dials only its creator, and stops when the join has ended") func others() throws {
        var all = try joining()
        let (client, creator, place) = (all.clients[1], all.keys[0].publicKey, place)
        var random = Randomness.seeded(9)
        let stranger = makeKey(&random).publicKey
        _ = dials(&all) { core, turn in core.found(client, stranger, at: place, &turn) }
        all.now = all.now + .minute
        #expect(!dials(&all) { core, turn in core.advance(&turn) }.contains { $0.endpoints.contains(place) })
        all.step(1) { core, turn in core.cancelJoin(client, &turn) }
        #expect(dials(&all) { core, turn in core.found(client, creator, at: place, &turn) }.isEmpty)
        #expect(all.nodes[1].missedCreators(now: all.now).isEmpty)
    }
}

extension Limits { fileprivate static let day: Milliseconds = .day }
