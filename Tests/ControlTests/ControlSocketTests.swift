import Foundation
import Glibc
import NIOCore
import NIOPosix
import Synchronization
import Testing

@testable import Control
@testable import NodeRuntime
@testable import Program

@Suite(.timeLimit(.minutes(30))) struct ControlSocketTests {
    @Test func `only the node's user and root may command it`() {
        func credentials(_ user: UInt32) -> ControlSocket.PeerCredentials {
            ControlSocket.PeerCredentials(process: 1, user: user, group: user)
        }
        #expect(credentials(1000).mayCommand(nodeOf: 1000))
        #expect(credentials(0).mayCommand(nodeOf: 1000))
        #expect(!credentials(1001).mayCommand(nodeOf: 1000))
        #expect(!credentials(1000).mayCommand(nodeOf: 0))
    }

    @Test func `another user is refused by the kernel's credentials`() async throws {
        let user = geteuid()
        // Root may command every node, so a process of another user asks.
        try await ControlNode.serving(user: user == 0 ? 0 : user + 1) { node in
            if user == 0 {
                // The directory's mode must not keep the client out.
                chmod(node.home, 0o755)
                chmod("\(node.home)/control.sock", 0o666)
                let told = try Self.told("\(node.home)/control.sock", as: 65_534)
                #expect(try JSONReader.read(told)["error"]?["data"]?["kind"] == "refused")
            } else {
                let raw = try node.rawClient()
                #expect(try raw.line()?["error"]?["data"]?["kind"] == "refused")
                #expect(try raw.line() == nil)
            }
        }
    }

    /// All bytes that a process of another user receives before the connection is closed.
    private static func told(_ path: String, as user: UInt32) throws -> [UInt8] {
        let script = """
            s = socket.socket(socket.AF_UNIX); s.settimeout(20); s.connect(sys.argv[1])
            while piece := s.recv(65536): os.write(1, piece)
            """
        let (child, output) = try begin(script, path, as: user)
        let told = output.readDataToEndOfFile()
        child.waitUntilExit()
        #expect(child.terminationStatus == 0)
        return told.filter { $0 != UInt8(ascii: "\n") }
    }

    /// A Python process of another user.
    private static func begin(_ script: String, _ argument: String, as user: UInt32) throws -> (Process, FileHandle) {
        let (child, output) = (Process(), Pipe())
        child.executableURL = URL(fileURLWithPath: "/usr/bin/env")
        let start = "import os, socket, sys; os.setgroups([]); os.setgid(\(user)); os.setuid(\(user))\n"
        child.arguments = ["python3", "-c", start + script, argument]
        child.standardOutput = output
        try child.run()
        return (child, output.fileHandleForReading)
    }

    @Test func `a leftover socket is replaced`() async throws {
        let home = try ControlNode.makeHome()
        close(try unixSocket("\(home)/control.sock", bind))
        #expect(throws: ControlError.noNode(home: home)) { try ControlClient(home: home) }
        try await ControlNode.serving(home: home) { node in _ = try node.client().call("m") }
    }

    @Test func `the socket of a running node is not replaced`() async throws {
        let home = try ControlNode.makeHome()
        try await ControlNode.serving(home: home) { node in
            let loop = MultiThreadedEventLoopGroup.singleton.next()
            let second = ControlServer.start(home: home, on: loop, later: { $0() }, service: ControlRouter())
            #expect(failure { try second.wait() }?.message.hasPrefix("home in use") == true)
            _ = try node.client().call("m")
        }
    }

    @Test func `a file in place of the socket is left alone`() async throws {
        let home = try ControlNode.makeHome()
        let path = "\(home)/control.sock"
        close(open(path, O_CREAT | O_WRONLY, 0o600))
        let loop = MultiThreadedEventLoopGroup.singleton.next()
        let server = ControlServer.start(home: home, on: loop, later: { $0() }, service: ControlRouter())
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

    private static let canMount: Bool = {
        guard let home = try? ControlNode.makeHome() else { return false }
        defer { rmdir(home) }
        return mount("mayfly-test", home, "tmpfs", 0, "size=64k") == 0 && umount(home) == 0
    }()

    /// Takes many names of a home, one with a full queue, and never answers.
    private static let taker = """
        def take(number):
            s = socket.socket(socket.AF_UNIX); s.bind("\\0" + sys.argv[1] + number); s.listen(0); return s
        taken = [take(str(n)) for n in range(200)] + [take(t) for t in ("-1", "x", "\\n", "7" * 60)]
        full = socket.socket(socket.AF_UNIX); full.connect("\\0" + sys.argv[1] + "0")
        os.write(1, b"taken"); full.recv(1)
        """

    @Test(.enabled(if: canMount, "mounting a file system without inodes needs root"), arguments: [false, true])
    func `a node whose disk has no room for a socket is reached by a name, whatever others take`(_ isTaken: Bool)
        async throws
    {
        let home = try ControlNode.makeHome()
        // The root directory takes the only inode.
        try #require(mount("mayfly-test", home, "tmpfs", 0, "nr_inodes=1,mode=700") == 0)
        var status = stat()
        let prefix = stat(home, &status) == 0 ? "mayfly-\(status.st_dev)-\(status.st_ino)-" : ""
        let (child, output) = try Self.begin(isTaken ? Self.taker : "os.write(1, b'taken')", prefix, as: 65_534)
        defer {
            kill(child.processIdentifier, SIGKILL)
            umount(home)
            rmdir(home)
        }
        #expect(try output.read(upToCount: 5) == Data("taken".utf8))
        try await ControlNode.serving(home: home) { node in
            let answer = try node.client().call("m")
            #expect(answer["method"] == "m" && access("\(home)/control.sock", F_OK) != 0)
            let second = ControlServer.start(home: home, on: node.eventLoop, later: { $0() }, service: ControlRouter())
            #expect(failure { try second.wait() } == .homeInUse(home))
            chown(home, geteuid() + 1, getegid())
            let error = failure { try ControlClient(home: home, timeout: .milliseconds(1)) }
            #expect(error?.kind == (isTaken ? .timedOut : .noNode), "\(String(describing: error))")
        }
    }

    @Test func `a client without a node reports the missing home or node`() throws {
        #expect(throws: ControlError.noHome("/nonexistent/mayfly")) { try ControlClient(home: "/nonexistent/mayfly") }
        let home = try ControlNode.makeHome()
        #expect(throws: ControlError.noHome(home)) { try ControlClient(home: home) }
        close(open("\(home)/config.json", O_CREAT | O_WRONLY, 0o600))
        #expect(throws: ControlError.noNode(home: home)) { try ControlClient(home: home) }
        unlink("\(home)/config.json")
        rmdir(home)
    }

    @Test func `a home that was renamed under its node is reported by the client and by the node`() async throws {
        try await ControlNode.serving { node in
            rename(node.home, "\(node.home).new")
            defer { rename("\(node.home).new", node.home) }
            #expect(failure { try node.client() } == .homeMoved(node.home))
            let lost = HomeFileError(kind: .missing, path: "\(node.home)/config.json", line: nil, reason: "open")
            #expect(controlError(NodeError.homeFile(lost)) == .homeMoved(node.home))
        }
    }

    @Test func `a home with an overlong path is not reported as missing`() {
        let unreachable = "/tmp/" + String(repeating: "n", count: 300)
        let error = failure { try ControlClient(home: unreachable) }
        #expect(error?.kind == .failed && error?.message.contains("too long") == true, "\(String(describing: error))")
        #expect(failure { try ControlClient(home: "/dev/null/home") } == .noHome("/dev/null/home"))
    }

    /// A node stopped by a signal, as its clients see it: the kernel buffers, and no answer comes.
    private func withSilentNode(_ body: (String) throws -> Void) throws {
        let home = try ControlNode.makeHome()
        let path = "\(home)/control.sock"
        let listener = try unixSocket(path, bind)
        try #require(listen(listener, 1) == 0)
        defer {
            close(listener)
            unlink(path)
            rmdir(home)
        }
        try body(home)
    }

    @Test func `a call's timeout also limits its sending, and the connection stays usable`() throws {
        try withSilentNode { home in
            let client = try ControlClient(home: home)
            // Several times the socket's default buffer of some 208 KiB.
            let much: JSONValue = ["data": .string(String(repeating: "x", count: 1 << 20))]
            for _ in 0..<2 {
                #expect(failure { try client.call("m", much, timeout: .milliseconds(20)) }?.kind == .timedOut)
            }
        }
    }

    @Test func `a wait for a node that hangs names its process, and a long call to one that answers goes on`()
        async throws
    {
        try withSilentNode { home in
            let client = try ControlClient(home: home, patience: .milliseconds(20))
            var (input, output): ([Int32], [Int32]) = ([0, 0], [0, 0])
            try #require(pipe(&input) == 0 && pipe(&output) == 0)
            defer { for end in input + output { close(end) } }
            let waits: [() throws -> Void] = [
                { _ = try client.call("status", timeout: nil) }, { _ = try client.nextEvent(until: nil) },
                { try client.pump(from: input[0], to: output[1]) },
            ]
            for wait in waits {
                let error = failure(wait)
                #expect(error?.kind == .timedOut && error?.message == "process \(getpid()) does not answer")
            }
        }
        let waiting = Mutex<EventLoopPromise<JSONValue>?>(nil)
        let handler: ControlHandler = { request, connection in
            let promise = connection.eventLoop.makePromise(of: JSONValue.self)
            if request.method == "wait" {
                waiting.withLock { $0 = promise }
            } else {
                promise.succeed([:])
                waiting.withLock { $0?.succeed("ready") }
            }
            return promise.futureResultDroppedAt(connection.closed)
        }
        try await ControlNode.serving(handler) { node in
            let client = try ControlClient(home: node.home, patience: .seconds(1))
            #expect(try client.call("wait", timeout: nil) == "ready")
        }
    }

    @Test func `a connection attempt to a full node ends in time`() throws {
        try withSilentNode { home in
            var clients: [ControlClient] = []
            var refusal: ControlError?
            while refusal == nil, clients.count < 100 {
                refusal = failure { clients.append(try ControlClient(home: home, timeout: .milliseconds(20))) }
            }
            #expect(refusal?.kind == .timedOut, "\(clients.count) clients")
        }
    }

    @Test func `a call ends when its timeout passes or the node stops`() async throws {
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
