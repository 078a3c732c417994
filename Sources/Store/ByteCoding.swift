import Primitives

extension FixedWidthInteger {
    /// The integer as the store's files have it: little-endian.
    var littleEndianBytes: [UInt8] {
        withUnsafeBytes(of: littleEndian) { Array($0) }
    }
}

extension Collection<UInt8> {
    /// The little-endian integer at `offset`, or `nil` if there are too few bytes.
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

/// A 16-byte identifier in 16 bytes, where an array would take 48.
struct MessageID: Hashable, Sendable {
    private let high: UInt64
    private let low: UInt64

    /// `nil` unless there are 16 bytes.
    package init?(_ bytes: some Collection<UInt8>) {
        guard bytes.count == 16, let high = bytes.integer(UInt64.self, at: 0),
            let low = bytes.integer(UInt64.self, at: 8)
        else { return nil }
        self.high = high
        self.low = low
    }

    package var bytes: [UInt8] { high.littleEndianBytes + low.littleEndianBytes }

    static func parse(_ bytes: [UInt8]) throws(StoreError) -> MessageID {
        guard let id = MessageID(bytes) else { throw .invalidArgument("message identifier: 16 bytes wanted") }
        return id
    }
}

extension MessageID {
    /// The hexadecimal digits that identifiers begin with.
    struct Prefix {
        private let digits: MessageID
        private let mask: MessageID

        /// `nil` when there are more than an identifier has, or one is above 15.
        init?(digits: [UInt8]) {
            guard digits.count <= 32, digits.allSatisfy({ $0 < 16 }) else { return nil }
            var (value, mask) = ([UInt8](repeating: 0, count: 16), [UInt8](repeating: 0, count: 16))
            for (index, digit) in digits.enumerated() {
                let shift: UInt8 = index % 2 == 0 ? 4 : 0
                value[index / 2] |= digit << shift
                mask[index / 2] |= 15 << shift
            }
            guard let value = MessageID(value), let mask = MessageID(mask) else { return nil }
            self.digits = value
            self.mask = mask
        }

        func matches(_ id: MessageID) -> Bool {
            id.high & mask.high == digits.high && id.low & mask.low == digits.low
        }
    }
}
