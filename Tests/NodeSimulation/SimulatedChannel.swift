import NIOCore

/// One end of a simulated TCP connection, as a channel of its process's loop. Writes go to the ``Connection``; arriving
/// bytes wait until the channel reads, as in a kernel's buffer.
final class SimulatedChannel: Channel, ChannelCore, @unchecked Sendable {
    private static let readByteCount = 2_048

    let loop: SimulatedEventLoop
    let connection: Connection
    let side: Connection.Side
    let localAddress: SocketAddress?
    let remoteAddress: SocketAddress?
    let allocator = ByteBufferAllocator()
    let closeFuture: EventLoopFuture<Void>
    private let closePromise: EventLoopPromise<Void>
    private var storedPipeline: ChannelPipeline?

    private(set) var isActive = false
    private(set) var isOpen = true
    private var outputIsClosed = false
    private var written: [(bytes: ByteBuffer, promise: EventLoopPromise<Void>?)] = []
    private var arrived = ByteBuffer()
    private var hasEnded = false
    private var endIsTold = false
    private var wantsToRead = false

    init(_ loop: SimulatedEventLoop, _ connection: Connection, _ side: Connection.Side) {
        (self.loop, self.connection, self.side) = (loop, connection, side)
        localAddress = connection.address(side)
        remoteAddress = connection.address(side.other)
        closePromise = loop.makePromise(of: Void.self)
        closeFuture = closePromise.futureResult
        storedPipeline = ChannelPipeline(channel: self)
    }

    var eventLoop: any EventLoop { loop }
    var pipeline: ChannelPipeline { storedPipeline! }
    var _channelCore: any ChannelCore { self }
    var parent: (any Channel)? { nil }
    var isWritable: Bool { true }

    func setOption<Option: ChannelOption>(_ option: Option, value: Option.Value) -> EventLoopFuture<Void> {
        loop.makeSucceededVoidFuture()
    }

    func getOption<Option: ChannelOption>(_ option: Option) -> EventLoopFuture<Option.Value> {
        loop.makeFailedFuture(ChannelError.operationUnsupported)
    }

    /// Activates the channel when its connection and handler are set up.
    func activate() {
        guard isOpen, !isActive else { return }
        isActive = true
        pipeline.fireChannelRegistered()
        pipeline.fireChannelActive()
        if isOpen { pipeline.read() }
    }

    /// Activates a dial's channel, which has no handler yet.
    func activateQuietly() { isActive = true }

    func arrive(_ bytes: ByteBuffer) {
        guard isOpen else { return connection.reset(by: side) }
        var bytes = bytes
        arrived.writeBuffer(&bytes)
        readOn()
    }

    func end() {
        hasEnded = true
        readOn()
    }

    func fail(_ error: any Error) {
        guard isOpen else { return }
        pipeline.fireErrorCaught(error)
        if isOpen { close0(error: error, mode: .all, promise: nil) }
    }

    private func readOn() {
        while isOpen, isActive, wantsToRead, arrived.readableBytes > 0 {
            wantsToRead = false
            guard let part = arrived.readSlice(length: min(Self.readByteCount, arrived.readableBytes)) else { return }
            if arrived.readableBytes == 0 { arrived = ByteBuffer() }
            pipeline.fireChannelRead(part)
            pipeline.fireChannelReadComplete()
            if isOpen { pipeline.read() }
        }
        guard isOpen, isActive, wantsToRead, hasEnded, !endIsTold, arrived.readableBytes == 0 else { return }
        endIsTold = true
        if outputIsClosed { return close0(error: ChannelError.eof, mode: .all, promise: nil) }
        pipeline.fireUserInboundEventTriggered(ChannelEvent.inputClosed)
    }

    func localAddress0() throws -> SocketAddress { localAddress! }
    func remoteAddress0() throws -> SocketAddress { remoteAddress! }
    func register0(promise: EventLoopPromise<Void>?) { promise?.succeed(()) }
    func registerAlreadyConfigured0(promise: EventLoopPromise<Void>?) { promise?.succeed(()) }
    func bind0(to: SocketAddress, promise: EventLoopPromise<Void>?) { promise?.succeed(()) }
    func connect0(to: SocketAddress, promise: EventLoopPromise<Void>?) { promise?.succeed(()) }

    func write0(_ data: NIOAny, promise: EventLoopPromise<Void>?) {
        guard isOpen, !outputIsClosed else {
            promise?.fail(ChannelError.ioOnClosedChannel)
            return
        }
        written.append((unwrapData(data, as: ByteBuffer.self), promise))
    }

    func flush0() {
        let pending = written
        written = []
        for (bytes, promise) in pending {
            if bytes.readableBytes > 0 { connection.send(bytes, from: side) }
            if let promise { loop.execute { promise.succeed(()) } }
        }
    }

    func read0() {
        guard !wantsToRead else { return }
        wantsToRead = true
        if arrived.readableBytes > 0 || hasEnded && !endIsTold { loop.execute { self.readOn() } }
    }

    func close0(error: any Error, mode: CloseMode, promise: EventLoopPromise<Void>?) {
        guard isOpen else {
            promise?.fail(ChannelError.alreadyClosed)
            return
        }
        if mode == .output {
            if !outputIsClosed {
                outputIsClosed = true
                connection.end(from: side)
            }
            promise?.succeed(())
            if hasEnded, endIsTold { close0(error: error, mode: .all, promise: nil) }
            return
        }
        isOpen = false
        let wasActive = isActive
        isActive = false
        for (_, promise) in written { promise?.fail(ChannelError.ioOnClosedChannel) }
        written = []
        if !outputIsClosed { connection.end(from: side) }
        outputIsClosed = true
        arrived = ByteBuffer()
        promise?.succeed(())
        if wasActive { pipeline.fireChannelInactive() }
        loop.execute {
            self.removeHandlers(pipeline: self.pipeline)
            self.closePromise.succeed(())
            self.storedPipeline = nil
        }
    }

    func die() {
        guard storedPipeline != nil else { return }
        isOpen = false
        isActive = false
        outputIsClosed = true
        for (_, promise) in written { promise?.fail(ChannelError.ioOnClosedChannel) }
        written = []
        loop.turn {
            removeHandlers(pipeline: pipeline)
            closePromise.succeed(())
        }
        storedPipeline = nil
    }

    func triggerUserOutboundEvent0(_ event: Any, promise: EventLoopPromise<Void>?) {
        promise?.fail(ChannelError.operationUnsupported)
    }

    func channelRead0(_ data: NIOAny) {}
    func errorCaught0(error: any Error) {}
}
