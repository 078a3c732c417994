/// Decodes validated strings.
enum JSONString {
    /// Decodes a string with its quotation marks.
    static func quoted(_ quoted: Slice<UnsafeBufferPointer<UInt8>>) -> String {
        unescaped(quoted.dropFirst().dropLast())
    }

    /// Decodes a string without its quotation marks.
    static func unescaped(_ content: Slice<UnsafeBufferPointer<UInt8>>) -> String {
        let bytes = UnsafeBufferPointer(rebasing: content)
        // An escape is never shorter than the bytes it decodes to.
        return String(unsafeUninitializedCapacity: bytes.count) { unescape(bytes, into: $0) }
    }

    /// - Returns: the number of bytes written.
    private static func unescape(_ bytes: UnsafeBufferPointer<UInt8>, into decoded: UnsafeMutableBufferPointer<UInt8>)
        -> Int
    {
        var (read, written) = (0, 0)
        func append(_ byte: UInt8) {
            decoded[written] = byte
            written += 1
        }
        func next() -> UInt8 {
            guard read < bytes.count else { return 0 }
            defer { read += 1 }
            return bytes[read]
        }
        func hex4() -> UInt32 { (0..<4).reduce(0) { value, _ in value << 4 | UInt32(HexDigit.value(next()) ?? 0) } }
        while read < bytes.count {
            let byte = next()
            guard byte == UInt8(ascii: "\\") else {
                append(byte)
                continue
            }
            switch next() {
            case UInt8(ascii: "b"): append(0x08)
            case UInt8(ascii: "f"): append(0x0C)
            case UInt8(ascii: "n"): append(0x0A)
            case UInt8(ascii: "r"): append(0x0D)
            case UInt8(ascii: "t"): append(0x09)
            case UInt8(ascii: "u"):
                var code = hex4()
                if (0xD800..<0xDC00).contains(code) {
                    read += 2
                    code = 0x10000 + (code - 0xD800) << 10 + (hex4() & 0x3FF)
                }
                for unit in UTF8.encode(Unicode.Scalar(code) ?? "\u{FFFD}") ?? UTF8.encodedReplacementCharacter {
                    append(unit)
                }
            case let other: append(other)
            }
        }
        return written
    }
}

enum HexDigit {
    @inline(__always) static func value(_ byte: UInt8) -> UInt8? {
        switch byte {
        case UInt8(ascii: "0")...UInt8(ascii: "9"): byte - UInt8(ascii: "0")
        case UInt8(ascii: "a")...UInt8(ascii: "f"): byte - UInt8(ascii: "a") + 10
        case UInt8(ascii: "A")...UInt8(ascii: "F"): byte - UInt8(ascii: "A") + 10
        default: nil
        }
    }
}
