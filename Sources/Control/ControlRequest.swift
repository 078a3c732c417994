import Synchronization

/// The id of a request (JSON-RPC 2.0, section 4): a string, a whole number or null. Responses carry it back.
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

/// One request, or one notification from a client, which has no ``id`` and gets no response.
package struct ControlRequest: Hashable, Sendable {
    package let id: RequestID?
    package let method: String
    /// An object; empty when the request has no parameters.
    package let params: JSONValue

    package init(id: RequestID?, method: String, params: JSONValue = [:]) {
        self.id = id
        self.method = method
        self.params = params
    }

    /// The parameters as the type of a method. A field that the method does not have is refused, so that a misspelled
    /// option is never ignored.
    package func decodeParams<Params: Codable>(_ type: Params.Type) throws(ControlError) -> Params {
        do {
            let decoded = try params.decoded(as: type)
            if case .object(let members) = params {
                let known = Self.fieldNames(of: type)
                if let unknown = members.keys.filter({ !known.contains($0) }).min() {
                    throw JSONMismatch([NamedKey(unknown)], "`\(method)` has no such parameter")
                }
            }
            return decoded
        } catch let mismatch as JSONMismatch {
            throw .invalidParameter(mismatch)
        } catch {
            throw .internalFailure("cannot read the parameters of `\(method)`")
        }
    }

    /// The names of a method's parameters. Finding them takes longer than reading a request.
    private static func fieldNames<Params: Codable>(of type: Params.Type) -> Set<String> {
        let key = ObjectIdentifier(type)
        if let known = knownFieldNames.withLock({ $0[key] }) { return known }
        let names = Set(FieldSchema.fields(of: type).map(\.name))
        knownFieldNames.withLock { $0[key] = names }
        return names
    }

    private static let knownFieldNames = Mutex<[ObjectIdentifier: Set<String>]>([:])

    /// The request as one JSON value.
    package var jsonValue: JSONValue {
        var members: [String: JSONValue] = ["jsonrpc": "2.0", "method": .string(method)]
        if let id { members["id"] = id.jsonValue }
        if params != [:] { members["params"] = params }
        return .object(members)
    }
}

/// A request that could not be read. It is answered with ``id``, or with a null id when none could be read.
package struct UnreadableRequest: Error, Hashable, Sendable {
    package let id: RequestID
    package let error: ControlError
}

extension ControlRequest {
    /// Reads one line of the socket, without its newline.
    package init(line: some Collection<UInt8>) throws(UnreadableRequest) {
        let value: JSONValue
        do {
            value = try JSONReader.read(line)
        } catch {
            throw UnreadableRequest(id: .null, error: .parse(error.message))
        }
        guard case .object(let members) = value else {
            if case .array = value {
                let error = ControlError.invalidRequest("batches are not supported, send one request a line")
                throw UnreadableRequest(id: .null, error: error)
            }
            throw UnreadableRequest(id: .null, error: .invalidRequest("expected an object, found \(value.kindName)"))
        }
        let id: RequestID?
        switch members["id"] {
        case .none: id = nil
        case .integer(let number): id = .integer(number)
        case .string(let text) where text.utf8.count <= 256: id = .string(text)
        case .null: id = .null
        case .bool, .number, .string, .array, .object:
            let error = ControlError.invalidRequest("`id` is a whole number or a string of up to 256 bytes")
            throw UnreadableRequest(id: .null, error: error)
        }
        guard members["jsonrpc"] == "2.0" else {
            throw UnreadableRequest(id: id ?? .null, error: .invalidRequest(#"`jsonrpc` must be "2.0""#))
        }
        guard case .string(let method) = members["method"], !method.isEmpty, method.utf8.count <= 128 else {
            throw UnreadableRequest(id: id ?? .null, error: .invalidRequest("`method` must be a string"))
        }
        switch members["params"] ?? [:] {
        case .object(let params): self.init(id: id, method: method, params: .object(params))
        case .array(let elements) where elements.isEmpty: self.init(id: id, method: method)
        case .null, .bool, .integer, .number, .string, .array:
            let mismatch = JSONMismatch([], "`params` must be an object")
            throw UnreadableRequest(id: id ?? .null, error: .invalidParameter(mismatch))
        }
    }
}

/// What the server sends: an answer to one request, or a notification (an event, or the end of a stream).
package enum ControlResponse: Hashable, Sendable {
    case success(id: RequestID, result: JSONValue)
    case failure(id: RequestID, error: ControlError)
    case notification(method: String, params: JSONValue)

    /// The notification that carries one event of a subscription.
    package static let eventMethod = "event"
    /// The notification that ends a subscription whose reader is too slow.
    package static let droppedMethod = "subscription.dropped"

    /// How the line of a notification begins, and no other: keys are sorted.
    static let notificationStart = #"{"jsonrpc":"2.0","method":"#
    /// How the line of the notification begins that ends a subscription.
    static let droppedStart = #"\#(notificationStart)"\#(droppedMethod)""#

    /// One line of the socket, with its newline.
    package var line: [UInt8] {
        let value: JSONValue =
            switch self {
            case .success(let id, let result): ["jsonrpc": "2.0", "id": id.jsonValue, "result": result]
            case .failure(let id, let error): ["jsonrpc": "2.0", "id": id.jsonValue, "error": error.jsonValue]
            case .notification(let method, let params):
                ["jsonrpc": "2.0", "method": .string(method), "params": params]
            }
        return value.utf8 + [UInt8(ascii: "\n")]
    }

    /// Reads one line of the socket, without its newline.
    package init(line: some Collection<UInt8>) throws(ControlError) {
        let value: JSONValue
        do {
            value = try JSONReader.read(line)
        } catch {
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
            throw .internalFailure("the node sent a line that is no JSON-RPC response")
        }
    }
}

struct NamedKey: CodingKey {
    let stringValue: String
    var intValue: Int? { nil }

    init(_ name: String) { self.stringValue = name }
    init?(stringValue: String) { self.init(stringValue) }
    init?(intValue: Int) { return nil }
}
