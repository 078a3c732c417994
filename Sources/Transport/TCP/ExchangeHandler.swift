import Crypto
import NIOCore

/// An outgoing exchange without a handshake, such as of a spoken code: the first message, and the reaction to each answer.
package struct ExchangeDial {
    package enum Step {
        case send([UInt8], expecting: Int)
        case end
    }

    package let token: RoutingToken
    /// Sent right after the greeting.
    package let message: [UInt8]
    /// Bytes of the first answer.
    package let byteCount: Int
    var kind = Preamble.Kind.code
    package let answered: ([UInt8]) -> Step
    /// Called once: with `nil` after ``Step/end``, otherwise with the error.
    package let ended: (DialFailure?) -> Void

    package init(
        token: RoutingToken, message: [UInt8], expecting byteCount: Int, answered: @escaping ([UInt8]) -> Step,
        ended: @escaping (DialFailure?) -> Void
    ) {
        self.token = token
        self.message = message
        self.byteCount = byteCount
        self.answered = answered
        self.ended = ended
    }
}

/// An outgoing exchange without a handshake: of a spoken code, or a knock, whose one answer has its length before it and
/// may be missing. Buffers at most the expected answer.
final class ExchangeHandler: ChannelInboundHandler {
    typealias InboundIn = ByteBuffer
    typealias OutboundOut = ByteBuffer

    let id: UInt64
    private let dial: ExchangeDial
    private let transport: TCPTransport
    private var hasEnded = false
    private var context: ChannelHandlerContext?
    private var pending = ByteBuffer()
    private var expected: Int
    private var timer: Scheduled<Void>?

    init(id: UInt64, dial: ExchangeDial, transport: TCPTransport) {
        self.id = id
        self.dial = dial
        self.transport = transport
        expected = dial.byteCount
    }

    func handlerAdded(context: ChannelHandlerContext) {
        self.context = context
        if context.channel.isActive { start(context) }
    }

    func handlerRemoved(context: ChannelHandlerContext) {
        end(.closedBeforeActTwo)
        self.context = nil
    }

    func channelActive(context: ChannelHandlerContext) {
        start(context)
        context.fireChannelActive()
    }

    private func start(_ context: ChannelHandlerContext) {
        guard timer == nil else { return }
        // The dial was cancelled while it connected.
        guard !hasEnded else { return context.close(promise: nil) }
        send(Preamble(kind: dial.kind, token: dial.token).bytes + dial.message, context)
    }

    /// Each answer has the timeout of an act.
    private func send(_ bytes: [UInt8], _ context: ChannelHandlerContext) {
        timer?.cancel()
        timer = context.eventLoop.assumeIsolated().scheduleTask(in: transport.limits.actTimeout) { [weak self] in
            self?.end(.timedOut)
        }
        context.writeAndFlush(wrapOutboundOut(ByteBuffer(bytes: bytes)), promise: nil)
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        guard !hasEnded else { return }
        var bytes = unwrapInboundIn(data)
        pending.writeBuffer(&bytes)
        if dial.kind == .knock {
            guard let byteCount = pending.getInteger(at: pending.readerIndex, as: UInt16.self) else { return }
            guard (1...transport.limits.knockByteCount).contains(Int(byteCount)) else { return end(.badAnswer) }
            expected = 2 + Int(byteCount)
        }
        guard pending.readableBytes <= expected else { return end(.badAnswer) }
        guard pending.readableBytes == expected else { return }
        let answer = Array(pending.readableBytesView)
        pending = ByteBuffer()
        switch dial.answered(answer) {
        case .send(let message, let byteCount):
            expected = byteCount
            send(message, context)
        case .end: end(nil)
        }
    }

    func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
        if let event = event as? ChannelEvent, event == .inputClosed { closedByPeer() }
        context.fireUserInboundEventTriggered(event)
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) { end(DialFailure(error)) }

    func channelInactive(context: ChannelHandlerContext) {
        closedByPeer()
        context.fireChannelInactive()
    }

    private func closedByPeer() {
        guard dial.kind == .knock else { return end(.closedBeforeActTwo) }
        end(pending.readableBytes == 0 ? nil : .badAnswer)
    }

    func end(_ failure: DialFailure?) {
        guard !hasEnded else { return }
        hasEnded = true
        timer?.cancel()
        transport.forget(self)
        context?.close(promise: nil)
        dial.ended(failure)
    }
}
