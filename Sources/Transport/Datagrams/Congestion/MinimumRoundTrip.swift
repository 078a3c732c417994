/// The round trip of the path without its queues, and when to empty them to see it (draft-ietf-ccwg-bbr-06, section
/// 5.3.4.3).
struct MinimumRoundTrip: Hashable, Sendable {
    /// BBR.MinRTTFilterLen and BBR.ProbeRTTInterval.
    private static let memory: Microseconds = 10_000_000
    private static let interval: Microseconds = 5_000_000

    /// The least of the last 10 s; `nil` before the first.
    private(set) var value: Microseconds?
    private var valueAt: Microseconds
    /// The least of the last 5 s.
    private var recent: Microseconds
    private var recentAt: Microseconds
    /// Nothing as short has been seen for 5 s (BBR.probe_rtt_expired).
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

    /// The queue has been emptied: not again before 5 s.
    mutating func probed(at now: Microseconds) { recentAt = now }
}
