/// Variable-length integers of RFC 9000, section 16: 1, 2, 4 or 8 bytes, up to 2^62 − 1.
enum VariableInteger {
    static let maximum: UInt64 = (1 << 62) - 1

    static func byteCount(_ value: UInt64) -> Int {
        if value < 1 << 6 { 1 } else if value < 1 << 14 { 2 } else if value < 1 << 30 { 4 } else { 8 }
    }

    /// - Precondition: at most ``maximum``. Our own counters stay far below.
    static func append(_ value: UInt64, to bytes: inout [UInt8]) {
        precondition(value <= maximum, "a variable-length integer has 62 bits")
        if value < 1 << 6 {
            bytes.append(UInt8(value))
        } else if value < 1 << 14 {
            bytes.append(0x40 | UInt8(value >> 8))
            bytes.append(UInt8(truncatingIfNeeded: value))
        } else if value < 1 << 30 {
            bytes.appendBigEndian(UInt32(value) | 0x8000_0000)
        } else {
            bytes.appendBigEndian(value | 0xc000_0000_0000_0000)
        }
    }
}

struct ByteReader {
    private let bytes: [UInt8]
    private(set) var index: Int
    private let end: Int

    init(_ bytes: [UInt8], from index: Int = 0) {
        self.bytes = bytes
        self.index = min(index, bytes.count)
        end = bytes.count
    }

    var remaining: Int { end - index }

    mutating func byte() -> UInt8? {
        guard index < end else { return nil }
        defer { index += 1 }
        return bytes[index]
    }

    mutating func number() -> UInt64? {
        guard remaining >= 8 else { return nil }
        defer { index += 8 }
        return bytes.bigEndian(at: index)
    }

    mutating func range(_ count: UInt64) -> Range<Int>? {
        guard count <= UInt64(remaining) else { return nil }
        let start = index
        index += Int(count)
        return start..<index
    }

    mutating func array(_ count: Int) -> [UInt8]? {
        guard count >= 0, let range = range(UInt64(count)) else { return nil }
        return Array(bytes[range])
    }

    /// Accepts encodings longer than necessary (RFC 9000, section 16).
    mutating func variable() -> UInt64? {
        guard index < end else { return nil }
        let first = bytes[index]
        let count = 1 << Int(first >> 6)
        guard remaining >= count else { return nil }
        var value = UInt64(first & 0x3f)
        for offset in 1..<max(count, 1) { value = value << 8 | UInt64(bytes[index + offset]) }
        index += count
        return value
    }

    mutating func skipZeros() { while index < end, bytes[index] == 0 { index += 1 } }
}

extension [UInt8] {
    mutating func appendBigEndian(_ number: some FixedWidthInteger) {
        Swift.withUnsafeBytes(of: number.bigEndian) { append(contentsOf: $0) }
    }

    /// - Precondition: eight bytes follow from `index`.
    func bigEndian(at index: Int) -> UInt64 {
        var number: UInt64 = 0
        for offset in 0..<8 { number = number << 8 | UInt64(self[index + offset]) }
        return number
    }
}
