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
        let next = Self.candidates.first { $0 > current && $0 <= largest }
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
