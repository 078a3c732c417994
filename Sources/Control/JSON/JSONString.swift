/// Texts of strings that were checked.
enum JSONString {
    /// The text of a checked string that stands there with its quotation marks.
    static func quoted(_ quoted: Slice<UnsafeBufferPointer<UInt8>>) -> String {
        unescaped(quoted.dropFirst().dropLast())
    }

    /// The text of a checked string, without its quotation marks.
    static func unescaped(_ content: Slice<UnsafeBufferPointer<UInt8>>) -> String {
        var decoded: [UInt8] = []
        decoded.reserveCapacity(content.count)
        var rest = content
        func hex4() -> UInt32 {
            var value: UInt32 = 0
            for _ in 0..<4 { value = value << 4 | UInt32(rest.popFirst().flatMap(HexDigit.value) ?? 0) }
            return value
        }
        while let byte = rest.popFirst() {
            guard byte == UInt8(ascii: "\\") else {
                decoded.append(byte)
                continue
            }
            switch rest.popFirst() {
            case UInt8(ascii: "b"): decoded.append(0x08)
            case UInt8(ascii: "f"): decoded.append(0x0C)
            case UInt8(ascii: "n"): decoded.append(0x0A)
            case UInt8(ascii: "r"): decoded.append(0x0D)
            case UInt8(ascii: "t"): decoded.append(0x09)
            case UInt8(ascii: "u"):
                var code = hex4()
                if (0xD800..<0xDC00).contains(code) {
                    rest = rest.dropFirst(2)
                    code = 0x10000 + (code - 0xD800) << 10 + (hex4() & 0x3FF)
                }
                decoded.append(contentsOf: String(Character(Unicode.Scalar(code) ?? "\u{FFFD}")).utf8)
            case let other?: decoded.append(other)
            case nil: break
            }
        }
        return String(decoding: decoded, as: UTF8.self)
    }
}

/// A digit of a hexadecimal text.
enum HexDigit {
    @inline(__always)
    static func value(_ byte: UInt8) -> UInt8? {
        switch byte {
        case UInt8(ascii: "0")...UInt8(ascii: "9"): byte - UInt8(ascii: "0")
        case UInt8(ascii: "a")...UInt8(ascii: "f"): byte - UInt8(ascii: "a") + 10
        case UInt8(ascii: "A")...UInt8(ascii: "F"): byte - UInt8(ascii: "A") + 10
        default: nil
        }
    }
}
