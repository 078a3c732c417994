import Cryptography

extension FixedWidthInteger {
    /// Little-endian, as in all files of the store.
    var littleEndianBytes: [UInt8] { withUnsafeBytes(of: littleEndian) { Array($0) } }
}

extension Collection<UInt8> {
    /// The little-endian integer at `offset`, or `nil` if it reaches past the end.
    func integer<Value: FixedWidthInteger>(_ type: Value.Type, at offset: Int) -> Value? {
        let width = MemoryLayout<Value>.size
        guard offset >= 0, offset <= count - width else { return nil }
        let start = index(startIndex, offsetBy: offset)
        var value: Value = 0
        for (position, byte) in self[start..<index(start, offsetBy: width)].enumerated() {
            value |= Value(truncatingIfNeeded: byte) << Value(8 * position)
        }
        return value
    }
}

/// The magic at the start of a file or page: its kind, then a digit for the format version.
struct Magic: Sendable {
    let bytes: [UInt8]

    /// - Parameter name: kind and digit, without the zero padding to eight bytes.
    init(_ name: StaticString) {
        let name = name.withUTF8Buffer { Array($0) }
        bytes = name + [UInt8](repeating: 0, count: 8 - name.count)
    }

    func begins(_ found: some Collection<UInt8>) -> Bool { found.starts(with: bytes) }

    /// Whether `found` has the same kind and a higher digit: a later version of the program wrote it.
    func isLater(_ found: some Collection<UInt8>) -> Bool {
        guard let digit = bytes.lastIndex(where: { $0 != 0 }) else { return false }
        let found = Array(found.prefix(bytes.count))
        return found.count == bytes.count && found[..<digit] == bytes[..<digit] && found[digit] > bytes[digit]
            && found[digit] <= UInt8(ascii: "9") && found[(digit + 1)...] == bytes[(digit + 1)...]
    }
}

extension Bytes16 {
    struct Prefix {
        private let digits: Bytes16
        private let mask: Bytes16

        /// `nil` for more than 32 digits, or a digit above 15.
        init?(digits: [UInt8]) {
            guard digits.count <= 32, digits.allSatisfy({ $0 < 16 }) else { return nil }
            var (value, mask) = ([UInt8](repeating: 0, count: 16), [UInt8](repeating: 0, count: 16))
            for (index, digit) in digits.enumerated() {
                let shift: UInt8 = index % 2 == 0 ? 4 : 0
                value[index / 2] |= digit << shift
                mask[index / 2] |= 15 << shift
            }
            guard let value = Bytes16(value), let mask = Bytes16(mask) else { return nil }
            self.digits = value
            self.mask = mask
        }

        func matches(_ id: Bytes16) -> Bool {
            id.first & mask.first == digits.first && id.second & mask.second == digits.second
        }
    }
}
