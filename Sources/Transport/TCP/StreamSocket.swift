import Glibc
import NIOCore

/// The byte stream below a ``StreamLink``: a TCP connection, or a stream relayed by a rendezvous node.
///
/// It calls the link: ``StreamLink/start()``, ``StreamLink/received(_:)``, ``StreamLink/readIfOwed()`` after each read,
/// ``StreamLink/readRequested()``, ``StreamLink/inputEnded()``, ``StreamLink/broke(_:)`` and ``StreamLink/closed()``.
protocol StreamSocket: AnyObject {
    var localAddress: SocketAddress? { get }
    var remoteAddress: SocketAddress? { get }
    /// The carrier of the link to the rendezvous node; `nil` for a connection of our own.
    var relay: LinkCarrier? { get }
    /// TCP_INFO (tcp(7)).
    var kernelInfo: tcp_info? { get }
    /// - Parameter done: called when the bytes have left, or with the error.
    func write(_ bytes: ByteBuffer, _ done: @escaping ((any Error)?) -> Void)
    func read()
    func endOutput()
    func close()
    func setOptions(_ limits: TransportLimits)
    func setReads(of byteCount: Int)
}

/// The last handler of a TCP connection's channel.
final class ChannelSocket: ChannelInboundHandler, ChannelOutboundHandler, StreamSocket {
    typealias InboundIn = ByteBuffer
    typealias OutboundIn = ByteBuffer
    typealias OutboundOut = ByteBuffer

    private let link: StreamLink
    private var context: ChannelHandlerContext?

    init(_ link: StreamLink) { self.link = link }

    func handlerAdded(context: ChannelHandlerContext) {
        self.context = context
        link.socket = self
        if context.channel.isActive { link.start() }
    }

    func handlerRemoved(context: ChannelHandlerContext) {
        link.end(.connectionLost(0), .disconnected)
        link.socket = nil
        self.context = nil
    }

    func channelActive(context: ChannelHandlerContext) {
        link.start()
        context.fireChannelActive()
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) { link.received(unwrapInboundIn(data)) }

    func channelReadComplete(context: ChannelHandlerContext) {
        link.readIfOwed()
        context.fireChannelReadComplete()
    }

    func read(context: ChannelHandlerContext) { link.readRequested() }

    func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
        if let event = event as? ChannelEvent, event == .inputClosed { link.inputEnded() }
        context.fireUserInboundEventTriggered(event)
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) { link.broke(error as? IOError) }

    func channelInactive(context: ChannelHandlerContext) {
        link.closed()
        context.fireChannelInactive()
    }

    var localAddress: SocketAddress? { context?.channel.localAddress }
    var remoteAddress: SocketAddress? { context?.channel.remoteAddress }
    var relay: LinkCarrier? { nil }

    /// Queried on the loop, it answers at once.
    var kernelInfo: tcp_info? {
        var result: tcp_info?
        (context?.channel as? any SocketOptionProvider)?.getTCPInfo().assumeIsolated().whenSuccess { result = $0 }
        return result
    }

    func write(_ bytes: ByteBuffer, _ done: @escaping ((any Error)?) -> Void) {
        guard let context else { return }
        let promise = context.eventLoop.makePromise(of: Void.self)
        promise.futureResult.assumeIsolated().whenComplete { result in
            if case .failure(let error) = result { done(error) } else { done(nil) }
        }
        context.writeAndFlush(wrapOutboundOut(bytes), promise: promise)
    }

    func read() { context?.read() }
    func endOutput() { context?.close(mode: .output, promise: nil) }
    func close() { context?.close(promise: nil) }
    func setOptions(_ limits: TransportLimits) { if let context { limits.applyToOpenLink(context.channel) } }
    func setReads(of byteCount: Int) { if let context { TransportLimits.applyReads(of: byteCount, context.channel) } }
}
