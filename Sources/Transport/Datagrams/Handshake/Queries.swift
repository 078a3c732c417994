/// When a datagram leaves: at once, after an interval, then with doubling intervals (RFC 9002, section 6.2), until an
/// answer comes or the time is over.
struct Retransmission {
    private var giveUpAt: Microseconds
    private var interval: Microseconds
    private var isDue = true
    private(set) var lastSentAt: Microseconds
    private(set) var count = 0

    init(until giveUpAt: Microseconds, interval: Microseconds, at now: Microseconds) {
        lastSentAt = now
        self.giveUpAt = giveUpAt
        self.interval = interval
    }

    var deadline: Microseconds { isDue ? lastSentAt : min(giveUpAt, lastSentAt + interval) }

    /// - Returns: whether the time is over.
    mutating func timeout(at now: Microseconds) -> Bool {
        if giveUpAt <= now { return true }
        if !isDue, lastSentAt + interval <= now {
            isDue = true
            interval *= 2
        }
        return false
    }

    /// The datagram leaves at once.
    mutating func hasten() { isDue = true }

    /// The same for the next datagram.
    mutating func next(until giveUpAt: Microseconds, interval: Microseconds) {
        self.giveUpAt = giveUpAt
        self.interval = interval
        isDue = true
    }

    /// - Returns: whether the datagram leaves now.
    mutating func send(at now: Microseconds) -> Bool {
        guard isDue else { return false }
        isDue = false
        count += 1
        lastSentAt = now
        return true
    }
}

/// An outgoing query without a handshake: a knock (Explode.md, "Knocks") or an address query.
/// Retransmitted after 1 s, then with doubling intervals. The answer is never longer than the query.
final class QueryHandshake {
    enum Question {
        case knock(sealed: [UInt8])
        case whereAmI

        /// Whether a datagram has room for it.
        var fits: Bool {
            if case .knock(let sealed) = self { 1...DatagramPacket.knockByteCount ~= sealed.count } else { true }
        }

        func failed(_ number: UInt64) -> DatagramEvent {
            if case .whereAmI = self { .observed(number, nil) } else { .knockEnded(number, nil) }
        }
    }

    let question: Question
    let address: DatagramAddress
    private let bytes: [UInt8]
    var retransmission: Retransmission

    init(
        _ question: Question, token: [UInt8], to address: DatagramAddress, id: UInt64, limits: DatagramLimits,
        at now: Microseconds
    ) {
        self.question = question
        self.address = address
        switch question {
        case .knock(let sealed): bytes = DatagramPacket.knock(token: token, asker: id, sealed: sealed).bytes
        case .whereAmI: bytes = DatagramPacket.observe(token: token, asker: id).bytes
        }
        retransmission = Retransmission(until: now + limits.actTimeout, interval: 3 * limits.initialRoundTrip, at: now)
    }

    func poll(at now: Microseconds) -> DatagramTransmit? {
        retransmission.send(at: now) ? DatagramTransmit(address: address, bytes: bytes) : nil
    }
}

/// Sends packets so that our NAT admits the peer's: each carries only a nonce known to both sides. At most five to each
/// of eight addresses within 1.5 s. Listens for the peer's packets for 5 s.
final class Punching {
    static let nonceByteCount = 16
    static let addressCount = 8
    /// When each packet leaves, after the first.
    private static let times: [Microseconds] = [0, 100_000, 300_000, 700_000, 1_500_000]
    private static let length: Microseconds = 5_000_000

    let nonce: [UInt8]
    let addresses: [DatagramAddress]
    private let startedAt: Microseconds
    /// Rounds begun, and packets sent in the current one.
    private var round = 0
    private var sent = 0

    init(_ nonce: [UInt8], to addresses: [DatagramAddress], at now: Microseconds) {
        self.nonce = nonce
        self.addresses = Array(addresses.prefix(Self.addressCount))
        startedAt = now
    }

    private var end: Microseconds { startedAt + Self.length }

    var deadline: Microseconds { round < Self.times.count && !addresses.isEmpty ? startedAt + Self.times[round] : end }

    func isOver(at now: Microseconds) -> Bool { end <= now }

    func poll(at now: Microseconds) -> DatagramTransmit? {
        guard round < Self.times.count, !addresses.isEmpty, startedAt + Self.times[round] <= now else { return nil }
        defer {
            sent += 1
            if sent == addresses.count { (sent, round) = (0, round + 1) }
        }
        return DatagramTransmit(address: addresses[sent], bytes: DatagramPacket.punch(nonce: nonce).bytes)
    }
}
