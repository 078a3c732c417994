import Control
import NIOCore
import Synchronization
import Testing

@testable import Program

@Suite(.timeLimit(.minutes(30))) struct BodyTests {
    private final class Bodies: Sendable {
        private let all = Mutex<[[UInt8]]>([])

        func add(_ body: [UInt8]) { all.withLock { $0.append(body) } }

        var list: [[UInt8]] { all.withLock { $0 } }
    }

    private static func service(_ bodies: Bodies = Bodies()) -> ControlRouter {
        var router = Methods.router()
        router.on(AttachmentMethods.append) { call in
            let body = call.body.map { Array($0.readableBytesView) } ?? []
            bodies.add(body)
            call.succeed(AttachmentAppendResult(byteCount: Int64(body.count)))
        }
        return router
    }

    private static func request(_ id: Int, body: String, method: String = "attachment.append") -> String {
        #"{"jsonrpc":"2.0","id":\#(id),"method":"\#(method)","params":{"upload":"u"},"body":\#(body)}"# + "\n"
    }

    private static let schema = #"{"jsonrpc":"2.0","id":9,"method":"schema"}"# + "\n"

    @Test(arguments: [1, 7, 4_096, 1 << 20]) func `a body arrives complete, in any number of pieces`(
        pieceByteCount: Int
    ) async throws {
        let bodies = Bodies()
        try await ControlNode.serving(service: Self.service(bodies)) { node in
            let raw = try node.rawClient()
            // Lines in a body are not requests.
            let first = Array(Self.schema.utf8) + (0..<2_000).map { UInt8(truncatingIfNeeded: $0) }
            let bytes =
                Array(Self.request(1, body: "\(first.count)").utf8) + first + Array(Self.request(2, body: "0").utf8)
                + Array(Self.request(3, body: "1").utf8) + [0x0A] + Array(Self.schema.utf8)
            for start in stride(from: 0, to: bytes.count, by: pieceByteCount) {
                raw.send(Array(bytes[start..<min(start + pieceByteCount, bytes.count)]))
            }
            for (id, count) in [(1, first.count), (2, 0), (3, 1)] {
                let answer = try raw.line()
                #expect(answer?["id"] == .integer(Int64(id)))
                #expect(answer?["result"]?["byteCount"] == .integer(Int64(count)))
            }
            #expect(try raw.line()?["id"] == 9)
            #expect(bodies.list == [first, [], [0x0A]])
        }
    }

    @Test func `a body of the maximum length is accepted`() async throws {
        try await ControlNode.serving(service: Self.service()) { node in
            let client = try node.client()
            let body = [UInt8](repeating: 7, count: ControlLimits.bodyByteCount)
            let params = UploadParams(upload: "u")
            let calls = try (0..<3).map { _ in try client.send(AttachmentMethods.append, params, body: body, until: nil)
            }
            for call in calls {
                #expect(try client.answer(to: call, until: nil)["byteCount"] == .integer(Int64(body.count)))
            }
        }
    }

    @Test(arguments: ["schema", "no.such.method", "status"]) func `the body of a refused request is skipped`(
        method: String
    ) async throws {
        try await ControlNode.serving(service: Self.service()) { node in
            let raw = try node.rawClient()
            raw.send(Self.request(1, body: "\(Self.schema.utf8.count)", method: method) + Self.schema)
            raw.send(Self.request(2, body: "3") + "abc")
            let refusal = try raw.line()
            #expect(refusal?["id"] == 1 && refusal?["error"] != nil)
            #expect(try raw.line()?["result"]?["byteCount"] == 3)
        }
    }

    @Test(arguments: ["-1", "1048577", "0.5", "null", #""1""#, "9223372036854775807"])
    func `nothing is read after a body of invalid length`(length: String) async throws {
        try await ControlNode.serving(service: Self.service()) { node in
            let raw = try node.rawClient()
            raw.send(Self.request(1, body: length) + Self.schema)
            #expect(try raw.line()?["error"]?["message"]?.stringValue?.contains("`body`") == true)
            #expect(try raw.line() == nil)
        }
    }

    @Test(arguments: [
        #"{"jsonrpc":"2.0","id":1.5,"method":"attachment.append","params":{},"body":9}"#,
        #"{"jsonrpc":"1.0","id":1,"method":"attachment.append","params":{},"body":9}"#,
        #"{"jsonrpc":"2.0","id":1,"method":"","params":{},"body":9}"#,
        #"{"jsonrpc":"2.0","id":1,"method":"attachment.append","params":"u","body":9}"#,
        #"{"jsonrpc":"2.0","id":1,"method":"attachment.append","params":{,},"body":9}"#,
        #"[{"jsonrpc":"2.0","id":1,"method":"attachment.append","params":{},"body":9}]"#,
    ]) func `a possible body after a bad request is never read as requests`(line: String) async throws {
        try await ControlNode.serving(service: Self.service()) { node in
            let raw = try node.rawClient()
            raw.send(line + "\n" + Self.schema)
            #expect(try raw.line()?["error"] != nil)
            #expect(try raw.line() == nil)
        }
    }

    @Test func `a request receives its body even at the limit of requests in flight`() async throws {
        var router = Self.service()
        router.on(NodeMethods.status) { _ in }
        let service = router
        try await ControlNode.serving(service: service) { node in
            let raw = try node.rawClient()
            let waiting = #"{"jsonrpc":"2.0","id":7,"method":"status"}"# + "\n"
            raw.send(String(repeating: waiting, count: ControlLimits.requestsInFlight - 1))
            raw.send(Self.request(1, body: "3") + "abc")
            #expect(try raw.line()?["result"]?["byteCount"] == 3)
        }
    }

    @Test func `an input that ends within a body is answered with an error`() async throws {
        let bodies = Bodies()
        try await ControlNode.serving(service: Self.service(bodies)) { node in
            let raw = try node.rawClient()
            raw.send(Self.request(1, body: "4") + "abc")
            raw.endInput()
            let answer = try raw.line()
            #expect(answer?["id"] == 1)
            #expect(answer?["error"]?["message"]?.stringValue?.contains("before the 4 bytes") == true)
            #expect(try raw.line() == nil)
            #expect(bodies.list.isEmpty)
        }
    }

    @Test func `a later request's failure ends the wait for an earlier answer`() async throws {
        var router = Methods.router()
        router.on(AttachmentMethods.append) { call in
            // The first is never answered.
            if call.params.upload == "b" { call.fail(ControlError(.notFound, "no such upload")) }
        }
        try await ControlNode.serving(service: router) { node in
            let client = try node.client()
            func send(_ upload: String) throws -> ControlClient.PendingCall {
                let params = UploadParams(upload: upload)
                return try client.send(AttachmentMethods.append, params, body: [1], until: nil)
            }
            let first = try send("a")
            _ = try send("b")
            #expect(failure { try client.answer(to: first, until: nil) }?.kind == .notFound)
        }
    }
}
