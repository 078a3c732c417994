/// The share of bytes that the path loses although it has no queue, as radio does: what is lost beyond it is congestion.
///
/// Not in draft-ietf-ccwg-bbr-06, whose loss threshold takes more than 2 % of such loss for congestion, and whose
/// short-term bounds shrink with each round in which anything is lost. Only rounds count in which we did not try for more, and in
/// which round trips were as short as they ever are: a queue that overflows shows in them. One that is too short to show
/// is what ``most`` is for.
struct LossNoise: Hashable, Sendable {
    /// More than this is never taken for noise.
    static let most = 0.1
    /// What a round weighs in the next.
    private static let memory = 15.0 / 16
    /// Standard deviations in which chance is not taken for congestion.
    private static let deviations = 2.0

    private var lost = 0.0
    private var sent = 0.0

    /// 0…``most``.
    var share: Double { sent > 0 ? lost / sent : 0 }

    /// A round without a queue.
    mutating func learn(lost: Double, sent: Double) {
        self.lost = self.lost * Self.memory + min(lost, Self.most * sent)
        self.sent = self.sent * Self.memory + sent
    }

    /// Of so many bytes those that noise loses, and `threshold` of them, or what chance adds if that is more.
    func tolerated(in byteCount: Double, datagram: Double, threshold: Double) -> Double {
        let packets = byteCount / datagram
        let deviation = (share * (1 - share) * packets).squareRoot() * datagram
        return share * byteCount + max(threshold * byteCount, Self.deviations * deviation)
    }
}
