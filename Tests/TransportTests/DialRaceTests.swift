import Cryptography
import NIOCore
import Testing

@testable import Transport

private typealias Attempt = DialRace.Attempt

private let first = Endpoint(host: "192.0.2.1", port: 1)
private let second = Endpoint(host: "192.0.2.2", port: 2)
private let sixth = Endpoint(host: "2001:db8::1", port: 3)
private let named = Endpoint(host: "node.example", port: 4)

private func tcp(_ endpoint: Endpoint) -> Attempt { Attempt(endpoint: endpoint, carrier: .tcp) }
private func udp(_ endpoint: Endpoint) -> Attempt { Attempt(endpoint: endpoint, carrier: .udp) }

/// Milliseconds after the start of a race.
private func at(_ time: Int64) -> NIODeadline { .uptimeNanoseconds(1_000_000_000) + .milliseconds(time) }

private func begun(_ endpoints: [Endpoint]) -> DialRace {
    var race = DialRace(endpoints, hasDatagrams: true)
    #expect(race.begin(now: at(0)) == [.start(tcp(endpoints[0]))])
    return race
}

@Suite struct DialRaceTests {
    private func order(_ endpoints: [Endpoint], hasDatagrams: Bool = true, lost: Bool = false) -> [(
        Attempt, after: TimeAmount
    )] {
        var race = DialRace(endpoints, hasDatagrams: hasDatagrams, prefersDatagrams: lost)
        var now = at(0)
        var result: [(Attempt, after: TimeAmount)] = []
        var actions = race.begin(now: now)
        while !actions.isEmpty {
            for case .start(let attempt) in actions { result.append((attempt, now - at(0))) }
            guard let deadline = race.nextDeadline else { break }
            now = deadline
            actions = race.advance(now: now)
        }
        return result
    }

    @Test func `a race alternates families and carriers, a quarter of a second apart, and tries an address once`() {
        let order = order([first, second, sixth, first])
        #expect(order.map(\.0) == [first, sixth, second].flatMap { [tcp($0), udp($0)] })
        #expect(order.map(\.after) == (0..<6).map { .milliseconds(250 * $0) })
        let six = self.order([sixth, first, second], hasDatagrams: false).map(\.0)
        #expect(six == [sixth, first, second].map(tcp))
    }

    @Test func `a failed attempt lets the next begin at once`() {
        var race = begun([first, second])
        #expect(race.failed(tcp(first), .refused, now: at(3)) == [.start(udp(first))])
        #expect(race.advance(now: at(252)).isEmpty && race.nextDeadline == at(253))
        #expect(race.advance(now: at(253)) == [.start(tcp(second))])
    }

    @Test func `UDP waits a second for the answer over an established connection to the last endpoint`() {
        var race = begun([first])
        race.connected(to: first, now: at(3))
        #expect(race.nextDeadline == at(1_003))
        #expect(race.advance(now: at(1_003)) == [.start(udp(first))])
        // Another endpoint does not wait: an old address may belong to another machine, which accepts and says nothing.
        var two = begun([first, second])
        two.connected(to: first, now: at(3))
        #expect(two.nextDeadline == at(250))
    }

    @Test func `the first link wins, and the race cancels the other attempts`() {
        var race = begun([first])
        _ = race.advance(now: at(250))
        #expect(race.opened(udp(first)) == [.cancel(tcp(first))] && race.nextDeadline == nil)
        #expect(race.failed(tcp(first), .cancelled, now: at(250)).isEmpty)
        #expect(race.opened(tcp(first)).isEmpty && race.cancel().isEmpty)
    }

    @Test func `UDP gets 2.5 seconds for an answer once TCP has failed, and only its own timeout after the answer`() {
        var race = begun([first])
        // TCP may still open.
        #expect(race.advance(now: at(250)) == [.start(udp(first))] && race.nextDeadline == nil)
        #expect(race.failed(tcp(first), .refused, now: at(1_000)).isEmpty)
        var answered = race
        // The first act is repeated after 999 ms, and its answer takes as long as over a satellite.
        #expect(race.nextDeadline == at(3_500) && race.advance(now: at(3_499)).isEmpty)
        // The failure is the one that was received, not the timeout.
        #expect(race.advance(now: at(3_500)) == [.cancel(udp(first)), .fail(.refused)])
        #expect(race.advance(now: at(4_500)).isEmpty)
        answered.answered(udp(first))
        #expect(answered.nextDeadline == nil && answered.advance(now: at(9_000)).isEmpty)
        #expect(answered.failed(udp(first), .timedOut, now: at(9_000)) == [.fail(.timedOut)])
    }

    @Test func `a race after a link lost over TCP starts UDP a second ahead, with any number of addresses`() {
        let many = (1...8).map { Endpoint(host: "192.0.2.\($0)", port: 1) }
        let order = order(many, lost: true)
        #expect(order.prefix(4).map(\.0) == many.prefix(4).map(udp))
        #expect(order[4...6].map(\.0) == [tcp(many[0]), udp(many[4]), tcp(many[1])])
        #expect(order.map(\.after) == (0..<16).map { .milliseconds(250 * $0) })
        let two = self.order([first, sixth], lost: true)
        #expect(two.map(\.0.carrier) == [.udp, .udp, .tcp, .tcp])
        #expect(two.map(\.after) == [0, 250, 1_000, 1_250].map { .milliseconds($0) })
        // Without UDP, TCP does not wait for it.
        var none = DialRace([first], hasDatagrams: true, prefersDatagrams: true)
        _ = none.begin(now: at(0))
        #expect(none.failed(udp(first), .unreachable, now: at(0)) == [.start(tcp(first))])
        var alone = DialRace([first], hasDatagrams: false, prefersDatagrams: true)
        #expect(alone.begin(now: at(0)) == [.start(tcp(first))])
    }

    @Test func `a lost link is remembered for ten minutes, for a limited number of peers`() throws {
        var limits = TransportLimits()
        limits.lossCount = 2
        let keys = try (1...3 as ClosedRange<UInt8>).map {
            try SecretKey(SecretBytes(copying: [UInt8](repeating: $0, count: 32))).publicKey
        }
        var losses = LinkLosses(limits: limits)
        for reason in [LinkCloseReason.requested, .closedByPeer, .shutDown, .duplicate] {
            losses.note(keys[0], .tcp, reason, now: at(0))
        }
        #expect(losses.loss(of: keys[0], now: at(0)) == nil)
        losses.note(keys[0], .tcp, .unacknowledged, now: at(0))
        losses.note(keys[1], .udp, .silent, now: at(60_000))
        #expect(losses.loss(of: keys[0], now: at(540_000))?.reason == .unacknowledged)
        #expect(losses.loss(of: keys[0], now: at(600_000)) == nil)
        losses.note(keys[2], .tcp, .connectionLost(104), now: at(600_000))
        #expect(losses.loss(of: keys[1], now: at(600_000))?.carrier == .udp)
        #expect(losses.loss(of: keys[2], now: at(600_000))?.reason == .connectionLost(104))
        losses.forget()
        #expect(keys.allSatisfy { losses.loss(of: $0, now: at(0)) == nil })
    }

    @Test func `an address that closes before act 2 over TCP is not tried over UDP`() {
        var race = begun([first, second])
        #expect(race.failed(tcp(first), .closedBeforeActTwo, now: at(0)) == [.start(tcp(second))])
        _ = race.advance(now: at(250))
        #expect(
            race.failed(tcp(second), .closedBeforeActTwo, now: at(250)) == [
                .cancel(udp(second)), .fail(.closedBeforeActTwo),
            ])
    }

    @Test func `each address of a name is tried over UDP as its own attempt, and a name without one has failed`() {
        var race = begun([named])
        #expect(race.advance(now: at(250)) == [.start(udp(named))])
        var empty = race
        #expect(race.resolved(udp(named), as: [sixth, first], now: at(250)) == [.start(udp(sixth))])
        #expect(race.advance(now: at(500)) == [.start(udp(first))])
        #expect(race.resolved(udp(named), as: [second], now: at(500)).isEmpty)
        #expect(
            Set(race.cancel()) == [.cancel(tcp(named)), .cancel(udp(sixth)), .cancel(udp(first)), .fail(.cancelled)])
        #expect(empty.failed(tcp(named), .refused, now: at(250)).isEmpty)
        #expect(empty.resolved(udp(named), as: [], now: at(250)) == [.fail(.refused)])
    }

    @Test func `a race through NATs tries all known and later found addresses at once`() {
        let many = (1...12).map { Endpoint(host: "192.0.2.\($0)", port: 1) }
        var full = DialRace(punching: many)
        #expect(full.begin(now: at(0)) == many.prefix(8).map { .start(udp($0)) })
        #expect(full.found(first, now: at(0)).isEmpty)
        var race = DialRace(punching: [first, second, first])
        #expect(race.found(sixth, now: at(0)).isEmpty)
        #expect(race.begin(now: at(0)) == [.start(udp(first)), .start(udp(second))])
        #expect(race.found(first, now: at(0)).isEmpty)
        #expect(race.found(sixth, now: at(0)) == [.start(udp(sixth))])
        #expect(race.failed(udp(first), .timedOut, now: at(0)).isEmpty && race.nextDeadline == at(5_000))
        var won = race
        #expect(won.opened(udp(sixth)) == [.cancel(udp(second))] && won.found(first, now: at(0)).isEmpty)
        #expect(race.advance(now: at(5_000)) == [.cancel(udp(second)), .cancel(udp(sixth)), .fail(.timedOut)])
        // An ordinary race takes no further addresses.
        var ordinary = begun([first])
        #expect(ordinary.found(second, now: at(0)).isEmpty)
    }

    @Test func `a race ignores events before its begin and after its end, and fails at once without an address`() {
        for var race in [DialRace([], hasDatagrams: true), DialRace(punching: [])] {
            #expect(race.begin(now: at(0)) == [.fail(.unresolvable)])
            #expect(race.nextDeadline == nil && race.begin(now: at(0)).isEmpty)
        }
        var ready = DialRace([first], hasDatagrams: true)
        var ended = begun([first])
        _ = ended.cancel()
        for var race in [ready, ended] {
            race.connected(to: first, now: at(0))
            #expect(race.nextDeadline == nil && race.advance(now: .distantFuture).isEmpty)
            #expect(race.opened(tcp(first)).isEmpty && race.failed(tcp(first), .refused, now: at(0)).isEmpty)
            #expect(race.resolved(udp(first), as: [second], now: at(0)).isEmpty)
        }
        #expect(ended.begin(now: at(0)).isEmpty && ended.cancel().isEmpty)
        var given = ready
        #expect(given.cancel() == [.fail(.cancelled)] && given.begin(now: at(0)).isEmpty)
        #expect(ready.begin(now: at(0)) == [.start(tcp(first))])
    }

    @Test func `every attempt ends and a race ends once, in any order of events`() {
        for seed in 0..<2_000 {
            var random = SplitMix64(state: UInt64(seed))
            let all = [first, second, sixth, named]
            var race = DialRace(
                all.filter { _ in Bool.random(using: &random) }, hasDatagrams: seed % 3 != 0,
                prefersDatagrams: seed % 2 == 0)
            var now = at(0)
            var open: Set<Attempt> = []
            var ends = 0
            func apply(_ actions: [DialRace.Action]) {
                for action in actions {
                    switch action {
                    case .start(let attempt): #expect(open.insert(attempt).inserted)
                    case .cancel(let attempt): #expect(open.remove(attempt) != nil)
                    case .fail: ends += 1
                    }
                }
            }
            apply(race.begin(now: now))
            var hasWon = false
            for _ in 0..<100 where ends == 0 && !hasWon {
                let some = open.sorted { "\($0)" < "\($1)" }.randomElement(using: &random)
                switch (Int.random(in: 0..<6, using: &random), some) {
                case (0, let some?) where seed % 5 == 0:
                    open.remove(some)
                    apply(race.opened(some))
                    hasWon = true
                case (1, let some?) where some.endpoint == named && some.carrier == .udp:
                    open.remove(some)
                    apply(race.resolved(some, as: [first, sixth], now: now))
                case (2, let some?):
                    open.remove(some)
                    let reason: DialFailure = Bool.random(using: &random) ? .refused : .closedBeforeActTwo
                    apply(race.failed(some, reason, now: now))
                default:
                    if let deadline = race.nextDeadline { now = max(now, deadline) }
                    apply(race.advance(now: now))
                }
            }
            if ends == 0, !hasWon { apply(race.cancel()) }
            #expect(open.isEmpty && ends == (hasWon ? 0 : 1), "seed \(seed)")
        }
    }
}
