/// The RTT estimate (RFC 9002, section 5).
struct RoundTripTime: Hashable, Sendable {
    private let initial: Microseconds
    private(set) var latest: Microseconds = 0
    /// `latest` less the peer's acknowledgement delay, within the trusted bounds.
    private(set) var adjusted: Microseconds = 0
    private(set) var minimum: Microseconds = 0
    private(set) var smoothed: Microseconds
    private(set) var variation: Microseconds
    private(set) var hasSample = false
    private(set) var firstSampleAt: Microseconds?

    /// Timer granularity (section 6.1.2).
    static let granularity: Microseconds = 1_000

    init(initial: Microseconds) {
        self.initial = initial
        smoothed = initial
        variation = initial / 2
    }

    /// - Parameters:
    ///   - sample: from sending the largest acknowledged packet to its acknowledgement.
    ///   - delay: the peer's acknowledgement delay, already clamped.
    mutating func sample(_ sample: Microseconds, delay: Microseconds, at now: Microseconds) {
        let sample = max(1, sample)
        latest = sample
        adjusted = sample
        guard hasSample else {
            hasSample = true
            firstSampleAt = now
            minimum = sample
            smoothed = sample
            variation = sample / 2
            return
        }
        minimum = min(minimum, sample)
        if sample >= minimum + delay { adjusted = sample - delay }
        variation = (3 * variation + abs(smoothed - adjusted)) / 4
        smoothed = (7 * smoothed + adjusted) / 8
    }

    /// Probe timeout without backoff (section 6.2.1).
    func probeTimeout(acknowledgementDelay: Microseconds) -> Microseconds {
        smoothed + max(4 * variation, Self.granularity) + acknowledgementDelay
    }

    /// A packet is lost this long after a later packet's acknowledgement (section 6.1.2).
    var lossDelay: Microseconds { max(9 * max(latest, smoothed) / 8, Self.granularity) }
}

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
