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
