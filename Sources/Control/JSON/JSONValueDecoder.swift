/// Why a value does not fit the type asked for.
package struct JSONMismatch: Error, Hashable, Sendable {
    /// Where, as a person writes it: `timeout`, `with[2]`, `file.name`. Empty for the value itself.
    package let field: String
    /// What is wrong with it.
    package let message: String

    init(_ path: [any CodingKey], _ message: String) {
        var field = ""
        for key in path {
            if let index = key.intValue {
                field += "[\(index)]"
            } else {
                field += field.isEmpty ? key.stringValue : ".\(key.stringValue)"
            }
        }
        self.field = field
        self.message = message
    }
}

extension JSONValue {
    /// Reads this value as a `Value`; says which field does not fit.
    package func decoded<Value: Decodable>(as type: Value.Type) throws(JSONMismatch) -> Value {
        do {
            return try JSONValueDecoder(value: self, codingPath: []).decode(type)
        } catch let mismatch as JSONMismatch {
            throw mismatch
        } catch let DecodingError.dataCorrupted(context) {
            throw JSONMismatch(context.codingPath, context.debugDescription)
        } catch {
            throw JSONMismatch([], "does not fit")
        }
    }
}

/// A `Decoder` over a ``JSONValue`` already in memory: no second parse, no Foundation.
struct JSONValueDecoder: Decoder {
    let value: JSONValue
    let codingPath: [any CodingKey]
    var userInfo: [CodingUserInfoKey: Any] { [:] }

    func decode<Value: Decodable>(_ type: Value.Type) throws -> Value {
        do {
            return try Value(from: self)
        } catch let error as DecodingError {
            guard let choices = Self.choices(of: type) else { throw error }
            throw mismatch("one of \(choices.joined(separator: ", "))", found: "another")
        }
    }

    /// The texts that stand for the values of an enumeration.
    private static func choices<Value>(of type: Value.Type) -> [String]? {
        func texts<Choice: CaseIterable & RawRepresentable>(_: Choice.Type) -> [String]? {
            let values = Choice.allCases.compactMap { $0.rawValue as? String }
            return values.isEmpty ? nil : values
        }
        return (type as? any (CaseIterable & RawRepresentable).Type).flatMap { texts($0) }
    }

    func container<Key: CodingKey>(keyedBy type: Key.Type) throws -> KeyedDecodingContainer<Key> {
        guard case .object(let members) = value else { throw mismatch("an object") }
        return KeyedDecodingContainer(Members<Key>(members: members, codingPath: codingPath))
    }

    func unkeyedContainer() throws -> any UnkeyedDecodingContainer {
        guard case .array(let elements) = value else { throw mismatch("an array") }
        return Elements(elements: elements, codingPath: codingPath)
    }

    func singleValueContainer() throws -> any SingleValueDecodingContainer { self }

    fileprivate func mismatch(_ expected: String, found: String? = nil) -> JSONMismatch {
        JSONMismatch(codingPath, "expected \(expected), found \(found ?? value.kindName)")
    }
}

extension JSONValueDecoder: SingleValueDecodingContainer {
    func decodeNil() -> Bool { value == .null }

    func decode(_ type: Bool.Type) throws -> Bool {
        guard case .bool(let flag) = value else { throw mismatch("a boolean") }
        return flag
    }

    func decode(_ type: String.Type) throws -> String {
        guard case .string(let text) = value else { throw mismatch("a string") }
        return text
    }

    func decode(_ type: Double.Type) throws -> Double {
        switch value {
        case .number(let number): return number
        case .integer(let integer): return Double(integer)
        case .null, .bool, .string, .array, .object: throw mismatch("a number")
        }
    }

    func decode(_ type: Float.Type) throws -> Float { Float(try decode(Double.self)) }
    func decode(_ type: Int.Type) throws -> Int { try integer() }
    func decode(_ type: Int8.Type) throws -> Int8 { try integer() }
    func decode(_ type: Int16.Type) throws -> Int16 { try integer() }
    func decode(_ type: Int32.Type) throws -> Int32 { try integer() }
    func decode(_ type: Int64.Type) throws -> Int64 { try integer() }
    func decode(_ type: UInt.Type) throws -> UInt { try integer() }
    func decode(_ type: UInt8.Type) throws -> UInt8 { try integer() }
    func decode(_ type: UInt16.Type) throws -> UInt16 { try integer() }
    func decode(_ type: UInt32.Type) throws -> UInt32 { try integer() }
    func decode(_ type: UInt64.Type) throws -> UInt64 { try integer() }

    private func integer<Value: FixedWidthInteger>() throws -> Value {
        guard let wide = value.integerValue else { throw mismatch("a whole number") }
        guard let narrow = Value(exactly: wide) else {
            throw JSONMismatch(codingPath, "\(wide) is outside \(Value.min)…\(Value.max)")
        }
        return narrow
    }
}

private struct IndexKey: CodingKey {
    let intValue: Int?
    var stringValue: String { String(intValue ?? 0) }

    init(_ index: Int) { self.intValue = index }
    init?(intValue: Int) { self.init(intValue) }
    init?(stringValue: String) { return nil }
}

extension JSONValueDecoder {
    fileprivate struct Members<Key: CodingKey>: KeyedDecodingContainerProtocol {
        let members: [String: JSONValue]
        let codingPath: [any CodingKey]

        var allKeys: [Key] { members.keys.sorted().compactMap { Key(stringValue: $0) } }
        func contains(_ key: Key) -> Bool { members[key.stringValue] != nil }

        private func decoder(_ key: Key) throws -> JSONValueDecoder {
            guard let value = members[key.stringValue] else { throw JSONMismatch(codingPath + [key], "is missing") }
            return JSONValueDecoder(value: value, codingPath: codingPath + [key])
        }

        func decodeNil(forKey key: Key) throws -> Bool { members[key.stringValue] ?? .null == .null }
        func decode<Value: Decodable>(_ type: Value.Type, forKey key: Key) throws -> Value {
            try decoder(key).decode(type)
        }

        func nestedContainer<NestedKey: CodingKey>(
            keyedBy type: NestedKey.Type,
            forKey key: Key
        ) throws -> KeyedDecodingContainer<NestedKey> {
            try decoder(key).container(keyedBy: type)
        }

        func nestedUnkeyedContainer(forKey key: Key) throws -> any UnkeyedDecodingContainer {
            try decoder(key).unkeyedContainer()
        }

        func superDecoder() throws -> any Decoder {
            JSONValueDecoder(value: .object(members), codingPath: codingPath)
        }
        func superDecoder(forKey key: Key) throws -> any Decoder { try decoder(key) }
    }

    fileprivate struct Elements: UnkeyedDecodingContainer {
        let elements: [JSONValue]
        let codingPath: [any CodingKey]
        var currentIndex = 0

        init(elements: [JSONValue], codingPath: [any CodingKey]) {
            self.elements = elements
            self.codingPath = codingPath
        }

        var count: Int? { elements.count }
        var isAtEnd: Bool { currentIndex >= elements.count }

        private mutating func next() throws -> JSONValueDecoder {
            let path = codingPath + [IndexKey(currentIndex)]
            guard currentIndex < elements.count else { throw JSONMismatch(path, "is missing") }
            defer { currentIndex += 1 }
            return JSONValueDecoder(value: elements[currentIndex], codingPath: path)
        }

        mutating func decodeNil() throws -> Bool {
            guard currentIndex < elements.count, elements[currentIndex] == .null else { return false }
            currentIndex += 1
            return true
        }
        mutating func decode<Value: Decodable>(_ type: Value.Type) throws -> Value { try next().decode(type) }
        mutating func nestedContainer<NestedKey: CodingKey>(
            keyedBy type: NestedKey.Type
        ) throws -> KeyedDecodingContainer<NestedKey> {
            try next().container(keyedBy: type)
        }
        mutating func nestedUnkeyedContainer() throws -> any UnkeyedDecodingContainer {
            try next().unkeyedContainer()
        }
        mutating func superDecoder() throws -> any Decoder { try next() }
    }
}
