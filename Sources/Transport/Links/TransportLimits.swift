import Glibc
import NIOCore

/// Bounds of links over TCP and of dials; those of UDP alone are in ``DatagramLimits``.
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
    /// Connections of one listener that have not shown a token yet; beyond it, or beyond half of the descriptors that the
    /// process may have, one of the older half is dropped at random.
    package var connectionsBeforeToken = 10_000
    /// Bytes held for a connection that is not authenticated.
    package var bytesBeforeAuthentication = 4_096
    /// From the greeting of a code's exchange to the whole of its first message, which honest joiners send along.
    package var codeTimeout = TimeAmount.seconds(2)
    /// Exchanges of codes past their greeting, and the same from one /24 or /48: a code's number can be guessed, so they
    /// have places of their own and take none of a handshake's.
    package var codeExchanges = 8
    package var codeExchangesPerPrefix = 4
    /// Bytes of a sealed knock, and of the answer to it. A UInt16 on the wire.
    package var knockByteCount = 1_024

    // MARK: Implementation

    /// How many port numbers are tried, where the system chooses, until one is free for TCP and for UDP.
    package var listenAttempts = 16
    /// From the dial to the TCP connection, over all addresses of the host.
    package var connectTimeout = TimeAmount.seconds(10)
    /// How long one way to an inbox is tried before the next one is, too (RFC 8305, section 8).
    package var dialStagger = TimeAmount.milliseconds(250)
    /// The wait for UDP when no answer comes over TCP: a node that is down says nothing over UDP. The first act
    /// is sent again after a second, and what comes may take as long.
    package var datagramPatience = TimeAmount.milliseconds(2_500)
    /// How long UDP is ahead of TCP in a dial to a peer whose last link was lost over TCP.
    package var datagramHeadStart = TimeAmount.seconds(1)
    /// How long a loss of a link is remembered.
    package var lossMemory = TimeAmount.minutes(10)
    /// The number of peers whose last loss is remembered.
    package var lossCount = 1_024
    /// Bytes of the longest TCP segment in a connection that we make, but on the loopback. With its headers a packet is
    /// no longer than those over UDP: a path that drops larger ones, and the message that says so, carries links.
    package var segmentByteCount = 1_160
    /// The same where a link was lost with bytes that were not acknowledged: what IPv4 carries anywhere (RFC 9293,
    /// section 3.7.1).
    package var shortSegmentByteCount = 536
    /// How long a way through NATs is tried.
    package var punchPatience = TimeAmount.seconds(5)
    /// From the request to close to the end, for frames still on their way in either direction.
    package var closeTimeout = TimeAmount.seconds(5)
    /// How long a peer may be out of reach before its link is lost: neither an acknowledgement of what we sent nor, when
    /// there is nothing to send, an answer to TCP's own probes. In whole seconds, 6…3,600.
    package var silence = TimeAmount.seconds(30)
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
    /// Bytes that are read at once from an open link that has little to say.
    package var quietByteCount = 4_096
    /// Bytes that are read at once from an open link whose last read brought ``quietByteCount`` bytes or more. A longer frame
    /// is read to its end.
    package var turnByteCount = 64 << 10
    /// Frames that a link hands over in one turn of the event loop. The rest waits in a ``TurnQueue``, and nothing is read
    /// meanwhile. A frame takes some 10 us, so a link keeps the others waiting for a millisecond or two.
    package var turnFrameCount = 128
    /// The time that the sockets of an event loop have between two pieces of work of its ``TurnQueue``.
    package var turnPause = TimeAmount.microseconds(100)
    /// Connections whose time is over and that are ended in one turn of the event loop.
    package var endsPerTurn = 16
    /// Between two such turns when more are over.
    package var pauseBetweenTurns = TimeAmount.milliseconds(1)
    /// Connections that the kernel may hold for us; it has a limit of its own (`net.core.somaxconn`).
    package var backlog: Int32 = 4_096

    package init() {}
}

extension TransportLimits {
    /// Bytes read at once from a connection that is not authenticated: with what is left over from before it stays below
    /// ``bytesBeforeAuthentication``.
    var firstReads: any RecvByteBufferAllocator { ExactReads(byteCount: max(256, bytesBeforeAuthentication / 2)) }

    /// One read in each turn of the loop, and probes for peers that vanish without a word.
    func applyToOpenLink(_ channel: any Channel) {
        let seconds = min(max(6, Int(silence.nanoseconds / 1_000_000_000)), 3_600)
        let probe = seconds / 6
        let numbers: [(NIOBSDSocket.Option, Int)] = [
            (.init(rawValue: TCP_KEEPIDLE), 3 * probe), (.init(rawValue: TCP_KEEPINTVL), probe),
            (.init(rawValue: TCP_KEEPCNT), 3), (.init(rawValue: TCP_USER_TIMEOUT), seconds * 1_000),
        ]
        // What fails here fails because the connection is gone, which is told by other means.
        guard let options = channel.syncOptions else { return }
        try? options.setOption(.maxMessagesPerRead, value: 1)
        applyReads(of: quietByteCount, channel)
        try? options.setOption(.socketOption(.so_keepalive), value: 1)
        for (name, value) in numbers { try? options.setOption(.tcpOption(name), value: value) }
    }

    /// - Parameter byteCount: at most so many at once.
    func applyReads(of byteCount: Int, _ channel: any Channel) {
        try? channel.syncOptions?.setOption(.recvAllocator, value: ExactReads(byteCount: byteCount))
    }
}

/// Buffers that a read fills with so many bytes and not one more. NIO rounds what it allocates up to a power of two. It
/// keeps the first buffer of a channel and reads into it whatever the allocator is by then, unless the buffer may grow.
struct ExactReads: RecvByteBufferAllocator {
    let byteCount: Int

    func buffer(allocator: ByteBufferAllocator) -> ByteBuffer {
        var buffer = allocator.buffer(capacity: byteCount)
        let surplus = buffer.writableBytes - byteCount
        buffer.moveWriterIndex(forwardBy: surplus)
        buffer.moveReaderIndex(forwardBy: surplus)
        return buffer
    }

    /// No buffer is used twice.
    func nextBufferSize() -> Int? { nil }

    /// - Returns: that the next buffer may be longer.
    mutating func record(actualReadBytes: Int) -> Bool { true }
}
