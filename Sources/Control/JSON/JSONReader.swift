/// Why a text is not JSON that we accept. `offset` counts bytes from the start of the text.
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

/// A strict RFC 8259 reader: one value, UTF-8, no byte order mark, no duplicate members, bounded nesting.
///
/// The caller bounds the length; recursion is at most `depthLimit` frames.
package struct JSONReader {
    private let bytes: UnsafeBufferPointer<UInt8>
    private let depthLimit: Int
    private var offset = 0

    private init(bytes: UnsafeBufferPointer<UInt8>, depthLimit: Int) {
        self.bytes = bytes
        self.depthLimit = depthLimit
    }

    /// Reads the one value in `text`.
    package static func read(
        _ text: some Collection<UInt8>,
        depthLimit: Int = ControlLimits.nestingDepth
    ) throws(JSONSyntaxError) -> JSONValue {
        let contiguous = ContiguousArray(text)
        var outcome: Result<JSONValue, JSONSyntaxError> = .failure(.unexpectedEnd)
        contiguous.withUnsafeBufferPointer { bytes in
            var reader = JSONReader(bytes: bytes, depthLimit: depthLimit)
            outcome = Result { () throws(JSONSyntaxError) in try reader.readWhole() }
        }
        return try outcome.get()
    }

    private mutating func readWhole() throws(JSONSyntaxError) -> JSONValue {
        let value = try readValue(depth: 0)
        skipSpace()
        guard offset == bytes.count else { throw .trailingBytes(offset: offset) }
        return value
    }

    private mutating func readValue(depth: Int) throws(JSONSyntaxError) -> JSONValue {
        skipSpace()
        switch try peek() {
        case UInt8(ascii: "{"): return try readObject(depth: depth + 1)
        case UInt8(ascii: "["): return try readArray(depth: depth + 1)
        case UInt8(ascii: "\""): return .string(try readString())
        case UInt8(ascii: "t"): return try readWord("true", .bool(true))
        case UInt8(ascii: "f"): return try readWord("false", .bool(false))
        case UInt8(ascii: "n"): return try readWord("null", .null)
        case UInt8(ascii: "-"), UInt8(ascii: "0")...UInt8(ascii: "9"): return try readNumber()
        default: throw .unexpectedByte(offset: offset)
        }
    }

    private mutating func readObject(depth: Int) throws(JSONSyntaxError) -> JSONValue {
        guard depth <= depthLimit else { throw .tooDeep(limit: depthLimit) }
        offset += 1
        var members: [String: JSONValue] = [:]
        skipSpace()
        if try peek() == UInt8(ascii: "}") {
            offset += 1
            return .object(members)
        }
        while true {
            skipSpace()
            guard try peek() == UInt8(ascii: "\"") else { throw .unexpectedByte(offset: offset) }
            let key = try readString()
            skipSpace()
            try expect(UInt8(ascii: ":"))
            guard members.updateValue(try readValue(depth: depth), forKey: key) == nil else {
                throw .duplicateKey(key)
            }
            skipSpace()
            if try peek() == UInt8(ascii: ",") {
                offset += 1
                continue
            }
            try expect(UInt8(ascii: "}"))
            return .object(members)
        }
    }

    private mutating func readArray(depth: Int) throws(JSONSyntaxError) -> JSONValue {
        guard depth <= depthLimit else { throw .tooDeep(limit: depthLimit) }
        offset += 1
        var elements: [JSONValue] = []
        skipSpace()
        if try peek() == UInt8(ascii: "]") {
            offset += 1
            return .array(elements)
        }
        while true {
            elements.append(try readValue(depth: depth))
            skipSpace()
            if try peek() == UInt8(ascii: ",") {
                offset += 1
                continue
            }
            try expect(UInt8(ascii: "]"))
            return .array(elements)
        }
    }

    private mutating func readWord(_ word: StaticString, _ value: JSONValue) throws(JSONSyntaxError) -> JSONValue {
        for index in 0..<word.utf8CodeUnitCount {
            guard try peek() == word.utf8Start[index] else { throw .unexpectedByte(offset: offset) }
            offset += 1
        }
        return value
    }

    private mutating func readNumber() throws(JSONSyntaxError) -> JSONValue {
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
        let text = String(decoding: bytes[start..<offset], as: UTF8.self)
        if isInteger, let value = Int64(text) { return .integer(value) }
        guard let value = Double(text), value.isFinite else { throw .invalidNumber(offset: start) }
        return .number(value)
    }

    private mutating func skipDigits() -> Int {
        let start = offset
        while offset < bytes.count, bytes[offset] >= UInt8(ascii: "0"), bytes[offset] <= UInt8(ascii: "9") {
            offset += 1
        }
        return offset - start
    }

    private mutating func readString() throws(JSONSyntaxError) -> String {
        let start = offset
        offset += 1
        // Most strings have nothing to decode: they are taken as they are.
        let rest = bytes[offset...]
        guard let end = rest.firstIndex(where: { $0 == UInt8(ascii: "\"") || $0 == UInt8(ascii: "\\") || $0 < 0x20 })
        else { throw .unexpectedEnd }
        var decoded = Array(rest[..<end])
        offset = end
        while true {
            let byte = try peek()
            offset += 1
            switch byte {
            case UInt8(ascii: "\""):
                guard let text = String(validating: decoded, as: UTF8.self) else {
                    throw .invalidString(offset: start)
                }
                return text
            case UInt8(ascii: "\\"):
                try readEscape(into: &decoded)
            case 0..<0x20:
                throw .invalidString(offset: start)
            default:
                decoded.append(byte)
            }
        }
    }

    private mutating func readEscape(into decoded: inout [UInt8]) throws(JSONSyntaxError) {
        let start = offset
        let byte = try peek()
        offset += 1
        switch byte {
        case UInt8(ascii: "\""), UInt8(ascii: "\\"), UInt8(ascii: "/"): decoded.append(byte)
        case UInt8(ascii: "b"): decoded.append(0x08)
        case UInt8(ascii: "f"): decoded.append(0x0C)
        case UInt8(ascii: "n"): decoded.append(0x0A)
        case UInt8(ascii: "r"): decoded.append(0x0D)
        case UInt8(ascii: "t"): decoded.append(0x09)
        case UInt8(ascii: "u"):
            var code = UInt32(try readHex4(start: start))
            if (0xD800..<0xDC00).contains(code) {
                try expect(UInt8(ascii: "\\"))
                try expect(UInt8(ascii: "u"))
                let low = UInt32(try readHex4(start: start))
                guard (0xDC00..<0xE000).contains(low) else { throw .invalidString(offset: start) }
                code = 0x10000 + (code - 0xD800) << 10 + (low - 0xDC00)
            }
            guard let scalar = Unicode.Scalar(code) else { throw .invalidString(offset: start) }
            decoded.append(contentsOf: String(Character(scalar)).utf8)
        default:
            throw .invalidString(offset: start)
        }
    }

    private mutating func readHex4(start: Int) throws(JSONSyntaxError) -> UInt16 {
        var value: UInt16 = 0
        for _ in 0..<4 {
            guard let digit = Character(Unicode.Scalar(try peek())).hexDigitValue else {
                throw .invalidString(offset: start)
            }
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
