/// A token bucket that paces packets at the rate of ``Congestion`` (draft-ietf-ccwg-bbr-06, section 5.6.2).
struct Pacer: Hashable, Sendable {
    /// Burst after a pause (RFC 9002, section 7.7: at most an initial flight).
    private static let datagramsAtOnce = 10.0

    private var bytes: Double
    private var last: Microseconds

    init(datagramByteCount: Int, at now: Microseconds) {
        bytes = Self.datagramsAtOnce * Double(datagramByteCount)
        last = now
    }

    /// When the next datagram may leave: `now`, or when a quantum of tokens is available.
    mutating func next(_ congestion: Congestion, at now: Microseconds) -> Microseconds {
        let rate = congestion.pacingRate
        let most = max(Self.datagramsAtOnce * congestion.datagram, 2 * congestion.quantum)
        bytes = min(most, bytes + rate * Double(max(0, now - last)))
        last = max(last, now)
        guard bytes < congestion.datagram else { return now }
        let missing = (congestion.quantum - bytes) / max(rate, 1e-9)
        return now + max(Congestion.tick / 4, Microseconds(min(missing, 1e9)) + 1)
    }

    mutating func sent(_ byteCount: Int) { bytes -= Double(byteCount) }
}
