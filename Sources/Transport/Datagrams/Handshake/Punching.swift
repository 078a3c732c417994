/// Sends packets so that our NAT admits the peer's: each carries only a nonce known to both sides. At most five to each
/// of eight addresses within 1.5 s. Listens for the peer's packets for 5 s.
struct Punching {
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

    mutating func poll(at now: Microseconds) -> DatagramTransmit? {
        guard round < Self.times.count, !addresses.isEmpty, startedAt + Self.times[round] <= now else { return nil }
        defer {
            sent += 1
            if sent == addresses.count { (sent, round) = (0, round + 1) }
        }
        return DatagramTransmit(address: addresses[sent], bytes: DatagramPacket.punch(nonce: nonce).bytes)
    }
}
