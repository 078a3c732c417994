import Cryptography
import Testing

@testable import Transport

/// Each state of congestion control (draft-ietf-ccwg-bbr-06, section 5.3; test cases named as in appendix A).
@Suite struct CycleTests {
    @Test func `startup doubles the rate in each round until the path is full`() {
        var bench = Bench()
        var rates: [Double] = []
        for rate in [0.05, 0.1, 0.2, 0.4, 0.8, 1, 1, 1, 1] {
            bench.round(rate)
            rates.append(bench.congestion.pacingRate)
        }
        #expect(abs(rates[4] - 2.77 * 0.99 * 0.8) < 1e-9)
        #expect(bench.congestion.state == .drain && abs(bench.congestion.pacingRate - 0.5 * 0.99) < 1e-9)
    }

    @Test func `startup ends with losses even if the owner has little to send (A.2)`() {
        var bench = Bench()
        bench.round(isLimited: true)
        bench.lose(5)
        bench.round(isLimited: true)
        #expect(bench.congestion.state == .startup)
        bench.lose(7)
        bench.round(isLimited: true)
        #expect(bench.congestion.state == .drain && bench.congestion.wasFull)
        // The bound is the data that was in flight and arrived.
        #expect(bench.congestion.longTermVolume >= 40_000 && bench.congestion.longTermVolume <= 100_000)
    }

    @Test func `drain ends when the queue is empty, or after three rounds (A.3, A.4)`() {
        var bench = Bench(in: .drain)
        bench.more(inFlight: 41_500)
        #expect(bench.congestion.state == .drain)
        bench.round(inFlight: 39_000)
        #expect(bench.congestion.state == .cruise)
        bench = Bench(in: .drain)
        for _ in 0..<3 { bench.round() }
        #expect(bench.congestion.state == .drain)
        bench.round()
        #expect(bench.congestion.state == .down)
    }

    @Test func `a probe begins after 2 to 3 s, or as many rounds as datagrams in flight (A.9)`() {
        var waits: Set<Microseconds> = []
        for seed in 0..<200 as Range<UInt64> {
            var congestion = Bench(in: .cruise).congestion
            congestion.chance = SplitMix64(state: seed)
            congestion.startDown(at: 5)
            #expect((2_000_000...3_000_000).contains(congestion.probeWait) && congestion.roundsSinceUp <= 1)
            waits.insert(congestion.probeWait)
        }
        #expect(waits.count > 150)
        // A queue that remains after three rounds belongs to another flow. 40 datagrams fill the path.
        var bench = Bench(in: .down)
        var states: [Congestion.State] = []
        while bench.congestion.state != .refill, states.count < 100 {
            bench.round()
            states.append(bench.congestion.state)
        }
        #expect(states.prefix(5).contains(.down) && states.prefix(5).contains(.cruise))
        #expect((38...40).contains(states.count))
    }

    @Test func `excess loss sets the long-term bound, and cruise leaves 15 % of it free`() {
        var bench = Bench(in: .up)
        // 3 % of a flight of 80,000 bytes are 2,400 bytes, so the third loss is too many.
        bench.lose(2, inFlight: 79_000)
        #expect(bench.congestion.state == .up && bench.congestion.longTermVolume == .infinity)
        bench.lose(3, inFlight: 79_000)
        #expect(bench.congestion.state == .down && bench.congestion.wentTooHigh)
        let bound = bench.congestion.longTermVolume
        #expect(bound >= 79_000 && bound <= 80_000)
        // Later losses of the same probe do not count again.
        bench.lose(10, inFlight: 79_000)
        #expect(bench.congestion.longTermVolume == bound)
        bench.more(inFlight: 10_000)
        #expect(bench.congestion.state == .cruise)
        #expect(abs(bench.congestion.withHeadroom - 0.85 * bound) < 1e-6)
        #expect(bench.congestion.window <= bench.congestion.withHeadroom)
    }

    @Test func `losses of a flow with little to send end the probe without a bound (A.6)`() {
        var bench = Bench(in: .up)
        bench.round(isLimited: true)
        bench.congestion.ranDry(inFlight: 60_000)
        bench.lose(7)
        #expect(bench.congestion.state == .down && bench.congestion.longTermVolume == .infinity)
    }

    @Test func `a probe after excess loss stops at the known bound, and the next goes beyond`() {
        var bench = Bench(in: .up)
        bench.lose(7)
        let bound = bench.congestion.longTermVolume
        #expect(bench.congestion.state == .down && bound.isFinite)
        bench.round(inFlight: 10_000)
        bench.round(inFlight: 10_000)
        #expect(bench.congestion.state == .cruise)
        bench.more(inFlight: 10_000, after: 3_100_000)
        #expect(bench.congestion.state == .refill)
        bench.round(inFlight: 10_000)
        #expect(bench.congestion.state == .up)
        bench.more(inFlight: Int(bound) + 1)
        #expect(bench.congestion.state == .down && bench.congestion.wasPrecautionary && !bench.congestion.wentTooHigh)
        bench.round(inFlight: 30_000)
        #expect(bench.congestion.state == .refill)
        bench.round(inFlight: 30_000)
        bench.more(inFlight: Int(bound) + 1)
        #expect(bench.congestion.state == .up)
    }

    @Test func `up raises a limiting bound by 1, 2, 4 … datagrams a round (A.21)`() {
        var bench = Bench(in: .up)
        bench.congestion.longTermVolume = 50_000
        bench.congestion.window = 50_000
        var raised: [Double] = []
        for _ in 0..<6 {
            let before = bench.congestion.longTermVolume
            bench.congestion.windowIsFull()
            bench.round(1.25, inFlight: 0)
            bench.more(inFlight: 0)
            raised.append(bench.congestion.longTermVolume - before)
            #expect(bench.congestion.state == .up)
        }
        #expect(raised[2] <= 2_000 && raised[2] < raised[3] && raised[3] < raised[4] && raised[4] < raised[5])
        // The bound stays where the window was full neither in this round nor in the one before.
        bench.round(1.25, inFlight: 0)
        bench.round(1.25, inFlight: 0)
        let before = bench.congestion.longTermVolume
        for _ in 0..<3 { bench.round(1.25, inFlight: 0) }
        #expect(bench.congestion.longTermVolume == before)
    }

    @Test func `the rate between probes falls with deliveries, at most 30 % a round, until refill`() {
        var bench = Bench(in: .cruise)
        bench.lose(7)
        bench.round(0.9)
        // The rate delivered in the latest round.
        #expect(abs(bench.congestion.shortTermRate - 1) < 0.1)
        bench.lose(20)
        bench.round(0.2)
        bench.lose(20)
        bench.round(0.2)
        #expect(bench.congestion.shortTermRate < 0.75 && bench.congestion.shortTermRate >= 0.45)
        #expect(bench.congestion.rate == bench.congestion.shortTermRate)
        #expect(bench.congestion.window <= bench.congestion.shortTermVolume)
        bench.more(after: 3_100_000)
        #expect(bench.congestion.state == .refill && bench.congestion.rate == bench.congestion.greatestRate)
    }

    @Test func `the greatest rate is remembered for two cycles`() {
        var bench = Bench(in: .cruise)
        var rates: [Double] = []
        for _ in 0..<3 {
            bench.more(inFlight: 10_000, after: 3_100_000)
            for _ in 0..<8 { bench.round(0.5, inFlight: 10_000) }
            rates.append(bench.congestion.greatestRate)
        }
        #expect(rates[0] > 0.99 && rates[2] < 0.55)
    }

    @Test func `losses without a queue count as noise and do not lower the rate`() {
        var bench = Bench(in: .cruise)
        // 5 % of each round is lost, in short round trips.
        for _ in 0..<20 {
            bench.lose(2)
            bench.round(0.95, inFlight: 30_000)
        }
        #expect(abs(bench.congestion.noise.share - 0.05) < 0.005)
        bench.congestion.forgetShortTerm()
        bench.lose(2)
        bench.round(0.95, inFlight: 30_000)
        #expect(bench.congestion.shortTermRate == .infinity)
        // Losses beyond noise and chance are congestion.
        bench.lose(10)
        bench.round(0.95, inFlight: 30_000)
        #expect(bench.congestion.shortTermRate < 1)
    }

    @Test func `losses in a queue count as congestion, not as noise`() {
        var bench = Bench(in: .cruise)
        for _ in 0..<10 {
            bench.lose(4)
            bench.roundTrip = 60_000
            bench.round(0.95, inFlight: 50_000)
        }
        #expect(bench.congestion.noise.share == 0 && bench.congestion.shortTermRate < 1)
    }

    @Test func `a round-trip probe empties the queue for 200 ms and a round (A.10)`() {
        var bench = Bench(in: .cruise)
        for _ in 0..<5 { bench.round() }
        bench.more(after: 5_100_000, roundTrip: 50_000)
        #expect(bench.congestion.state == .probeRTT)
        // Half of the bytes that fill the path.
        #expect(bench.congestion.window <= 22_000)
        for _ in 0..<20 { bench.round() }
        #expect(bench.congestion.state == .probeRTT)
        let rate = bench.congestion.greatestRate
        let start = bench.now
        while bench.congestion.state == .probeRTT, bench.now < start + 1_000_000 { bench.round(0.5, inFlight: 20_000) }
        #expect(bench.congestion.state == .cruise)
        #expect((240_000...320_000).contains(bench.now - start))
        // Twice the bytes that fill the path; the low rates in between changed nothing.
        #expect(bench.congestion.window >= 79_000 && bench.congestion.greatestRate == rate)
    }

    @Test func `a path that was never full returns to startup after a round-trip probe (A.20)`() {
        var bench = Bench(in: .startup)
        bench.more(after: 5_100_000, roundTrip: 50_000)
        #expect(bench.congestion.state == .probeRTT)
        for _ in 0..<12 where bench.congestion.state == .probeRTT { bench.round(inFlight: 3_000) }
        #expect(bench.congestion.state == .startup && !bench.congestion.wasFull)
    }

    @Test func `an idle time makes a round-trip probe needless and keeps the rate (A.11)`() {
        var bench = Bench(in: .cruise)
        bench.congestion.ranDry(inFlight: 0)
        bench.now += 6_000_000
        bench.roundTrip = 50_000
        bench.round(0.5, inFlight: 0, isLimited: true)
        #expect(bench.congestion.state != .probeRTT && bench.congestion.greatestRate >= 1)
    }

    @Test func `an idle time ends a round-trip probe, because it empties the queue`() {
        var bench = Bench(in: .probeRTT)
        bench.more(inFlight: 3_000)
        bench.round(inFlight: 3_000)
        #expect(bench.congestion.state == .probeRTT)
        bench.congestion.ranDry(inFlight: 0)
        bench.now += 1_000_000
        _ = bench.congestion.sent(1_000, inFlight: 0, at: bench.now)
        #expect(bench.congestion.state == .cruise)
    }

    @Test func `the window stays between four datagrams and its limit (A.14)`() {
        var bench = Bench()
        for _ in 0..<30 {
            bench.lose(10, inFlight: 4_000)
            bench.round(0.002, inFlight: 0)
            #expect(bench.congestion.window >= 4_000)
        }
        var estimate = RoundTripTime(initial: 333_000)
        estimate.sample(40_000, delay: 0, at: 0)
        var congestion = Congestion(datagramByteCount: 1_000, largestWindow: 20_000, seed: 1, estimate, at: 0)
        for step in 1...20 as ClosedRange<Microseconds> {
            let packet = congestion.sent(40_000, inFlight: 1_000, at: step * 40_000)
            congestion.delivery.acknowledged(
                40_000, packet, number: UInt64(step), sentAt: step * 40_000, at: step * 40_000 + 40_000)
            congestion.update(inFlight: 1_000, latest: 40_000, estimate, at: step * 40_000 + 40_000)
            #expect(congestion.window <= 20_000)
        }
    }

    @Test func `larger datagrams raise the window only to a minimum of two or four datagrams`() {
        var bench = Bench(in: .startup)
        bench.congestion.setDatagram(65_000)
        #expect(bench.congestion.window == 130_000)
        bench = Bench(in: .cruise)
        bench.congestion.setDatagram(1_200)
        #expect(bench.congestion.window > 40_000)
        bench.congestion.setDatagram(65_000)
        #expect(bench.congestion.window == 260_000)
    }
}
