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
    var endsStream = false
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
        self = try ContiguousArray(line).withUnsafeBufferPointer { bytes throws(UnreadableRequest) in
            try RequestLine.read(bytes) { head, params in
                ControlRequest(
                    id: head.id, method: head.method, params: JSONValue(from: &params),
                    bodyByteCount: head.bodyByteCount)
            }
        }
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
