import Control
import Glibc
import NIOCore
import NIOPosix
import Synchronization
import Testing

/// The proxy of `mayfly rpc` between a program and the node.
@Suite(.timeLimit(.minutes(30))) struct PumpTests {
    private struct Outcome {
        var answers: [JSONValue]
        var failure: ControlError?
    }

    /// Pumps `input` through a connection, from one pipe to another.
    /// - Parameters:
    ///   - isOpen: whether the program keeps its input open.
    ///   - whenAnswered: called with each line of output.
    private static func pump(
        _ input: String, isOpen: Bool = false, _ node: ControlNode,
        whenAnswered: @escaping @Sendable (JSONValue) -> Void = { _ in }
    ) throws -> Outcome {
        var source: [Int32] = [0, 0]
        var sink: [Int32] = [0, 0]
        try #require(pipe(&source) == 0 && pipe(&sink) == 0)
        defer { close(source[0]) }
        let (written, answers) = (source[1], sink[0])
        let group = MultiThreadedEventLoopGroup(numberOfThreads: 2)
        defer { try? group.syncShutdownGracefully() }
        let writer = group.next().submit {
            _ = DescriptorOutput.write(input.utf8, to: written)
            if !isOpen { close(written) }
        }
        let reader = group.next().submit { () -> [JSONValue] in
            defer { close(answers) }
            var lines: [JSONValue] = []
            var rest: [UInt8] = []
            var chunk = [UInt8](repeating: 0, count: 65_536)
            while true {
                let count = read(answers, &chunk, chunk.count)
                guard count > 0 else { return lines }
                rest += chunk[..<count]
                while let newline = rest.firstIndex(of: 0x0A) {
                    let line = (try? JSONReader.read(rest[..<newline])) ?? .null
                    rest.removeFirst(newline + 1)
                    lines.append(line)
                    whenAnswered(line)
                }
            }
        }
        var outcome = Outcome(answers: [])
        let client = try node.client()
        do throws(ControlError) { try client.pump(from: source[0], to: sink[1]) } catch { outcome.failure = error }
        close(sink[1])
        try writer.wait()
        if isOpen { close(written) }
        outcome.answers = try reader.wait()
        return outcome
    }

    private static func request(_ id: Int, _ method: String = "m") -> String {
        #"{"jsonrpc":"2.0","id":\#(id),"method":"\#(method)"}"# + "\n"
    }

    @Test func `more requests than node and sockets can hold are all answered`() async throws {
        // Answers larger than the socket's buffer: the node stops reading while they wait.
        let answer = JSONValue.string(String(repeating: "x", count: 300))
        let handler: ControlHandler = { _, connection in connection.eventLoop.makeSucceededFuture(answer) }
        try await ControlNode.serving(handler) { node in
            let count = 20_000
            let outcome = try Self.pump((1...count).map { Self.request($0) }.joined(), node)
            #expect(outcome.failure == nil)
            #expect(outcome.answers.map { $0["id"] } == (1...count).map { .integer(Int64($0)) })
        }
    }

    private static let silent = #"{"jsonrpc":"2.0","method":"silent"}"#
    private static let body = #"{"jsonrpc":"2.0","id":1,"method":"m","body":\#(request(2).utf8.count)}"#

    @Test(
        arguments: [
            ([request(1), request(2), request(3)], [1, 2, 3]), ([request(1), String(request(2).dropLast())], [1, 2]),
            (["rubbish\n\r\n\n", silent, "\n", request(1), silent], [.null, 1]),
            ([body, "\n", request(2), request(3)], [1, 3]),
        ] as [([String], [JSONValue])])
    func `the pump awaits an answer to each request, and none to other lines or to a request inside a body`(
        input: [String], ids: [JSONValue]
    ) async throws {
        try await ControlNode.serving { node in
            let outcome = try Self.pump(input.joined(), node)
            #expect(outcome.answers.map { $0["id"] } == ids && outcome.failure == nil)
        }
    }

    @Test func `a node that stops before its answer is a lost connection`() async throws {
        let handler: ControlHandler = { request, connection in
            if request.method == "answer" { return connection.eventLoop.makeSucceededFuture(.null) }
            return connection.eventLoop.makePromise(of: JSONValue.self).futureResultDroppedAt(connection.closed)
        }
        try await ControlNode.serving(handler) { node in
            let outcome = try Self.pump(Self.request(1, "wait") + Self.request(2, "answer"), node) { _ in
                _ = node.server.close()
            }
            #expect(outcome.answers.map { $0["id"] } == [2])
            #expect(outcome.failure?.kind == .noNode)
        }
    }

    @Test func `a node that stops while the input is open is a lost connection`() async throws {
        try await ControlNode.serving { node in
            let outcome = try Self.pump(Self.request(1), isOpen: true, node) { _ in _ = node.server.close() }
            #expect(outcome.answers.map { $0["id"] } == [1])
            #expect(outcome.failure?.kind == .noNode)
        }
    }

    @Test(arguments: [true, false]) func `a subscription continues after the end of input, and is lost with the node`(
        _ isSubscribed: Bool
    ) async throws {
        let handler: ControlHandler = { request, connection in
            switch request.method {
            case "subscribe": connection.startStream()
            case "unsubscribe": connection.stopStream()
            default: break
            }
            return connection.eventLoop.makeSucceededFuture([:])
        }
        try await ControlNode.serving(handler) { node in
            let last = isSubscribed ? "m" : "unsubscribe"
            let outcome = try Self.pump(Self.request(1, "subscribe") + Self.request(2, last), node) { answer in
                if isSubscribed, answer["id"] == 2 { _ = node.server.close() }
            }
            #expect(outcome.answers.map { $0["id"] } == [1, 2])
            #expect(outcome.failure?.kind == (isSubscribed ? .noNode : nil))
        }
    }

    @Test func `a closed output ends the pump without an error`() async throws {
        signal(SIGPIPE, SIG_IGN)
        try await ControlNode.serving { node in
            var source: [Int32] = [0, 0]
            var sink: [Int32] = [0, 0]
            try #require(pipe(&source) == 0 && pipe(&sink) == 0)
            close(sink[0])
            let line = Self.request(1)
            _ = DescriptorOutput.write(line.utf8, to: source[1])
            try node.client().pump(from: source[0], to: sink[1])
            for descriptor in [source[0], source[1], sink[1]] { close(descriptor) }
        }
    }
}
