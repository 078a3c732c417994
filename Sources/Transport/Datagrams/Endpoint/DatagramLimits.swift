import DequeModule

/// Monotonic time in microseconds, or a difference of such times. The caller chooses the zero point.
package typealias Microseconds = Int64

/// Bounds of links over UDP. Times are in microseconds.
package struct DatagramLimits: Sendable {
    // Specification (Links.md, "Limits before authentication"; DatagramLinks.md)

    /// From our last act to the peer's next one.
    package var actTimeout: Microseconds = 5_000_000
    /// From the first datagram to the open link.
    package var handshakeTimeout: Microseconds = 10_000_000
    /// How long one half of act 1 waits for the other, in the place of a handshake: longer than a repetition takes.
    package var halfTimeout: Microseconds = 1_300_000
    /// Responder handshakes in flight.
    package var handshakesInFlight = 256
    /// Responder handshakes in flight from one /24 (IPv4) or /48 (IPv6); from half of them on, only with a cookie.
    package var handshakesPerPrefix = 8
    /// Failed handshakes of a token beyond which its dials need a cookie, and of a network with proved addresses beyond
    /// which those of its dials are dropped. One more is allowed each second.
    package var failuresPerSource: Int64 = 8
    /// The same per second of all networks, and of all tokens.
    package var failuresPerSecond: Int64 = 256
    /// Datagram size in bytes until a probe shows that larger ones get through.
    package var datagramByteCount = 1_200
    package var rekey = RekeyLimits()

    // RFC 9002

    /// Longest delay of an acknowledgement (section 6.2.1; RFC 9000, section 18.2).
    package var acknowledgementDelay: Microseconds = 25_000
    /// Ack-eliciting packets after which an acknowledgement leaves at once (RFC 9000, section 13.2.2).
    package var packetsPerAcknowledgement = 2
    /// The RTT assumed before the first measurement (section 6.2.2).
    package var initialRoundTrip: Microseconds = 333_000

    // Implementation

    /// Handshakes in flight beyond which a dialer must show a cookie.
    package var handshakesBeforeCookie = 64
    /// Hole punching attempts at a time.
    package var punches = 64
    /// Knocks and address queries read per second; reading a knock costs at least one AEAD opening.
    package var knocksPerSecond: Int64 = 256
    /// The same from one /24 or /48, so that a replaying attacker cannot block all other senders.
    package var knocksPerPrefix: Int64 = 32
    /// A cookie is valid for one to two periods.
    package var cookiePeriod: Microseconds = 30_000_000
    /// Links, dials and handshakes together.
    package var connectionCount = 16_384
    /// Largest datagram size to probe, in bytes; the socket sets it. Never above 65,507.
    package var largestDatagramByteCount = 1_472
    /// The same on loopback.
    package var largestLoopbackDatagramByteCount = 65_507
    /// Received packet numbers kept for acknowledgements, in ranges.
    package var acknowledgedRanges = 64
    /// Largest message in bytes. Equals the largest frame over TCP, so owners need not distinguish carriers.
    package var messageByteCount = 65_535
    /// Receive window of an untrusted peer: unread bytes of messages that it may have sent. Part of the protocol: both
    /// sides begin with it. A message of any length fits.
    package var initialReceiveWindow = 128 << 10
    /// The same for a trusted peer.
    package var receiveWindow = 1 << 20
    /// The same for a fast trusted peer after auto-tuning. Less than ``outboundByteCount`` of the peer.
    package var largestReceiveWindow = 6 << 20
    /// Pieces with gaps between them in the receive window.
    package var receivedRanges = 1_024
    /// Unsent and unacknowledged bytes beyond which a link is closed.
    package var outboundByteCount = 8 << 20
    /// Unsent bytes beyond which a link is not writable. It is not writable either while more than 7/8 of
    /// ``outboundByteCount`` are unsent or unacknowledged.
    package var outboundHighWater = 256 << 10
    /// Unsent bytes at which a link becomes writable again.
    package var outboundLowWater = 64 << 10
    /// Upper bound of the congestion window in bytes.
    package var largestWindow = 16 << 20
    /// The link is lost after this time without an authentic packet. It is also lost after this plus ``keepAlive``
    /// without an acknowledgement of our data.
    package var silence: Microseconds = 30_000_000
    /// Idle time before a keep-alive ping.
    package var keepAlive: Microseconds = 10_000_000
    /// From the request to close to the end, for messages in transit in either direction.
    package var closeTimeout: Microseconds = 5_000_000
    /// Challenges to a new address before it is given up. Their interval starts at the RTT and doubles.
    package var pathChallenges = 5
    /// Challenge responses waiting to be sent.
    package var pathResponses = 4
    /// Probes of one datagram size before it is given up (RFC 8899, section 5.1.2).
    package var sizeProbes = 3
    /// Time after the last probe until larger sizes are tried again (RFC 8899, section 5.1.1).
    package var sizeRaiseAfter: Microseconds = 600_000_000
    /// Consecutive timeouts after which datagrams shrink to ``datagramByteCount`` (RFC 8899, section 4.3).
    package var blackHoleTimeouts = 3
    /// Consecutive timeouts after which datagrams shrink to ``leastDatagramByteCount``.
    package var shortPathTimeouts = 5
    /// The payload that every IPv4 path carries: 576 less 28 bytes of headers (RFC 1122, section 3.3.3).
    package var leastDatagramByteCount = 548
    /// Datagrams that one link sends before the next link's turn.
    package var burst = 32

    package init() {}
}

/// When a link gets new secrets (Links.md, "New secrets").
package struct RekeyLimits: Hashable, Sendable {
    package var after: Microseconds = 3_600_000_000
    /// Frames of both directions after which the dialer asks earlier.
    package var frameCount = 1 << 20
    /// From the beginning of an exchange to its end.
    package var patience: Microseconds = 600_000_000
}

/// Limits the responder handshakes in flight, in total and per source network.
struct HandshakeAdmission: Sendable {
    private let limit: Int
    private let limitPerNetwork: Int
    private(set) var inFlight = 0
    /// Connections that wait for a handshake of their network to finish.
    private var waiting: [DatagramAddress.Network?: Deque<UInt64>] = [:]
    /// The key `nil` is for addresses without a network.
    private(set) var byNetwork: [DatagramAddress.Network?: Int] = [:]

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

    /// - Returns: whether the connection has to wait for its network, and ``finish(_:)`` will return it.
    mutating func wait(_ connection: UInt64, _ network: DatagramAddress.Network?, atMost count: Int) -> Bool {
        guard inFlight < limit, byNetwork[network, default: 0] >= limitPerNetwork,
            waiting[network, default: []].count < count
        else { return false }
        waiting[network, default: []].append(connection)
        return true
    }

    /// Call at the end of each handshake that ``begin(_:)`` admitted.
    /// - Returns: the connection to which its place passes. Call again if that has ended meanwhile.
    @discardableResult mutating func finish(_ network: DatagramAddress.Network?) -> UInt64? {
        if let next = waiting[network]?.popFirst() {
            if waiting[network]?.isEmpty ?? false { waiting[network] = nil }
            return next
        }
        inFlight -= 1
        let count = byNetwork[network, default: 1] - 1
        byNetwork[network] = count == 0 ? nil : count
        return nil
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

    func isSpent(_ source: Source, now: Int64) -> Bool {
        total.isSpent(now: now) || sources[source]?.allowance.isSpent(now: now) ?? false
    }

    @discardableResult mutating func take(_ source: Source, now: Int64) -> Bool {
        // While the total is spent, do not search or create an entry.
        guard !total.isSpent(now: now) else { return false }
        if sources[source] == nil, sources.count >= sourceCount,
            let oldest = sources.min(by: { ($0.value.at, $0.key) < ($1.value.at, $1.key) })
        {
            sources[oldest.key] = nil
        }
        sources[source, default: (Allowance(burst: burst, interval: interval, now: now), now)].at = now
        guard sources[source]?.allowance.take(now: now) ?? false else { return false }
        return total.take(now: now)
    }
}
