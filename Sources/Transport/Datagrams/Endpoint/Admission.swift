/// How many handshakes of responders may be in flight, in all and from one network.
struct HandshakeAdmission: Sendable {
    private let limit: Int
    private let limitPerNetwork: Int
    private(set) var inFlight = 0
    /// `nil` stands for whatever has no network.
    private var byNetwork: [DatagramAddress.Network?: Int] = [:]

    init(limit: Int, perNetwork: Int) {
        self.limit = limit
        limitPerNetwork = perNetwork
    }

    /// - Returns: why another may not begin.
    mutating func begin(_ network: DatagramAddress.Network?) -> Rejection? {
        guard inFlight < limit else { return .tooManyHandshakes }
        guard byNetwork[network, default: 0] < limitPerNetwork else { return .tooManyFromPrefix }
        inFlight += 1
        byNetwork[network, default: 0] += 1
        return nil
    }

    /// One that ``begin(_:)`` let go on has come to its end.
    mutating func finish(_ network: DatagramAddress.Network?) {
        inFlight -= 1
        let count = byNetwork[network, default: 1] - 1
        byNetwork[network] = count == 0 ? nil : count
    }
}

/// How many knocks are read.
struct KnockAdmission {
    private let limits: DatagramLimits
    private var knocks = 0
    /// Of this second; no more entries than knocks.
    private var knocksOf: [DatagramAddress.Network: Int] = [:]
    private var knocksSince: Microseconds = 0

    init(limits: DatagramLimits) { self.limits = limits }

    /// Whether another knock may be read now.
    mutating func take(of network: DatagramAddress.Network, at now: Microseconds) -> Bool {
        if now - knocksSince >= 1_000_000 {
            knocksSince = now
            knocks = 0
            knocksOf = [:]
        }
        guard knocks < limits.knocksPerSecond, knocksOf[network, default: 0] < limits.knocksPerPrefix else {
            return false
        }
        knocks += 1
        knocksOf[network, default: 0] += 1
        return true
    }
}
