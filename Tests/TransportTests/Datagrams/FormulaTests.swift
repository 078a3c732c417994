import Cryptography
import Testing

@testable import Transport

@Suite struct FormulaTests {
    @Test func `round trips are estimated as in RFC 9002, section 5`() {
        var time = RoundTripTime(initial: 333_000)
        // RFC 9002, section 6.2.2: 333 ms make a first timeout of 999 ms.
        #expect(time.smoothed == 333_000 && time.variation == 166_500)
        #expect(time.probeTimeout(acknowledgementDelay: 0) == 999_000)
        time.sample(100_000, delay: 20_000, at: 1)
        // The first sample is taken without subtracting the delay.
        #expect(time.smoothed == 100_000 && time.variation == 50_000 && time.minimum == 100_000)
        #expect(time.adjusted == 100_000)
        time.sample(140_000, delay: 20_000, at: 2)
        // 120,000 after subtracting the delay: 7/8 · 100 + 1/8 · 120 and 3/4 · 50 + 1/4 · 20.
        #expect(time.smoothed == 102_500 && time.variation == 42_500 && time.adjusted == 120_000)
        time.sample(105_000, delay: 20_000, at: 3)
        // A delay that would lead below the minimum is ignored.
        #expect(time.smoothed == (7 * 102_500 + 105_000) / 8 && time.adjusted == 105_000)
        #expect(time.lossDelay == 9 * max(time.latest, time.smoothed) / 8)
    }

    @Test func `the window starts as in RFC 9002, and restarts with two datagrams`() {
        var time = RoundTripTime(initial: 333_000)
        time.sample(50_000, delay: 0, at: 0)
        var congestion = Congestion(datagramByteCount: 1_200, largestWindow: 1 << 30, seed: 1, time, at: 0)
        #expect(congestion.window == 12_000 && congestion.state == .startup)
        #expect(Congestion.initialWindow(1_472) == 14_720 && Congestion.initialWindow(9_000) == 18_000)
        // RFC 9002, section 7.2, within a round trip, 2.77 times (draft-ietf-ccwg-bbr-06, section 5.6.2).
        #expect(abs(congestion.pacingRate - 2.77 * 12_000 / 50_000) < 1e-9)
        let packet = congestion.sent(12_000, inFlight: 0, at: 0)
        congestion.delivery.acknowledged(12_000, packet, number: 1, sentAt: 0, at: 50_000)
        congestion.update(inFlight: 0, latest: 50_000, time, at: 50_000)
        #expect(congestion.window == 24_000)
        congestion.collapse(time, at: 60_000)
        #expect(congestion.window == 2_400 && congestion.state == .startup && congestion.greatestRate == 0)
        #expect(congestion.pacingRate > 0 && congestion.delivery.delivered == 12_000)
    }

    @Test func `the pacing rate uses the assumed round trip until one is measured`() {
        var time = RoundTripTime(initial: 333_000)
        var congestion = Congestion(datagramByteCount: 1_200, largestWindow: 1 << 30, seed: 1, time, at: 0)
        #expect(abs(congestion.pacingRate - 2.77 * 12_000 / 333_000) < 1e-9)
        let packet = congestion.sent(1_200, inFlight: 0, at: 0)
        time.sample(10_000, delay: 0, at: 10_000)
        congestion.delivery.acknowledged(1_200, packet, number: 1, sentAt: 0, at: 10_000)
        congestion.update(inFlight: 0, latest: 10_000, time, at: 10_000)
        #expect(abs(congestion.pacingRate - 2.77 * 12_000 / 10_000) < 1e-9)
        #expect(congestion.roundTrip.value == 10_000)
    }

    @Test func `the pacer keeps the rate with a burst of ten datagrams and few wake-ups`() {
        var time = RoundTripTime(initial: 333_000)
        time.sample(120_000, delay: 0, at: 0)
        var congestion = Congestion(datagramByteCount: 1_200, largestWindow: 1 << 30, seed: 1, time, at: 0)
        for rate in [0.05, 0.277, 1, 30] {
            congestion.pacingRate = rate
            var pacer = Pacer(datagramByteCount: 1_200, at: 0)
            var now: Microseconds = 0
            var sent = 0
            var wakes = 0
            while now < 1_200_000 {
                let next = pacer.next(congestion, at: now)
                if next == now {
                    pacer.sent(1_200)
                    sent += 1_200
                } else {
                    wakes += 1
                    now = next
                }
            }
            let expected = 1_200_000 * rate + 12_000
            #expect(abs(Double(sent) - expected) <= max(3_600, 2 * congestion.quantum))
            #expect(wakes <= Int(1_200_000 * rate / max(2_400, 1_000 * rate)) + 12)
        }
    }

    @Test func `a fast peer with a fast owner gets a larger receive window, up to the limit`() throws {
        var limits = DatagramLimits()
        limits.initialReceiveWindow = 1_000
        limits.receiveWindow = 1_000
        limits.largestReceiveWindow = 3_000
        limits.messageByteCount = 1_000
        var time = RoundTripTime(initial: 333_000)
        time.sample(40_000, delay: 0, at: 0)
        var stream = ReceiveStream(limits: limits)
        stream.welcome()
        var offset: UInt64 = 0
        func read(_ byteCount: Int, at now: Microseconds) throws -> UInt64 {
            let message = bigEndian(UInt64(byteCount - 4)).suffix(4) + [UInt8](repeating: 7, count: byteCount - 4)
            let isKept = try stream.receive(message[...], at: offset, isLast: false)
            #expect(isKept)
            offset += UInt64(byteCount)
            _ = try stream.next()
            return stream.writeCredit(time, at: now)
        }
        #expect(try read(250, at: 0) == 1_250 && stream.window == 1_000)
        // A quarter was read in one round trip, or in more.
        #expect(try read(250, at: 40_000) == 1_500)
        #expect(try read(250, at: 79_999) == 2_750 && stream.window == 2_000)
        // A credit repeated after a loss does not count as read data.
        #expect(stream.writeCredit(time, at: 80_000) == 2_750)
        #expect(try read(500, at: 90_000) == 4_250 && stream.window == 3_000)
        #expect(try read(750, at: 91_000) == 5_000 && stream.window == 3_000)
    }

    @Test func `a stranger's receive window stays fixed until it is welcome, and holds the longest message`() throws {
        let limits = DatagramLimits()
        var time = RoundTripTime(initial: 333_000)
        time.sample(40_000, delay: 0, at: 0)
        var stream = ReceiveStream(limits: limits)
        let byteCount = limits.messageByteCount + SendStream.prefixByteCount
        let message = bigEndian(UInt64(limits.messageByteCount)).suffix(4) + [UInt8](repeating: 7, count: 65_535)
        func send(_ number: Int) throws {
            let isKept = try stream.receive(message[...], at: UInt64(number * byteCount), isLast: false)
            #expect(isKept)
        }
        for number in 0..<20 {
            try send(number)
            #expect(try stream.next()?.count == limits.messageByteCount)
            #expect(
                stream.writeCredit(time, at: Microseconds(number)) == stream.read + UInt64(limits.initialReceiveWindow))
        }
        // One unread message and the beginning of a second fill the window.
        try send(20)
        let end = stream.told
        #expect(throws: ReceiveStream.Malformed.beyondWindow) { _ = try stream.receive([1], at: end, isLast: false) }
        #expect(stream.byteCount <= limits.initialReceiveWindow)
        stream.welcome()
        #expect(stream.owesCredit)
        #expect(stream.writeCredit(time, at: 1_000_000) == stream.read + UInt64(limits.receiveWindow))
    }

    @Test func `a packet counts as lost three packets or 9/8 round trips behind an arrived one`() {
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
        // Repeated acknowledgements, and those of packets that asked for none, return nothing.
        acknowledged = []
        sent.acknowledge([4...5, 0...3], &acknowledged)
        #expect(acknowledged.map(\.number) == [2, 4, 5] && sent.isEmpty)
    }
}
