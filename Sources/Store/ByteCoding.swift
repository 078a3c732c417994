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
