import NIOCore

/// A NIO channel without a socket: its owner carries the bytes, piece by piece, as far as the other end accepts them.
/// Links use it like any other channel.
///
/// `@unchecked Sendable`: used only on its event loop.
package final class StreamChannel: Channel, ChannelCore, @unchecked Sendable {
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
    package let allocator = ByteBufferAllocator()
    package let closeFuture: EventLoopFuture<Void>
    private let closePromise: EventLoopPromise<Void>
    // Set once in `init`, because it needs `self`.
    private var ownPipeline: ChannelPipeline!

    private var isOpen = true
    private var outputIsClosed = false
    private var isFinished = false
    /// Unflushed writes, then flushed ones.
    private var written: [(bytes: ByteBuffer, promise: EventLoopPromise<Void>?)] = []
    private var flushed = CircularBuffer<(bytes: ByteBuffer, promise: EventLoopPromise<Void>?)>()
    private var arrived = ByteBuffer()
    private var inputHasEnded = false
    private var endIsTold = false
    private var wantsToRead = false
    private var isReadScheduled = false

    /// The carrier of the underlying link.
    let carrier: PeerConnection.Carrier

    /// - Parameter carrier: the link that carries the bytes; its remote address is this channel's.
    package init(loop: any EventLoop, through carrier: PeerConnection?) {
        loop.preconditionInEventLoop()
        self.loop = loop
        remoteAddress = carrier?.remoteAddress
        self.carrier = carrier?.carrier ?? .tcp
        closePromise = loop.makePromise(of: Void.self)
        closeFuture = closePromise.futureResult
        ownPipeline = ChannelPipeline(channel: self)
    }

    package var eventLoop: any EventLoop { loop }
    package var pipeline: ChannelPipeline { ownPipeline }
    package var _channelCore: any ChannelCore { self }
    package var parent: (any Channel)? { nil }
    package var localAddress: SocketAddress? { nil }
    package var isActive: Bool { isOpen }
    package var isWritable: Bool { isOpen }

    /// A stream has no socket options.
    package func setOption<Option: ChannelOption>(_ option: Option, value: Option.Value) -> EventLoopFuture<Void> {
        loop.makeSucceededVoidFuture()
    }

    package func getOption<Option: ChannelOption>(_ option: Option) -> EventLoopFuture<Option.Value> {
        loop.makeFailedFuture(ChannelError.operationUnsupported)
    }

    // MARK: The owner's side

    /// Starts reading, once its handler is in place.
    package func begin() { if isOpen { pipeline.read() } }

    package var outputByteCount: Int { flushed.reduce(0) { $0 + $1.bytes.readableBytes } }

    /// Everything was taken, and the output has ended.
    package var isDrained: Bool { outputIsClosed && flushed.isEmpty && written.isEmpty }

    /// - Returns: at most `limit` bytes to carry; empty when there are none.
    package func take(_ limit: Int) -> [UInt8] {
        var result: [UInt8] = []
        // Empty pieces have promises, too.
        while var first = flushed.first, result.count < limit || first.bytes.readableBytes == 0 {
            let count = min(limit - result.count, first.bytes.readableBytes)
            result += first.bytes.readBytes(length: count) ?? []
            if first.bytes.readableBytes > 0 {
                flushed[flushed.startIndex].bytes = first.bytes
            } else {
                flushed.removeFirst()
                // Asynchronously, because the callback may write.
                if let promise = first.promise { loop.execute { promise.succeed(()) } }
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

    /// The stream ended: closes at once.
    package func fail() {
        guard isOpen else { return }
        close0(error: ChannelError.eof, mode: .all, promise: nil)
    }

    private func discardOutput() {
        let gone = flushed
        flushed = []
        guard !gone.isEmpty else { return }
        // Asynchronously, because the callback may write.
        loop.execute { for piece in gone { piece.promise?.succeed(()) } }
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
            pipeline.fireChannelRead(part)
            pipeline.fireChannelReadComplete()
            if isOpen { pipeline.read() }
        } else if inputHasEnded, !endIsTold {
            endIsTold = true
            if outputIsClosed { return close0(error: ChannelError.eof, mode: .all, promise: nil) }
            pipeline.fireUserInboundEventTriggered(ChannelEvent.inputClosed)
        }
    }

    // MARK: ChannelCore

    package func localAddress0() throws -> SocketAddress { throw ChannelError.operationUnsupported }
    package func remoteAddress0() throws -> SocketAddress { throw ChannelError.operationUnsupported }
    package func register0(promise: EventLoopPromise<Void>?) { promise?.succeed(()) }
    package func registerAlreadyConfigured0(promise: EventLoopPromise<Void>?) { promise?.succeed(()) }
    package func bind0(to: SocketAddress, promise: EventLoopPromise<Void>?) {
        promise?.fail(ChannelError.operationUnsupported)
    }
    package func connect0(to: SocketAddress, promise: EventLoopPromise<Void>?) {
        promise?.fail(ChannelError.operationUnsupported)
    }

    package func write0(_ data: NIOAny, promise: EventLoopPromise<Void>?) {
        guard isOpen, !outputIsClosed else {
            promise?.fail(ChannelError.ioOnClosedChannel)
            return
        }
        written.append((unwrapData(data, as: ByteBuffer.self), promise))
    }

    package func flush0() {
        guard !written.isEmpty else { return }
        flushed.append(contentsOf: written)
        written = []
        if isFinished { discardOutput() } else if isOpen { events.hasOutput() }
    }

    package func read0() {
        wantsToRead = true
        scheduleRead()
    }

    package func close0(error: any Error, mode: CloseMode, promise: EventLoopPromise<Void>?) {
        guard isOpen else {
            promise?.fail(ChannelError.alreadyClosed)
            return
        }
        if mode == .output {
            promise?.succeed(())
            guard !outputIsClosed else { return }
            outputIsClosed = true
            events.hasOutput()
            if endIsTold, isOpen { close0(error: error, mode: .all, promise: nil) }
            return
        }
        isOpen = false
        outputIsClosed = true
        let unsent = flushed.map(\.promise) + written.map(\.promise)
        flushed = []
        written = []
        arrived = ByteBuffer()
        for promise in unsent { promise?.fail(ChannelError.ioOnClosedChannel) }
        promise?.succeed(())
        let closed = events.closed
        events = Events()
        closed()
        pipeline.fireChannelInactive()
        loop.execute {
            self.removeHandlers(pipeline: self.pipeline)
            self.closePromise.succeed(())
        }
    }

    package func triggerUserOutboundEvent0(_ event: Any, promise: EventLoopPromise<Void>?) {
        promise?.fail(ChannelError.operationUnsupported)
    }

    package func channelRead0(_ data: NIOAny) {}
    package func errorCaught0(error: any Error) {}
}
