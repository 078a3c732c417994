import Control
import NIOCore
import NIOPosix
import NodeRuntime

/// Minimal HTTP server on a loopback address: answers `GET /metrics`, one request per connection.
final class MetricsServer: Sendable {
    fileprivate static let connectionCount = 8
    fileprivate static let requestByteCount = 4_096
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
                        try channel.pipeline.syncOperations.addHandler(AcceptPause())
                    }
                }.childChannelInitializer { channel in
                    guard open.value < connectionCount else { return channel.close() }
                    open.value += 1
                    channel.closeFuture.whenComplete { _ in open.value -= 1 }
                    return channel.eventLoop.makeCompletedFuture {
                        try channel.pipeline.syncOperations.addHandler(MetricsRequestHandler(metrics))
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
    typealias InboundIn = ByteBuffer
    typealias OutboundOut = ByteBuffer

    private let metrics: Metrics
    private var head: [UInt8] = []
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
        guard !isAnswered else { return }
        head += unwrapInboundIn(data).readableBytesView.prefix(MetricsServer.requestByteCount + 1)
        if let request = MetricsRequest(head) {
            answer(request.status, context)
        } else if head.count > MetricsServer.requestByteCount {
            answer(.headTooLarge, context)
        }
    }

    private func answer(_ status: MetricsRequest.Status, _ context: ChannelHandlerContext) {
        isAnswered = true
        head = []
        let channel = context.channel
        guard status == .ok else { return Self.write(status, status.rawValue.dropFirst(4) + "\n", to: channel) }
        metrics.text().hop(to: channel.eventLoop).whenComplete { result in
            switch result {
            case .success(let text): Self.write(.ok, text, to: channel)
            case .failure: Self.write(.unavailable, "the node is stopping\n", to: channel)
            }
        }
    }

    private static func write(_ status: MetricsRequest.Status, _ body: String, to channel: any Channel) {
        let type = status == .ok ? "text/plain; version=0.0.4; charset=utf-8" : "text/plain; charset=utf-8"
        let allow = status == .methodNotAllowed ? "Allow: GET\r\n" : ""
        let head =
            "HTTP/1.1 \(status.rawValue)\r\nContent-Type: \(type)\r\n"
            + "Content-Length: \(body.utf8.count)\r\n\(allow)Cache-Control: no-store\r\n"
            + "X-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n"
        channel.writeAndFlush(ByteBuffer(string: head + body)).whenComplete { _ in channel.close(promise: nil) }
    }
}

/// The relevant part of a request head: RFC 9112.
struct MetricsRequest: Hashable {
    enum Status: String {
        case ok = "200 OK"
        case badRequest = "400 Bad Request"
        case forbidden = "403 Forbidden"
        case notFound = "404 Not Found"
        case methodNotAllowed = "405 Method Not Allowed"
        case headTooLarge = "431 Request Header Fields Too Large"
        case unavailable = "503 Service Unavailable"
        case version = "505 HTTP Version Not Supported"
    }

    let status: Status

    /// - Returns: `nil` while the head is incomplete but plausible.
    init?(_ bytes: [UInt8]) {
        let lines = Self.lines(bytes)
        guard let first = lines.whole.first else {
            // Rejects bytes that cannot start a request, without waiting for a line end.
            let begin = bytes.prefix { $0 != UInt8(ascii: " ") }
            if begin.count <= 16, begin.allSatisfy(Self.isLetter) { return nil }
            status = .badRequest
            return
        }
        let refused = Self.refusal(first)
        guard refused != nil || lines.isEnded else { return nil }
        status = refused ?? Self.status(ofFields: lines.whole.dropFirst())
    }

    private static func isLetter(_ byte: UInt8) -> Bool { (UInt8(ascii: "A")...UInt8(ascii: "Z")).contains(byte) }

    private static func lines(_ bytes: [UInt8]) -> (whole: [[UInt8]], isEnded: Bool) {
        var lines: [[UInt8]] = []
        var rest = bytes[...]
        while let end = rest.firstIndex(of: UInt8(ascii: "\n")) {
            var line = Array(rest[..<end])
            if line.last == UInt8(ascii: "\r") { line.removeLast() }
            if line.isEmpty, !lines.isEmpty { return (lines, true) }
            lines.append(line)
            rest = rest[(end + 1)...]
        }
        return (lines, false)
    }

    /// Why a request line is refused; `nil` for `GET /metrics`.
    private static func refusal(_ line: [UInt8]) -> Status? {
        let words = line.split(separator: UInt8(ascii: " "), omittingEmptySubsequences: false)
        guard words.count == 3, words[0].allSatisfy(isLetter), !words[0].isEmpty, words[1].first == UInt8(ascii: "/"),
            words[2].starts(with: "HTTP/".utf8)
        else { return .badRequest }
        guard words[2].elementsEqual("HTTP/1.1".utf8) || words[2].elementsEqual("HTTP/1.0".utf8) else {
            return .version
        }
        guard words[1].elementsEqual("/metrics".utf8) else { return .notFound }
        return words[0].elementsEqual("GET".utf8) ? nil : .methodNotAllowed
    }

    /// Prevents DNS rebinding: only a loopback Host header is accepted.
    private static func status(ofFields fields: ArraySlice<[UInt8]>) -> Status {
        for field in fields {
            guard let colon = field.firstIndex(of: UInt8(ascii: ":")), colon > 0 else { return .badRequest }
            guard String(decoding: field[..<colon], as: UTF8.self).lowercased() == "host" else { continue }
            let host = String(decoding: field[(colon + 1)...], as: UTF8.self).drop { $0 == " " || $0 == "\t" }
            let isName = host == "localhost" || host.hasPrefix("localhost:")
            guard isName || LoopbackEndpoint(String(host)) != nil || LoopbackEndpoint("\(host):80") != nil else {
                return .forbidden
            }
        }
        return .ok
    }
}
