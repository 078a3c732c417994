import Cryptography

/// A message of `mayfly.proto` (Frames.md).
protocol ProtoMessage {
    func write(to writer: inout ProtoWriter)
    /// - Returns: `nil` for a value of a later version, which is skipped.
    init?(_ fields: ProtoFields) throws(WireError)
}

/// The fields of one message, found in one pass and without the heap. A known field with another wire type is skipped;
/// of a field that stands twice the last one counts (Frames.md, "Decoding").
struct ProtoFields {
    private let bytes: [UInt8]
    private let range: Range<Int>
    private let depth: Int
    /// By field number: where the last varint, and the last length before bytes, begins; 0 for none.
    private var numbers = InlineArray<43, UInt32>(repeating: 0)
    private var lengths = InlineArray<43, UInt32>(repeating: 0)

    init(_ bytes: [UInt8]) throws(WireError) { try self.init(bytes, 0..<bytes.count, depth: 1) }

    /// The fields behind `start`.
    init(_ bytes: [UInt8], from start: Int) throws(WireError) { try self.init(bytes, start..<bytes.count, depth: 1) }

    private init(_ bytes: [UInt8], _ range: Range<Int>, depth: Int) throws(WireError) {
        guard depth <= ProtoReader.depthLimit, range.upperBound <= Int(UInt32.max) else { throw .malformed("protobuf") }
        (self.bytes, self.range, self.depth) = (bytes, range, depth)
        var reader = ProtoReader(bytes, range)
        while let field = try reader.next(depth: depth) {
            guard field.number < numbers.count else { continue }
            switch field.type {
            case .varint: numbers[field.number] = UInt32(field.start)
            case .bytes: lengths[field.number] = UInt32(field.start)
            default: break
            }
        }
    }

    /// Of a `oneof`: the field that stands last.
    func last(of bytes: [Int], numbers: [Int] = []) -> Int? {
        var last: (start: UInt32, field: Int?) = (0, nil)
        for field in bytes where lengths[field] > last.start { last = (lengths[field], field) }
        for field in numbers where self.numbers[field] > last.start { last = (self.numbers[field], field) }
        return last.field
    }

    func optionalNumber(_ field: Int) -> UInt64? {
        guard numbers[field] > 0 else { return nil }
        var reader = ProtoReader(bytes, Int(numbers[field])..<range.upperBound)
        return try? reader.varint()
    }

    func number(_ field: Int) -> UInt64 { optionalNumber(field) ?? 0 }
    func uint32(_ field: Int) -> UInt32 { UInt32(truncatingIfNeeded: number(field)) }
    func int64(_ field: Int) -> Int64 { Int64(bitPattern: number(field)) }
    func flag(_ field: Int) -> Bool { number(field) != 0 }
    func time(_ field: Int) -> Timestamp { Timestamp(milliseconds: int64(field)) }
    func optionalTime(_ field: Int) -> Timestamp? { numbers[field] > 0 ? time(field) : nil }

    private func range(at start: Int) -> Range<Int> {
        var reader = ProtoReader(bytes, start..<range.upperBound)
        return (try? reader.range()) ?? 0..<0
    }

    func slice(_ field: Int) -> ArraySlice<UInt8> { lengths[field] > 0 ? bytes[range(at: Int(lengths[field]))] : [] }

    func bytes(_ field: Int) -> [UInt8] { Array(slice(field)) }

    func bytes(_ field: Int, _ name: String, count: Int) throws(WireError) -> [UInt8] {
        guard slice(field).count == count else { throw .malformed(name) }
        return bytes(field)
    }

    func bytes(_ field: Int, _ name: String, atMost limit: Int) throws(WireError) -> [UInt8] {
        guard slice(field).count <= limit else { throw .tooLong(name) }
        return bytes(field)
    }

    func text(_ field: Int, _ name: String, atMost limit: Int = .max) throws(WireError) -> String {
        let slice = slice(field)
        guard slice.count <= limit else { throw .tooLong(name) }
        guard let text = String(validating: slice, as: UTF8.self) else { throw .malformed(name) }
        return text
    }

    /// `nil` for an empty text.
    func optionalText(_ field: Int, _ name: String, atMost limit: Int = .max) throws(WireError) -> String? {
        let text = try text(field, name, atMost: limit)
        return text.isEmpty ? nil : text
    }

    func id<ID: FixedBytes>(_ field: Int, _ name: String) throws(WireError) -> ID {
        guard let id = ID(slice(field)) else { throw .malformed(name) }
        return id
    }

    func optionalID<ID: FixedBytes>(_ field: Int, _ name: String) throws(WireError) -> ID? {
        slice(field).isEmpty ? nil : try id(field, name)
    }

    /// One behind the other in one field.
    func ids<ID: FixedBytes>(_ field: Int, _ name: String, atMost limit: Int) throws(WireError) -> [ID] {
        let slice = slice(field)
        guard slice.count <= limit * ID.byteCount else { throw .tooLong(name) }
        guard slice.count.isMultiple(of: ID.byteCount) else { throw .malformed(name) }
        return slice.withUnsafeBytes { bytes in
            stride(from: 0, to: bytes.count, by: ID.byteCount).map { start in
                ID(ID.Value(copying: UnsafeRawBufferPointer(rebasing: bytes[start..<start + ID.byteCount])))
            }
        }
    }

    func key(_ field: Int, _ name: String) throws(WireError) -> PublicKey { try Self.key(slice(field), name) }

    static func key(_ bytes: ArraySlice<UInt8>, _ name: String) throws(WireError) -> PublicKey {
        do throws(CurveError) { return try PublicKey(bytes) } catch { throw .malformed(name) }
    }

    func signature(_ field: Int, _ name: String) throws(WireError) -> SchnorrSignature {
        do throws(CurveError) { return try SchnorrSignature(slice(field)) } catch { throw .malformed(name) }
    }

    /// Of a message that is absent: no fields.
    func fields(_ field: Int) throws(WireError) -> ProtoFields {
        try ProtoFields(bytes, lengths[field] > 0 ? range(at: Int(lengths[field])) : 0..<0, depth: depth + 1)
    }

    func optional<Message: ProtoMessage>(_ field: Int) throws(WireError) -> Message? {
        lengths[field] > 0 ? try Message(fields(field)) : nil
    }

    func messages<Message: ProtoMessage>(_ field: Int, _ name: String, atMost limit: Int) throws(WireError) -> [Message]
    {
        try all(field, name, atMost: limit) { (range) throws(WireError) in
            try Message(ProtoFields(bytes, range, depth: depth + 1))
        }
    }

    func texts(_ field: Int, _ name: String, atMost limit: Int) throws(WireError) -> [String] {
        try all(field, name, atMost: limit) { (range) throws(WireError) in
            guard let text = String(validating: bytes[range], as: UTF8.self) else { throw .malformed(name) }
            return text
        }
    }

    func all(_ field: Int, _ name: String) throws(WireError) -> [ProtoFields] {
        try all(field, name, atMost: .max) { (range) throws(WireError) in
            try ProtoFields(bytes, range, depth: depth + 1)
        }
    }

    /// Each value; without those that are read as `nil`. A list beyond its limit is refused before a value is read.
    func all<Value>(_ field: Int, _ name: String, atMost limit: Int, _ read: (Range<Int>) throws(WireError) -> Value?)
        throws(WireError) -> [Value]
    {
        guard lengths[field] > 0 else { return [] }
        var count = 0
        var reader = ProtoReader(bytes, range)
        while let found = try reader.next(depth: depth) { count += found.isBytes(field) ? 1 : 0 }
        guard count <= limit else { throw .tooLong(name) }
        var values: [Value] = []
        values.reserveCapacity(count)
        reader = ProtoReader(bytes, range)
        while let found = try reader.next(depth: depth) {
            if found.isBytes(field), let value = try read(range(at: found.start)) { values.append(value) }
        }
        return values
    }

    func all<Value>(
        _ field: Int, _ name: String, atMost limit: Int, bytes read: (ArraySlice<UInt8>) throws(WireError) -> Value?
    ) throws(WireError) -> [Value] {
        try all(field, name, atMost: limit) { (range) throws(WireError) in try read(bytes[range]) }
    }
}

/// Reads fields one behind the other. No bytes make it trap.
struct ProtoReader {
    /// Of messages and unknown groups, the outermost included.
    static let depthLimit = 8

    enum WireType: UInt8 { case varint, fixed64, bytes, group, groupEnd, fixed32 }

    struct Field {
        let number: Int
        let type: WireType
        /// Behind the tag.
        let start: Int

        func isBytes(_ number: Int) -> Bool { self.number == number && type == .bytes }
    }

    private let bytes: [UInt8]
    private var position: Int
    private let end: Int

    init(_ bytes: [UInt8], _ range: Range<Int>) {
        self.bytes = bytes
        (position, end) = (range.lowerBound, range.upperBound)
    }

    /// Skips a field; `nil` at the end.
    /// - Parameter depth: of the message that is read.
    mutating func next(depth: Int) throws(WireError) -> Field? {
        guard position < end else { return nil }
        let tag = try varint(atMost: 5)
        guard tag <= UInt64(UInt32.max), tag >> 3 > 0, let type = WireType(rawValue: UInt8(tag & 7)) else {
            throw .malformed("protobuf")
        }
        let field = Field(number: Int(tag >> 3), type: type, start: position)
        switch type {
        case .varint: _ = try varint()
        case .fixed64: try skip(8)
        case .bytes: _ = try range()
        case .group:
            guard depth < Self.depthLimit else { throw .malformed("protobuf") }
            while true {
                let start = position
                if try varint(atMost: 5) == tag + 1 { break }
                position = start
                _ = try next(depth: depth + 1)
            }
        case .groupEnd: throw .malformed("protobuf")
        case .fixed32: try skip(4)
        }
        return field
    }

    /// At most 64 bits. A tag has at most five bytes.
    mutating func varint(atMost byteCount: UInt64 = 10) throws(WireError) -> UInt64 {
        var (value, shift) = (UInt64(0), UInt64(0))
        while position < end, shift < 7 * byteCount {
            let byte = bytes[position]
            position += 1
            value |= UInt64(byte & 0x7f) << shift
            if byte < 0x80 { return value }
            shift += 7
        }
        throw .malformed("protobuf")
    }

    /// A length, and where the bytes behind it are.
    mutating func range() throws(WireError) -> Range<Int> {
        let count = try varint()
        guard count <= UInt64(end - position) else { throw .malformed("protobuf") }
        let start = position
        position += Int(count)
        return start..<position
    }

    private mutating func skip(_ count: Int) throws(WireError) {
        guard count <= end - position else { throw .malformed("protobuf") }
        position += count
    }
}
