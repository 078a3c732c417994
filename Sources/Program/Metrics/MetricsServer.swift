import Control
import NIOCore
import NIOHTTP1
import NIOPosix
import NodeRuntime

/// HTTP server on a loopback address: answers `GET /metrics`, one request per connection.
final class MetricsServer: Sendable {
    fileprivate static let connectionCount = 8
    fileprivate static let patience = TimeAmount.seconds(10)

    /// With the port that the system chose.
    let endpoint: String
    private let listener: any Channel

    private init(_ listener: any Channel) {
        self.listener = listener
        let address = listener.localAddress
        let host = address?.ipAddress ?? "-"
        endpoint = "\(host.contains(":") ? "[\(host)]" : host):\(address?.port ?? 0)"
    }

    static func start(_ endpoint: LoopbackEndpoint, on loop: any EventLoop, _ metrics: Metrics) async throws
        -> MetricsServer
    {
        let open = NIOLoopBoundBox.makeBoxSendingValue(0, eventLoop: loop)
        do {
            let listener = try await ServerBootstrap(group: loop).serverChannelOption(.backlog, value: 16)
                .serverChannelOption(.socketOption(.so_reuseaddr), value: 1)
                // NIO reports a failed accept(2) only between two reads.
                .serverChannelOption(.maxMessagesPerRead, value: 1).serverChannelInitializer { channel in
                    channel.eventLoop.makeCompletedFuture {
                        try channel.pipeline.syncOperations.addHandler(AcceptBackoffHandler.whenExhausted())
                    }
                }.childChannelInitializer { channel in
                    guard open.value < connectionCount else { return channel.close() }
                    open.value += 1
                    channel.closeFuture.whenComplete { _ in open.value -= 1 }
                    return channel.eventLoop.makeCompletedFuture {
                        let pipeline = channel.pipeline.syncOperations
                        try pipeline.configureHTTPServerPipeline(withPipeliningAssistance: false)
                        try pipeline.addHandler(MetricsRequestHandler(metrics))
                    }
                }.bind(host: endpoint.host, port: Int(endpoint.port)).get()
            return MetricsServer(listener)
        } catch {
            throw ControlError(
                .failed, "cannot listen for metrics on \(endpoint): \(error)",
                hint: "choose another port with --metrics, or in config.json")
        }
    }

    func close() async { try? await listener.close() }
}

private final class MetricsRequestHandler: ChannelInboundHandler {
    typealias InboundIn = HTTPServerRequestPart
    typealias OutboundOut = HTTPServerResponsePart

    private let metrics: Metrics
    private var isAnswered = false
    private var deadline: Scheduled<Void>?

    init(_ metrics: Metrics) { self.metrics = metrics }

    func channelActive(context: ChannelHandlerContext) {
        let channel = context.channel
        deadline = context.eventLoop.scheduleTask(in: MetricsServer.patience) { channel.close(promise: nil) }
    }

    func channelInactive(context: ChannelHandlerContext) { deadline?.cancel() }

    func errorCaught(context: ChannelHandlerContext, error: any Error) { context.close(promise: nil) }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
        guard case .head(let head) = unwrapInboundIn(data), !isAnswered else { return }
        isAnswered = true
        let channel = context.channel
        let status = Self.status(head)
        guard status == .ok else { return Self.write(status, status.reasonPhrase + "\n", to: channel) }
        metrics.text().hop(to: channel.eventLoop).whenComplete { result in
            switch result {
            case .success(let text): Self.write(.ok, text, to: channel)
            case .failure: Self.write(.serviceUnavailable, "the node is stopping\n", to: channel)
            }
        }
    }

    private static func write(_ status: HTTPResponseStatus, _ body: String, to channel: any Channel) {
        let type = status == .ok ? "text/plain; version=0.0.4; charset=utf-8" : "text/plain; charset=utf-8"
        var headers: HTTPHeaders = [
            "Content-Type": type, "Content-Length": "\(body.utf8.count)", "Cache-Control": "no-store",
            "X-Content-Type-Options": "nosniff", "Connection": "close",
        ]
        if status == .methodNotAllowed { headers.add(name: "Allow", value: "GET") }
        let head = HTTPResponseHead(version: .http1_1, status: status, headers: headers)
        channel.write(HTTPServerResponsePart.head(head), promise: nil)
        channel.write(HTTPServerResponsePart.body(.byteBuffer(ByteBuffer(string: body))), promise: nil)
        channel.writeAndFlush(HTTPServerResponsePart.end(nil)).whenComplete { _ in channel.close(promise: nil) }
    }

    private static func status(_ head: HTTPRequestHead) -> HTTPResponseStatus {
        guard head.uri == "/metrics" else { return .notFound }
        guard head.method == .GET else { return .methodNotAllowed }
        // Prevents DNS rebinding: only a loopback Host header is accepted.
        let areOurs = head.headers["host"].allSatisfy { host in
            host == "localhost" || host.hasPrefix("localhost:") || LoopbackEndpoint(host) != nil
                || LoopbackEndpoint("\(host):80") != nil
        }
        return areOurs ? .ok : .forbidden
    }
}
