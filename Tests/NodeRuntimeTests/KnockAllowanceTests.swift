import Messaging
import Testing

@testable import NodeRuntime

@Suite struct KnockAllowanceTests {
    private let noon = Timestamp(milliseconds: 1_750_000_000_000)

    /// How many of `count` knocks are checked.
    private func look(
        _ count: Int, _ allowance: inout KnockAllowance, route: UInt64 = 1, from source: UInt64?, at now: Timestamp
    ) -> Int {
        var result = 0
        for _ in 0..<count where allowance.allows(route, from: source, now: now) {
            result += 1
            allowance.charge(route, from: source, now: now)
        }
        return result
    }

    @Test func `one network gets three checks of forged knocks, then one per ten seconds, over all routes`() {
        var allowance = KnockAllowance.forged
        var looked = 0
        for route in 0..<50 as Range<UInt64> { looked += look(10, &allowance, route: route, from: 7, at: noon) }
        #expect(looked == 3)
        #expect(look(10, &allowance, route: 99, from: 7, at: noon + 9_999) == 0)
        #expect(look(10, &allowance, route: 99, from: 7, at: noon + 10_000) == 1)
        #expect(look(10, &allowance, route: 98, from: nil, at: noon) == 3)
    }

    @Test func `a route used up by other networks stays open to an uncharged network`() {
        var allowance = KnockAllowance.forged
        for source in 0..<4 as Range<UInt64> { _ = look(10, &allowance, from: source, at: noon) }
        // A valid notice is always checked: it is not charged.
        for _ in 0..<100 { #expect(allowance.allows(1, from: 99, now: noon)) }
        #expect(!allowance.allows(1, from: 0, now: noon))
        #expect(allowance.allows(2, from: 99, now: noon))
    }

    @Test func `many networks together get the route's allowance and the reserve, then one check per second`() {
        var allowance = KnockAllowance.forged
        var looked = 0
        for source in 0..<1_000 as Range<UInt64> { looked += look(10, &allowance, from: source, at: noon) }
        #expect(looked == Limits.forgedKnockRate.burst + Limits.knockReserveRate.burst)
        looked = 0
        for source in 2_000..<3_000 as Range<UInt64> { looked += look(10, &allowance, from: source, at: noon + 1_000) }
        #expect(looked == 1)
    }

    @Test func `a member gets four answers at once, then one per second, however often it asks`() {
        var allowance = KnockAllowance.answered
        #expect(look(10_000, &allowance, from: 3, at: noon) == 4)
        #expect(look(10_000, &allowance, from: 3, at: noon + 1_000) == 1)
        // Another member at the same network, up to the network's limit.
        #expect(look(10_000, &allowance, route: 2, from: 3, at: noon) == 4)
        var others = 0
        for route in 3..<100 as Range<UInt64> { others += look(1, &allowance, route: route, from: 3, at: noon) }
        #expect(others < Limits.knockSourceRate.burst)
    }

    @Test func `the number of tracked networks and routes is limited, and the rest share one allowance`() {
        var allowance = KnockAllowance.answered
        var looked = 0
        for name in 0..<1_000 as Range<UInt64> { looked += look(10, &allowance, route: name, from: name, at: noon) }
        let ofKnown = Limits.knockBucketCount * Limits.answeredKnockRate.burst
        #expect(looked <= ofKnown + Limits.answeredKnockRate.burst + Limits.knockSourceRate.burst)
        #expect(look(100, &allowance, route: 500_000, from: 500_000, at: noon + .hour) == 4)
    }
}
