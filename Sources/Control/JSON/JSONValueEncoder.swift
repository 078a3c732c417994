extension JSONValue {
    /// The JSON form of `value`.
    ///
    /// - Throws: what `value` itself throws; the types of this target never do.
    package init(encoding value: some Encodable) throws {
        if let value = value as? JSONValue {
            self = value
            return
        }
        let slot = JSONSlot()
        try value.encode(to: JSONValueEncoder(slot: slot, codingPath: []))
        self = slot.value
    }
}

/// Where an encoder leaves its value. A class because containers outlive the call that made them.
private final class JSONSlot {
    enum Content {
        case value(JSONValue)
        case members([String: JSONSlot])
        case elements([JSONSlot])
    }

    var content: Content = .members([:])

    var value: JSONValue {
        switch content {
        case .value(let value): value
        case .members(let slots): .object(slots.mapValues(\.value))
        case .elements(let slots): .array(slots.map(\.value))
        }
    }

    func member(_ name: String) -> JSONSlot {
        var slots: [String: JSONSlot] = [:]
        if case .members(let existing) = content { slots = existing }
        content = .members([:])
        let slot = slots[name] ?? JSONSlot()
        slots[name] = slot
        content = .members(slots)
        return slot
    }

    func element() -> JSONSlot {
        var slots: [JSONSlot] = []
        if case .elements(let existing) = content { slots = existing }
        content = .elements([])  // the array has one owner while it grows, so that appending copies nothing
        let slot = JSONSlot()
        slots.append(slot)
        content = .elements(slots)
        return slot
    }
}

private struct JSONValueEncoder: Encoder {
    let slot: JSONSlot
    let codingPath: [any CodingKey]
    var userInfo: [CodingUserInfoKey: Any] { [:] }

    func container<Key: CodingKey>(keyedBy type: Key.Type) -> KeyedEncodingContainer<Key> {
        if case .members = slot.content {} else { slot.content = .members([:]) }
        return KeyedEncodingContainer(Members<Key>(slot: slot, codingPath: codingPath))
    }

    func unkeyedContainer() -> any UnkeyedEncodingContainer {
        if case .elements = slot.content {} else { slot.content = .elements([]) }
        return Elements(slot: slot, codingPath: codingPath)
    }

    func singleValueContainer() -> any SingleValueEncodingContainer { self }
}

extension JSONValueEncoder: SingleValueEncodingContainer {
    func encodeNil() throws { slot.content = .value(.null) }
    func encode(_ value: Bool) throws { slot.content = .value(.bool(value)) }
    func encode(_ value: String) throws { slot.content = .value(.string(value)) }
    func encode(_ value: Double) throws { slot.content = .value(.number(value)) }
    func encode(_ value: Float) throws { try encode(Double(value)) }
    func encode(_ value: Int) throws { try integer(value) }
    func encode(_ value: Int8) throws { try integer(value) }
    func encode(_ value: Int16) throws { try integer(value) }
    func encode(_ value: Int32) throws { try integer(value) }
    func encode(_ value: Int64) throws { try integer(value) }
    func encode(_ value: UInt) throws { try integer(value) }
    func encode(_ value: UInt8) throws { try integer(value) }
    func encode(_ value: UInt16) throws { try integer(value) }
    func encode(_ value: UInt32) throws { try integer(value) }
    func encode(_ value: UInt64) throws { try integer(value) }
    func encode(_ value: some Encodable) throws { try value.encode(to: self) }

    private func integer(_ value: some BinaryInteger) throws {
        slot.content = .value(Int64(exactly: value).map(JSONValue.integer) ?? .number(Double(value)))
    }
}

extension JSONValueEncoder {
    private struct Members<Key: CodingKey>: KeyedEncodingContainerProtocol {
        let slot: JSONSlot
        let codingPath: [any CodingKey]

        private func encoder(_ name: String) -> JSONValueEncoder {
            JSONValueEncoder(slot: slot.member(name), codingPath: codingPath)
        }

        mutating func encodeNil(forKey key: Key) throws { slot.member(key.stringValue).content = .value(.null) }
        mutating func encode(_ value: some Encodable, forKey key: Key) throws {
            try encoder(key.stringValue).encode(value)
        }
        mutating func nestedContainer<NestedKey: CodingKey>(
            keyedBy keyType: NestedKey.Type,
            forKey key: Key
        ) -> KeyedEncodingContainer<NestedKey> {
            encoder(key.stringValue).container(keyedBy: keyType)
        }
        mutating func nestedUnkeyedContainer(forKey key: Key) -> any UnkeyedEncodingContainer {
            encoder(key.stringValue).unkeyedContainer()
        }
        mutating func superEncoder() -> any Encoder { encoder("super") }
        mutating func superEncoder(forKey key: Key) -> any Encoder { encoder(key.stringValue) }
    }

    private struct Elements: UnkeyedEncodingContainer {
        let slot: JSONSlot
        let codingPath: [any CodingKey]
        private(set) var count = 0

        init(slot: JSONSlot, codingPath: [any CodingKey]) {
            self.slot = slot
            self.codingPath = codingPath
        }

        private mutating func next() -> JSONValueEncoder {
            count += 1
            return JSONValueEncoder(slot: slot.element(), codingPath: codingPath)
        }

        mutating func encodeNil() throws { try next().encodeNil() }
        mutating func encode(_ value: some Encodable) throws { try next().encode(value) }
        mutating func nestedContainer<NestedKey: CodingKey>(
            keyedBy keyType: NestedKey.Type
        ) -> KeyedEncodingContainer<NestedKey> {
            next().container(keyedBy: keyType)
        }
        mutating func nestedUnkeyedContainer() -> any UnkeyedEncodingContainer { next().unkeyedContainer() }
        mutating func superEncoder() -> any Encoder { next() }
    }
}
