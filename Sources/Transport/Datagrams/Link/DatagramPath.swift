/// A path to the peer: its address, the path's measurements, and whether the address is validated.
///
///     not validated ──response──▶ validated    (three bytes out per byte in until then: RFC 9000, section 8.1)
///     not validated ──5 challenges without a response──▶ given up; the link goes back to the last validated one
struct DatagramPath {
    let address: DatagramAddress
    /// Identifies the path within the link: an acknowledgement updates the path of its packet.
    let number: UInt32
    private(set) var isProved: Bool
    /// Values sent so far, and when the next challenge is due.
    private var challenge: (values: [UInt64], next: Microseconds)?
    private var received = 0
    private var sent = 0

    var roundTrip: RoundTripTime
    var congestion: Congestion
    var pacer: Pacer
    var size: DatagramSize
    var inFlight = 0
    /// Since when sending is limited by the application, not by window or pacer.
    private var drySince: Microseconds?

    /// `seed`: random, for ``Congestion``. `measured`: the RTT, if known.
    init(
        _ address: DatagramAddress, number: UInt32, isProved: Bool, limits: DatagramLimits, seed: UInt64,
        measured: Microseconds? = nil, at now: Microseconds
    ) {
        self.address = address
        self.number = number
        self.isProved = isProved
        roundTrip = RoundTripTime(initial: limits.initialRoundTrip)
        if let measured { roundTrip.sample(measured, delay: 0, at: now) }
        congestion = Congestion(
            datagramByteCount: limits.datagramByteCount, largestWindow: limits.largestWindow, seed: seed, roundTrip,
            at: now)
        pacer = Pacer(datagramByteCount: limits.datagramByteCount, at: now)
        size = DatagramSize(limits: limits, isLoopback: address.ip.isLoopback, at: now)
    }

    /// Takes over the byte budget of an earlier path to the same address.
    func continuing(_ other: DatagramPath) -> DatagramPath {
        var path = self
        (path.received, path.sent) = (other.received, other.sent)
        return path
    }

    mutating func sent(_ byteCount: Int, at now: Microseconds) -> PacketDelivery {
        noteDryness(at: now)
        drySince = nil
        defer { inFlight += byteCount }
        pacer.sent(byteCount)
        return congestion.sent(byteCount, inFlight: inFlight, at: now)
    }

    mutating func acknowledged(_ packet: SentPacket, at now: Microseconds) {
        inFlight -= packet.byteCount
        congestion.delivery.acknowledged(
            packet.byteCount, packet.delivery, number: packet.number, sentAt: packet.sentAt, at: now)
    }

    mutating func lost(_ packet: SentPacket, at now: Microseconds) {
        inFlight -= packet.byteCount
        congestion.lost(packet.byteCount, packet.delivery, number: packet.number, at: now)
    }

    /// All data that may leave was sent. `isHeld`: more waits for window, pacer or credit.
    mutating func pollEnded(isHeld: Bool, at now: Microseconds) { drySince = isHeld ? nil : drySince ?? now }

    /// Call before a packet leaves or an acknowledgement is processed. A preceding pause was application-limited
    /// (draft-ietf-ccwg-bbr-06, section 4.1.2.4), unless it was negligible.
    mutating func noteDryness(at now: Microseconds) {
        guard let drySince, now - drySince > min(Congestion.tick, roundTrip.smoothed / 4) else { return }
        congestion.ranDry(inFlight: inFlight)
    }

    /// Bytes that may leave now: the anti-amplification budget.
    var allowance: Int { isProved ? .max : max(0, 3 * received - sent) }

    /// The budget without the 512 bytes reserved for challenges. Otherwise data could use up the budget, and the path
    /// would never be validated.
    var allowanceForData: Int { isProved ? .max : max(0, allowance - Self.reserve) }
    private static let reserve = 512

    mutating func datagramReceived(_ byteCount: Int) { if !isProved { received += byteCount } }
    mutating func datagramSent(_ byteCount: Int) { if !isProved { sent += byteCount } }

    mutating func startChallenge(at now: Microseconds) { challenge = ([], now) }

    var challengeDeadline: Microseconds? { challenge?.next }

    mutating func challengeSent(_ value: UInt64, at now: Microseconds) {
        guard let values = challenge?.values else { return }
        let patience = 3 * min(max(roundTrip.smoothed, 100_000), 1_000_000) / 2
        challenge = (values + [value], now + patience << Microseconds(min(values.count, 3)))
    }

    func challengeIsHopeless(_ limits: DatagramLimits, at now: Microseconds) -> Bool {
        challenge.map { $0.values.count >= limits.pathChallenges && $0.next <= now } ?? false
    }

    mutating func giveUpChallenge() { challenge = nil }

    /// - Returns: whether the response validates the path for the first time.
    mutating func response(_ value: UInt64) -> Bool {
        guard let values = challenge?.values, values.contains(value) else { return false }
        challenge = nil
        defer { isProved = true }
        return !isProved
    }
}

/// The datagram size: 1,200 bytes unless a probe shows that larger ones get through (RFC 8899).
///
///     searching(size) ──probe acknowledged──▶ searching(next size), or complete
///          │ three probes lost
///          └──▶ complete ──10 minutes──▶ searching
///     any ──three timeouts in a row──▶ complete at 1,200 (black hole)
///     any ──five timeouts in a row──▶ searching from 548
struct DatagramSize: Sendable {
    /// Common MTUs less 48 bytes of IPv6 and UDP: 1,280 (IPv6's minimum), 1,420 (WireGuard), 1,500 (Ethernet; 1,472 for
    /// IPv4), 9,000 (jumbo frames), then loopback sizes. 1,200 is probed after it failed.
    static let candidates = [1_200, 1_232, 1_372, 1_452, 1_472, 8_952, 16_384, 32_768, 65_000]

    private enum Phase: Hashable, Sendable {
        case searching(candidate: Int, probes: Int, inFlight: Bool)
        case complete(since: Microseconds)
    }
    private let limits: DatagramLimits
    private let largest: Int
    private var phase: Phase
    /// Bytes of a datagram that gets through.
    private(set) var current: Int

    init(limits: DatagramLimits, isLoopback: Bool = false, at now: Microseconds) {
        self.limits = limits
        largest = isLoopback ? limits.largestLoopbackDatagramByteCount : limits.largestDatagramByteCount
        current = limits.datagramByteCount
        phase = .complete(since: now)
        search(at: now)
    }

    private mutating func search(at now: Microseconds) {
        let next = Self.candidates.first(where: isPossible)
        phase = next.map { .searching(candidate: $0, probes: 0, inFlight: false) } ?? .complete(since: now)
    }

    /// The size of the probe to send, or `nil`.
    var probe: Int? { if case .searching(let candidate, _, false) = phase { candidate } else { nil } }

    /// When larger sizes are tried again.
    var deadline: Microseconds? {
        guard case .complete(let since) = phase, Self.candidates.contains(where: isPossible) else { return nil }
        return since + limits.sizeRaiseAfter
    }

    private func isPossible(_ size: Int) -> Bool { size > current && size <= largest }

    mutating func probeSent() {
        if case .searching(let candidate, let probes, _) = phase {
            phase = .searching(candidate: candidate, probes: probes + 1, inFlight: true)
        }
    }

    /// - Returns: whether datagrams are larger from now on.
    mutating func probeAcknowledged(_ byteCount: Int, at now: Microseconds) -> Bool {
        guard case .searching(byteCount, _, _) = phase else { return false }
        current = byteCount
        search(at: now)
        return true
    }

    mutating func probeLost(_ byteCount: Int, at now: Microseconds) {
        guard case .searching(byteCount, let probes, _) = phase else { return }
        phase =
            probes >= limits.sizeProbes
            ? .complete(since: now) : .searching(candidate: byteCount, probes: probes, inFlight: false)
    }

    /// After several consecutive timeouts the size may be the cause; true if datagrams shrink.
    mutating func timeouts(_ count: Int, at now: Microseconds) -> Bool {
        let isShort = count >= limits.shortPathTimeouts
        let size = isShort ? limits.leastDatagramByteCount : limits.datagramByteCount
        guard count >= limits.blackHoleTimeouts, current > size else { return false }
        current = size
        // A mere blackout causes this many timeouts, too.
        if isShort { search(at: now) } else { phase = .complete(since: now) }
        return true
    }

    mutating func timeout(at now: Microseconds) { if let deadline, deadline <= now { search(at: now) } }
}
