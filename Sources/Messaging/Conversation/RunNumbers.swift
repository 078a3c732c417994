/// The runs of one member's home, by the random number that each of its session starts carries, and its reports about
/// ours. A number that comes back after another one proves that two copies of the home run at once: a node that starts
/// draws a new number.
struct RunNumbers: Hashable, Sendable {
    /// Of the newest session; 0 before the first.
    private var current: UInt64 = 0
    /// Of the sessions before, the newest last.
    private var earlier: [UInt64] = []
    /// When a number last came back.
    private var cameBackAt: Timestamp?
    /// When the member last reported that two copies of our home run.
    private var reportedAt: Timestamp?

    /// A session has begun.
    /// - Parameter run: 0 when the member gives no number.
    /// - Returns: whether it shows two copies of the member's home, and none were known to run.
    mutating func note(_ run: UInt64, now: Timestamp) -> Bool {
        guard run != 0, run != current else { return false }
        let hasComeBack = earlier.contains(run)
        earlier.removeAll { $0 == run }
        if current != 0 { earlier.append(current) }
        earlier.removeFirst(max(0, earlier.count - (Limits.runCount - 1)))
        current = run
        guard hasComeBack else { return false }
        defer { cameBackAt = now }
        return !areCopied(now: now)
    }

    /// The member reports that two copies of our home run.
    /// - Returns: whether it had not reported that of late.
    mutating func noteReport(now: Timestamp) -> Bool {
        defer { reportedAt = now }
        return !reportsCopies(now: now)
    }

    /// Two copies of the member's home run at once.
    func areCopied(now: Timestamp) -> Bool { Self.isRecent(cameBackAt, now) }

    /// The member reports that two copies of our home run at once.
    func reportsCopies(now: Timestamp) -> Bool { Self.isRecent(reportedAt, now) }

    /// Either was so at some time.
    var haveShownCopies: Bool { cameBackAt != nil || reportedAt != nil }

    private static func isRecent(_ time: Timestamp?, _ now: Timestamp) -> Bool {
        time.map { now - $0 < Limits.copiesLifetime } ?? false
    }
}
