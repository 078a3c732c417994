/// A way to the peer: its address, what is known of the way, and whether the peer is really there.
///
///     unproved ──response──▶ proved            (three bytes out per byte in until then: RFC 9000, section 8.1)
///     unproved ──5 challenges without a response──▶ given up; the link goes back to the last proved one
struct DatagramPath {
    enum Challenge {
        case none
        /// Values sent so far, and when the next one is due.
        case waiting(values: [UInt64], next: Microseconds)
    }

    let address: DatagramAddress
    /// Names the path within the link: an acknowledgement tells of the path that the packet took.
    let number: UInt32
    private(set) var isProved: Bool
    private(set) var challenge = Challenge.none
    private var received = 0
    private var sent = 0

    var roundTrip: RoundTripTime
    var congestion: Congestion
    var pacer: Pacer
    var size: DatagramSize
    /// Bytes in flight that count.
    var inFlight = 0
    /// There was too little to send to fill the window.
    var isLimited = true

    init(_ address: DatagramAddress, number: UInt32, isProved: Bool, limits: DatagramLimits, at now: Microseconds) {
        self.address = address
        self.number = number
        self.isProved = isProved
        roundTrip = RoundTripTime(initial: limits.initialRoundTrip)
        congestion = Congestion(datagramByteCount: limits.datagramByteCount, largestWindow: limits.largestWindow)
        pacer = Pacer(datagramByteCount: limits.datagramByteCount, at: now)
        size = DatagramSize(limits: limits, isLoopback: address.isLoopback, at: now)
    }

    /// This path with the account of bytes of another to the same address.
    func continuing(_ other: DatagramPath) -> DatagramPath {
        var path = self
        (path.received, path.sent) = (other.received, other.sent)
        return path
    }

    /// Bytes that may leave now.
    var allowance: Int { isProved ? .max : max(0, 3 * received - sent) }

    /// The same for all but challenges and what little goes with them: an address that is never proved because messages
    /// have used up what may be sent there would be lost with the next move.
    var allowanceForData: Int { isProved ? .max : max(0, allowance - Self.reserve) }
    private static let reserve = 512

    mutating func datagramReceived(_ byteCount: Int) { if !isProved { received += byteCount } }
    mutating func datagramSent(_ byteCount: Int) { if !isProved { sent += byteCount } }

    /// Asks whether the peer is there, from now on.
    mutating func startChallenge(at now: Microseconds) { challenge = .waiting(values: [], next: now) }

    /// Whether a challenge is due.
    func owesChallenge(at now: Microseconds) -> Bool {
        if case .waiting(_, let next) = challenge { next <= now } else { false }
    }

    var challengeDeadline: Microseconds? {
        if case .waiting(_, let next) = challenge { next } else { nil }
    }

    mutating func challengeSent(_ value: UInt64, at now: Microseconds) {
        guard case .waiting(let values, _) = challenge else { return }
        let patience = 3 * min(max(roundTrip.smoothed, 100_000), 1_000_000) / 2
        challenge = .waiting(values: values + [value], next: now + patience << Microseconds(min(values.count, 3)))
    }

    func challengeIsHopeless(_ limits: DatagramLimits, at now: Microseconds) -> Bool {
        if case .waiting(let values, let next) = challenge {
            values.count >= limits.pathChallenges && next <= now
        } else {
            false
        }
    }

    mutating func giveUpChallenge() { challenge = .none }

    /// - Returns: whether the response proves what was not proved before.
    mutating func response(_ value: UInt64) -> Bool {
        guard case .waiting(let values, _) = challenge, values.contains(value) else { return false }
        challenge = .none
        defer { isProved = true }
        return !isProved
    }
}
