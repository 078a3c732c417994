import Control
import Glibc
import NIOCore
import NIOPosix
import Synchronization
import Testing

/// A served control socket in a temporary directory, and raw clients for it.
final class ControlNode: Sendable {
    let home: String
    let server: ControlServer
    let eventLoop: any EventLoop

    private init(home: String, server: ControlServer, eventLoop: any EventLoop) {
        (self.home, self.server, self.eventLoop) = (home, server, eventLoop)
    }

    static func makeHome(suffix: String = "") throws -> String {
        var template = Array("/tmp/mayfly-control-XXXXXX".utf8CString)
        try #require(mkdtemp(&template) != nil)
        let home = template.withUnsafeBufferPointer { String(cString: $0.baseAddress!) } + suffix
        if !suffix.isEmpty { try #require(mkdir(home, 0o700) == 0) }
        return home
    }

    static func serving(
        home: String? = nil, user: UInt32 = geteuid(),
        _ handler: @escaping ControlHandler = { request, session in
            session.eventLoop.makeSucceededFuture(["method": .string(request.method), "params": request.params])
        }, _ body: @Sendable @escaping (ControlNode) throws -> Void
    ) async throws { try await serving(home: home, user: user, service: HandlerService(handler: handler), body) }

    static func serving(
        home: String? = nil, user: UInt32 = geteuid(), service: any ControlService,
        _ body: @Sendable @escaping (ControlNode) throws -> Void
    ) async throws {
        let home = try home ?? makeHome()
        let group = MultiThreadedEventLoopGroup(numberOfThreads: 1)
        let loop = group.next()
        let server = try await ControlServer.start(
            home: home, on: loop,
            later: { work in loop.assumeIsolated().scheduleTask(in: .microseconds(50)) { work() } }, user: user,
            service: service
        ).get()
        let node = ControlNode(home: home, server: server, eventLoop: loop)
        let outcome: Result<Void, any Error>
        do {
            // Clients block, so they run outside of the cooperative pool.
            try await NIOThreadPool.singleton.runIfActive { try body(node) }
            outcome = .success(())
        } catch { outcome = .failure(error) }
        try await server.close().get()
        try await group.shutdownGracefully()
        #expect(access("\(home)/control.sock", F_OK) != 0, "the socket is removed at the end")
        rmdir(home)
        try outcome.get()
    }

    func client() throws -> ControlClient { try ControlClient(home: home) }
    func rawClient() throws -> RawClient { try RawClient(path: "\(home)/control.sock") }
}

/// Answers a request of any name. Called on the service's loop.
typealias ControlHandler = @Sendable (ControlRequest, ControlSession) throws -> EventLoopFuture<JSONValue>

struct HandlerService: ControlService {
    let handler: ControlHandler
    /// Called with the number of requests that came in one hop.
    var performs: @Sendable (Int) -> Void = { _ in }

    func call(_ method: String, id: RequestID?, params: inout JSONReader, session: ControlSession) throws(ControlError)
        -> ControlCall
    {
        let request = ControlRequest(id: id, method: method, params: JSONValue(from: &params))
        let any = RPCMethod<Nothing, JSONValue>(method, "Any method.", waits: { _ in method == "wait" })
        return MethodCall(any, id: id, session: session, params: .init()) { [handler] call in
            do {
                try handler(request, call.session).hop(to: call.session.eventLoop).assumeIsolated().whenComplete {
                    call.complete($0)
                }
            } catch { call.fail(error) }
        }
    }

    func perform(_ calls: [ControlCall]) {
        performs(calls.count)
        for call in calls { call.perform() }
    }
}

extension ControlSession { func notify(_ event: JSONValue) -> Bool { notify(Self.line(of: event)) } }

/// A client that can break the protocol.
final class RawClient {
    private let descriptor: Int32
    private var received: [UInt8] = []

    init(path: String) throws {
        descriptor = try unixSocket(path, connect)
        var timeout = timeval(tv_sec: 20, tv_usec: 0)
        setsockopt(descriptor, SOL_SOCKET, SO_RCVTIMEO, &timeout, socklen_t(MemoryLayout<timeval>.size))
        setsockopt(descriptor, SOL_SOCKET, SO_SNDTIMEO, &timeout, socklen_t(MemoryLayout<timeval>.size))
    }

    deinit { close(descriptor) }

    /// Sends all bytes, or as many as the server takes before it closes.
    func send(_ text: String) { send(Array(text.utf8)) }

    func send(_ bytes: [UInt8]) {
        var sent = 0
        while sent < bytes.count {
            let count = bytes[sent...].withUnsafeBytes {
                Glibc.send(descriptor, $0.baseAddress, $0.count, Int32(MSG_NOSIGNAL))
            }
            guard count > 0 else { return }
            sent += count
        }
    }

    func endInput() { _ = shutdown(descriptor, Int32(SHUT_WR)) }

    /// The next line as JSON; `nil` at the end of the stream.
    func line() throws -> JSONValue? {
        while true {
            if let newline = received.firstIndex(of: UInt8(ascii: "\n")) {
                let line = Array(received[..<newline])
                received.removeFirst(newline + 1)
                return try JSONReader.read(line)
            }
            var buffer = [UInt8](repeating: 0, count: 65_536)
            let count = read(descriptor, &buffer, buffer.count)
            if count == 0 || (count < 0 && errno == ECONNRESET) { return nil }
            try #require(count > 0, "nothing came in 20 s")
            received.append(contentsOf: buffer[..<count])
        }
    }
}

/// A socket that `call`, bind(2) or connect(2), has given this address.
func unixSocket(_ path: String, _ call: (Int32, UnsafePointer<sockaddr>, socklen_t) -> Int32) throws -> Int32 {
    let descriptor = socket(AF_UNIX, Int32(SOCK_STREAM.rawValue), 0)
    var address = sockaddr_un()
    address.sun_family = sa_family_t(AF_UNIX)
    withUnsafeMutableBytes(of: &address.sun_path) { $0.copyBytes(from: path.utf8) }
    let outcome = withUnsafePointer(to: &address) {
        $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
            call(descriptor, $0, socklen_t(MemoryLayout<sockaddr_un>.size))
        }
    }
    try #require(outcome == 0)
    return descriptor
}

func failure<Value>(_ body: () throws -> Value) -> ControlError? {
    do {
        _ = try body()
        return nil
    } catch { return error as? ControlError }
}

extension ControlSession {
    var closed: EventLoopFuture<Void> {
        let promise = eventLoop.makePromise(of: Void.self)
        _ = onClose { promise.succeed() }
        return promise.futureResult
    }
}

extension EventLoopPromise where Value == JSONValue {
    /// Fails when the client disconnects, as a waiting handler must.
    func futureResultDroppedAt(_ closed: EventLoopFuture<Void>) -> EventLoopFuture<JSONValue> {
        closed.whenComplete { _ in fail(ControlError(.failed, "the client went away")) }
        return futureResult
    }
}
