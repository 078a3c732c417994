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
