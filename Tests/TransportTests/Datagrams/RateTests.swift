import Cryptography
import Testing

@testable import Transport

/// The estimators of the path model against figures computed by hand.
@Suite struct RateTests {
    private struct Flight {
        var rate = DeliveryRate()
        var packets: [(packet: PacketDelivery, sentAt: Microseconds)] = []
        var inFlight = 0

        mutating func send(at now: Microseconds) {
            packets.append((rate.sent(1_000, inFlight: inFlight, at: now), now))
            inFlight += 1_000
        }

        mutating func acknowledge(_ numbers: [Int], at now: Microseconds, least: Microseconds = 0) throws -> RateSample
        {
            for number in numbers {
                rate.acknowledged(
                    1_000, packets[number].packet, number: UInt64(number), sentAt: packets[number].sentAt, at: now)
                inFlight -= 1_000
            }
            let sample = rate.sample(leastInterval: least)
            return try #require(sample)
        }
    }

    @Test func `the delivery rate counts bytes acknowledged since the acknowledgement before a packet left`() throws {
        var flight = Flight()
        for _ in 0..<4 { flight.send(at: 0) }
        let first = try flight.acknowledge([0, 1], at: 40_000)
        // 2,000 bytes in the 40 ms since the flight began.
        #expect(first.rate == 0.05 && first.delivered == 2_000 && first.newlyAcknowledged == 2_000)
        #expect(first.inFlight == 2_000 && first.priorDelivered == 0)
        flight.send(at: 40_000)
        flight.send(at: 40_000)
        let second = try flight.acknowledge([2, 3], at: 60_000)
        #expect(second.delivered == 4_000 && second.rate == 4_000 / 60_000.0)
        let third = try flight.acknowledge([4], at: 80_000)
        // Packets 2, 3 and 4, since 40 ms.
        #expect(third.delivered == 3_000 && third.rate == 0.075 && third.priorDelivered == 2_000)
        #expect(third.inFlight == 3_000)
        let nothing = flight.rate.sample(leastInterval: 0)
        #expect(nothing == nil)
    }

    @Test func `bunched acknowledgements never show a rate above the sending rate`() throws {
        var flight = Flight()
        flight.send(at: 0)
        flight.send(at: 90_000)
        _ = try flight.acknowledge([0], at: 100_000)
        flight.send(at: 101_000)
        let sample = try flight.acknowledge([1, 2], at: 141_000)
        // The acknowledgements span 41 ms, but sending the flight took 101 ms.
        #expect(sample.rate == 2_000 / 101_000.0)
    }

    @Test func `a sample shorter than the shortest round trip gives no rate`() throws {
        var flight = Flight()
        flight.send(at: 0)
        let sample = try flight.acknowledge([0], at: 9_000, least: 10_000)
        #expect(sample.rate == 0 && sample.delivered == 1_000)
    }

    @Test func `an acknowledgement is sampled by its newest packet, in any order of reading`() throws {
        for order in [[0, 1, 2], [2, 1, 0], [1, 2, 0]] {
            var flight = Flight()
            for time in [0, 5_000, 10_000] as [Microseconds] { flight.send(at: time) }
            let sample = try flight.acknowledge(order, at: 40_000)
            #expect(sample.rate == 0.075 && sample.inFlight == 3_000)
        }
    }

    @Test func `a pause of the owner marks samples as limited for one round only`() throws {
        var flight = Flight()
        flight.send(at: 0)
        flight.rate.markApplicationLimited(inFlight: flight.inFlight)
        flight.send(at: 20_000)
        let before = try flight.acknowledge([0], at: 40_000)
        #expect(!before.isApplicationLimited && flight.rate.isApplicationLimited)
        let during = try flight.acknowledge([1], at: 60_000)
        #expect(during.isApplicationLimited && !flight.rate.isApplicationLimited)
        flight.send(at: 60_000)
        let after = try flight.acknowledge([2], at: 100_000)
        #expect(!after.isApplicationLimited)
    }

    @Test func `a sample counts the losses between a packet's departure and acknowledgement`() throws {
        var flight = Flight()
        for _ in 0..<3 { flight.send(at: 0) }
        flight.rate.lost(1_000)
        flight.inFlight -= 1_000
        flight.send(at: 10_000)
        let first = try flight.acknowledge([1], at: 40_000)
        let second = try flight.acknowledge([3], at: 50_000)
        #expect(first.lost == 1_000 && second.lost == 0)
    }

    @Test func `the filter always knows the greatest value of the last slots`() {
        var random = SplitMix64(state: 3)
        for length in [1, 2, 10] as [UInt64] {
            var filter = WindowedMaximum()
            var all: [(slot: UInt64, value: Double)] = []
            var slot: UInt64 = 0
            #expect(filter.value == 0)
            for _ in 0..<2_000 {
                slot += UInt64.random(in: 0...2, using: &random)
                let value = Double.random(in: 0...100, using: &random)
                all.append((slot, value))
                filter.insert(value, at: slot, length: length)
                let expected = all.filter { $0.slot + length > slot }.map(\.value).max()
                #expect(filter.value == expected)
            }
        }
    }

    @Test func `a path counts as full after three rounds of growth below a quarter (A.1)`() {
        var pipe = FullPipe()
        func round(_ rate: Double, isLimited: Bool = false) {
            pipe.update(RateSample(rate: rate / 2), endsRound: false)
            pipe.update(RateSample(rate: rate), endsRound: false)
            pipe.update(RateSample(rate: rate / 3, isApplicationLimited: isLimited), endsRound: true)
        }
        for rate in [1, 2, 2.4, 3, 3.1] { round(rate) }
        #expect(pipe.count == 1 && !pipe.isFull)
        // 3.1 is less than a quarter more than 3; 3.75 is a quarter more.
        round(3.75)
        #expect(pipe.count == 0)
        round(4)
        round(4.1, isLimited: true)
        round(4.6)
        #expect(pipe.count == 2 && !pipe.isFull)
        round(4.6)
        #expect(pipe.isFull)
        pipe.reset(4.6)
        #expect(!pipe.isFull && pipe.count == 0)
        round(5)
        #expect(pipe.count == 1)
    }

    @Test func `an acknowledgement bunch is measured as the bytes beyond the expected rate (A.12)`() {
        var aggregation = AckAggregation(at: 0)
        func acknowledge(_ count: Int, _ round: UInt64, isKnown: Bool = true, at now: Microseconds) {
            aggregation.update(count, rate: 1, window: 50_000, round: round, isKnown: isKnown, at: now)
        }
        // At an even rate each acknowledgement is one packet ahead of the expectation.
        for step in 1...10 as ClosedRange<Microseconds> { acknowledge(1_000, 0, at: step * 1_000) }
        #expect(aggregation.extra == 1_000)
        acknowledge(10_000, 1, at: 20_000)
        #expect(aggregation.extra == 10_000)
        // Remembered for ten rounds, and limited to the window.
        acknowledge(1_000, 10, at: 40_000)
        #expect(aggregation.extra == 10_000)
        acknowledge(1_000, 11, at: 60_000)
        #expect(aggregation.extra == 1_000)
        acknowledge(90_000, 12, at: 61_500)
        #expect(aggregation.extra == 50_000)
        // Before the path is known, one round counts.
        acknowledge(1_000, 13, isKnown: false, at: 500_000)
        #expect(aggregation.extra == 1_000)
    }

    @Test func `the shortest round trip is remembered for 10 s and stale after 5 s`() {
        var minimum = MinimumRoundTrip(at: 0)
        #expect(minimum.value == nil)
        minimum.update(50_000, at: 100_000)
        minimum.update(40_000, at: 200_000)
        minimum.update(45_000, at: 300_000)
        #expect(minimum.value == 40_000 && !minimum.isStale)
        minimum.update(60_000, at: 5_200_000)
        #expect(!minimum.isStale)
        // 5 s after the shortest sample the minimum is stale, and the best of the last 5 s is known.
        minimum.update(60_000, at: 5_200_001)
        #expect(minimum.isStale && minimum.value == 40_000)
        minimum.probed(at: 5_400_000)
        minimum.update(55_000, at: 5_500_000)
        #expect(!minimum.isStale && minimum.value == 40_000)
        minimum.update(nil, at: 10_200_001)
        #expect(minimum.value == 55_000)
        minimum.update(30_000, at: 10_300_000)
        #expect(minimum.value == 30_000)
    }

    @Test func `the loss noise is learnt up to a tenth, and forgotten without losses`() {
        var noise = LossNoise()
        // Without losses the threshold alone counts.
        #expect(noise.share == 0)
        #expect(noise.tolerated(in: 100_000, datagram: 1_000, threshold: 0.02) == 2_000)
        for _ in 0..<100 { noise.learn(lost: 1_000, sent: 100_000) }
        #expect(abs(noise.share - 0.01) < 1e-9)
        // 1 and two standard deviations of 0.995 packets.
        #expect(abs(noise.tolerated(in: 100_000, datagram: 1_000, threshold: 0.01) - 2_990) < 1)
        #expect(abs(noise.tolerated(in: 1_000_000, datagram: 1_000, threshold: 0.02) - 30_000) < 1)
        for _ in 0..<200 { noise.learn(lost: 50_000, sent: 100_000) }
        #expect(abs(noise.share - 0.1) < 1e-5)
        for _ in 0..<100 { noise.learn(lost: 0, sent: 100_000) }
        #expect(noise.share < 0.001)
    }

    @Test func `a round is quiet if its round trips are close to the shortest`() {
        var round = QuietRound()
        #expect(!round.isQuiet(40_000))
        round.note(44_000)
        round.note(46_000)
        round.note(nil)
        #expect(round.isQuiet(40_000))
        round.note(46_000)
        #expect(!round.isQuiet(40_000))
        // Delays below the shell's timer resolution are no queue.
        var short = QuietRound()
        short.note(1_100)
        #expect(short.isQuiet(100) && !short.isQuiet(99))
    }

    @Test func `losses of a round count as spread when there are six gaps`() {
        var round = LossRound()
        for number in [1, 2, 3, 5, 7, 9, 11] as [UInt64] { round.note(100, number) }
        #expect(!round.isSpread && round.lost == 700)
        round.note(100, 13)
        #expect(round.isSpread)
        round.start(delivered: 5_000)
        #expect(round.lost == 0 && !round.isSpread && round.end == 5_000 && round.deliveredBefore == 5_000)
    }
}
