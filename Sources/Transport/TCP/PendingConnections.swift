/// Connections that have not shown a token, in the order in which they came, and at most so many of them.
struct PendingConnections: Sendable {
    private let limit: Int
    private var members: Set<UInt64> = []
    /// Those who wait, oldest first, among others that have left since.
    private var arrivals: [UInt64] = []
    /// Where in `arrivals` the first that still waits is.
    private var oldest = 0

    /// - Parameter limit: most that wait at once, at least 1.
    init(limit: Int) { self.limit = limit }

    /// The one that waits longest.
    mutating func first() -> UInt64? {
        skip()
        return oldest < arrivals.count ? arrivals[oldest] : nil
    }

    /// One more.
    /// - Returns: the one that has to go for it, if there are too many.
    mutating func arrive(_ id: UInt64, using generator: inout some RandomNumberGenerator) -> UInt64? {
        members.insert(id)
        arrivals.append(id)
        skip()
        if arrivals.count > 2 * limit {
            arrivals.removeAll { !members.contains($0) }
            oldest = 0
        }
        guard members.count > limit else { return nil }
        // Older ones have had their time; at random, so that a flood cannot choose.
        let half = max(1, (arrivals.count - oldest) / 2)
        let drawn = arrivals[oldest + Int.random(in: 0..<half, using: &generator)]
        let victim = members.contains(drawn) ? drawn : arrivals[oldest]
        members.remove(victim)
        return victim
    }

    /// It has shown its token, or is gone.
    mutating func leave(_ id: UInt64) { members.remove(id) }

    private mutating func skip() { while oldest < arrivals.count, !members.contains(arrivals[oldest]) { oldest += 1 } }
}
