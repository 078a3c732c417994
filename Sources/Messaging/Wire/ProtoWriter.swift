import Cryptography

/// Writes one protobuf message in one buffer. Fields stand in the order of their numbers; one that is empty or 0 is
/// left out, as in proto3, unless it is put `always`: in a `oneof`, a list, and where absence has a meaning.
struct ProtoWriter {
    var bytes: [UInt8] = []

    init(capacity: Int = 0) { bytes.reserveCapacity(capacity) }

    static func bytes(_ write: (inout ProtoWriter) -> Void) -> [UInt8] {
        var writer = ProtoWriter()
        write(&writer)
        return writer.bytes
    }

    private mutating func tag(_ field: Int, _ type: ProtoReader.WireType) {
        varint(UInt64(field) << 3 | UInt64(type.rawValue))
    }

    private mutating func varint(_ value: UInt64) {
        var rest = value
        while rest > 0x7f {
            bytes.append(UInt8(truncatingIfNeeded: rest) | 0x80)
            rest >>= 7
        }
        bytes.append(UInt8(truncatingIfNeeded: rest))
    }

    mutating func put(_ field: Int, _ value: some FixedWidthInteger, always: Bool = false) {
        guard value != 0 || always else { return }
        tag(field, .varint)
        varint(UInt64(truncatingIfNeeded: value))
    }

    mutating func put(_ field: Int, _ value: Bool, always: Bool = false) { put(field, value ? 1 : 0, always: always) }

    mutating func put(_ field: Int, _ time: Timestamp) { put(field, time.milliseconds) }

    /// Also 1970.
    mutating func put(_ field: Int, optional time: Timestamp?) {
        if let time { put(field, time.milliseconds, always: true) }
    }

    mutating func put(_ field: Int, _ value: some Collection<UInt8>, always: Bool = false) {
        guard !value.isEmpty || always else { return }
        tag(field, .bytes)
        varint(UInt64(value.count))
        bytes.append(contentsOf: value)
    }

    mutating func put(_ field: Int, _ text: String?) { if let text { put(field, text.utf8) } }

    mutating func put(_ field: Int, each texts: [String]) { for text in texts { put(field, text.utf8, always: true) } }

    mutating func put(_ field: Int, _ id: (some FixedBytes)?) { if let id { put(field, inline: id.value) } }

    mutating func put(_ field: Int, _ key: PublicKey) { put(field, inline: key.value) }

    mutating func put(_ field: Int, _ signature: SchnorrSignature) { put(field, signature.bytes) }

    private mutating func put<Value: InlineBytes>(_ field: Int, inline value: Value) {
        tag(field, .bytes)
        varint(UInt64(Value.byteCount))
        value.append(to: &bytes)
    }

    /// One behind the other in one field.
    mutating func put<ID: FixedBytes>(_ field: Int, joined ids: [ID], always: Bool = false) {
        guard !ids.isEmpty || always else { return }
        tag(field, .bytes)
        varint(UInt64(ids.count * ID.byteCount))
        for id in ids { id.value.append(to: &bytes) }
    }

    /// Writes the length when it is known: in front of the message, which moves.
    mutating func put(_ field: Int, _ write: (inout ProtoWriter) -> Void) {
        tag(field, .bytes)
        let start = bytes.count
        write(&self)
        var length = bytes.count - start
        let last = start + (Int.bitWidth - (length | 1).leadingZeroBitCount + 6) / 7 - 1
        bytes.insert(contentsOf: repeatElement(0, count: last + 1 - start), at: start)
        for index in start...last {
            bytes[index] = UInt8(length & 0x7f) | (index == last ? 0 : 0x80)
            length >>= 7
        }
    }

    mutating func put(_ field: Int, _ message: (some ProtoMessage)?) {
        if let message { put(field) { message.write(to: &$0) } }
    }

    mutating func put(_ field: Int, each messages: [some ProtoMessage]) {
        for message in messages { put(field) { message.write(to: &$0) } }
    }
}

extension ProtoMessage {
    var serialized: [UInt8] { ProtoWriter.bytes { write(to: &$0) } }
    init?(serialized bytes: [UInt8]) throws(WireError) { try self.init(ProtoFields(bytes)) }
}
