/// A reason to reject a text. `offset` counts bytes from the start of the text.
package enum JSONSyntaxError: Error, Hashable, Sendable {
    case unexpectedEnd
    case unexpectedByte(offset: Int)
    case invalidNumber(offset: Int)
    case invalidString(offset: Int)
    case duplicateKey(String)
    case tooDeep(limit: Int)
    case trailingBytes(offset: Int)

    /// One phrase for a person.
    package var message: String {
        switch self {
        case .unexpectedEnd: "the JSON text ends too early"
        case .unexpectedByte(let offset): "unexpected byte at offset \(offset)"
        case .invalidNumber(let offset): "malformed number at offset \(offset)"
        case .invalidString(let offset): "malformed string at offset \(offset)"
        case .duplicateKey(let key): "the member `\(key)` appears twice"
        case .tooDeep(let limit): "nested deeper than \(limit) levels"
        case .trailingBytes(let offset): "something follows the JSON value at offset \(offset)"
        }
    }
}

/// Strict validation of one JSON text (RFC 8259): UTF-8, no byte order mark, no duplicate members, bounded nesting. It
/// builds no values; ``JSONReader`` reads the validated bytes.
///
/// The caller bounds the length. Recursion is at most `depthLimit` frames.
struct JSONSyntax {
    private let bytes: UnsafeBufferPointer<UInt8>
    private let depthLimit: Int
    private var offset = 0
    /// A stack: the member names of all open objects. Each object keeps the index of its first.
    private var names: [Range<Int>] = []

    /// Larger objects find duplicates with a set of the decoded names.
    private static let linearNameCount = 32

    private init(bytes: UnsafeBufferPointer<UInt8>, depthLimit: Int) {
        self.bytes = bytes
        self.depthLimit = depthLimit
    }

    static func check(_ bytes: UnsafeBufferPointer<UInt8>, depthLimit: Int = ControlLimits.nestingDepth)
        throws(JSONSyntaxError)
    {
        var syntax = JSONSyntax(bytes: bytes, depthLimit: depthLimit)
        try syntax.checkValue(depth: 0)
        syntax.skipSpace()
        guard syntax.offset == bytes.count else { throw .trailingBytes(offset: syntax.offset) }
    }

    private mutating func checkValue(depth: Int) throws(JSONSyntaxError) {
        skipSpace()
        switch try peek() {
        case UInt8(ascii: "{"): try checkObject(depth: depth + 1)
        case UInt8(ascii: "["): try checkArray(depth: depth + 1)
        case UInt8(ascii: "\""): try checkString()
        case UInt8(ascii: "t"): try checkWord("true")
        case UInt8(ascii: "f"): try checkWord("false")
        case UInt8(ascii: "n"): try checkWord("null")
        case UInt8(ascii: "-"), UInt8(ascii: "0")...UInt8(ascii: "9"): try checkNumber()
        default: throw .unexpectedByte(offset: offset)
        }
    }

    private mutating func checkObject(depth: Int) throws(JSONSyntaxError) {
        guard depth <= depthLimit else { throw .tooDeep(limit: depthLimit) }
        offset += 1
        skipSpace()
        if try peek() == UInt8(ascii: "}") {
            offset += 1
            return
        }
        let first = names.count
        var decoded: Set<String>?
        while true {
            skipSpace()
            guard try peek() == UInt8(ascii: "\"") else { throw .unexpectedByte(offset: offset) }
            let start = offset
            try checkString()
            let name = start..<offset
            skipSpace()
            try expect(UInt8(ascii: ":"))
            try checkValue(depth: depth)
            try note(name, after: first, &decoded)
            skipSpace()
            if try peek() == UInt8(ascii: ",") {
                offset += 1
                continue
            }
            try expect(UInt8(ascii: "}"))
            names.removeSubrange(first...)
            return
        }
    }

    /// - Throws: when the object already has a member of that name.
    private mutating func note(_ name: Range<Int>, after first: Int, _ decoded: inout Set<String>?)
        throws(JSONSyntaxError)
    {
        if decoded == nil, names.count - first >= Self.linearNameCount { decoded = Set(names[first...].map(text)) }
        if decoded != nil {
            let text = text(name)
            guard decoded?.insert(text).inserted ?? false else { throw .duplicateKey(text) }
            return
        }
        for other in names[first...] where isSame(name, other) { throw .duplicateKey(text(name)) }
        names.append(name)
    }

    /// The ranges include the quotation marks.
    private func isSame(_ one: Range<Int>, _ other: Range<Int>) -> Bool {
        let one = bytes[one]
        let other = bytes[other]
        if one.contains(UInt8(ascii: "\\")) || other.contains(UInt8(ascii: "\\")) {
            return JSONString.quoted(one) == JSONString.quoted(other)
        }
        return one.elementsEqual(other)
    }

    private func text(_ name: Range<Int>) -> String { JSONString.quoted(bytes[name]) }

    private mutating func checkArray(depth: Int) throws(JSONSyntaxError) {
        guard depth <= depthLimit else { throw .tooDeep(limit: depthLimit) }
        offset += 1
        skipSpace()
        if try peek() == UInt8(ascii: "]") {
            offset += 1
            return
        }
        while true {
            try checkValue(depth: depth)
            skipSpace()
            if try peek() == UInt8(ascii: ",") {
                offset += 1
                continue
            }
            try expect(UInt8(ascii: "]"))
            return
        }
    }

    private mutating func checkWord(_ word: StaticString) throws(JSONSyntaxError) {
        for index in 0..<word.utf8CodeUnitCount {
            guard try peek() == word.utf8Start[index] else { throw .unexpectedByte(offset: offset) }
            offset += 1
        }
    }

    private mutating func checkNumber() throws(JSONSyntaxError) {
        let start = offset
        var isInteger = true
        if bytes[offset] == UInt8(ascii: "-") { offset += 1 }
        let firstDigit = offset
        let integerDigits = skipDigits()
        guard integerDigits > 0, integerDigits == 1 || bytes[firstDigit] != UInt8(ascii: "0") else {
            throw .invalidNumber(offset: start)
        }
        if offset < bytes.count, bytes[offset] == UInt8(ascii: ".") {
            isInteger = false
            offset += 1
            guard skipDigits() > 0 else { throw .invalidNumber(offset: start) }
        }
        if offset < bytes.count, bytes[offset] | 0x20 == UInt8(ascii: "e") {
            isInteger = false
            offset += 1
            if offset < bytes.count, bytes[offset] == UInt8(ascii: "+") || bytes[offset] == UInt8(ascii: "-") {
                offset += 1
            }
            guard skipDigits() > 0 else { throw .invalidNumber(offset: start) }
        }
        // An integer of at most 300 digits is finite as a `Double`.
        if isInteger, integerDigits <= 300 { return }
        let text = String(decoding: bytes[start..<offset], as: UTF8.self)
        guard let value = Double(text), value.isFinite else { throw .invalidNumber(offset: start) }
    }

    private mutating func skipDigits() -> Int {
        let start = offset
        while offset < bytes.count, bytes[offset] >= UInt8(ascii: "0"), bytes[offset] <= UInt8(ascii: "9") {
            offset += 1
        }
        return offset - start
    }

    private mutating func checkString() throws(JSONSyntaxError) {
        let start = offset
        offset += 1
        var isASCII = true
        while true {
            let byte = try peek()
            switch byte {
            case UInt8(ascii: "\""):
                guard isASCII || Self.isUTF8(bytes[start + 1..<offset]) else { throw .invalidString(offset: start) }
                offset += 1
                return
            case UInt8(ascii: "\\"):
                offset += 1
                try checkEscape()
            case 0..<0x20: throw .invalidString(offset: start)
            default:
                isASCII = isASCII && byte < 0x80
                offset += 1
            }
        }
    }

    private static func isUTF8(_ bytes: Slice<UnsafeBufferPointer<UInt8>>) -> Bool {
        // A string of up to 15 bytes needs no allocation; a longer one is freed at once.
        String(validating: bytes, as: UTF8.self) != nil
    }

    /// The offset is behind the backslash.
    private mutating func checkEscape() throws(JSONSyntaxError) {
        let start = offset
        let byte = try peek()
        offset += 1
        switch byte {
        case UInt8(ascii: "\""), UInt8(ascii: "\\"), UInt8(ascii: "/"), UInt8(ascii: "b"), UInt8(ascii: "f"),
            UInt8(ascii: "n"), UInt8(ascii: "r"), UInt8(ascii: "t"):
            return
        case UInt8(ascii: "u"):
            let code = try checkHex4(start: start)
            switch code {
            case 0xD800..<0xDC00:
                try expect(UInt8(ascii: "\\"))
                try expect(UInt8(ascii: "u"))
                guard (0xDC00..<0xE000).contains(try checkHex4(start: start)) else {
                    throw .invalidString(offset: start)
                }
            case 0xDC00..<0xE000: throw .invalidString(offset: start)
            default: return
            }
        default: throw .invalidString(offset: start)
        }
    }

    private mutating func checkHex4(start: Int) throws(JSONSyntaxError) -> UInt16 {
        var value: UInt16 = 0
        for _ in 0..<4 {
            guard let digit = HexDigit.value(try peek()) else { throw .invalidString(offset: start) }
            value = value << 4 | UInt16(digit)
            offset += 1
        }
        return value
    }

    private mutating func skipSpace() {
        while offset < bytes.count {
            switch bytes[offset] {
            case 0x20, 0x09, 0x0A, 0x0D: offset += 1
            default: return
            }
        }
    }

    private func peek() throws(JSONSyntaxError) -> UInt8 {
        guard offset < bytes.count else { throw .unexpectedEnd }
        return bytes[offset]
    }

    private mutating func expect(_ byte: UInt8) throws(JSONSyntaxError) {
        guard try peek() == byte else { throw .unexpectedByte(offset: offset) }
        offset += 1
    }
}

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
