import NIOCore

/// Every bound of this target.
package struct TransportLimits: Sendable {
    // MARK: Specification (protocol, section 2)

    /// From the connection or our last act to the whole of the next act.
    package var actTimeout = TimeAmount.seconds(5)
    /// From the connection to the open link.
    package var handshakeTimeout = TimeAmount.seconds(10)
    /// Handshakes of responders, and knocks, in flight past the token check.
    package var handshakesInFlight = 256
    /// The same from one /24 (IPv4) or /48 (IPv6). Loopback and private networks are no exception: many nodes behind
    /// one address, or a test on one machine, want a larger number here.
    package var handshakesPerPrefix = 8
    /// Connections that have not shown a token yet; beyond it one of the older half is dropped at random.
    package var connectionsBeforeToken = 10_000
    /// Bytes held for a connection that is not authenticated.
    package var bytesBeforeAuthentication = 4_096
    /// Bytes of a sealed knock, and of the answer to it. A UInt16 on the wire.
    package var knockByteCount = 1_024

    // MARK: Implementation

    /// From the dial to the TCP connection, over all addresses of the host.
    package var connectTimeout = TimeAmount.seconds(10)
    /// From the request to close to the end, for frames still on their way in either direction.
    package var closeTimeout = TimeAmount.seconds(5)
    /// Outbound bytes of a link beyond which it is closed.
    package var outboundByteCount = 8 << 20
    /// Outbound bytes beyond which nothing is read from the link until they have left. Well above the next: were reading
    /// to stop there, two sides with much to say to each other would both stop and never go on.
    package var outboundReadStop = 4 << 20
    /// Outbound bytes beyond which a link is not writable.
    package var outboundHighWater = 256 << 10
    /// Outbound bytes at which a link is writable again.
    package var outboundLowWater = 64 << 10
    /// Unflushed bytes that are written without waiting for a flush.
    package var flushByteCount = 64 << 10
    /// Connections that the kernel may hold for us.
    package var backlog: Int32 = 1_024

    package init() {}
}
