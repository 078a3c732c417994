/// Whether sending faster still brings more (draft-ietf-ccwg-bbr-06, section 5.3.1.2).
///
///     growing ──3 rounds with less than a quarter more──▶ full ──reset──▶ growing
///
/// The greatest sample of a round stands for it, in place of the one that ends it: one late acknowledgement says nothing
/// of a round.
struct FullPipe: Hashable, Sendable {
    private static let growth = 1.25
    private static let rounds = 3

    /// Bytes per microsecond to be surpassed.
    private var baseline = 0.0
    /// Rounds that did not.
    private(set) var count = 0
    private var greatest = 0.0
    /// BBR.full_bw_now
    var isFull: Bool { count >= Self.rounds }

    /// - Parameter baseline: what is delivered before the search.
    mutating func reset(_ baseline: Double = 0) { self = FullPipe(baseline: baseline) }

    init(baseline: Double = 0) { self.baseline = baseline }

    /// - Parameter endsRound: whether a round ends with the sample.
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
