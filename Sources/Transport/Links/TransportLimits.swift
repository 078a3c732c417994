import Glibc
import NIOCore

/// Limits of TCP links and of dials; ``DatagramLimits`` has those of UDP.
package struct TransportLimits: Sendable {
    // Specification (Links.md, "Limits before authentication"; Join.md, "Limits of codes")

    /// From the connection or our last act to the peer's whole next act.
    package var actTimeout = TimeAmount.seconds(5)
    /// From the connection to the open link.
    package var handshakeTimeout = TimeAmount.seconds(10)
    /// Responder handshakes and knocks in flight after the token check.
    package var handshakesInFlight = 256
    /// The same from one /24 (IPv4) or /48 (IPv6), also for loopback and private networks. Raise it for many nodes
    /// behind one address, or for tests on one machine.
    package var handshakesPerPrefix = 8
    /// Connections of one network, with a known token, that wait for a handshake to end: as many as a node dials at a
    /// time.
    package var handshakesWaitingPerPrefix = 64
    /// Connections per listener without a token. Beyond it, or beyond half of the process's descriptors, one of the
    /// older half is dropped at random.
    package var connectionsBeforeToken = 10_000
    /// Bytes held for an unauthenticated connection.
    package var bytesBeforeAuthentication = 4_096
    /// From the greeting of a code's exchange to its whole first message, which honest joiners send with the greeting.
    package var codeTimeout = TimeAmount.seconds(2)
    /// Code exchanges after their greeting, in total and from one /24 or /48. A code's number can be guessed, so they
    /// are counted separately from handshakes.
    package var codeExchanges = 8
    package var codeExchangesPerPrefix = 4
    /// Largest sealed knock, and largest answer, in bytes. A UInt16 on the wire.
    package var knockByteCount = 1_024
    package var rekey = RekeyLimits()

    // Implementation

    /// Port numbers tried, if the system chooses, until one is free for TCP and UDP.
    package var listenAttempts = 16
    /// From the dial to the TCP connection, over all addresses of the host.
    package var connectTimeout = TimeAmount.seconds(10)
    /// Delay before the next dial attempt starts in parallel (RFC 8305, section 8).
    package var dialStagger = TimeAmount.milliseconds(250)
    /// The same for UDP to the last endpoint, once it has accepted a TCP connection.
    package var answerPatience = TimeAmount.seconds(1)
    /// Wait for UDP after TCP has failed: a node that is down is silent over UDP. Act 1 is retransmitted after a
    /// second, and its answer may take as long.
    package var datagramPatience = TimeAmount.milliseconds(2_500)
    /// Head start of UDP in a dial to a peer whose last link was lost over TCP.
    package var datagramHeadStart = TimeAmount.seconds(1)
    package var lossMemory = TimeAmount.minutes(10)
    /// Peers whose last loss is remembered.
    package var lossCount = 1_024
    /// Largest TCP segment in bytes of our outgoing connections, except on loopback. With headers its packets are no
    /// longer than UDP's, so links survive a path that drops larger ones and the ICMP message about it.
    package var segmentByteCount = 1_160
    /// The same after a loss with unacknowledged bytes: fits every IPv4 path (RFC 9293, section 3.7.1).
    package var shortSegmentByteCount = 536
    /// Timeout of hole punching.
    package var punchPatience = TimeAmount.seconds(5)
    /// From the request to close to the end, for frames in transit in either direction.
    package var closeTimeout = TimeAmount.seconds(5)
    /// A link is lost after this time without an acknowledgement of our data or, when idle, without an answer to TCP
    /// keep-alives. Whole seconds, 6…3,600.
    package var silence = TimeAmount.seconds(30)
    /// Outbound bytes beyond which a link is closed.
    package var outboundByteCount = 8 << 20
    /// Outbound bytes beyond which reading pauses until they have left. Must well exceed `outboundHighWater`: if both
    /// peers stopped reading there, neither would drain.
    package var outboundReadStop = 4 << 20
    /// Outbound bytes beyond which a link is not writable.
    package var outboundHighWater = 256 << 10
    /// Outbound bytes at which a link becomes writable again.
    package var outboundLowWater = 64 << 10
    /// Unflushed bytes that are written without a flush.
    package var flushByteCount = 60 << 10
    /// Bytes of one read from a quiet open link.
    package var quietByteCount = 4_096
    /// The same after a read of ``quietByteCount`` bytes or more. A longer frame is read to its end.
    package var turnByteCount = 64 << 10
    /// Frames that a link delivers in one turn of the event loop. The rest waits in a ``TurnQueue``, and reading
    /// pauses. A frame takes some 10 us, so a link delays others by a millisecond or two.
    package var turnFrameCount = 128
    /// Time for the event loop's sockets between two pieces of work of its ``TurnQueue``.
    package var turnPause = TimeAmount.microseconds(100)
    /// Timed-out connections that are ended in one turn of the event loop.
    package var endsPerTurn = 16
    package var pauseBetweenTurns = TimeAmount.milliseconds(1)
    /// The listen backlog; the kernel has a limit of its own (`net.core.somaxconn`).
    package var backlog: Int32 = 4_096

    package init() {}
}

extension TransportLimits {
    /// With earlier leftovers these reads stay below ``bytesBeforeAuthentication``.
    var firstReads: any RecvByteBufferAllocator { ExactReads(byteCount: max(256, bytesBeforeAuthentication / 2)) }

    /// Sets one read per turn of the loop, and keep-alives for vanished peers.
    func applyToOpenLink(_ channel: any Channel) {
        let seconds = min(max(6, Int(silence.nanoseconds / 1_000_000_000)), 3_600)
        let probe = seconds / 6
        let numbers: [(NIOBSDSocket.Option, Int)] = [
            (.init(rawValue: TCP_KEEPIDLE), 3 * probe), (.init(rawValue: TCP_KEEPINTVL), probe),
            (.init(rawValue: TCP_KEEPCNT), 3), (.init(rawValue: TCP_USER_TIMEOUT), seconds * 1_000),
        ]
        // Ignore errors: the connection is gone, and other events report that.
        guard let options = channel.syncOptions else { return }
        try? options.setOption(.maxMessagesPerRead, value: 1)
        Self.applyReads(of: quietByteCount, channel)
        try? options.setOption(.socketOption(.so_keepalive), value: 1)
        for (name, value) in numbers { try? options.setOption(.tcpOption(name), value: value) }
    }

    static func applyReads(of byteCount: Int, _ channel: any Channel) {
        try? channel.syncOptions?.setOption(.recvAllocator, value: ExactReads(byteCount: byteCount))
    }
}

/// Buffers of an exact size. NIO rounds allocations up to a power of two. It also keeps a channel's first buffer,
/// whatever the allocator becomes, unless the buffer may grow.
struct ExactReads: RecvByteBufferAllocator {
    let byteCount: Int

    func buffer(allocator: ByteBufferAllocator) -> ByteBuffer {
        var buffer = allocator.buffer(capacity: byteCount)
        let surplus = buffer.writableBytes - byteCount
        buffer.moveWriterIndex(forwardBy: surplus)
        buffer.moveReaderIndex(forwardBy: surplus)
        return buffer
    }

    /// Disables NIO's buffer reuse.
    func nextBufferSize() -> Int? { nil }

    /// - Returns: that the next buffer may be longer.
    mutating func record(actualReadBytes: Int) -> Bool { true }
}
