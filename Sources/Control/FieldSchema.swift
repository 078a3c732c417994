/// One field of a method's parameters or result, as `mayfly schema` prints it.
package struct FieldSchema: Hashable, Sendable {
    package let name: String
    /// `string`, `boolean`, `integer`, `number`, `timestamp`, `interval`, `any`, `object`, or one of these in brackets.
    package let type: String
    /// The field may be absent, or null.
    package let isOptional: Bool
    /// The values of an enumeration.
    package let values: [String]
    /// The fields of an object, or of the objects in an array.
    package let fields: [FieldSchema]

    /// The fields that `type` reads, found by reading it from a value that agrees with everything: the Swift type stays
    /// the only place where a field is written down.
    package static func fields<Value: Decodable>(of type: Value.Type) -> [FieldSchema] {
        let probe = FieldProbe()
        // The probe answers every question with a value of the right type, so nothing of this target throws here;
        // a foreign type that does throw shows the fields it had read until then.
        _ = try? Value(from: probe)
        return probe.record.fields
    }

    package var jsonValue: JSONValue {
        var value: [String: JSONValue] = ["name": .string(name), "type": .string(type)]
        if isOptional { value["optional"] = true }
        if !values.isEmpty { value["values"] = .array(values.map(JSONValue.string)) }
        if !fields.isEmpty { value["fields"] = .array(fields.map(\.jsonValue)) }
        return .object(value)
    }
}

/// A type that `mayfly schema` shows under a name of its own.
protocol SchemaNamed {
    static var schemaName: String { get }
    static var schemaExample: Self { get }
}

extension JSONValue: SchemaNamed {
    static var schemaName: String { "any" }
    static var schemaExample: JSONValue { .null }
}

private final class FieldRecord {
    var fields: [FieldSchema] = []
    /// The kind of the value itself, when it is not an object.
    var type = "object"
    var values: [String] = []
}

private struct FieldProbe: Decoder {
    let record = FieldRecord()
    var codingPath: [any CodingKey] { [] }
    var userInfo: [CodingUserInfoKey: Any] { [:] }

    func container<Key: CodingKey>(keyedBy type: Key.Type) -> KeyedDecodingContainer<Key> {
        KeyedDecodingContainer(Members<Key>(record: record))
    }
    func unkeyedContainer() -> any UnkeyedDecodingContainer { Elements(record: record) }
    func singleValueContainer() -> any SingleValueDecodingContainer { Single(record: record) }

    /// Describes `type` and makes a value of it.
    static func describe<Value: Decodable>(
        _ type: Value.Type,
        named name: String,
        optional: Bool
    ) throws -> (FieldSchema, Value) {
        if let named = type as? any SchemaNamed.Type {
            let value = named.schemaExample as? Value
            let field = FieldSchema(name: name, type: named.schemaName, isOptional: optional, values: [], fields: [])
            if let value { return (field, value) }
        }
        if let cases = type as? any (CaseIterable & RawRepresentable<String>).Type {
            let (values, first) = names(of: cases)
            let field = FieldSchema(name: name, type: "string", isOptional: optional, values: values, fields: [])
            if let value = first as? Value { return (field, value) }
        }
        let probe = FieldProbe()
        let value = try Value(from: probe)
        let record = probe.record
        let field = FieldSchema(
            name: name,
            type: record.type,
            isOptional: optional,
            values: record.values,
            fields: record.fields
        )
        return (field, value)
    }

    private static func names<Cases: CaseIterable & RawRepresentable<String>>(
        of type: Cases.Type
    ) -> ([String], Cases?) {
        (type.allCases.map(\.rawValue), type.allCases.first)
    }
}

extension FieldProbe {
    private struct Members<Key: CodingKey>: KeyedDecodingContainerProtocol {
        let record: FieldRecord
        var codingPath: [any CodingKey] { [] }
        var allKeys: [Key] { [] }
        func contains(_ key: Key) -> Bool { true }
        func decodeNil(forKey key: Key) -> Bool { false }

        func decode<Value: Decodable>(_ type: Value.Type, forKey key: Key) throws -> Value {
            let (field, value) = try describe(type, named: key.stringValue, optional: false)
            record.fields.append(field)
            return value
        }

        func decodeIfPresent<Value: Decodable>(_ type: Value.Type, forKey key: Key) throws -> Value? {
            record.fields.append(try describe(type, named: key.stringValue, optional: true).0)
            return nil
        }
        func decodeIfPresent(_ type: Bool.Type, forKey key: Key) throws -> Bool? { try optional(type, key) }
        func decodeIfPresent(_ type: String.Type, forKey key: Key) throws -> String? { try optional(type, key) }
        func decodeIfPresent(_ type: Double.Type, forKey key: Key) throws -> Double? { try optional(type, key) }
        func decodeIfPresent(_ type: Int.Type, forKey key: Key) throws -> Int? { try optional(type, key) }
        func decodeIfPresent(_ type: Int64.Type, forKey key: Key) throws -> Int64? { try optional(type, key) }
        private func optional<Value: Decodable>(_ type: Value.Type, _ key: Key) throws -> Value? {
            record.fields.append(try describe(type, named: key.stringValue, optional: true).0)
            return nil
        }

        func nestedContainer<NestedKey: CodingKey>(
            keyedBy type: NestedKey.Type,
            forKey key: Key
        ) -> KeyedDecodingContainer<NestedKey> {
            FieldProbe().container(keyedBy: type)
        }
        func nestedUnkeyedContainer(forKey key: Key) -> any UnkeyedDecodingContainer {
            FieldProbe().unkeyedContainer()
        }
        func superDecoder() -> any Decoder { FieldProbe() }
        func superDecoder(forKey key: Key) -> any Decoder { FieldProbe() }
    }

    /// An array of one element, from which the element's type is read.
    private struct Elements: UnkeyedDecodingContainer {
        let record: FieldRecord
        var codingPath: [any CodingKey] { [] }
        var count: Int? { 1 }
        var currentIndex = 0
        var isAtEnd: Bool { currentIndex > 0 }

        init(record: FieldRecord) {
            self.record = record
            record.type = "[any]"
        }

        mutating func decodeNil() -> Bool { false }
        mutating func decode<Value: Decodable>(_ type: Value.Type) throws -> Value {
            let (field, value) = try describe(type, named: "", optional: false)
            record.type = "[\(field.type)]"
            record.values = field.values
            record.fields = field.fields
            currentIndex += 1
            return value
        }
        mutating func nestedContainer<NestedKey: CodingKey>(
            keyedBy type: NestedKey.Type
        ) -> KeyedDecodingContainer<NestedKey> {
            FieldProbe().container(keyedBy: type)
        }
        mutating func nestedUnkeyedContainer() -> any UnkeyedDecodingContainer { FieldProbe().unkeyedContainer() }
        mutating func superDecoder() -> any Decoder { FieldProbe() }
    }

    private struct Single: SingleValueDecodingContainer {
        let record: FieldRecord
        var codingPath: [any CodingKey] { [] }
        func decodeNil() -> Bool { false }
        func decode(_ type: Bool.Type) -> Bool { note("boolean", false) }
        func decode(_ type: String.Type) -> String { note("string", "") }
        func decode(_ type: Double.Type) -> Double { note("number", 0) }
        func decode(_ type: Float.Type) -> Float { note("number", 0) }
        func decode(_ type: Int.Type) -> Int { note("integer", 0) }
        func decode(_ type: Int8.Type) -> Int8 { note("integer", 0) }
        func decode(_ type: Int16.Type) -> Int16 { note("integer", 0) }
        func decode(_ type: Int32.Type) -> Int32 { note("integer", 0) }
        func decode(_ type: Int64.Type) -> Int64 { note("integer", 0) }
        func decode(_ type: UInt.Type) -> UInt { note("integer", 0) }
        func decode(_ type: UInt8.Type) -> UInt8 { note("integer", 0) }
        func decode(_ type: UInt16.Type) -> UInt16 { note("integer", 0) }
        func decode(_ type: UInt32.Type) -> UInt32 { note("integer", 0) }
        func decode(_ type: UInt64.Type) -> UInt64 { note("integer", 0) }
        func decode<Value: Decodable>(_ type: Value.Type) throws -> Value {
            let (field, value) = try describe(type, named: "", optional: false)
            record.type = field.type
            record.values = field.values
            record.fields = field.fields
            return value
        }

        private func note<Value>(_ name: String, _ value: Value) -> Value {
            record.type = name
            return value
        }
    }
}
