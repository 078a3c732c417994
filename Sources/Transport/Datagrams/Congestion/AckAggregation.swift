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
