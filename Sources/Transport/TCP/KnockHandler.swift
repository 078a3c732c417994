import NIOCore

/// An outgoing knock: sends preamble, length and sealed bytes; receives length and sealed bytes, or nothing.
final class KnockHandler: ChannelInboundHandler {
    typealias InboundIn = ByteBuffer
    typealias OutboundOut = ByteBuffer

    let id: UInt64
    private let token: RoutingToken
    private let sealed: [UInt8]
    private let transport: TCPTransport
    private var completion: ((Result<[UInt8]?, DialFailure>) -> Void)?
    private var context: ChannelHandlerContext?
    private var pending = ByteBuffer()
    private var timer: Scheduled<Void>?

    init(
        id: UInt64, token: RoutingToken, sealed: [UInt8], transport: TCPTransport,
        completion: @escaping (Result<[UInt8]?, DialFailure>) -> Void
    ) {
        self.id = id
        self.token = token
        self.sealed = sealed
        self.transport = transport
        self.completion = completion
    }

    func handlerAdded(context: ChannelHandlerContext) {
        self.context = context
        if context.channel.isActive { start(context) }
    }

    func handlerRemoved(context: ChannelHandlerContext) {
        end(.failure(.closedBeforeActTwo))
        self.context = nil
    }

    func channelActive(context: ChannelHandlerContext) {
        start(context)
        context.fireChannelActive()
    }

    private func start(_ context: ChannelHandlerContext) {
        guard timer == nil else { return }
        // The knock was cancelled while it connected.
        guard completion != nil else { return context.close(promise: nil) }
        timer = context.eventLoop.assumeIsolated().scheduleTask(in: transport.limits.actTimeout) { [weak self] in
            self?.end(.failure(.timedOut))
        }
        var bytes = ByteBuffer(bytes: Preamble(kind: .knock, token: token).bytes)
        bytes.writeInteger(UInt16(truncatingIfNeeded: sealed.count))
        bytes.writeBytes(sealed)
        context.writeAndFlush(wrapOutboundOut(bytes), promise: nil)
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        var bytes = unwrapInboundIn(data)
        pending.writeBuffer(&bytes)
        guard let byteCount = pending.getInteger(at: pending.readerIndex, as: UInt16.self) else { return }
        guard (1...transport.limits.knockByteCount).contains(Int(byteCount)),
            pending.readableBytes <= 2 + Int(byteCount)
        else { return end(.failure(.badAnswer)) }
        guard pending.readableBytes == 2 + Int(byteCount) else { return }
        end(.success(Array(pending.readableBytesView.dropFirst(2))))
    }

    func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
        if let event = event as? ChannelEvent, event == .inputClosed { ended() }
        context.fireUserInboundEventTriggered(event)
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) { end(.failure(DialFailure(error))) }

    func channelInactive(context: ChannelHandlerContext) {
        ended()
        context.fireChannelInactive()
    }

    /// The peer has closed its output.
    private func ended() { end(pending.readableBytes == 0 ? .success(nil) : .failure(.badAnswer)) }

    func end(_ result: Result<[UInt8]?, DialFailure>) {
        guard let completion else { return }
        self.completion = nil
        timer?.cancel()
        transport.forget(self)
        context?.close(promise: nil)
        completion(result)
    }
}
