import Messaging

extension FailureKind: JSONChoice {
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
    package private(set) var conversation: String?

    package init() {}

    package init(_ kind: FailureKind, _ message: String, hint: String? = nil, field: String? = nil, code: Int64? = nil)
    {
        self.kind = kind
        self.message = message
        self.hint = hint
        self.field = field
        self.code = code ?? kind.rpcCode
    }

    package func about(_ conversation: String?) -> ControlError {
        var named = self
        named.conversation = conversation
        return named
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

    /// The node still runs, and knows the home by its earlier path.
    package static func homeMoved(_ home: String) -> ControlError {
        ControlError(
            .noNode, "the home \(home) was renamed or removed under its running node",
            hint: "the node stops by itself; give the home's new place with --home")
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
