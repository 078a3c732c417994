import NIOCore

/// One JSON value (RFC 8259). Integers that fit in 64 bits stay exact; other numbers are `Double`.
///
/// Keys are written sorted, so that equal values have equal text.
package enum JSONValue: Hashable, Sendable {
    case null
    case bool(Bool)
    case integer(Int64)
    case number(Double)
    case string(String)
    case array([JSONValue])
    case object([String: JSONValue])

    /// `nil` for other values and for absent members.
    package subscript(_ name: String) -> JSONValue? {
        guard case .object(let members) = self else { return nil }
        return members[name]
    }

    package var stringValue: String? {
        guard case .string(let text) = self else { return nil }
        return text
    }

    /// Also for a number without a fraction.
    package var integerValue: Int64? {
        switch self {
        case .integer(let value): value
        case .number(let value): Int64(exactly: value)
        case .null, .bool, .string, .array, .object: nil
        }
    }

    package var arrayValue: [JSONValue]? {
        guard case .array(let elements) = self else { return nil }
        return elements
    }
}

extension JSONValue: ExpressibleByStringLiteral, ExpressibleByBooleanLiteral, ExpressibleByIntegerLiteral,
    ExpressibleByDictionaryLiteral, ExpressibleByArrayLiteral
{
    package init(stringLiteral value: String) { self = .string(value) }
    package init(booleanLiteral value: Bool) { self = .bool(value) }
    package init(integerLiteral value: Int64) { self = .integer(value) }
    package init(arrayLiteral elements: JSONValue...) { self = .array(elements) }
    package init(dictionaryLiteral elements: (String, JSONValue)...) {
        self = .object(Dictionary(elements, uniquingKeysWith: { _, last in last }))
    }
}

extension JSONValue: JSONScalar {
    /// Reads any value. Recursion is bounded by the depth limit of the validation.
    package init(from reader: inout JSONReader) {
        do throws(JSONMismatch) { self = try Self.read(&reader) } catch { self = .null }
    }

    private static func read(_ reader: inout JSONReader) throws(JSONMismatch) -> JSONValue {
        switch reader.kind() {
        case .null:
            _ = reader.null()
            return .null
        case .bool: return .bool(try reader.bool())
        case .number:
            switch try reader.number() {
            case .integer(let value): return .integer(value)
            case .double(let value): return .number(value)
            }
        case .string: return .string(try reader.string())
        case .array: return .array(try [JSONValue](from: &reader))
        case .object:
            var members: [String: JSONValue] = [:]
            try reader.object { name, reader in members[name] = JSONValue(from: &reader) }
            return .object(members)
        }
    }

    package func write(to writer: inout JSONWriter) {
        switch self {
        case .null: writer.literal("null")
        case .bool(let value): value.write(to: &writer)
        case .integer(let value): writer.integer(value)
        case .number(let value): writer.number(value)
        case .string(let value): writer.string(value)
        case .array(let elements): elements.write(to: &writer)
        case .object(let members): writer.object(sorted: members.sorted { $0.key < $1.key })
        }
    }

    package static var schema: FieldSchema.Shape { FieldSchema.Shape(type: "any") }
}

extension JSONValue {
    package init(of value: some JSONWritable) { self = (try? JSONReader.read(JSONWriter.bytes(of: value))) ?? .null }

    /// Decodes this value. The error names the field that does not fit.
    package func decoded<Value: JSONConvertible>(as type: Value.Type) throws(JSONMismatch) -> Value {
        let read: Result<Value, JSONMismatch>
        do throws(JSONSyntaxError) {
            read = try JSONReader.read(utf8, depthLimit: .max) { reader throws(JSONMismatch) in try Value(from: &reader)
            }
        } catch { throw JSONMismatch("", error.message) }
        return try read.get()
    }

    /// Compact text; see ``JSONWriter``.
    package var text: String { String(decoding: utf8, as: UTF8.self) }

    package var utf8: [UInt8] { JSONWriter.bytes(of: self) }
}

extension JSONReader {
    package static func read(_ text: some Collection<UInt8>, depthLimit: Int = ControlLimits.nestingDepth)
        throws(JSONSyntaxError) -> JSONValue
    {
        switch try read(text, depthLimit: depthLimit, { reader in JSONValue(from: &reader) }) {
        case .success(let value): value
        case .failure: .null
        }
    }
}

extension JSONWriter {
    /// Writes an object with names computed at run time.
    fileprivate mutating func object(sorted members: [(key: String, value: JSONValue)]) {
        buffer.writeInteger(UInt8(ascii: "{"))
        for (index, member) in members.enumerated() {
            if index > 0 { buffer.writeInteger(UInt8(ascii: ",")) }
            string(member.key)
            buffer.writeInteger(UInt8(ascii: ":"))
            member.value.write(to: &self)
        }
        buffer.writeInteger(UInt8(ascii: "}"))
    }
}
