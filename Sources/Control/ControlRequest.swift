import NIOCore

/// Id of a request (JSON-RPC 2.0, section 4), which its response repeats.
package enum RequestID: Hashable, Sendable {
    case integer(Int64)
    case string(String)
    case null

    package var jsonValue: JSONValue {
        switch self {
        case .integer(let value): .integer(value)
        case .string(let value): .string(value)
        case .null: .null
        }
    }
}

/// A request, or without ``id`` a notification, which gets no response.
package struct ControlRequest: Hashable, Sendable {
    /// The two methods that change what comes on a connection.
    package static let subscribe = "subscribe"
    package static let unsubscribe = "unsubscribe"

    package let id: RequestID?
    package let method: String
    /// An object; empty without parameters.
    package let params: JSONValue
    /// Bytes of the body, which follows the newline.
    package let bodyByteCount: Int

    package init(id: RequestID?, method: String, params: JSONValue = [:], bodyByteCount: Int = 0) {
        self.id = id
        self.method = method
        self.params = params
        self.bodyByteCount = bodyByteCount
    }

    package var jsonValue: JSONValue {
        var members: [String: JSONValue] = ["jsonrpc": "2.0", "method": .string(method)]
        if let id { members["id"] = id.jsonValue }
        if params != [:] { members["params"] = params }
        if bodyByteCount > 0 { members["body"] = .integer(Int64(bodyByteCount)) }
        return .object(members)
    }
}

/// An invalid request. The answer has its ``id``, or a null id when the id is unreadable.
package struct UnreadableRequest: Error, Hashable, Sendable {
    package let id: RequestID
    package let error: ControlError
    /// The start of the next request is unknown, so the connection closes.
    let endsStream: Bool

    init(id: RequestID, error: ControlError, endsStream: Bool = false) {
        self.id = id
        self.error = error
        self.endsStream = endsStream
    }
}

/// Parses one request line: it checks the envelope, and the caller reads the parameters.
enum RequestLine {
    /// The envelope without the parameters.
    struct Head {
        let id: RequestID?
        let method: String
        let bodyByteCount: Int
    }

    /// Parses a line without its newline.
    /// - Parameter body: reads one value from the reader, the object of parameters.
    static func read<Value>(
        _ line: UnsafeBufferPointer<UInt8>, _ body: (Head, inout JSONReader) throws(UnreadableRequest) -> Value
    ) throws(UnreadableRequest) -> Value {
        var reader: JSONReader
        do throws(JSONSyntaxError) { reader = try JSONReader(line) } catch {
            throw UnreadableRequest(id: .null, error: .parse(error.message), endsStream: mayHaveBody(line))
        }
        let kind = reader.kind()
        guard kind == .object else {
            throw UnreadableRequest(
                id: .null,
                error: .invalidRequest(
                    kind == .array
                        ? "batches are not supported, send one request a line"
                        : "expected an object, found \(kind.name)"), endsStream: mayHaveBody(line))
        }
        let first = try? reader.openObject()
        let bodyCount = reader.open("body", from: first) ? reader.bodyByteCount() : 0
        var id: RequestID?
        if reader.open("id", from: first) {
            id = reader.requestID()
            guard id != nil else {
                let error = ControlError.invalidRequest("`id` is a whole number or a string of up to 256 bytes")
                throw UnreadableRequest(id: .null, error: error, endsStream: bodyCount != 0)
            }
        }
        func refusal(_ error: ControlError) -> UnreadableRequest {
            UnreadableRequest(id: id ?? .null, error: error, endsStream: bodyCount != 0)
        }
        guard let bodyByteCount = bodyCount else {
            let limit = ControlLimits.bodyByteCount
            throw refusal(.invalidRequest("`body` is the number of bytes that follow, at most \(limit)"))
        }
        guard reader.open("jsonrpc", from: first), (try? reader.string()) == "2.0" else {
            throw refusal(.invalidRequest(#"`jsonrpc` must be "2.0""#))
        }
        guard reader.open("method", from: first), let method = try? reader.string(), !method.isEmpty,
            method.utf8.count <= 128
        else { throw refusal(.invalidRequest("`method` must be a string")) }
        let head = Head(id: id, method: method, bodyByteCount: bodyByteCount)
        guard reader.open("params", from: first), !reader.isEmptyArray() else {
            var none = JSONReader.emptyObject
            return try body(head, &none)
        }
        guard reader.kind() == .object else {
            throw refusal(.invalidParameter(JSONMismatch("", "`params` must be an object")))
        }
        return try body(head, &reader)
    }

    /// Whether a body may follow an invalid line. Its bytes must not be parsed as requests.
    private static func mayHaveBody(_ line: UnsafeBufferPointer<UInt8>) -> Bool {
        let name = Array(#""body""#.utf8)
        return line.indices.dropLast(name.count - 1).contains { line[$0...].starts(with: name) }
    }
}

extension JSONReader {
    /// `nil` for another value.
    fileprivate mutating func requestID() -> RequestID? {
        switch kind() {
        case .null: return .null
        case .string:
            guard let text = try? string(), text.utf8.count <= 256 else { return nil }
            return .string(text)
        case .number:
            guard case .integer(let value)? = try? number() else { return nil }
            return .integer(value)
        case .bool, .array, .object: return nil
        }
    }

    /// `nil` for another value.
    fileprivate mutating func bodyByteCount() -> Int? {
        guard kind() == .number, case .integer(let value)? = try? number() else { return nil }
        return (0...Int64(ControlLimits.bodyByteCount)).contains(value) ? Int(value) : nil
    }
}

extension ControlRequest {
    /// Parses one line of the socket, without its newline.
    package init(line: some Collection<UInt8>) throws(UnreadableRequest) {
        let contiguous = ContiguousArray(line)
        var outcome: Result<ControlRequest, UnreadableRequest>?
        contiguous.withUnsafeBufferPointer { bytes in
            outcome = Result { () throws(UnreadableRequest) in
                try RequestLine.read(bytes) { head, params in
                    ControlRequest(
                        id: head.id, method: head.method, params: JSONValue(from: &params),
                        bodyByteCount: head.bodyByteCount)
                }
            }
        }
        guard let outcome else { throw UnreadableRequest(id: .null, error: .parse("the line is empty")) }
        self = try outcome.get()
    }
}

/// An answer to one request, or a notification: an event, or the end of a stream.
package enum ControlResponse: Hashable, Sendable {
    case success(id: RequestID, result: JSONValue)
    case failure(id: RequestID, error: ControlError)
    case notification(method: String, params: JSONValue)

    /// Carries one event of a subscription.
    package static let eventMethod = "event"
    /// Ends the subscription of a slow reader.
    package static let droppedMethod = "subscription.dropped"

    /// Start of every notification line and of no other line, because keys are sorted.
    static let notificationStart = #"{"jsonrpc":"2.0","method":"#
    /// Start of the line that ends a subscription.
    static let droppedStart = #"\#(notificationStart)"\#(droppedMethod)""#

    /// One line of the socket, with its newline.
    package var line: [UInt8] {
        var writer = JSONWriter()
        switch self {
        case .success(let id, let result):
            writer.beginSuccess(id)
            result.write(to: &writer)
            writer.endLine()
        case .failure(let id, let error): writer.failure(id, error)
        case .notification(let method, let params): writer.notification(method, params)
        }
        return Array(writer.buffer.readableBytesView)
    }

    /// Parses one line of the socket, without its newline.
    package init(line: some Collection<UInt8>) throws(ControlError) {
        let value: JSONValue
        do { value = try JSONReader.read(line) } catch {
            throw .internalFailure("the node sent a line that is not JSON: \(error.message)")
        }
        let id: RequestID
        switch value["id"] {
        case .integer(let number): id = .integer(number)
        case .string(let text): id = .string(text)
        case .none, .null, .bool, .number, .array, .object: id = .null
        }
        if let method = value["method"]?.stringValue {
            self = .notification(method: method, params: value["params"] ?? [:])
        } else if let error = value["error"] {
            self = .failure(id: id, error: ControlError(jsonValue: error))
        } else if let result = value["result"] {
            self = .success(id: id, result: result)
        } else {
            throw .internalFailure("the node sent a line that is not a JSON-RPC response")
        }
    }
}

// Server lines. The members of an object are sorted by name.
extension JSONWriter {
    /// Starts a result line. Write the result next, then ``endLine()``.
    mutating func beginSuccess(_ id: RequestID) {
        literal(#"{"id":"#)
        id.jsonValue.write(to: &self)
        literal(#","jsonrpc":"2.0","result":"#)
    }

    mutating func endLine() { literal("}\n") }

    mutating func failure(_ id: RequestID, _ error: ControlError) {
        literal(#"{"error":"#)
        error.jsonValue.write(to: &self)
        literal(#","id":"#)
        id.jsonValue.write(to: &self)
        literal(#","jsonrpc":"2.0"}"#)
        literal("\n")
    }

    mutating func notification(_ method: String, _ params: some JSONWritable) {
        literal(#"{"jsonrpc":"2.0","method":"#)
        string(method)
        literal(#","params":"#)
        params.write(to: &self)
        endLine()
    }
}

/// Kind of a failure: a closed list that determines the exit code of the command line.
package enum FailureKind: String, JSONChoice, Hashable, Sendable {
    /// Any other failure.
    case failed
    /// The request is wrong: unknown method, missing or malformed field.
    case usage
    /// The other side refused: join failed, lifetime rejected.
    case refused
    /// The invitation, message or conversation has expired or exploded.
    case expired
    case timedOut
    case unreachable
    /// The node is locked and needs its passphrase.
    case locked
    /// No such conversation, message, peer, inbox or join.
    case notFound
    /// No node is running in this home.
    case noNode

    /// The exit code of the command line. Success is 0.
    package var exitCode: Int32 {
        switch self {
        case .failed: 1
        case .refused: 2
        case .expired: 3
        case .timedOut: 4
        case .unreachable: 5
        case .locked: 6
        case .notFound: 7
        case .noNode: 8
        case .usage: 64
        }
    }

    /// JSON-RPC 2.0 error code: invalid params for `usage`, otherwise -32000 − exit code.
    package var rpcCode: Int64 {
        switch self {
        case .usage: -32602
        case .failed, .refused, .expired, .timedOut, .unreachable, .locked, .notFound, .noNode: -32000 - Int64(exitCode)
        }
    }
}

package struct ControlError: Error, JSONRecord, Hashable, Sendable {
    /// JSON-RPC 2.0 error code (section 5.1).
    package private(set) var code = FailureKind.failed.rpcCode
    /// Stable for scripts.
    package private(set) var kind = FailureKind.failed { didSet { code = kind.rpcCode } }
    /// One lower-case phrase without a full stop.
    package private(set) var message = ""
    /// Advice.
    package private(set) var hint: String?
    /// The invalid parameter.
    package private(set) var field: String?
    /// At a client: the conversation that the failed request named. A hint calls it `C`.
    package var conversation: String?

    package init() {}

    package init(_ kind: FailureKind, _ message: String, hint: String? = nil, field: String? = nil, code: Int64? = nil)
    {
        self.kind = kind
        self.message = message
        self.hint = hint
        self.field = field
        self.code = code ?? kind.rpcCode
    }

    package mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
        try fields.field("kind", &kind)
        try fields.field("message", &message)
        try fields.field("hint", &hint)
        try fields.field("field", &field)
    }
}

extension ControlError {
    /// The line is not JSON, or longer or deeper than the server reads.
    package static func parse(_ reason: String) -> ControlError {
        ControlError(.usage, "cannot parse the request: \(reason)", hint: "send one JSON object a line", code: -32700)
    }

    /// The line is JSON, but not a JSON-RPC 2.0 request.
    package static func invalidRequest(_ reason: String) -> ControlError {
        ControlError(
            .usage, "invalid request: \(reason)", hint: #"send {"jsonrpc":"2.0","id":1,"method":"status"}"#,
            code: -32600)
    }

    /// No version of this program has that method.
    package static func unknownMethod(_ method: String) -> ControlError {
        ControlError(.usage, "unknown method `\(method)`", hint: "`mayfly schema` lists the methods", code: -32601)
    }

    /// The method exists, but not in this version of the node.
    package static func unsupportedMethod(_ method: String) -> ControlError {
        ControlError(.failed, "`\(method)` is not supported by this version", code: -32601)
    }

    package static func invalidParameter(_ mismatch: JSONMismatch) -> ControlError {
        guard !mismatch.field.isEmpty else { return ControlError(.usage, "invalid parameters: \(mismatch.message)") }
        return ControlError(.usage, "invalid parameter `\(mismatch.field)`: \(mismatch.message)", field: mismatch.field)
    }

    package static func internalFailure(_ reason: String) -> ControlError {
        ControlError(.failed, reason, code: -32603)
    }

    package static func noNode(home: String) -> ControlError {
        ControlError(.noNode, "no node is running in \(home)", hint: "start it with `mayfly run`")
    }

    package static func noHome(_ home: String) -> ControlError {
        ControlError(.noNode, "there is no home in \(home)", hint: "make it with `mayfly init`, then `mayfly run`")
    }
}

extension ControlError {
    /// The JSON-RPC 2.0 error object, with kind and hint in `data`.
    package var jsonValue: JSONValue {
        var data: [String: JSONValue] = ["kind": .string(kind.rawValue)]
        if let hint { data["hint"] = .string(hint) }
        if let field { data["field"] = .string(field) }
        return ["code": .integer(code), "message": .string(message), "data": .object(data)]
    }

    /// The line that the command line prints with `--json`.
    package var reportValue: JSONValue { ["error": JSONValue(of: self)] }

    /// A kind of a newer node reads as `failed`.
    package init(jsonValue value: JSONValue) {
        let data = value["data"] ?? .null
        self.init(
            data["kind"]?.stringValue.flatMap(FailureKind.init(rawValue:)) ?? .failed,
            value["message"]?.stringValue ?? "the node reported an error without a message",
            hint: data["hint"]?.stringValue, field: data["field"]?.stringValue,
            code: value["code"]?.integerValue ?? -32603)
    }
}
