import Control
import Glibc
import NIOCore
import NIOPosix
import Testing

@Suite(.timeLimit(.minutes(1))) struct ControlSocketTests {
    @Test func `only the same user and root may command`() {
        func credentials(_ user: UInt32) -> ControlSocket.PeerCredentials {
            ControlSocket.PeerCredentials(process: 1, user: user, group: user)
        }
        #expect(credentials(1000).mayCommand(nodeOf: 1000))
        #expect(credentials(0).mayCommand(nodeOf: 1000))
        #expect(!credentials(1001).mayCommand(nodeOf: 1000))
        #expect(!credentials(1000).mayCommand(nodeOf: 0))
    }

    @Test func `a foreign user is refused by the kernel's word`() async throws {
        // Root may command every node, so the refusal can be seen only by another user.
        guard geteuid() != 0 else { return }
        try await ControlNode.serving(user: geteuid() + 1) { node in
            let raw = try node.rawClient()
            #expect(try raw.line()?["error"]?["data"]?["kind"] == "refused")
            #expect(try raw.line() == nil)
        }
    }

    @Test func `the socket is for its user only`() async throws {
        try await ControlNode.serving { node in
            var status = stat()
            #expect(lstat("\(node.home)/control.sock", &status) == 0)
            #expect(status.st_mode & 0o777 == 0o600)
            #expect(status.st_mode & S_IFMT == S_IFSOCK)
        }
    }

    @Test func `a leftover socket is replaced`() async throws {
        let home = try ControlNode.makeHome()
        let path = "\(home)/control.sock"
        let leftover = socket(AF_UNIX, Int32(SOCK_STREAM.rawValue), 0)
        var address = sockaddr_un()
        address.sun_family = sa_family_t(AF_UNIX)
        withUnsafeMutableBytes(of: &address.sun_path) { $0.copyBytes(from: path.utf8) }
        let bound = withUnsafePointer(to: &address) {
            $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                bind(leftover, $0, socklen_t(MemoryLayout<sockaddr_un>.size))
            }
        }
        try #require(bound == 0)
        close(leftover)
        #expect(throws: ControlError.noNode(home: home)) { try ControlClient(home: home) }
        try await ControlNode.serving(home: home) { node in _ = try node.client().call("m") }
    }

    @Test func `the socket of a living node is not replaced`() async throws {
        let home = try ControlNode.makeHome()
        try await ControlNode.serving(home: home) { node in
            let loop = MultiThreadedEventLoopGroup.singleton.next()
            let second = ControlServer.start(home: home, on: loop) { _, connection in
                connection.eventLoop.makeSucceededFuture(.null)
            }
            #expect(failure { try second.wait() }?.message.hasPrefix("home in use") == true)
            _ = try node.client().call("m")
        }
    }

    @Test func `what is not a socket is left alone`() async throws {
        let home = try ControlNode.makeHome()
        let path = "\(home)/control.sock"
        close(open(path, O_CREAT | O_WRONLY, 0o600))
        let server = ControlServer.start(home: home, on: MultiThreadedEventLoopGroup.singleton.next()) {
            _,
            connection in
            connection.eventLoop.makeSucceededFuture(.null)
        }
        await #expect(throws: ControlError.self) { try await server.get() }
        #expect(access(path, F_OK) == 0)
        unlink(path)
        rmdir(home)
    }

    @Test func `a home with a path too long for a socket address works`() async throws {
        let home = try ControlNode.makeHome(suffix: "/" + String(repeating: "long", count: 30))
        try await ControlNode.serving(home: home) { node in
            let answer = try node.client().call("m")
            #expect(answer["method"] == "m")
        }
    }

    @Test func `without a node the client says so`() throws {
        #expect(throws: ControlError.noHome("/nonexistent/mayfly")) {
            try ControlClient(home: "/nonexistent/mayfly")
        }
        let home = try ControlNode.makeHome()
        #expect(throws: ControlError.noNode(home: home)) { try ControlClient(home: home) }
        rmdir(home)
    }

    @Test func `a call ends when its time is over or the node goes away`() async throws {
        let handler: ControlHandler = { request, connection in
            let promise = connection.eventLoop.makePromise(of: JSONValue.self)
            return promise.futureResultDroppedAt(connection.closed)
        }
        try await ControlNode.serving(handler) { node in
            let client = try node.client()
            #expect(failure { try client.call("wait", timeout: .milliseconds(1)) }?.kind == .timedOut)
            try node.server.close().wait()
            #expect(failure { try client.call("wait") }?.kind == .noNode)
        }
    }
}
