/// Time of a monotonic clock, in microseconds, and differences of it. Where the clock starts is the caller's affair.
package typealias Microseconds = Int64

/// Bounds of links over UDP. Times are in microseconds.
package struct DatagramLimits: Sendable {
    // MARK: Specification (protocol, section 2)

    /// From our last act to the next one of the other side.
    package var actTimeout: Microseconds = 5_000_000
    /// From the first datagram to the open link.
    package var handshakeTimeout: Microseconds = 10_000_000
    /// Handshakes of responders in flight.
    package var handshakesInFlight = 256
    /// The same from one /24 (IPv4) or /48 (IPv6).
    package var handshakesPerPrefix = 8
    /// Bytes of a datagram as long as no probe has shown that more gets through.
    package var datagramByteCount = 1_200
    /// Age at which a link's keys are replaced.
    package var rekeyAfter: Microseconds = 120_000_000
    /// Packets of one direction after which a link's keys are replaced.
    package var rekeyPacketCount: UInt64 = 1 << 20

    // MARK: RFC 9002

    /// How long an acknowledgement may wait (section 6.2.1; RFC 9000, section 18.2).
    package var acknowledgementDelay: Microseconds = 25_000
    /// Packets that ask for an acknowledgement after which one leaves at once (RFC 9000, section 13.2.2).
    package var packetsPerAcknowledgement = 2
    /// The round trip that is assumed before one is measured (section 6.2.2).
    package var initialRoundTrip: Microseconds = 333_000

    // MARK: Implementation

    /// Handshakes in flight beyond which a dialer has to show a cookie first.
    package var handshakesBeforeCookie = 64
    /// Ways through NATs that are made at a time.
    package var punches = 64
    /// Knocks that are read in a second, and questions where the asker is seen; a knock costs its reader at least the
    /// opening of a seal.
    package var knocksPerSecond = 256
    /// The same of one /24 or /48, so that nobody who repeats what it has overheard keeps all others from being read.
    package var knocksPerPrefix = 32
    /// A cookie is good for one to two of these.
    package var cookiePeriod: Microseconds = 30_000_000
    /// Links, dials and handshakes together.
    package var connectionCount = 16_384
    /// Bytes of the largest datagram that is probed for; the socket knows. Never above 65,507.
    package var largestDatagramByteCount = 1_472
    /// The same on the machine's own loopback.
    package var largestLoopbackDatagramByteCount = 65_507
    /// Packets that are noted as received for the next acknowledgement, in ranges.
    package var acknowledgedRanges = 64
    /// Bytes of a message. That of the frames over TCP, so that a link's owner need not care.
    package var messageByteCount = 65_535
    /// Bytes of messages that a peer may have sent and our owner not read, as long as the owner does not know whom it has
    /// before it. Both sides begin with it, so that it is part of the protocol; a message of any length fits.
    package var initialReceiveWindow = 128 << 10
    /// The same for a peer that is welcome.
    package var receiveWindow = 1 << 20
    /// The same once the peer and our owner have shown that they are fast. Less than ``outboundByteCount`` of the peer.
    package var largestReceiveWindow = 6 << 20
    /// Pieces with gaps between them in which these bytes may come.
    package var receivedRanges = 1_024
    /// Bytes of messages that wait to be sent or acknowledged beyond which a link is closed.
    package var outboundByteCount = 8 << 20
    /// The same, beyond which a link is not writable.
    package var outboundHighWater = 256 << 10
    /// The same, at which a link is writable again.
    package var outboundLowWater = 64 << 10
    /// Bytes in flight beyond which the congestion window does not grow.
    package var largestWindow = 16 << 20
    /// How long nothing authentic may come from a peer, or nothing that we sent be acknowledged, before the link is lost.
    package var silence: Microseconds = 30_000_000
    /// How long nothing may come before we ask whether the peer is there.
    package var keepAlive: Microseconds = 10_000_000
    /// From the request to close to the end, for messages still on their way in either direction.
    package var closeTimeout: Microseconds = 5_000_000
    /// Age at which a link whose keys have not been replaced is closed.
    package var rekeyDeadline: Microseconds = 180_000_000
    /// Packets of one direction at which such a link is closed.
    package var rekeyPacketDeadline: UInt64 = (1 << 20) + (1 << 16)
    /// How much later than the dialer the responder replaces the keys, so that they rarely do both.
    package var rekeyStagger: Microseconds = 5_000_000
    /// Challenges to a new address, and the times between them, doubling from the round trip, before it is given up.
    package var pathChallenges = 5
    /// Answers to challenges that wait to be sent.
    package var pathResponses = 4
    /// Probes of one datagram size before it is given up (RFC 8899, section 5.1.2).
    package var sizeProbes = 3
    /// How long after the last probe larger datagrams are tried again (RFC 8899, section 5.1.1).
    package var sizeRaiseAfter: Microseconds = 600_000_000
    /// Timeouts in a row after which datagrams are small again (RFC 8899, section 4.3).
    package var blackHoleTimeouts = 3
    /// Timeouts in a row after which they are ``leastDatagramByteCount`` long.
    package var shortPathTimeouts = 5
    /// Bytes of a datagram that IPv4 carries anywhere: 576 less 28 of headers (RFC 1122, section 3.3.3).
    package var leastDatagramByteCount = 548
    /// Datagrams that one link sends before it is another's turn.
    package var burst = 32

    package init() {}
}
