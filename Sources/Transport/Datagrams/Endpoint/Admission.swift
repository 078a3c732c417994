import DequeModule

/// Limits the responder handshakes in flight, in total and per source network.
struct HandshakeAdmission: Sendable {
    private let limit: Int
    private let limitPerNetwork: Int
    private(set) var inFlight = 0
    /// Connections that wait for a handshake of their network to finish.
    private var waiting: [DatagramAddress.Network?: Deque<UInt64>] = [:]
    /// The key `nil` is for addresses without a network.
    private var byNetwork: [DatagramAddress.Network?: Int] = [:]

    init(limit: Int, perNetwork: Int) {
        self.limit = limit
        limitPerNetwork = perNetwork
    }

    /// - Returns: why no further handshake may begin; `nil` if it may.
    mutating func begin(_ network: DatagramAddress.Network?) -> Rejection? {
        guard inFlight < limit else { return .tooManyHandshakes }
        guard byNetwork[network, default: 0] < limitPerNetwork else { return .tooManyFromPrefix }
        inFlight += 1
        byNetwork[network, default: 0] += 1
        return nil
    }

    /// - Returns: whether the connection has to wait for its network, and ``takeWaiting(_:)`` will return it.
    mutating func wait(_ connection: UInt64, _ network: DatagramAddress.Network?, atMost count: Int) -> Bool {
        guard inFlight < limit, byNetwork[network, default: 0] >= limitPerNetwork,
            waiting[network, default: []].count < count
        else { return false }
        waiting[network, default: []].append(connection)
        return true
    }

    /// Call after ``finish(_:)``. The connection may have ended meanwhile.
    mutating func takeWaiting(_ network: DatagramAddress.Network?) -> UInt64? {
        let next = waiting[network]?.popFirst()
        if waiting[network]?.isEmpty ?? false { waiting[network] = nil }
        return next
    }

    /// Call at the end of each handshake that ``begin(_:)`` admitted.
    mutating func finish(_ network: DatagramAddress.Network?) {
        inFlight -= 1
        let count = byNetwork[network, default: 1] - 1
        byNetwork[network] = count == 0 ? nil : count
    }
}

/// A token bucket: a burst, then one more each interval.
struct Allowance: Hashable, Sendable {
    private let burst: Int64
    private let interval: Int64
    private var left: Int64
    private var since: Int64

    init(burst: Int64, interval: Int64, now: Int64) {
        self.burst = burst
        self.interval = interval
        left = burst
        since = now
    }

    func isSpent(now: Int64) -> Bool { left == 0 && max(0, now - since) < interval }

    /// - Returns: whether a token was available.
    mutating func take(now: Int64) -> Bool {
        let elapsed = max(0, now - since) / interval
        if left + elapsed >= burst {
            left = burst
            since = now
        } else {
            left += elapsed
            since += elapsed * interval
        }
        guard left > 0 else { return false }
        left -= 1
        return true
    }
}

/// A token bucket per source, and one for all. The source silent for longest is replaced first.
struct Allowances<Source: Hashable & Comparable & Sendable>: Sendable {
    /// Sources with a bucket of their own.
    private let sourceCount = 256
    private let burst: Int64
    private let interval: Int64
    private var total: Allowance
    private var sources: [Source: (allowance: Allowance, at: Int64)] = [:]

    init(burst: Int64, interval: Int64, totalBurst: Int64, totalInterval: Int64) {
        self.burst = burst
        self.interval = interval
        total = Allowance(burst: totalBurst, interval: totalInterval, now: 0)
    }

    mutating func take(_ source: Source, now: Int64) -> Bool {
        // While the total is spent, do not search or create an entry.
        guard !total.isSpent(now: now) else { return false }
        if sources[source] == nil {
            if sources.count >= sourceCount,
                let oldest = sources.min(by: { ($0.value.at, $0.key) < ($1.value.at, $1.key) })
            {
                sources[oldest.key] = nil
            }
            sources[source] = (Allowance(burst: burst, interval: interval, now: now), now)
        }
        sources[source]?.at = now
        guard sources[source]?.allowance.take(now: now) ?? false else { return false }
        return total.take(now: now)
    }
}
