/// Limits the responder handshakes in flight, in total and per source network.
struct HandshakeAdmission: Sendable {
    private let limit: Int
    private let limitPerNetwork: Int
    private(set) var inFlight = 0
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

    /// Call at the end of each handshake that ``begin(_:)`` admitted.
    mutating func finish(_ network: DatagramAddress.Network?) {
        inFlight -= 1
        let count = byNetwork[network, default: 1] - 1
        byNetwork[network] = count == 0 ? nil : count
    }
}

struct KnockAdmission {
    private let limits: DatagramLimits
    private var knocks = 0
    /// Knocks of the current second. Bounded by the total.
    private var knocksOf: [DatagramAddress.Network: Int] = [:]
    private var knocksSince: Microseconds = 0

    init(limits: DatagramLimits) { self.limits = limits }

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
