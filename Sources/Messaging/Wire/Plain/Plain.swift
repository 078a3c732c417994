import Crypto

/// Hand-written protobuf encoding for frequent frames.
enum Plain {
    /// Including tag and length.
    static func fieldByteCount(_ byteCount: Int) -> Int { 1 + varintByteCount(UInt64(byteCount)) + byteCount }

    static func varintByteCount(_ value: UInt64) -> Int { (UInt64.bitWidth - (value | 1).leadingZeroBitCount + 6) / 7 }
}

/// Field numbers up to 15. Empty fields are left out, as in proto3.
extension [UInt8] {
    mutating func append(_ number: UInt8, _ value: some Collection<UInt8>) {
        guard !value.isEmpty else { return }
        append(number << 3 | 2)
        append(varint: UInt64(value.count))
        append(contentsOf: value)
    }

    mutating func append<Value: InlineBytes>(_ number: UInt8, _ value: Value) {
        append(number << 3 | 2)
        append(UInt8(Value.byteCount))
        value.append(to: &self)
    }

    mutating func append(_ number: UInt8, _ value: Int64) {
        guard value != 0 else { return }
        append(number << 3)
        append(varint: UInt64(bitPattern: value))
    }

    mutating func append(varint value: UInt64) {
        var rest = value
        while rest > 0x7f {
            append(UInt8(truncatingIfNeeded: rest) | 0x80)
            rest >>= 7
        }
        append(UInt8(truncatingIfNeeded: rest))
    }
}

/// Reads a protobuf encoding sequentially. Functions return `nil` for malformed bytes.
struct PlainReader {
    private let bytes: [UInt8]
    private var position: Int
    private let end: Int

    init(_ bytes: [UInt8], _ range: Range<Int>) {
        self.bytes = bytes
        position = range.lowerBound
        end = range.upperBound
    }

    var isAtEnd: Bool { position == end }

    mutating func byte() -> UInt8? {
        guard position < end else { return nil }
        defer { position += 1 }
        return bytes[position]
    }

    /// At most 64 bits in at most ten bytes.
    mutating func varint() -> UInt64? {
        var value: UInt64 = 0
        for shift in stride(from: UInt64(0), to: 70, by: 7) {
            guard let byte = byte(), shift < 63 || byte <= 1 else { return nil }
            value |= UInt64(byte & 0x7f) << shift
            if byte < 0x80 { return value }
        }
        return nil
    }

    /// Reads a length and skips its bytes.
    mutating func range() -> Range<Int>? {
        guard let length = varint(), length <= UInt64(end - position) else { return nil }
        let start = position
        position += Int(length)
        return start..<position
    }

    mutating func text() -> String? {
        guard let range = range() else { return nil }
        return String(validating: bytes[range], as: UTF8.self)
    }
}
