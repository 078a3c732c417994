import NIOCore

/// An identifier of 16 or 32 bytes: hexadecimal in JSON, words in memory.
package struct HexID: Hashable, Sendable {
    private let words: (UInt64, UInt64, UInt64, UInt64)
    /// 16 or 32; 0 for none.
    private let byteCount: UInt8

    package init() {
        words = (0, 0, 0, 0)
        byteCount = 0
    }

    package init(_ first: UInt64, _ second: UInt64) {
        words = (first, second, 0, 0)
        byteCount = 16
    }

    package init(_ first: UInt64, _ second: UInt64, _ third: UInt64, _ fourth: UInt64) {
        words = (first, second, third, fourth)
        byteCount = 32
    }

    /// `nil` unless `text` is 32 or 64 hexadecimal digits.
    package init?(_ text: UnsafeBufferPointer<UInt8>) {
        guard text.count == 32 || text.count == 64 else { return nil }
        func word(_ index: Int) -> UInt64? {
            guard 16 * index < text.count else { return 0 }
            var word: UInt64 = 0
            for byte in text[16 * index..<16 * index + 16] {
                guard let digit = HexDigit.value(byte) else { return nil }
                word = word << 4 | UInt64(digit)
            }
            return word
        }
        guard let first = word(0), let second = word(1), let third = word(2), let fourth = word(3) else { return nil }
        words = (first, second, third, fourth)
        byteCount = UInt8(text.count / 2)
    }

    /// `nil` unless `text` is 32 or 64 hexadecimal digits.
    package init?(hex text: String) {
        var text = text
        guard let id = text.withUTF8({ HexID($0) }) else { return nil }
        self = id
    }

    @inline(__always) fileprivate func byte(_ index: Int) -> UInt8 {
        let word =
            switch index >> 3 {
            case 0: words.0
            case 1: words.1
            case 2: words.2
            default: words.3
            }
        return UInt8(truncatingIfNeeded: word >> (56 - 8 * (index & 7)))
    }

    package static func == (one: HexID, other: HexID) -> Bool {
        one.words == other.words && one.byteCount == other.byteCount
    }

    package func hash(into hasher: inout Hasher) {
        hasher.combine(words.0)
        hasher.combine(words.1)
    }
}

extension HexID: CustomStringConvertible {
    package var description: String {
        var writer = JSONWriter()
        write(to: &writer)
        return String(decoding: writer.buffer.readableBytesView.dropFirst().dropLast(), as: UTF8.self)
    }
}

extension HexID: JSONScalar {
    package init(from reader: inout JSONReader) throws(JSONMismatch) {
        guard let id = try reader.plainString({ HexID($0) }) else {
            throw JSONMismatch("", "expected an id of 32 or 64 hexadecimal digits")
        }
        self = id
    }

    package func write(to writer: inout JSONWriter) {
        let id = self
        writer.quotedHex(Int(byteCount)) { id.byte($0) }
    }

    package static var schema: FieldSchema.Shape { FieldSchema.Shape(type: "string") }
}
