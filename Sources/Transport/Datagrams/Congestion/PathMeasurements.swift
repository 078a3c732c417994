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

/// The delivery state at the departure of a packet (draft-ietf-ccwg-bbr-06, section 4.1.2.1.2: P.), compared when it is
/// acknowledged. Counts only bytes of datagrams that count toward the window.
struct PacketDelivery: Hashable, Sendable {
    /// Bytes delivered so far, and the time of the last delivery.
    var delivered = 0
    var deliveredAt: Microseconds = 0
    /// When the first packet of the flight was sent.
    var firstSentAt: Microseconds = 0
    var lost = 0
    var inFlight = 0
    var isApplicationLimited = false
}

/// The sample of one acknowledgement (section 4.1.2.1.3: RS.).
struct RateSample: Hashable, Sendable {
    /// Bytes per microsecond; 0 if the interval was too short.
    var rate = 0.0
    /// Bytes delivered and lost between the newest packet's departure and its acknowledgement.
    var delivered = 0
    var lost = 0
    /// `delivered` when the newest packet was sent.
    var priorDelivered = 0
    /// `inFlight` when it was sent.
    var inFlight = 0
    var newlyAcknowledged = 0
    var isApplicationLimited = false
    /// The RTT of the newest packet without the peer's acknowledgement delay; `nil` if unknown.
    var roundTrip: Microseconds?
}

/// Estimates the delivery rate (section 4.1): bytes acknowledged between a packet's departure and its acknowledgement,
/// over the longer of the acknowledgement and the sending time. The sending time corrects for bunched acknowledgements,
/// which look faster than the path.
struct DeliveryRate: Hashable, Sendable {
    /// Bytes over the life of the path.
    private(set) var delivered = 0
    private(set) var lost = 0
    private var deliveredAt: Microseconds = 0
    private var firstSentAt: Microseconds = 0
    /// Samples are application-limited until this much is delivered (section 4.1.1.3); 0 if they are not.
    private var limitedUntil = 0

    private struct Newest: Hashable {
        let number: UInt64
        let packet: PacketDelivery
        let sendElapsed: Microseconds
        let acknowledgementElapsed: Microseconds
    }
    private var newest: Newest?
    private var newlyAcknowledged = 0

    var isApplicationLimited: Bool { limitedUntil > 0 }

    /// A packet was sent (section 4.1.2.2), with `inFlight` bytes before it.
    mutating func sent(_ byteCount: Int, inFlight: Int, at now: Microseconds) -> PacketDelivery {
        if inFlight == 0 {
            firstSentAt = now
            deliveredAt = now
        }
        return PacketDelivery(
            delivered: delivered, deliveredAt: deliveredAt, firstSentAt: firstSentAt, lost: lost,
            inFlight: inFlight + byteCount, isApplicationLimited: isApplicationLimited)
    }

    /// A packet was acknowledged (section 4.1.2.3). Call for each packet before ``sample(leastInterval:)``.
    mutating func acknowledged(
        _ byteCount: Int, _ packet: PacketDelivery, number: UInt64, sentAt: Microseconds, at now: Microseconds
    ) {
        delivered += byteCount
        deliveredAt = now
        newlyAcknowledged += byteCount
        if let newest, newest.number > number { return }
        newest = Newest(
            number: number, packet: packet, sendElapsed: sentAt - packet.firstSentAt,
            acknowledgementElapsed: now - packet.deliveredAt)
        firstSentAt = max(firstSentAt, sentAt)
    }

    mutating func lost(_ byteCount: Int) { lost += byteCount }

    /// The sample of the processed acknowledgement; `nil` if it acknowledged nothing new.
    /// - Parameter leastInterval: the minimum RTT: a shorter interval gives no rate.
    mutating func sample(leastInterval: Microseconds) -> RateSample? {
        if limitedUntil > 0, delivered > limitedUntil { limitedUntil = 0 }
        guard let newest else { return nil }
        let packet = newest.packet
        var sample = RateSample(
            delivered: delivered - packet.delivered, lost: lost - packet.lost, priorDelivered: packet.delivered,
            inFlight: packet.inFlight, newlyAcknowledged: newlyAcknowledged,
            isApplicationLimited: packet.isApplicationLimited)
        let interval = max(newest.sendElapsed, newest.acknowledgementElapsed)
        if interval >= max(1, leastInterval) { sample.rate = Double(sample.delivered) / Double(interval) }
        self.newest = nil
        newlyAcknowledged = 0
        return sample
    }

    /// Section 4.1.2.4.
    mutating func markApplicationLimited(inFlight: Int) { limitedUntil = max(1, delivered + inFlight) }
}

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
