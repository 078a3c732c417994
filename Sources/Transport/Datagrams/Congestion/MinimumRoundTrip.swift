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
