import Testing

@testable import Datagrams

@Suite struct FormulaTests {
    @Test func `round trips are estimated as in RFC 9002, section 5`() {
        var time = RoundTripTime(initial: 333_000)
        // Section 6.2.2: 333 ms make a first timeout of 999 ms.
        #expect(time.smoothed == 333_000 && time.variation == 166_500)
        #expect(time.probeTimeout(acknowledgementDelay: 0) == 999_000)
        time.sample(100_000, delay: 20_000, at: 1)
        // The first sample is taken as it is: delay does not count.
        #expect(time.smoothed == 100_000 && time.variation == 50_000 && time.minimum == 100_000)
        time.sample(140_000, delay: 20_000, at: 2)
        // 120,000 after the delay: 7/8 · 100 + 1/8 · 120 and 3/4 · 50 + 1/4 · 20.
        #expect(time.smoothed == 102_500 && time.variation == 42_500)
        time.sample(105_000, delay: 20_000, at: 3)
        // A delay that would lead below the minimum is not believed.
        #expect(time.smoothed == (7 * 102_500 + 105_000) / 8)
        #expect(time.lossDelay == 9 * max(time.latest, time.smoothed) / 8)
    }

    @Test func `CUBIC has the figures of RFC 9438`() {
        // Section 4.2: K is the cube root of (W_max − cwnd) / C, and W_cubic(K) = W_max, W_cubic(0) = cwnd.
        for largest in [10.0, 100, 1_000, 12_345] {
            let inflection = Congestion.inflection(largest, 0.7 * largest)
            #expect(abs(inflection * inflection * inflection * 0.4 - 0.3 * largest) < 1e-6 * largest)
            #expect(abs(Congestion.cubic(inflection, inflection, largest) - largest) < 1e-9 * largest)
            #expect(abs(Congestion.cubic(0, inflection, largest) - 0.7 * largest) < 1e-6 * largest)
        }
        #expect(abs(Congestion.cubeRoot(27) - 3) < 1e-9 && Congestion.cubeRoot(0) == 0)
        #expect(abs(Congestion.cubeRoot(1e-6) - 0.01) < 1e-9 && Congestion.cubeRoot(-1) == 0)
    }

    @Test func `the window starts, doubles, shrinks and collapses as RFC 9002 and RFC 9438 say`() {
        var congestion = Congestion(datagramByteCount: 1_200, largestWindow: 1 << 30)
        #expect(congestion.window == 12_000 && congestion.isInSlowStart)
        #expect(Congestion.initialWindow(1_472) == 14_720 && Congestion.initialWindow(9_000) == 18_000)
        var time = RoundTripTime(initial: 333_000)
        time.sample(50_000, delay: 0, at: 0)
        func acknowledge(_ count: Int, sentAt: Microseconds, at now: Microseconds, isLimited: Bool = false) {
            congestion.acknowledge(
                count,
                sentAt: sentAt,
                number: 1,
                nextNumber: 10,
                isLimited: isLimited,
                roundTrip: time,
                at: now
            )
        }
        acknowledge(12_000, sentAt: 0, at: 50_000)
        #expect(congestion.window == 24_000)
        acknowledge(12_000, sentAt: 0, at: 50_000, isLimited: true)
        #expect(congestion.window == 24_000)
        congestion.lose(sentAt: 60_000, at: 100_000)
        #expect(abs(congestion.window - 16_800) < 0.01 && !congestion.isInSlowStart)
        // Losses of packets sent before that are the same event.
        congestion.lose(sentAt: 90_000, at: 110_000)
        #expect(abs(congestion.window - 16_800) < 0.01)
        // And acknowledgements of them do not let it grow.
        acknowledge(1_200, sentAt: 90_000, at: 120_000)
        #expect(abs(congestion.window - 16_800) < 0.01)
        // A Reno-friendly round: α = 3 · 0.3 / 1.7 datagrams per window.
        acknowledge(16_800, sentAt: 110_000, at: 160_000)
        #expect(abs(congestion.window - 16_800 - 1_200 * 0.9 / 1.7) < 200)
        congestion.collapse()
        #expect(congestion.window == 2_400)
    }

    @Test func `slow start ends without a loss when round trips grow (RFC 9406)`() {
        var congestion = Congestion(datagramByteCount: 1_200, largestWindow: 1 << 30)
        var time = RoundTripTime(initial: 333_000)
        var number: UInt64 = 0
        var now: Microseconds = 0
        for round in 0..<20 {
            let roundTrip: Microseconds = 40_000 + Microseconds(max(0, round - 3)) * 8_000
            let count = Int(congestion.window / 1_200)
            let next = number + 2 * UInt64(count)
            for _ in 0..<count {
                time.sample(roundTrip, delay: 0, at: now)
                congestion.acknowledge(
                    1_200,
                    sentAt: now,
                    number: number,
                    nextNumber: next,
                    isLimited: false,
                    roundTrip: time,
                    at: now
                )
                number += 1
            }
            number = next
            now += roundTrip
        }
        #expect(!congestion.isInSlowStart)
        #expect(congestion.window < 1_200 * 10 * 64 * 4)
    }

    @Test func `the pacer spreads 1.25 windows, or two in slow start, over a round trip`() {
        let congestion = Congestion(datagramByteCount: 1_200, largestWindow: 1 << 30)
        var time = RoundTripTime(initial: 333_000)
        time.sample(120_000, delay: 0, at: 0)
        var pacer = Pacer(datagramByteCount: 1_200, at: 0)
        var now: Microseconds = 0
        var sent = 0
        while now < 1_200_000 {
            let next = pacer.next(congestion, time, at: now)
            if next == now {
                pacer.sent(1_200)
                sent += 1_200
            } else {
                now = next
            }
        }
        // Ten round trips of two windows of 12,000, and the ten datagrams at once.
        #expect(abs(sent - 252_000) <= 3_600)
    }

    @Test func `a packet is lost three packets or 9/8 round trips behind one that arrived`() {
        var sent = SentPackets()
        var time = RoundTripTime(initial: 333_000)
        time.sample(80_000, delay: 0, at: 0)
        for number in 0..<6 as Range<UInt64> {
            sent.sent(SentPacket(number: number, sentAt: Microseconds(number) * 1_000, byteCount: 100, path: 0))
        }
        var acknowledged: [SentPacket] = []
        var lost: [SentPacket] = []
        sent.acknowledge([3...3], &acknowledged)
        sent.detectLost(time, at: 83_000, &lost)
        #expect(acknowledged.map(\.number) == [3] && lost.map(\.number) == [0])
        #expect(sent.lossTime == 91_000 && sent.outstanding == 4)
        lost = []
        sent.detectLost(time, at: 91_000, &lost)
        #expect(lost.map(\.number) == [1] && sent.lossTime == 92_000)
        // What is acknowledged twice, or was never sent with a question, is nothing new.
        acknowledged = []
        sent.acknowledge([4...5, 0...3], &acknowledged)
        #expect(acknowledged.map(\.number) == [2, 4, 5] && sent.isEmpty)
    }
}
