/// A value that writes itself as JSON, without an intermediate tree.
package protocol JSONWritable { func write(to writer: inout JSONWriter) }

/// A value that is read from and written to JSON bytes, without an intermediate tree.
package protocol JSONConvertible: JSONWritable {
    init(from reader: inout JSONReader) throws(JSONMismatch)
    /// Description in `mayfly schema`.
    static var schema: FieldSchema.Shape { get }
    /// The value of an absent field; `nil` when the field is required.
    static var absent: Self? { get }
}

extension JSONConvertible { package static var absent: Self? { nil } }

/// An object with named fields. ``visit(_:)`` serves reading, writing and the schema.
///
/// Most records are ``CodableRecord``. The visitor is for records that are written in bulk, and for those of `send`: it
/// allocates nothing for a field.
package protocol JSONRecord: JSONConvertible {
    /// Default values, which decoding overwrites.
    init()
    mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure)
    /// Reads the fields. A requirement, so that the compiler specialises it for the records of its module.
    /// - Parameter unknown: the message for a member that the record does not have; `nil` ignores such members.
    mutating func read(from reader: inout JSONReader, unknown: ((String) -> String)?) throws(JSONMismatch)
}

/// A record whose fields are its properties, in the order of their declaration, by synthesised `Codable`.
///
/// An optional property is omitted without a value. It is null instead as ``OrNull``, so that scripts can test for it.
package protocol CodableRecord: JSONRecord, Codable, Hashable, Sendable {}

extension CodableRecord {
    package mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
        try fields.fields(of: &self)
    }
}

/// A record whose fields are written as members of the enclosing record.
package protocol InlineRecord: CodableRecord {}

/// Receives the fields of a record.
package protocol FieldVisitor {
    associatedtype Failure: Error

    /// A field that is required, unless its type has a value for ``JSONConvertible/absent``.
    mutating func field<Value: JSONConvertible>(_ name: String, _ value: inout Value) throws(Failure)
    /// An optional field, omitted without a value. Null reads as absent.
    mutating func field<Value: JSONConvertible>(_ name: String, _ value: inout Value?) throws(Failure)
    mutating func fields<Record: CodableRecord>(of record: inout Record) throws(Failure)
}

/// An optional field, null without a value. Absent reads as null.
@propertyWrapper package struct OrNull<Value: JSONConvertible & Hashable & Sendable>: JSONScalar, Hashable, Sendable {
    package var wrappedValue: Value?

    package init(wrappedValue: Value?) { self.wrappedValue = wrappedValue }

    package init(from reader: inout JSONReader) throws(JSONMismatch) {
        wrappedValue = reader.null() ? nil : try Value(from: &reader)
    }

    package func write(to writer: inout JSONWriter) {
        if let wrappedValue { wrappedValue.write(to: &writer) } else { writer.literal("null") }
    }

    package static var schema: FieldSchema.Shape { Value.schema }
    package static var absent: OrNull? { OrNull(wrappedValue: nil) }
}

extension JSONRecord {
    package init(from reader: inout JSONReader) throws(JSONMismatch) {
        self.init()
        try read(from: &reader, unknown: nil)
    }

    package mutating func read(from reader: inout JSONReader, unknown: ((String) -> String)?) throws(JSONMismatch) {
        try reader.record(&self, unknown: unknown)
    }

    package func write(to writer: inout JSONWriter) {
        writer.object { fields in
            var record = self
            record.visit(&fields)
        }
    }

    package static var schema: FieldSchema.Shape {
        var fields = FieldCollector()
        var record = Self()
        record.visit(&fields)
        return FieldSchema.Shape(type: "object", fields: fields.found)
    }
}

// MARK: Codable

/// A value that is a property of a ``CodableRecord``, whose coders pass it to the reader and the writer.
package protocol JSONScalar: JSONConvertible, Codable {}

extension JSONScalar {
    package init(from decoder: any Decoder) throws { throw JSONMismatch("", "is no record") }
    package func encode(to encoder: any Encoder) throws { throw JSONMismatch("", "is no record") }
}

extension FieldVisitor where Failure == Never {
    package mutating func fields(of record: inout some CodableRecord) {
        withUnsafeMutablePointer(to: &self) { fields in
            do { try record.encode(to: RecordEncoder(fields: fields)) } catch {
                preconditionFailure("a record of our own does not encode: \(error)")
            }
        }
    }
}

/// Passes the properties of a record to a visitor.
private struct RecordEncoder<Fields: FieldVisitor>: Encoder where Fields.Failure == Never {
    /// Valid while the record is encoded.
    let fields: UnsafeMutablePointer<Fields>
    var codingPath: [any CodingKey] { [] }
    var userInfo: [CodingUserInfoKey: Any] { [:] }

    func container<Key: CodingKey>(keyedBy type: Key.Type) -> KeyedEncodingContainer<Key> {
        KeyedEncodingContainer(Container(fields: fields))
    }

    func unkeyedContainer() -> any UnkeyedEncodingContainer { preconditionFailure("a record has named fields") }
    func singleValueContainer() -> any SingleValueEncodingContainer { preconditionFailure("a record has named fields") }

    struct Container<Key: CodingKey>: KeyedEncodingContainerProtocol {
        let fields: UnsafeMutablePointer<Fields>
        var codingPath: [any CodingKey] { [] }

        func encode<Value: Encodable>(_ value: Value, forKey key: Key) throws {
            if var value = value as? any InlineRecord { return value.visit(&fields.pointee) }
            guard var value = value as? any JSONConvertible else { throw JSONMismatch(key.stringValue, "is no field") }
            fields.pointee.field(key.stringValue, &value)
        }

        func encodeIfPresent<Value: Encodable>(_ value: Value?, forKey key: Key) throws {
            func field<Field: JSONConvertible>(_ type: Field.Type) {
                var value = value as? Field
                fields.pointee.field(key.stringValue, &value)
            }
            guard let type = Value.self as? any JSONConvertible.Type else {
                throw JSONMismatch(key.stringValue, "is no field")
            }
            field(type)
        }

        // The standard library's own functions for these types omit a field without a value, which the schema needs.
        func encodeIfPresent(_ value: Bool?, forKey key: Key) throws { optional(value, key) }
        func encodeIfPresent(_ value: String?, forKey key: Key) throws { optional(value, key) }
        func encodeIfPresent(_ value: Double?, forKey key: Key) throws { optional(value, key) }
        func encodeIfPresent(_ value: Int?, forKey key: Key) throws { optional(value, key) }
        func encodeIfPresent(_ value: Int64?, forKey key: Key) throws { optional(value, key) }

        private func optional(_ value: (some JSONConvertible)?, _ key: Key) {
            var value = value
            fields.pointee.field(key.stringValue, &value)
        }

        func encodeNil(forKey key: Key) { preconditionFailure("a field has a type") }
        func superEncoder() -> any Encoder { preconditionFailure("a record inherits nothing") }
        func superEncoder(forKey key: Key) -> any Encoder { superEncoder() }

        func nestedContainer<Nested: CodingKey>(keyedBy type: Nested.Type, forKey key: Key) -> KeyedEncodingContainer<
            Nested
        > { preconditionFailure("an inner record is a field") }

        func nestedUnkeyedContainer(forKey key: Key) -> any UnkeyedEncodingContainer {
            preconditionFailure("an array is a field")
        }
    }
}

/// Fills the fields of a record from an object's members.
struct RecordReader: FieldVisitor {
    /// Valid while the object is read.
    let reader: UnsafeMutablePointer<JSONReader>
    /// Index of the object's first member.
    let first: Int?

    /// Moves to a member's value; false if the member is absent.
    func open(_ name: String) -> Bool { reader.pointee.open(name, from: first) }

    func required<Value: JSONConvertible>(_ name: String, as type: Value.Type) throws(JSONMismatch) -> Value {
        guard open(name) else {
            guard let absent = Value.absent else { throw JSONMismatch(name, "is missing") }
            return absent
        }
        do throws(JSONMismatch) { return try Value(from: &reader.pointee) } catch { throw error.inside(name) }
    }

    func field<Value: JSONConvertible>(_ name: String, _ value: inout Value) throws(JSONMismatch) {
        value = try required(name, as: Value.self)
    }

    func field<Value: JSONConvertible>(_ name: String, _ value: inout Value?) throws(JSONMismatch) {
        value = open(name) && !reader.pointee.null() ? try required(name, as: Value.self) : nil
    }

    func fields<Record: CodableRecord>(of record: inout Record) throws(JSONMismatch) {
        do { record = try Record(from: RecordDecoder(fields: self)) } catch {
            throw error as? JSONMismatch ?? JSONMismatch("", "\(error)")
        }
    }
}

/// Reads the properties of a record from the members of an object.
struct RecordDecoder: Decoder {
    let fields: RecordReader
    var codingPath: [any CodingKey] { [] }
    var userInfo: [CodingUserInfoKey: Any] { [:] }

    func container<Key: CodingKey>(keyedBy type: Key.Type) -> KeyedDecodingContainer<Key> {
        KeyedDecodingContainer(Container(fields: fields))
    }

    func unkeyedContainer() throws -> any UnkeyedDecodingContainer { throw JSONMismatch("", "is no array") }
    func singleValueContainer() throws -> any SingleValueDecodingContainer { throw JSONMismatch("", "is no value") }

    struct Container<Key: CodingKey>: KeyedDecodingContainerProtocol {
        let fields: RecordReader
        var codingPath: [any CodingKey] { [] }
        var allKeys: [Key] { [] }

        func contains(_ key: Key) -> Bool { fields.open(key.stringValue) }
        func decodeNil(forKey key: Key) -> Bool { fields.open(key.stringValue) && fields.reader.pointee.null() }

        func decode<Value: Decodable>(_ type: Value.Type, forKey key: Key) throws -> Value {
            if type is any InlineRecord.Type { return try Value(from: RecordDecoder(fields: fields)) }
            guard let type = type as? any JSONConvertible.Type,
                let value = try fields.required(key.stringValue, as: type) as? Value
            else { throw JSONMismatch(key.stringValue, "is no field") }
            return value
        }

        func superDecoder() throws -> any Decoder { throw JSONMismatch("", "is no class") }
        func superDecoder(forKey key: Key) throws -> any Decoder { try superDecoder() }

        func nestedContainer<Nested: CodingKey>(keyedBy type: Nested.Type, forKey key: Key) throws
            -> KeyedDecodingContainer<Nested>
        { throw JSONMismatch(key.stringValue, "is no field") }

        func nestedUnkeyedContainer(forKey key: Key) throws -> any UnkeyedDecodingContainer {
            throw JSONMismatch(key.stringValue, "is no field")
        }
    }
}

// MARK: Errors

/// A reason to reject a text. `offset` counts bytes from the start of the text.
package enum JSONSyntaxError: Error, Hashable, Sendable {
    case unexpectedEnd
    case unexpectedByte(offset: Int)
    case invalidNumber(offset: Int)
    case invalidString(offset: Int)
    case duplicateKey(String)
    case tooDeep(limit: Int)
    case trailingBytes(offset: Int)

    /// One phrase for a person.
    package var message: String {
        switch self {
        case .unexpectedEnd: "the JSON text ends too early"
        case .unexpectedByte(let offset): "unexpected byte at offset \(offset)"
        case .invalidNumber(let offset): "malformed number at offset \(offset)"
        case .invalidString(let offset): "malformed string at offset \(offset)"
        case .duplicateKey(let key): "the member `\(key)` appears twice"
        case .tooDeep(let limit): "nested deeper than \(limit) levels"
        case .trailingBytes(let offset): "something follows the JSON value at offset \(offset)"
        }
    }
}

/// A value that does not fit the requested type.
package struct JSONMismatch: Error, Hashable, Sendable {
    /// Path such as `timeout`, `with[2]` or `file.name`; empty for the value itself.
    package let field: String
    package let message: String

    package init(_ field: String, _ message: String) {
        self.field = field
        self.message = message
    }

    /// The same mismatch, with `outer` before its path.
    func inside(_ outer: String) -> JSONMismatch {
        guard !field.isEmpty else { return JSONMismatch(outer, message) }
        return JSONMismatch(field.hasPrefix("[") ? outer + field : "\(outer).\(field)", message)
    }
}

// MARK: Values

extension String: JSONConvertible {
    package init(from reader: inout JSONReader) throws(JSONMismatch) { self = try reader.string() }
    package func write(to writer: inout JSONWriter) { writer.string(self) }
    package static var schema: FieldSchema.Shape { FieldSchema.Shape(type: "string") }
}

extension Bool: JSONConvertible {
    package init(from reader: inout JSONReader) throws(JSONMismatch) { self = try reader.bool() }
    package func write(to writer: inout JSONWriter) { writer.literal(self ? "true" : "false") }
    package static var schema: FieldSchema.Shape { FieldSchema.Shape(type: "boolean") }
}

extension JSONConvertible where Self: FixedWidthInteger {
    package init(from reader: inout JSONReader) throws(JSONMismatch) { self = try reader.integer() }
    package func write(to writer: inout JSONWriter) { writer.integer(Int64(self)) }
    package static var schema: FieldSchema.Shape { FieldSchema.Shape(type: "integer") }
}

extension Int: JSONConvertible {}
extension Int64: JSONConvertible {}

extension Double: JSONConvertible {
    package init(from reader: inout JSONReader) throws(JSONMismatch) { self = try reader.double() }
    package func write(to writer: inout JSONWriter) { writer.number(self) }
    package static var schema: FieldSchema.Shape { FieldSchema.Shape(type: "number") }
}

extension Array: JSONWritable where Element: JSONWritable {
    package func write(to writer: inout JSONWriter) {
        writer.literal("[")
        for (index, element) in enumerated() {
            if index > 0 { writer.literal(",") }
            element.write(to: &writer)
        }
        writer.literal("]")
    }
}

extension Array: JSONConvertible where Element: JSONConvertible {
    package init(from reader: inout JSONReader) throws(JSONMismatch) {
        self = []
        var elements: [Element] = []
        try reader.array { reader throws(JSONMismatch) in elements.append(try Element(from: &reader)) }
        self = elements
    }

    package static var schema: FieldSchema.Shape {
        let element = Element.schema
        return FieldSchema.Shape(type: "[\(element.type)]", values: element.values, fields: element.fields)
    }
}

package protocol JSONChoice: JSONConvertible, CaseIterable, RawRepresentable<String>, Codable {}

extension JSONChoice {
    package init(from reader: inout JSONReader) throws(JSONMismatch) {
        guard let value = Self(rawValue: try reader.string()) else {
            let choices = Self.allCases.map(\.rawValue).joined(separator: ", ")
            throw JSONMismatch("", "expected one of \(choices), found another")
        }
        self = value
    }

    package func write(to writer: inout JSONWriter) { writer.string(rawValue) }

    package static var schema: FieldSchema.Shape { FieldSchema.Shape(type: "string", values: allCases.map(\.rawValue)) }
}

/// One field of a method's parameters or result, as `mayfly schema` prints it.
@dynamicMemberLookup package struct FieldSchema: Hashable, Sendable {
    package let name: String
    package let shape: Shape
    /// The field may be absent or null.
    package let isOptional: Bool

    /// The schema of a value without its name.
    package struct Shape: Hashable, Sendable {
        /// `string`, `boolean`, `integer`, `number`, `timestamp`, `interval`, `any`, `object`, or one of these in
        /// brackets.
        package var type: String
        package var values: [String] = []
        /// The fields of an object, or of the objects in an array.
        package var fields: [FieldSchema] = []
    }

    package subscript<Value>(dynamicMember path: KeyPath<Shape, Value>) -> Value { shape[keyPath: path] }

    /// The fields of a record; empty for other types.
    package static func fields<Value: JSONConvertible>(of type: Value.Type) -> [FieldSchema] { type.schema.fields }
}

struct FieldCollector: FieldVisitor {
    var found: [FieldSchema] = []

    mutating func field<Value: JSONConvertible>(_ name: String, _ value: inout Value) {
        found.append(FieldSchema(name: name, shape: Value.schema, isOptional: Value.absent != nil))
    }

    mutating func field<Value: JSONConvertible>(_ name: String, _ value: inout Value?) {
        found.append(FieldSchema(name: name, shape: Value.schema, isOptional: true))
    }
}
