/// Spreads the window over the round trip (RFC 9002, section 7.7): a bucket of bytes that fills as time goes by.
struct Pacer: Hashable, Sendable {
    /// A timer of the shell is no finer than this: less than that much is not waited for.
    private static let tick: Microseconds = 1_000
    private static let datagramsAtOnce = 10.0

    private var bytes: Double
    private var last: Microseconds

    init(datagramByteCount: Int, at now: Microseconds) {
        bytes = Self.datagramsAtOnce * Double(datagramByteCount)
        last = now
    }

    /// Bytes per microsecond: twice the window's rate in slow start, 1.25 times after.
    private func rate(_ congestion: Congestion, _ roundTrip: RoundTripTime) -> Double {
        (congestion.isInSlowStart ? 2 : 1.25) * congestion.window / Double(max(1, roundTrip.smoothed))
    }

    /// When the next datagram may leave: `now`, or later.
    mutating func next(_ congestion: Congestion, _ roundTrip: RoundTripTime, at now: Microseconds) -> Microseconds {
        let rate = rate(congestion, roundTrip)
        let most = max(Self.datagramsAtOnce * congestion.datagram, 2 * Double(Self.tick) * rate)
        bytes = min(most, bytes + rate * Double(max(0, now - last)))
        last = max(last, now)
        guard bytes < congestion.datagram else { return now }
        let missing = (congestion.datagram - bytes) / max(rate, 1e-9)
        return now + max(Self.tick / 4, Microseconds(min(missing, 1e9)) + 1)
    }

    mutating func sent(_ byteCount: Int) { bytes -= Double(byteCount) }
}
