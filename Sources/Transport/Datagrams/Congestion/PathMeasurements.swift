/// The maximum over the last few slots; the owner counts slots as rounds or cycles. Exact, as draft-ietf-ccwg-bbr-06,
/// section 5.5.5 asks: a value is dropped once a later one exceeds it, so there is at most one per slot.
struct WindowedMaximum: Hashable, Sendable {
    private struct Entry: Hashable {
        let slot: UInt64
        var value: Double
    }
    /// Slots ascend, values descend.
    private var entries: [Entry] = []

    var value: Double { entries.first?.value ?? 0 }

    /// - Parameters:
    ///   - slot: never decreases between calls.
    ///   - length: slots that count, this one included.
    mutating func insert(_ value: Double, at slot: UInt64, length: UInt64) {
        while let last = entries.last, last.value <= value { entries.removeLast() }
        // A smaller value of the same slot can never become the maximum.
        if entries.last?.slot != slot { entries.append(Entry(slot: slot, value: value)) }
        while let first = entries.first, first.slot + length <= slot { entries.removeFirst() }
    }
}

/// The RTT without queues, and when to drain the queue to measure it (draft-ietf-ccwg-bbr-06, section 5.3.4.3).
struct MinimumRoundTrip: Hashable, Sendable {
    /// BBR.MinRTTFilterLen and BBR.ProbeRTTInterval.
    private static let memory: Microseconds = 10_000_000
    private static let interval: Microseconds = 5_000_000

    /// Minimum of the last 10 s; `nil` before the first sample.
    private(set) var value: Microseconds?
    private var valueAt: Microseconds
    /// Minimum of the last 5 s.
    private var recent: Microseconds
    private var recentAt: Microseconds
    /// No RTT as short was seen for 5 s (BBR.probe_rtt_expired).
    private(set) var isStale = false

    init(_ value: Microseconds? = nil, at now: Microseconds) {
        self.value = value
        valueAt = now
        recent = value ?? .max
        recentAt = now
    }

    mutating func update(_ sample: Microseconds?, at now: Microseconds) {
        isStale = now > recentAt + Self.interval
        if let sample, sample < recent || isStale {
            recent = sample
            recentAt = now
        }
        guard recent != .max, recent < value ?? .max || now > valueAt + Self.memory else { return }
        value = recent
        valueAt = recentAt
    }

    /// The queue was drained: the next probe is at least 5 s away.
    mutating func probed(at now: Microseconds) { recentAt = now }
}

/// Acknowledged bytes beyond what the rate explains (draft-ietf-ccwg-bbr-06, section 5.5.9). They enlarge the window,
/// so that sending continues between bunched acknowledgements.
struct AckAggregation: Hashable, Sendable {
    /// Length of the filter once the pipe was full.
    private static let rounds: UInt64 = 10

    private var start: Microseconds
    private var acknowledged = 0.0
    private var filter = WindowedMaximum()

    /// Bytes (BBR.extra_acked).
    var extra: Double { filter.value }

    init(at now: Microseconds) { start = now }

    mutating func restart(at now: Microseconds) { start = now }

    /// - Parameters:
    ///   - byteCount: newly acknowledged.
    ///   - rate: expected, bytes per microsecond.
    ///   - window: upper bound of the result.
    ///   - isKnown: the pipe was full once; before that the filter has one round.
    mutating func update(
        _ byteCount: Int, rate: Double, window: Double, round: UInt64, isKnown: Bool, at now: Microseconds
    ) {
        var expected = rate * Double(now - start)
        if acknowledged <= expected {
            acknowledged = 0
            start = now
            expected = 0
        }
        acknowledged += Double(byteCount)
        let extra = min(acknowledged - expected, window)
        filter.insert(extra, at: round, length: isKnown ? Self.rounds : 1)
    }
}

/// Whether the pipe is full: sending faster no longer raises the delivery rate (draft-ietf-ccwg-bbr-06, section
/// 5.3.1.2).
/// Uses the maximum sample of a round, not its last one, which may come from a single late acknowledgement.
struct FullPipe: Hashable, Sendable {
    private static let growth = 1.25
    private static let rounds = 3

    /// Bytes per microsecond to exceed.
    private var baseline = 0.0
    /// Rounds that did not exceed the baseline.
    private(set) var count = 0
    private var greatest = 0.0
    /// BBR.full_bw_now
    var isFull: Bool { count >= Self.rounds }

    mutating func reset(_ baseline: Double = 0) { self = FullPipe(baseline: baseline) }

    init(baseline: Double = 0) { self.baseline = baseline }

    mutating func update(_ sample: RateSample, endsRound: Bool) {
        greatest = max(greatest, sample.rate)
        guard endsRound else { return }
        defer { greatest = 0 }
        guard !isFull, !sample.isApplicationLimited else { return }
        if greatest >= baseline * Self.growth {
            baseline = greatest
            count = 0
        } else {
            count += 1
        }
    }
}

/// The share of bytes that the path loses without a queue, as radio does. Only loss beyond it counts as congestion.
///
/// Not in draft-ietf-ccwg-bbr-06, whose threshold treats more than 2 % of such loss as congestion, and whose short-term
/// bounds shrink with each lossy round. Only rounds without a probe and with minimal RTTs count, because an overflowing
/// queue raises RTTs. ``most`` covers queues too short to show.
struct LossNoise: Hashable, Sendable {
    /// Upper bound of noise.
    static let most = 0.1
    /// Weight of the previous rounds.
    private static let memory = 15.0 / 16
    /// Standard deviations of random loss that are tolerated.
    private static let deviations = 2.0

    private var lost = 0.0
    private var sent = 0.0

    /// 0…``most``.
    var share: Double { sent > 0 ? lost / sent : 0 }

    mutating func learn(lost: Double, sent: Double) {
        self.lost = self.lost * Self.memory + min(lost, Self.most * sent)
        self.sent = self.sent * Self.memory + sent
    }

    /// Tolerated loss of `byteCount` bytes: noise plus the larger of `threshold` and the chance deviation.
    func tolerated(in byteCount: Double, datagram: Double, threshold: Double) -> Double {
        let packets = byteCount / datagram
        let deviation = (share * (1 - share) * packets).squareRoot() * datagram
        return share * byteCount + max(threshold * byteCount, Self.deviations * deviation)
    }
}
