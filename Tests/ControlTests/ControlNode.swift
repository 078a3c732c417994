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
    private let group: MultiThreadedEventLoopGroup

    private init(home: String, server: ControlServer, group: MultiThreadedEventLoopGroup) {
        self.home = home
        self.server = server
        self.group = group
    }

    static func makeHome(suffix: String = "") throws -> String {
        var template = Array("/tmp/mayfly-control-XXXXXX".utf8CString)
        try #require(mkdtemp(&template) != nil)
        let home = template.withUnsafeBufferPointer { String(cString: $0.baseAddress!) } + suffix
        if !suffix.isEmpty { try #require(mkdir(home, 0o700) == 0) }
        return home
    }

    /// Serves `handler` for the duration of `body`.
    static func serving(
        home: String? = nil,
        user: UInt32 = geteuid(),
        _ handler: @escaping ControlHandler = { request, connection in
            connection.eventLoop.makeSucceededFuture(["method": .string(request.method), "params": request.params])
        },
        _ body: @Sendable @escaping (ControlNode) throws -> Void
    ) async throws {
        let home = try home ?? makeHome()
        let group = MultiThreadedEventLoopGroup(numberOfThreads: 1)
        let server = try await ControlServer.start(home: home, on: group.next(), user: user, handler: handler).get()
        let node = ControlNode(home: home, server: server, group: group)
        let outcome: Result<Void, any Error>
        do {
            // Clients block; they get a thread of their own so that they never hold up the cooperative pool.
            try await NIOThreadPool.singleton.runIfActive { try body(node) }
            outcome = .success(())
        } catch {
            outcome = .failure(error)
        }
        try await server.close().get()
        try await group.shutdownGracefully()
        #expect(access("\(home)/control.sock", F_OK) != 0, "the socket is removed at the end")
        rmdir(home)
        try outcome.get()
    }

    /// The one that the server is on.
    var eventLoop: any EventLoop { group.next() }

    func client() throws -> ControlClient { try ControlClient(home: home) }
    func rawClient() throws -> RawClient { try RawClient(path: "\(home)/control.sock") }
}

/// A socket that can misbehave.
final class RawClient {
    private let descriptor: Int32
    private var received: [UInt8] = []

    init(path: String) throws {
        descriptor = socket(AF_UNIX, Int32(SOCK_STREAM.rawValue), 0)
        var address = sockaddr_un()
        address.sun_family = sa_family_t(AF_UNIX)
        withUnsafeMutableBytes(of: &address.sun_path) { $0.copyBytes(from: path.utf8) }
        let outcome = withUnsafePointer(to: &address) {
            $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                connect(descriptor, $0, socklen_t(MemoryLayout<sockaddr_un>.size))
            }
        }
        try #require(outcome == 0)
        var timeout = timeval(tv_sec: 20, tv_usec: 0)
        setsockopt(descriptor, SOL_SOCKET, SO_RCVTIMEO, &timeout, socklen_t(MemoryLayout<timeval>.size))
        setsockopt(descriptor, SOL_SOCKET, SO_SNDTIMEO, &timeout, socklen_t(MemoryLayout<timeval>.size))
    }

    deinit { close(descriptor) }

    /// Sends everything, or as much as the server takes before it closes.
    func send(_ text: String) {
        send(Array(text.utf8))
    }

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

/// The typed failure of `body`; `nil` when it succeeds.
func failure<Value>(_ body: () throws -> Value) -> ControlError? {
    do {
        _ = try body()
        return nil
    } catch {
        return error as? ControlError
    }
}
