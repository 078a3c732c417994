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
        do throws(JSONSyntaxError) { try JSONSyntax.check(line) } catch {
            throw UnreadableRequest(id: .null, error: .parse(error.message), endsStream: mayHaveBody(line))
        }
        var reader = JSONReader(checked: line)
        let kind = reader.kind()
        guard kind == .object else {
            throw UnreadableRequest(
                id: .null,
                error: .invalidRequest(
                    kind == .array
                        ? "batches are not supported, send one request a line"
                        : "expected an object, found \(kind.name)"), endsStream: mayHaveBody(line))
        }
        let envelope = reader.envelope()
        let id: RequestID?
        switch envelope.id {
        case .valid(let valid): id = valid
        case .absent: id = nil
        case .invalid:
            let error = ControlError.invalidRequest("`id` is a whole number or a string of up to 256 bytes")
            throw UnreadableRequest(id: .null, error: error, endsStream: envelope.bodyByteCount != 0)
        }
        guard let bodyByteCount = envelope.bodyByteCount else {
            let limit = ControlLimits.bodyByteCount
            let error = ControlError.invalidRequest("`body` is the number of bytes that follow, at most \(limit)")
            throw UnreadableRequest(id: id ?? .null, error: error, endsStream: true)
        }
        guard envelope.version == "2.0" else {
            let error = ControlError.invalidRequest(#"`jsonrpc` must be "2.0""#)
            throw UnreadableRequest(id: id ?? .null, error: error, endsStream: bodyByteCount > 0)
        }
        guard let method = envelope.method, !method.isEmpty, method.utf8.count <= 128 else {
            let error = ControlError.invalidRequest("`method` must be a string")
            throw UnreadableRequest(id: id ?? .null, error: error, endsStream: bodyByteCount > 0)
        }
        let head = Head(id: id, method: method, bodyByteCount: bodyByteCount)
        switch envelope.params {
        case .object(let place):
            reader.move(to: place)
            return try body(head, &reader)
        case .absent: return try withNoParameters { reader throws(UnreadableRequest) in try body(head, &reader) }
        case .other:
            let mismatch = JSONMismatch("", "`params` must be an object")
            throw UnreadableRequest(id: id ?? .null, error: .invalidParameter(mismatch), endsStream: bodyByteCount > 0)
        }
    }

    /// Whether a body may follow an invalid line. Its bytes must not be parsed as requests.
    private static func mayHaveBody(_ line: UnsafeBufferPointer<UInt8>) -> Bool {
        let name = Array(#""body""#.utf8)
        return line.indices.dropLast(name.count - 1).contains { line[$0...].starts(with: name) }
    }

    private static func withNoParameters<Value>(_ body: (inout JSONReader) throws(UnreadableRequest) -> Value)
        throws(UnreadableRequest) -> Value
    {
        let bytes: StaticString = "{}"
        var reader = JSONReader(checked: UnsafeBufferPointer(start: bytes.utf8Start, count: bytes.utf8CodeUnitCount))
        return try body(&reader)
    }
}

private struct Envelope {
    enum ID {
        case absent
        case valid(RequestID)
        case invalid
    }

    enum Params {
        case absent
        /// Offset of the object.
        case object(Int)
        case other
    }

    var id = ID.absent
    var version: String?
    var method: String?
    var params = Params.absent
    /// `nil` for an invalid value.
    var bodyByteCount: Int? = 0
}

extension JSONReader {
    fileprivate mutating func envelope() -> Envelope {
        var envelope = Envelope()
        visitObject { object in
            envelope.id = object.value(of: "id") { reader in Self.id(&reader) } ?? .absent
            envelope.version = object.value(of: "jsonrpc") { reader in try? reader.string() } ?? nil
            envelope.method = object.value(of: "method") { reader in try? reader.string() } ?? nil
            envelope.params = object.value(of: "params") { reader in Self.params(&reader) } ?? .absent
            envelope.bodyByteCount = object.value(of: "body") { reader in Self.bodyByteCount(&reader) } ?? .some(0)
        }
        return envelope
    }

    private static func id(_ reader: inout JSONReader) -> Envelope.ID {
        switch reader.kind() {
        case .null: return .valid(.null)
        case .string:
            guard let text = try? reader.string(), text.utf8.count <= 256 else { return .invalid }
            return .valid(.string(text))
        case .number:
            guard case .integer(let value)? = try? reader.number() else { return .invalid }
            return .valid(.integer(value))
        case .bool, .array, .object: return .invalid
        }
    }

    private static func bodyByteCount(_ reader: inout JSONReader) -> Int? {
        guard reader.kind() == .number, case .integer(let value)? = try? reader.number() else { return nil }
        return (0...Int64(ControlLimits.bodyByteCount)).contains(value) ? Int(value) : nil
    }

    private static func params(_ reader: inout JSONReader) -> Envelope.Params {
        switch reader.kind() {
        case .object: return .object(reader.place)
        case .array:
            var isEmpty = true
            do throws(JSONMismatch) {
                try reader.array { element in
                    isEmpty = false
                    element.skip()
                }
            } catch { return .other }
            return isEmpty ? .absent : .other
        case .null, .bool, .number, .string: return .other
        }
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
        id.write(to: &self)
        literal(#","jsonrpc":"2.0","result":"#)
    }

    mutating func endLine() { literal("}\n") }

    mutating func failure(_ id: RequestID, _ error: ControlError) {
        literal(#"{"error":"#)
        error.jsonValue.write(to: &self)
        literal(#","id":"#)
        id.write(to: &self)
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

extension RequestID {
    func write(to writer: inout JSONWriter) {
        switch self {
        case .integer(let value): writer.integer(value)
        case .string(let value): writer.string(value)
        case .null: writer.literal("null")
        }
    }
}
