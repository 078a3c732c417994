/// A bounded list of connections that have not shown a token, in order of arrival.
struct PendingConnections: Sendable {
    private let limit: Int
    private var members: Set<UInt64> = []
    /// Oldest first; includes connections that have left.
    private var arrivals: [UInt64] = []
    /// Index in `arrivals` of the first that may still wait.
    private var oldest = 0

    /// - Parameter limit: at least 1.
    init(limit: Int) { self.limit = limit }

    mutating func first() -> UInt64? {
        skip()
        return oldest < arrivals.count ? arrivals[oldest] : nil
    }

    /// - Returns: the connection to drop, if there are too many.
    mutating func arrive(_ id: UInt64, using generator: inout some RandomNumberGenerator) -> UInt64? {
        members.insert(id)
        arrivals.append(id)
        skip()
        if arrivals.count > 2 * limit {
            arrivals.removeAll { !members.contains($0) }
            oldest = 0
        }
        guard members.count > limit else { return nil }
        // The older half has had its time. A random choice, so that a flood cannot control it.
        let half = max(1, (arrivals.count - oldest) / 2)
        let drawn = arrivals[oldest + Int.random(in: 0..<half, using: &generator)]
        let victim = members.contains(drawn) ? drawn : arrivals[oldest]
        members.remove(victim)
        return victim
    }

    /// The connection has shown its token or is gone.
    mutating func leave(_ id: UInt64) { members.remove(id) }

    private mutating func skip() { while oldest < arrivals.count, !members.contains(arrivals[oldest]) { oldest += 1 } }
}
