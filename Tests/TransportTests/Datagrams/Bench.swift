@testable import Transport

/// A path of 1 MB/s and 40 ms (40,000 bytes in flight fill it) with datagrams of 1,000 bytes. The test makes each
/// acknowledgement.
struct Bench {
    var congestion: Congestion
    var estimate = RoundTripTime(initial: 333_000)
    var now: Microseconds = 1_000_000
    /// Falls a little with each sample, so that the minimum stays fresh.
    var roundTrip: Microseconds = 40_000
    private var number: UInt64 = 0
    private var rest: [(PacketDelivery, UInt64, Microseconds)] = []

    init() {
        estimate.sample(40_000, delay: 0, at: now)
        congestion = Congestion(datagramByteCount: 1_000, largestWindow: 1 << 24, seed: 7, estimate, at: now)
        _ = send(0, inFlight: 0)
    }

    private mutating func send(_ byteCount: Int, inFlight: Int) -> (PacketDelivery, UInt64, Microseconds) {
        number += 1
        return (congestion.sent(byteCount, inFlight: inFlight, at: now), number, now)
    }

    private mutating func acknowledge(_ byteCount: Int, _ sent: (PacketDelivery, UInt64, Microseconds), _ inFlight: Int)
    {
        roundTrip -= 1
        congestion.delivery.acknowledged(byteCount, sent.0, number: sent.1, sentAt: sent.2, at: now)
        congestion.update(inFlight: inFlight, latest: roundTrip, estimate, at: now)
    }

    /// Ends a round of 40 ms in which the path delivers at `rate`; `inFlight` bytes remain in flight.
    mutating func round(_ rate: Double = 1, inFlight: Int = 60_000, isLimited: Bool = false) {
        if isLimited { congestion.ranDry(inFlight: inFlight) }
        let bytes = Int(rate * 40_000)
        let sent = send(bytes, inFlight: inFlight)
        rest = (0..<4).map { _ in send(1_000, inFlight: inFlight) }
        now += 40_000
        acknowledge(bytes, sent, inFlight)
    }

    mutating func more(inFlight: Int = 60_000, after time: Microseconds = 100, roundTrip: Microseconds? = nil) {
        let sent = rest.removeFirst()
        now += time
        if let roundTrip { self.roundTrip = roundTrip }
        acknowledge(1_000, sent, inFlight)
    }

    /// Loses nonadjacent packets that were sent with `inFlight` bytes in flight.
    mutating func lose(_ count: Int, inFlight: Int = 60_000) {
        let packet = congestion.sent(1_000, inFlight: inFlight, at: now)
        for _ in 0..<count {
            number += 2
            congestion.lost(1_000, packet, number: number, at: now)
        }
    }

    init(in state: Congestion.State) {
        self.init()
        round()
        if state == .startup { return }
        for _ in 0..<3 { round() }
        if state == .drain { return }
        round(inFlight: 70_000)
        if state == .probeRTT {
            more(inFlight: 10_000)
            round(inFlight: 30_000)
            roundTrip = 50_000
            now += 5_100_000
            round()
            roundTrip = 39_000
            return
        }
        for _ in 0..<3 where congestion.state == .drain { round(inFlight: 70_000) }
        if state == .down { return }
        more(inFlight: 10_000)
        round(inFlight: 30_000)
        if state == .cruise { return }
        more(inFlight: 30_000, after: 3_100_000)
        if state == .refill { return }
        round()
        round()
    }
}
