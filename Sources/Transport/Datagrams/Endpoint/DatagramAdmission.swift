/// How many handshakes may be in flight, in all and from one network, and how many knocks are read.
struct DatagramAdmission {
    private let limits: DatagramLimits
    private(set) var inFlight = 0
    private var byNetwork: [DatagramAddress.Network: Int] = [:]
    private var knocks = 0
    /// Of this second; no more entries than knocks.
    private var knocksOf: [DatagramAddress.Network: Int] = [:]
    private var knocksSince: Microseconds = 0

    init(limits: DatagramLimits) { self.limits = limits }

    /// Whether an address has to be proved before a curve operation.
    var isUnderLoad: Bool { inFlight >= limits.handshakesBeforeCookie }

    /// - Returns: why another may not begin.
    mutating func begin(_ network: DatagramAddress.Network) -> DatagramRejection? {
        guard inFlight < limits.handshakesInFlight else { return .tooManyHandshakes }
        guard byNetwork[network, default: 0] < limits.handshakesPerPrefix else { return .tooManyFromPrefix }
        inFlight += 1
        byNetwork[network, default: 0] += 1
        return nil
    }

    /// Whether another knock may be read now.
    mutating func takeKnock(of network: DatagramAddress.Network, at now: Microseconds) -> Bool {
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

    /// One that ``begin(_:)`` let go on has come to its end.
    mutating func finish(_ network: DatagramAddress.Network) {
        inFlight -= 1
        let count = byNetwork[network, default: 1] - 1
        byNetwork[network] = count == 0 ? nil : count
    }
}
