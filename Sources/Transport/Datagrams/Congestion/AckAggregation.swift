/// How much more is acknowledged at once than the rate explains (draft-ietf-ccwg-bbr-06, section 5.5.9): the window is
/// larger by that, so that sending goes on between the bunches.
struct AckAggregation: Hashable, Sendable {
    /// Rounds that are remembered once the path is known.
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
    ///   - window: the most that is believed.
    ///   - isKnown: the path was filled once; before that only one round counts.
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
