/// Why a command did not do what was asked: the closed list behind the exit codes of the command line.
package enum FailureKind: String, JSONChoice, Hashable, Sendable {
    /// Anything that has no kind of its own.
    case failed
    /// The request itself is wrong: unknown method, missing or malformed field.
    case usage
    /// The other side said no: join failed, lifetime rejected.
    case refused
    /// Too late: the invitation, message or conversation has expired or exploded.
    case expired
    /// The time given was not enough.
    case timedOut
    /// The peer could not be reached.
    case unreachable
    /// The node is locked and needs its passphrase.
    case locked
    /// There is no such conversation, message, peer, inbox or join.
    case notFound
    /// No node is running here.
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

    /// The JSON-RPC error code: the one that JSON-RPC 2.0 reserves for wrong parameters, or -32000 − exit code.
    package var rpcCode: Int64 {
        switch self {
        case .usage: -32602
        case .failed, .refused, .expired, .timedOut, .unreachable, .locked, .notFound, .noNode: -32000 - Int64(exitCode)
        }
    }
}

/// A typed failure, the same on both ends of the control socket.
package struct ControlError: Error, Hashable, Sendable {
    /// The JSON-RPC 2.0 error code (section 5.1).
    package let code: Int64
    /// What scripts branch on.
    package let kind: FailureKind
    /// What was wrong, and where: one lower-case phrase without a full stop.
    package let message: String
    /// What to do next, when there is something to do.
    package let hint: String?
    /// The parameter that was wrong, when one was.
    package let field: String?

    package init(_ kind: FailureKind, _ message: String, hint: String? = nil, field: String? = nil, code: Int64? = nil)
    {
        self.kind = kind
        self.message = message
        self.hint = hint
        self.field = field
        self.code = code ?? kind.rpcCode
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

    /// The method is known, but the node that answers does not have it.
    package static func unsupportedMethod(_ method: String) -> ControlError {
        ControlError(.failed, "`\(method)` is not supported by this version", code: -32601)
    }

    /// A parameter is missing, unknown, or of the wrong type.
    package static func invalidParameter(_ mismatch: JSONMismatch) -> ControlError {
        guard !mismatch.field.isEmpty else { return ControlError(.usage, "invalid parameters: \(mismatch.message)") }
        return ControlError(.usage, "invalid parameter `\(mismatch.field)`: \(mismatch.message)", field: mismatch.field)
    }

    /// Our own fault.
    package static func internalFailure(_ reason: String) -> ControlError {
        ControlError(.failed, reason, code: -32603)
    }

    /// No node listens on the control socket of `home`.
    package static func noNode(home: String) -> ControlError {
        ControlError(.noNode, "no node is running in \(home)", hint: "start it with `mayfly run`")
    }

    /// There is no such directory.
    package static func noHome(_ home: String) -> ControlError {
        ControlError(.noNode, "there is no home in \(home)", hint: "make it with `mayfly init`, then `mayfly run`")
    }
}

extension ControlError {
    /// The JSON-RPC 2.0 error object, with our kind and hint in `data`.
    package var jsonValue: JSONValue {
        var data: [String: JSONValue] = ["kind": .string(kind.rawValue)]
        if let hint { data["hint"] = .string(hint) }
        if let field { data["field"] = .string(field) }
        return ["code": .integer(code), "message": .string(message), "data": .object(data)]
    }

    /// The line that the command line prints with `--json`.
    package var reportValue: JSONValue {
        var report: [String: JSONValue] = ["kind": .string(kind.rawValue), "message": .string(message)]
        if let hint { report["hint"] = .string(hint) }
        if let field { report["field"] = .string(field) }
        return ["error": .object(report)]
    }

    /// Reads an error object. A kind from a newer node reads as `failed`.
    package init(jsonValue value: JSONValue) {
        let data = value["data"] ?? .null
        self.init(
            data["kind"]?.stringValue.flatMap(FailureKind.init(rawValue:)) ?? .failed,
            value["message"]?.stringValue ?? "the node reported an error without a message",
            hint: data["hint"]?.stringValue, field: data["field"]?.stringValue,
            code: value["code"]?.integerValue ?? -32603)
    }
}
