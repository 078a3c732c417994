import Cryptography
import NIOCore
import Testing

@testable import Transport

@Suite struct DialRaceTests {
    private typealias Attempt = DialRace.Attempt
    private typealias Action = DialRace.Action
    private typealias Start = (Attempt, after: TimeAmount)

    private static let start = NIODeadline.uptimeNanoseconds(1_000_000_000)
    private static let first = Endpoint(host: "192.0.2.1", port: 1)
    private static let second = Endpoint(host: "192.0.2.2", port: 2)
    private static let sixth = Endpoint(host: "2001:db8::1", port: 3)
    private static let named = Endpoint(host: "node.example", port: 4)

    private static func tcp(_ endpoint: Endpoint) -> Attempt { Attempt(endpoint: endpoint, carrier: .tcp) }
    private static func udp(_ endpoint: Endpoint) -> Attempt { Attempt(endpoint: endpoint, carrier: .udp) }

    private func order(_ endpoints: [Endpoint], hasDatagrams: Bool, lost: Bool = false) -> [Start] {
        var race = DialRace(endpoints, hasDatagrams: hasDatagrams, prefersDatagrams: lost)
        var now = Self.start
        var result: [Start] = []
        var actions = race.begin(now: now)
        while !actions.isEmpty {
            for case .start(let attempt) in actions { result.append((attempt, now - Self.start)) }
            guard let deadline = race.nextDeadline else { break }
            now = deadline
            actions = race.advance(now: now)
        }
        return result
    }

    @Test func `a race alternates address families and carriers, a quarter of a second apart`() {
        let order = order([Self.first, Self.second, Self.sixth], hasDatagrams: true)
        #expect(
            order.map(\.0) == [
                Self.tcp(Self.first), Self.udp(Self.first), Self.tcp(Self.sixth), Self.udp(Self.sixth),
                Self.tcp(Self.second), Self.udp(Self.second),
            ])
        #expect(order.map(\.after) == (0..<6).map { .milliseconds(250 * $0) })
        let six = self.order([Self.sixth, Self.first, Self.second], hasDatagrams: false).map(\.0)
        #expect(six == [Self.tcp(Self.sixth), Self.tcp(Self.first), Self.tcp(Self.second)])
    }

    @Test func `a race tries a repeated address once`() {
        #expect(order([Self.first, Self.first], hasDatagrams: true).count == 2)
    }

    @Test func `a race without an address fails at once`() {
        var race = DialRace([], hasDatagrams: true)
        #expect(race.begin(now: Self.start) == [.fail(.unresolvable)])
        #expect(race.nextDeadline == nil && race.begin(now: Self.start).isEmpty)
    }

    @Test func `a failed attempt lets the next begin at once`() {
        var race = DialRace([Self.first, Self.second], hasDatagrams: true)
        _ = race.begin(now: Self.start)
        let soon = Self.start + .milliseconds(3)
        #expect(race.failed(Self.tcp(Self.first), .refused, now: soon) == [.start(Self.udp(Self.first))])
        #expect(race.advance(now: soon + .milliseconds(249)).isEmpty)
        #expect(race.nextDeadline == soon + .milliseconds(250))
        #expect(race.advance(now: soon + .milliseconds(250)) == [.start(Self.tcp(Self.second))])
    }

    @Test func `UDP waits a second for the answer over an established connection to the last endpoint`() {
        var race = DialRace([Self.first], hasDatagrams: true)
        _ = race.begin(now: Self.start)
        let soon = Self.start + .milliseconds(3)
        race.connected(to: Self.first, now: soon)
        #expect(race.nextDeadline == soon + .seconds(1))
        #expect(race.advance(now: soon + .seconds(1)) == [.start(Self.udp(Self.first))])
        // Another endpoint does not wait: an old address may belong to another machine, which accepts and says nothing.
        var two = DialRace([Self.first, Self.second], hasDatagrams: true)
        _ = two.begin(now: Self.start)
        two.connected(to: Self.first, now: soon)
        #expect(two.nextDeadline == Self.start + .milliseconds(250))
    }

    @Test func `the first link wins, and the race cancels the other attempts`() {
        var race = DialRace([Self.first], hasDatagrams: true)
        _ = race.begin(now: Self.start)
        _ = race.advance(now: Self.start + .milliseconds(250))
        #expect(race.opened(Self.udp(Self.first)) == [.cancel(Self.tcp(Self.first))])
        #expect(race.nextDeadline == nil)
        #expect(race.failed(Self.tcp(Self.first), .cancelled, now: Self.start).isEmpty)
        #expect(race.opened(Self.tcp(Self.first)).isEmpty && race.cancel().isEmpty)
    }

    @Test func `UDP gets 2.5 seconds for an answer after TCP has failed`() {
        var race = DialRace([Self.first], hasDatagrams: true)
        _ = race.begin(now: Self.start)
        #expect(race.failed(Self.tcp(Self.first), .refused, now: Self.start) == [.start(Self.udp(Self.first))])
        // The first act is repeated after 999 ms, and its answer takes as long as over a satellite.
        let end = Self.start + .milliseconds(2_500)
        #expect(race.nextDeadline == end && race.advance(now: end - .milliseconds(1)).isEmpty)
        // The failure is the one that was received, not the timeout.
        #expect(race.advance(now: end) == [.cancel(Self.udp(Self.first)), .fail(.refused)])
        #expect(race.advance(now: end + .seconds(1)).isEmpty)
    }

    @Test func `an answered UDP handshake is bound by its own timeout only`() {
        var race = DialRace([Self.first], hasDatagrams: true)
        _ = race.begin(now: Self.start)
        _ = race.failed(Self.tcp(Self.first), .refused, now: Self.start)
        race.answered(Self.udp(Self.first))
        #expect(race.nextDeadline == nil && race.advance(now: Self.start + .seconds(9)).isEmpty)
        #expect(race.failed(Self.udp(Self.first), .timedOut, now: Self.start + .seconds(9)) == [.fail(.timedOut)])
    }

    @Test func `a race after a link lost over TCP starts UDP a second ahead, with any number of addresses`() {
        let many = (1...8).map { Endpoint(host: "192.0.2.\($0)", port: 1) }
        let order = order(many, hasDatagrams: true, lost: true)
        #expect(order.prefix(4).map(\.0) == many.prefix(4).map(Self.udp))
        #expect(order[4...6].map(\.0) == [Self.tcp(many[0]), Self.udp(many[4]), Self.tcp(many[1])])
        #expect(order.map(\.after) == (0..<16).map { .milliseconds(250 * $0) })
        let two = self.order([Self.first, Self.sixth], hasDatagrams: true, lost: true)
        #expect(two.map(\.0.carrier) == [.udp, .udp, .tcp, .tcp])
        #expect(two.map(\.after) == [0, 250, 1_000, 1_250].map { .milliseconds($0) })
        // Without UDP, TCP does not wait for it.
        var none = DialRace([Self.first], hasDatagrams: true, prefersDatagrams: true)
        _ = none.begin(now: Self.start)
        #expect(none.failed(Self.udp(Self.first), .unreachable, now: Self.start) == [.start(Self.tcp(Self.first))])
        var tcp = DialRace([Self.first], hasDatagrams: false, prefersDatagrams: true)
        #expect(tcp.begin(now: Self.start) == [.start(Self.tcp(Self.first))])
    }

    @Test func `a lost link is remembered for ten minutes, for a limited number of peers`() throws {
        var limits = TransportLimits()
        limits.lossCount = 2
        func key(_ byte: UInt8) throws -> PublicKey {
            IdentityKey(try SecretKey(SecretBytes(copying: [UInt8](repeating: byte, count: 32)))).publicKey
        }
        let keys = try (1...3).map { try key($0) }
        var losses = LinkLosses(limits: limits)
        for reason in [LinkCloseReason.requested, .closedByPeer, .shutDown, .duplicate] {
            losses.note(keys[0], .tcp, reason, now: Self.start)
        }
        #expect(losses.loss(of: keys[0], now: Self.start) == nil)
        losses.note(keys[0], .tcp, .unacknowledged, now: Self.start)
        losses.note(keys[1], .udp, .silent, now: Self.start + .minutes(1))
        #expect(losses.loss(of: keys[0], now: Self.start + .minutes(9))?.reason == .unacknowledged)
        #expect(losses.loss(of: keys[0], now: Self.start + .minutes(10)) == nil)
        losses.note(keys[2], .tcp, .connectionLost(104), now: Self.start + .minutes(10))
        #expect(losses.loss(of: keys[1], now: Self.start + .minutes(10))?.carrier == .udp)
        #expect(losses.loss(of: keys[2], now: Self.start + .minutes(10))?.reason == .connectionLost(104))
        losses.forget()
        #expect(keys.allSatisfy { losses.loss(of: $0, now: Self.start) == nil })
    }

    @Test func `a UDP attempt has no deadline while TCP may still open`() {
        var race = DialRace([Self.first], hasDatagrams: true)
        _ = race.begin(now: Self.start)
        _ = race.advance(now: Self.start + .milliseconds(250))
        #expect(race.nextDeadline == nil)
        let late = Self.start + .seconds(10)
        #expect(race.failed(Self.tcp(Self.first), .timedOut, now: late).isEmpty)
        #expect(race.nextDeadline == late + .milliseconds(2_500))
        #expect(race.failed(Self.udp(Self.first), .timedOut, now: late) == [.fail(.timedOut)])
    }

    @Test func `an address that closes before act 2 over TCP is not tried over UDP`() {
        var race = DialRace([Self.first, Self.second], hasDatagrams: true)
        _ = race.begin(now: Self.start)
        #expect(
            race.failed(Self.tcp(Self.first), .closedBeforeActTwo, now: Self.start) == [.start(Self.tcp(Self.second))])
        _ = race.advance(now: Self.start + .milliseconds(250))
        #expect(
            race.failed(Self.tcp(Self.second), .closedBeforeActTwo, now: Self.start) == [
                .cancel(Self.udp(Self.second)), .fail(.closedBeforeActTwo),
            ])
    }

    @Test func `each address of a name is tried over UDP as its own attempt`() {
        var race = DialRace([Self.named], hasDatagrams: true)
        #expect(race.begin(now: Self.start) == [.start(Self.tcp(Self.named))])
        let now = Self.start + .milliseconds(250)
        #expect(race.advance(now: now) == [.start(Self.udp(Self.named))])
        #expect(
            race.resolved(Self.udp(Self.named), as: [Self.sixth, Self.first], now: now) == [
                .start(Self.udp(Self.sixth))
            ])
        #expect(race.advance(now: now + .milliseconds(250)) == [.start(Self.udp(Self.first))])
        #expect(race.resolved(Self.udp(Self.named), as: [Self.second], now: now).isEmpty)
        #expect(
            Set(race.cancel()) == [
                .cancel(Self.tcp(Self.named)), .cancel(Self.udp(Self.sixth)), .cancel(Self.udp(Self.first)),
                .fail(.cancelled),
            ])
    }

    @Test func `a name without an address counts as a failed attempt`() {
        var race = DialRace([Self.named], hasDatagrams: true)
        _ = race.begin(now: Self.start)
        #expect(race.failed(Self.tcp(Self.named), .refused, now: Self.start) == [.start(Self.udp(Self.named))])
        #expect(race.resolved(Self.udp(Self.named), as: [], now: Self.start) == [.fail(.refused)])
    }

    @Test func `a race through NATs tries all known and later found addresses at once`() {
        let many = (1...12).map { Endpoint(host: "192.0.2.\($0)", port: 1) }
        var full = DialRace(punching: many)
        #expect(full.begin(now: Self.start) == many.prefix(8).map { .start(Self.udp($0)) })
        #expect(full.found(Self.first, now: Self.start).isEmpty)
        var race = DialRace(punching: [Self.first, Self.second, Self.first])
        #expect(race.found(Self.sixth, now: Self.start).isEmpty)
        #expect(race.begin(now: Self.start) == [.start(Self.udp(Self.first)), .start(Self.udp(Self.second))])
        #expect(race.found(Self.first, now: Self.start).isEmpty)
        #expect(race.found(Self.sixth, now: Self.start) == [.start(Self.udp(Self.sixth))])
        #expect(race.failed(Self.udp(Self.first), .timedOut, now: Self.start).isEmpty)
        let end = Self.start + .seconds(5)
        #expect(race.nextDeadline == end)
        var won = race
        #expect(won.opened(Self.udp(Self.sixth)) == [.cancel(Self.udp(Self.second))])
        #expect(won.found(Self.first, now: Self.start).isEmpty)
        #expect(
            race.advance(now: end) == [.cancel(Self.udp(Self.second)), .cancel(Self.udp(Self.sixth)), .fail(.timedOut)])
        var none = DialRace(punching: [])
        #expect(none.begin(now: Self.start) == [.fail(.unresolvable)])
        // An ordinary race takes no further addresses.
        var ordinary = DialRace([Self.first], hasDatagrams: true)
        _ = ordinary.begin(now: Self.start)
        #expect(ordinary.found(Self.second, now: Self.start).isEmpty)
    }

    @Test func `a race ignores events before its begin and after its end`() {
        var ready = DialRace([Self.first], hasDatagrams: true)
        var ended = ready
        _ = ended.begin(now: Self.start)
        _ = ended.cancel()
        for race in [ready, ended] {
            var race = race
            race.connected(to: Self.first, now: Self.start)
            #expect(race.nextDeadline == nil)
            #expect(race.advance(now: .distantFuture).isEmpty)
            #expect(race.opened(Self.tcp(Self.first)).isEmpty)
            #expect(race.failed(Self.tcp(Self.first), .refused, now: Self.start).isEmpty)
            #expect(race.resolved(Self.udp(Self.first), as: [Self.second], now: Self.start).isEmpty)
        }
        #expect(ended.begin(now: Self.start).isEmpty && ended.cancel().isEmpty)
        var given = ready
        #expect(given.cancel() == [.fail(.cancelled)] && given.begin(now: Self.start).isEmpty)
        #expect(ready.begin(now: Self.start) == [.start(Self.tcp(Self.first))])
    }

    @Test func `every attempt ends and a race ends once, in any order of events`() {
        for seed in 0..<2_000 {
            var random = SplitMix64(state: UInt64(seed))
            let all = [Self.first, Self.second, Self.sixth, Self.named]
            var race = DialRace(
                all.filter { _ in Bool.random(using: &random) }, hasDatagrams: seed % 3 != 0,
                prefersDatagrams: seed % 2 == 0)
            var now = Self.start
            var open: Set<Attempt> = []
            var ends = 0
            func apply(_ actions: [Action]) {
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
                case (1, let some?) where some.endpoint == Self.named && some.carrier == .udp:
                    open.remove(some)
                    apply(race.resolved(some, as: [Self.first, Self.sixth], now: now))
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
