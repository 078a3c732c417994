/// Detects two running copies of a member's home. A node draws a random run number at its start, so a number that
/// returns after another one proves two copies. Also keeps the member's reports about copies of our home.
struct RunNumbers: Hashable, Sendable {
    /// Run number of the newest session; 0 before the first.
    private var current: UInt64 = 0
    /// Run numbers of the sessions before, the newest last.
    private var earlier: [UInt64] = []
    /// When an earlier number last returned.
    private var cameBackAt: Timestamp?
    private var reportedAt: Timestamp?

    /// - Parameter run: 0 when the member sends none.
    /// - Returns: whether this newly shows two copies of the member's home.
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

    /// - Returns: whether the member made no other report recently.
    mutating func noteReport(now: Timestamp) -> Bool {
        defer { reportedAt = now }
        return !reportsCopies(now: now)
    }

    func areCopied(now: Timestamp) -> Bool { Self.isRecent(cameBackAt, now) }

    func reportsCopies(now: Timestamp) -> Bool { Self.isRecent(reportedAt, now) }

    /// Copies of the member's home or of ours were ever shown.
    var haveShownCopies: Bool { cameBackAt != nil || reportedAt != nil }

    private static func isRecent(_ time: Timestamp?, _ now: Timestamp) -> Bool {
        time.map { now - $0 < Limits.copiesLifetime } ?? false
    }
}
