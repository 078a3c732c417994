import Control
import Glibc
import NIOCore
import NIOPosix
import Synchronization
import Testing

@testable import Program

@Suite(.timeLimit(.minutes(30))) struct ControlServerTests {
    @Test func `a request is answered with its id`() async throws {
        try await ControlNode.serving { node in
            let raw = try node.rawClient()
            raw.send(#"{"jsonrpc":"2.0","id":"x7","method":"status","params":{"a":1}}"# + "\r\n")
            let answer = try raw.line()
            #expect(answer?["id"] == "x7")
            #expect(answer?["result"]?["method"] == "status")
            #expect(answer?["result"]?["params"]?["a"] == 1)
        }
    }

    @Test func `pipelined requests are all answered, even if the last is answered first`() async throws {
        let waiting = Mutex<[EventLoopPromise<JSONValue>]>([])
        let handler: ControlHandler = { request, connection in
            if request.method == "last" {
                connection.eventLoop.execute { for promise in waiting.withLock({ $0 }) { promise.succeed("waited") } }
                return connection.eventLoop.makeSucceededFuture("first")
            }
            let promise = connection.eventLoop.makePromise(of: JSONValue.self)
            waiting.withLock { $0.append(promise) }
            return promise.futureResult
        }
        try await ControlNode.serving(handler) { node in
            let raw = try node.rawClient()
            let requests = (1...20).map { #"{"jsonrpc":"2.0","id":\#($0),"method":"wait"}"# }
            raw.send((requests + [#"{"jsonrpc":"2.0","id":99,"method":"last"}"#]).joined(separator: "\n") + "\n")
            #expect(try raw.line()?["id"] == 99)
            let ids = try (1...20).map { _ in try raw.line()?["id"]?.integerValue }
            #expect(ids == (1...20).map { Int64($0) })
        }
    }

    @Test(arguments: ["2.0", "1.0"]) func `more requests than the limit in flight are all answered, also refused ones`(
        version: String
    ) async throws {
        try await ControlNode.serving { node in
            let raw = try node.rawClient()
            let count = ControlLimits.requestsInFlight * 5
            raw.send((1...count).map { #"{"jsonrpc":"\#(version)","id":\#($0),"method":"m"}"# + "\n" }.joined())
            for id in 1...count {
                let line = try raw.line()
                #expect(line?["id"] == .integer(Int64(id)) && (line?["error"] == nil) == (version == "2.0"))
            }
        }
    }

    @Test func `requests of one read reach the service together, and run as one where they may`() async throws {
        let runs = Mutex<[[String?]]>([])
        @Sendable func areOfOne(_ first: SendParams, _ next: SendParams) -> Bool {
            first.conversation == next.conversation
        }
        var router = Methods.router()
        router.on(MessageMethods.send, joins: areOfOne) { call in
            let calls = [call] + call.followers
            runs.withLock { $0.append(calls.map(\.params.text)) }
            for one in calls { one.succeed(SendResult(results: [])) }
        }
        router.on(NodeMethods.status) { call in call.fail(ControlError(.failed, "only a test")) }
        try await ControlNode.serving(service: router) { node in
            let raw = try node.rawClient()
            func send(_ id: Int, _ conversation: String) -> String {
                #"{"jsonrpc":"2.0","id":\#(id),"method":"send","params":{"conversation":"\#(conversation)","text":"\#(id)"}}"#
                    + "\n"
            }
            let other = #"{"jsonrpc":"2.0","id":23,"method":"status"}"# + "\n"
            raw.send((1...20).map { send($0, "c") }.joined() + send(21, "d") + send(22, "c") + other + send(24, "c"))
            for id in 1...24 { #expect(try raw.line()?["id"] == .integer(Int64(id))) }
            #expect(runs.withLock { $0 } == [(1...20).map(String.init), ["21"], ["22"], ["24"]])
        }
    }

    @Test func `a call's parameters are released when its handler returns`() async throws {
        let kept = Mutex<MethodCall<SendParams, SendResult>?>(nil)
        let told = Mutex("")
        var router = Methods.router()
        router.on(MessageMethods.send) { call in
            told.withLock { $0 = call.params.text ?? "" }
            kept.withLock { $0 = call }
        }
        router.on(NodeMethods.status) { call in
            kept.withLock { waiting in
                #expect(waiting?.params == SendParams())
                waiting?.succeed(SendResult(SentMessage(message: HexID(1, 2), state: .sent, stored: false)))
                waiting = nil
            }
            call.fail(ControlError(.failed, "only a test"))
        }
        try await ControlNode.serving(service: router) { node in
            let raw = try node.rawClient()
            raw.send(#"{"jsonrpc":"2.0","id":1,"method":"send","params":{"conversation":"c","text":"secret"}}"# + "\n")
            raw.send(#"{"jsonrpc":"2.0","id":2,"method":"status"}"# + "\n")
            #expect(try raw.line()?["result"]?["state"] == "sent")
            #expect(try raw.line()?["error"]?["message"] == "only a test")
            #expect(told.withLock { $0 } == "secret")
        }
    }

    private static let over = String(repeating: "x", count: ControlLimits.requestByteCount + 200_000)
    private static let (head, tail) = (#"{"jsonrpc":"2.0","id":5,"method":"m","params":{"a":""#, #""}}"#)
    private static let longest =
        head + String(repeating: "x", count: ControlLimits.requestByteCount - head.utf8.count - tail.utf8.count) + tail

    /// The answers are written `id` or `id:code`. The input ends after the lines.
    @Test(
        arguments: [
            (["{nonsense\n", request(7)], "null:-32700 7"), (["[]\n", request(7)], "null:-32600 7"),
            ([#"[{"jsonrpc":"2.0"}]"#, "\n", request(7)], "null:-32600 7"), (["7\n", request(7)], "null:-32600 7"),
            ([#"{"id":3,"method":"m"}"#, "\n", request(7)], "3:-32600 7"),
            ([#"{"jsonrpc":"2.0","id":3}"#, "\n", request(7)], "3:-32600 7"),
            ([#"{"jsonrpc":"2.0","id":{},"method":"m"}"#, "\n", request(7)], "null:-32600 7"),
            ([#"{"jsonrpc":"2.0","id":3,"method":"m","params":[1]}"#, "\n", request(7)], "3:-32602 7"),
            ([String(repeating: "[", count: 100_000), "\n", request(7)], "null:-32700 7"),
            // A notification gets no answer, and the last line needs no newline, but all of a request.
            ([#"{"jsonrpc":"2.0","method":"silent"}"#, "\n", request(1)], "1"),
            ([request(1), String(request(2).dropLast()), "\r"], "1 2"), ([#"{"jsonrpc":"2.0","id":1,"#], "null:-32700"),
            ([longest, "\n"], "5"), ([over], "null:-32700"),
        ] as [([String], String)])
    func `each line is answered with its result or an error, also before the end of input`(
        input: [String], expected: String
    ) async throws {
        let served = Mutex(0)
        let handler: ControlHandler = { _, connection in
            served.withLock { $0 += 1 }
            return connection.eventLoop.makeSucceededFuture(.null)
        }
        try await ControlNode.serving(handler) { node in
            let raw = try node.rawClient()
            raw.send(input.joined())
            raw.endInput()
            var answers: [String] = []
            while let answer = try raw.line() {
                let error = answer["error"]
                #expect(error == nil || error?["data"]?["kind"] == "usage")
                answers.append((answer["id"]?.text ?? "") + (error?["code"].map { ":\($0.text)" } ?? ""))
            }
            #expect(answers.joined(separator: " ") == expected)
        }
        let answered = expected.split(separator: " ").count { !$0.contains(":") }
        #expect(served.withLock { $0 } == answered + (input[0].contains("silent") ? 1 : 0))
    }

    private static func request(_ id: Int) -> String { #"{"jsonrpc":"2.0","id":\#(id),"method":"m"}"# + "\n" }

    @Test func `the router distinguishes unknown methods, unsupported methods and wrong parameters`() async throws {
        var router = Methods.router()
        router.on(PeerMethods.show) { call in call.fail(ControlError(.notFound, "no such peer")) }
        router.on(ConversationMethods.create) { call in
            call.succeed(
                ConversationCreateResult(
                    conversation: "c1", inbox: "i1", name: call.params.name,
                    inviteTag: call.params.with?.joined() ?? "-"))
        }
        try await ControlNode.serving(service: router) { node in
            let client = try node.client()
            func failure(_ method: String, _ params: JSONValue) -> ControlError? {
                do throws(ControlError) {
                    _ = try client.call(method, params)
                    return nil
                } catch { return error }
            }
            #expect(failure("peer.steal", [:]) == .unknownMethod("peer.steal"))
            #expect(failure("peer.list", [:]) == .unsupportedMethod("peer.list"))
            #expect(failure("peer.show", ["name": "ann"])?.kind == .notFound)
            #expect(failure("peer.show", [:])?.field == "name")
            #expect(failure("peer.show", ["name": 7])?.message.contains("expected a string") == true)
            #expect(failure("conversation.create", ["whith": []])?.field == "whith")
            #expect(failure("conversation.create", ["with": ["a", 1]])?.field == "with[1]")
            let created = try client.call(ConversationMethods.create, .init(name: "room", with: ["a", "b"]))
            #expect(created["inviteTag"] == "ab")
            #expect(try client.call("schema")["methods"]?.arrayValue?.isEmpty == false)
        }
    }

    @Test func `the disconnection of a waiting client is noticed`() async throws {
        let group = MultiThreadedEventLoopGroup.singleton
        let gone = group.next().makePromise(of: Void.self)
        let arrived = group.next().makePromise(of: Void.self)
        let handler: ControlHandler = { _, connection in
            let answer = connection.eventLoop.makePromise(of: JSONValue.self)
            _ = connection.onClose {
                answer.fail(ControlError(.failed, "the client went away"))
                gone.succeed()
            }
            arrived.succeed()
            return answer.futureResult
        }
        try await ControlNode.serving(handler) { node in
            var raw: RawClient? = try node.rawClient()
            raw?.send(#"{"jsonrpc":"2.0","id":1,"method":"wait"}"# + "\n")
            try arrived.futureResult.wait()
            raw = nil
            try gone.futureResult.wait()
        }
    }

    @Test func `many requests are served in several passes, all before their client's disconnection is handled`()
        async throws
    {
        let count = 40
        let seen = Mutex((passes: [Int](), performed: 0, performedAtEnd: -1))
        let ended = MultiThreadedEventLoopGroup.singleton.next().makePromise(of: Void.self)
        let service = HandlerService(
            handler: { _, session in
                let isFirst = seen.withLock { seen in
                    seen.performed += 1
                    return seen.performed == 1
                }
                if isFirst {
                    _ = session.onClose {
                        seen.withLock { $0.performedAtEnd = $0.performed }
                        ended.succeed()
                    }
                }
                return session.eventLoop.makeSucceededFuture(true)
            }, performs: { number in seen.withLock { $0.passes.append(number) } })
        try await ControlNode.serving(service: service) { node in
            var raw: RawClient? = try node.rawClient()
            let filler = String(repeating: "x", count: 4_096)
            // Without answers, which a client that has gone would refuse.
            let request = #"{"jsonrpc":"2.0","method":"m","params":{"a":"\#(filler)"}}"# + "\n"
            raw?.send(String(repeating: request, count: count))
            raw = nil
            try ended.futureResult.wait()
        }
        let result = seen.withLock { $0 }
        #expect(result.performed == count && result.performedAtEnd == count)
        #expect(result.passes.count > 3 && result.passes.allSatisfy { $0 <= 8 }, "\(result.passes)")
    }

    @Test func `an unknown error is answered without its details`() async throws {
        struct Secret: Error {}
        let handler: ControlHandler = { _, connection in connection.eventLoop.makeFailedFuture(Secret()) }
        try await ControlNode.serving(handler) { node in
            let error = failure { try node.client().call("m") }
            #expect(error?.code == -32603)
            #expect(error?.message.contains("Secret") == false)
        }
    }

    /// Answers all calls except `wait`, which waits until its client disconnects.
    private static let waiting: ControlHandler = { request, session in
        guard request.method == "wait" else { return session.eventLoop.makeSucceededFuture([:]) }
        return session.eventLoop.makePromise(of: JSONValue.self).futureResultDroppedAt(session.closed)
    }

    @Test func `a short call succeeds while the maximum number of clients wait`() async throws {
        try await ControlNode.serving(Self.waiting) { node in
            let waiting = try (0..<ControlLimits.waitingConnections).map { _ in try node.rawClient() }
            for client in waiting {
                client.send(#"{"jsonrpc":"2.0","id":1,"method":"m"}"# + "\n")
                #expect(try client.line()?["id"] == 1)
                client.send(#"{"jsonrpc":"2.0","id":2,"method":"wait"}"# + "\n")
                // Notifications get no answer, and the answer to a later call shows that they were read.
                client.send(#"{"jsonrpc":"2.0","id":3,"method":"m"}"# + "\n")
                #expect(try client.line()?["id"] == 3)
            }
            for _ in 0..<2 * ControlLimits.connections { _ = try node.client().call("m") }
            // The next waiting call is refused, and its connection stays open.
            let next = try node.client()
            let refused = failure { try next.call("wait") }
            #expect(refused?.kind == .failed && refused?.message.contains("wait already") == true)
            _ = try next.call("m")
        }
    }

    @Test func `the longest idle connection is closed for a new one, and its client is told`() async throws {
        try await ControlNode.serving { node in
            var clients = try (0..<ControlLimits.connections).map { _ in try node.client() }
            for client in clients { _ = try client.call("m") }
            let first = clients.removeFirst()
            _ = try node.client().call("m")
            for client in clients { _ = try client.call("m") }
            let closed = failure { try first.call("m") }
            #expect(closed?.kind == .failed && closed?.message.contains("idle") == true, "\(closed as Any)")
            #expect(failure { try first.call("m") } == closed, "not that the node has gone")
        }
    }

    @Test
    func `a new connection waits for room until calls have had no answer for 5 s, and their clients are told why`()
        async throws
    {
        let hung: ControlHandler = { request, session in
            request.method == "send"
                ? session.eventLoop.makePromise(of: JSONValue.self).futureResultDroppedAt(session.closed)
                : session.eventLoop.makeSucceededFuture(
                    .string(String(repeating: "x", count: request.method == "long" ? 1 << 18 : 1)))
        }
        try await ControlNode.serving(hung) { node in
            let began = ContinuousClock.now
            let clients = try (0..<ControlLimits.connections).map { number in
                let client = try node.rawClient()
                // Every second client does not read its answer.
                let method = number.isMultiple(of: 2) ? "send" : "long"
                client.send(#"{"jsonrpc":"2.0","id":1,"method":"\#(method)"}"# + "\n")
                return client
            }
            let later = try (0..<2).map { _ in try ControlClient(home: node.home, patience: .seconds(30)) }
            for client in later { _ = try client.call("status") }
            #expect(ContinuousClock.now - began >= .seconds(5))
            let answer = try clients[0].line()
            #expect(answer?["error"]?["message"]?.stringValue?.contains("it is stored") == true, "\(answer as Any)")
        }
    }
}
