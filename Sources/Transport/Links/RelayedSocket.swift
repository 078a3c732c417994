import Glibc
import NIOCore

/// A relayed stream as the socket of a link: its owner carries the bytes, piece by piece, as far as the other end
/// accepts them.
///
/// `@unchecked Sendable`: used only on its event loop.
package final class RelayedSocket: StreamSocket, @unchecked Sendable {
    private struct Piece {
        var bytes: ByteBuffer
        let done: ((any Error)?) -> Void
    }

    /// Callbacks to the owner, on the loop.
    package struct Events {
        /// Bytes or the end can be taken: see ``take(_:)`` and ``isDrained``.
        package var hasOutput: () -> Void = {}
        /// The number of arrived bytes that were read.
        package var consumed: (Int) -> Void = { _ in }
        package var closed: () -> Void = {}

        package init() {}
    }

    /// Bytes of one read, as for an unauthenticated connection, so that no link delays others.
    private static let readByteCount = 2_048

    private let loop: any EventLoop
    package let remoteAddress: SocketAddress?
    package var events = Events()
    private var link: StreamLink?

    private var isOpen = true
    private var outputIsClosed = false
    private var isFinished = false
    private var output = CircularBuffer<Piece>()
    private var arrived = ByteBuffer()
    private var inputHasEnded = false
    private var endIsTold = false
    private var wantsToRead = false
    private var isReadScheduled = false

    private let carrier: LinkCarrier

    /// - Parameter carrier: the link that carries the bytes; its remote address is this socket's.
    package init(loop: any EventLoop, through carrier: PeerConnection?) {
        loop.preconditionInEventLoop()
        self.loop = loop
        remoteAddress = carrier?.remoteAddress
        self.carrier = carrier?.carrier ?? .tcp
    }

    /// - Throws: when the stream has ended.
    func attach(_ link: StreamLink) throws {
        guard isOpen else { throw ChannelError.ioOnClosedChannel }
        self.link = link
        link.socket = self
        link.start()
    }

    /// Starts reading, once its link is in place.
    package func begin() { link?.readRequested() }

    package var outputByteCount: Int { output.reduce(0) { $0 + $1.bytes.readableBytes } }

    /// Everything was taken, and the output has ended.
    package var isDrained: Bool { outputIsClosed && output.isEmpty }

    /// - Returns: at most `limit` bytes to carry; empty when there are none.
    package func take(_ limit: Int) -> [UInt8] {
        var result: [UInt8] = []
        // Empty pieces are reported, too.
        while var first = output.first, result.count < limit || first.bytes.readableBytes == 0 {
            let count = min(limit - result.count, first.bytes.readableBytes)
            result += first.bytes.readBytes(length: count) ?? []
            if first.bytes.readableBytes > 0 {
                output[output.startIndex].bytes = first.bytes
            } else {
                output.removeFirst()
                // Asynchronously, because the callback may write.
                loop.assumeIsolated().execute { first.done(nil) }
            }
        }
        return result
    }

    package func arrive(_ bytes: [UInt8]) {
        guard isOpen, !inputHasEnded else { return }
        arrived.writeBytes(bytes)
        scheduleRead()
    }

    package func endInput() {
        guard isOpen, !inputHasEnded else { return }
        inputHasEnded = true
        scheduleRead()
    }

    /// The stream ended: arrived bytes are still read, output is discarded.
    package func finish() {
        guard isOpen else { return }
        isFinished = true
        discardOutput()
        endInput()
    }

    package func fail() { close() }

    private func discardOutput() {
        let gone = exchange(&output, with: [])
        guard !gone.isEmpty else { return }
        // Asynchronously, because the callback may write.
        loop.assumeIsolated().execute { for piece in gone { piece.done(nil) } }
    }

    /// One piece per turn of the loop.
    private func scheduleRead() {
        guard wantsToRead, !isReadScheduled, arrived.readableBytes > 0 || inputHasEnded && !endIsTold else { return }
        isReadScheduled = true
        loop.execute {
            self.isReadScheduled = false
            self.readOn()
        }
    }

    private func readOn() {
        guard isOpen, wantsToRead else { return }
        if let part = arrived.readSlice(length: min(Self.readByteCount, arrived.readableBytes)), part.readableBytes > 0
        {
            wantsToRead = false
            if arrived.readableBytes == 0 { arrived = ByteBuffer() } else { arrived.discardReadBytes() }
            events.consumed(part.readableBytes)
            guard isOpen else { return }
            link?.received(part)
            link?.readIfOwed()
            if isOpen { link?.readRequested() }
        } else if inputHasEnded, !endIsTold {
            endIsTold = true
            if outputIsClosed { close() } else { link?.inputEnded() }
        }
    }

    var localAddress: SocketAddress? { nil }
    var relay: LinkCarrier? { carrier }
    var kernelInfo: tcp_info? { nil }

    func write(_ bytes: ByteBuffer, _ done: @escaping ((any Error)?) -> Void) {
        guard isOpen, !outputIsClosed else { return done(ChannelError.ioOnClosedChannel) }
        output.append(Piece(bytes: bytes, done: done))
        if isFinished { discardOutput() } else { events.hasOutput() }
    }

    func read() {
        wantsToRead = true
        scheduleRead()
    }

    func endOutput() {
        guard isOpen, !outputIsClosed else { return }
        outputIsClosed = true
        events.hasOutput()
        if endIsTold { close() }
    }

    func close() {
        guard isOpen else { return }
        isOpen = false
        outputIsClosed = true
        arrived = ByteBuffer()
        for piece in exchange(&output, with: []) { piece.done(ChannelError.ioOnClosedChannel) }
        exchange(&events, with: Events()).closed()
        link?.closed()
        link?.socket = nil
        link = nil
    }

    /// A stream has no socket options.
    func setOptions(_ limits: TransportLimits) {}
    func setReads(of byteCount: Int) {}
}
