import Cryptography

/// Validates one JSON text (RFC 8259) strictly, then reads its values: UTF-8, no byte order mark, no duplicate members,
/// bounded nesting.
///
/// The caller bounds the length. Recursion is at most `depthLimit` frames.
package struct JSONReader {
    private let bytes: UnsafeBufferPointer<UInt8>
    private let depthLimit: Int
    private var offset = 0
    /// The members of all objects, in the order of the text. An inner object's members follow the member with it.
    private var members: [Member] = []

    private struct Member {
        /// Without the quotation marks.
        let name: Range<Int>
        let hasEscapes: Bool
        var value = 0
        var end = 0
        /// Index of the next member of the same object.
        var next: Int?
        var isRead = false
    }

    /// Larger objects find duplicates with a set of the decoded names.
    private static let linearNameCount = 32

    /// Reads an object without members.
    static var emptyObject: JSONReader {
        let text: StaticString = "{}"
        let bytes = UnsafeBufferPointer(start: text.utf8Start, count: text.utf8CodeUnitCount)
        return JSONReader(bytes: bytes, depthLimit: 1)
    }

    /// Validates `text` and reads it.
    package static func read<Value>(
        _ text: some Collection<UInt8>, depthLimit: Int = ControlLimits.nestingDepth,
        _ body: (inout JSONReader) throws(JSONMismatch) -> Value
    ) throws(JSONSyntaxError) -> Result<Value, JSONMismatch> {
        try ContiguousArray(text).withUnsafeBufferPointer { bytes throws(JSONSyntaxError) in
            var reader = try JSONReader(bytes, depthLimit: depthLimit)
            return Result { () throws(JSONMismatch) in try body(&reader) }
        }
    }

    // MARK: Values

    enum Kind {
        case null, bool, number, string, array, object

        var name: String {
            switch self {
            case .null: "null"
            case .bool: "a boolean"
            case .number: "a number"
            case .string: "a string"
            case .array: "an array"
            case .object: "an object"
            }
        }
    }

    mutating func kind() -> Kind {
        skipSpace()
        switch current {
        case UInt8(ascii: "{"): return .object
        case UInt8(ascii: "["): return .array
        case UInt8(ascii: "\""): return .string
        case UInt8(ascii: "t"), UInt8(ascii: "f"): return .bool
        case UInt8(ascii: "n"): return .null
        default: return .number
        }
    }

    /// The error for a next value of another kind.
    mutating func mismatch(_ expected: String) -> JSONMismatch {
        JSONMismatch("", "expected \(expected), found \(kind().name)")
    }

    mutating func string() throws(JSONMismatch) -> String {
        guard kind() == .string else { throw mismatch("a string") }
        let (content, hasEscapes) = skipString()
        return hasEscapes ? JSONString.unescaped(bytes[content]) : String(decoding: bytes[content], as: UTF8.self)
    }

    /// The content of a string without escapes; `nil` for a string with escapes.
    mutating func plainString<Value>(_ body: (UnsafeBufferPointer<UInt8>) -> Value?) throws(JSONMismatch) -> Value? {
        guard kind() == .string else { throw mismatch("a string") }
        let (content, hasEscapes) = skipString()
        return hasEscapes ? nil : body(UnsafeBufferPointer(rebasing: bytes[content]))
    }

    mutating func bool() throws(JSONMismatch) -> Bool {
        guard kind() == .bool else { throw mismatch("a boolean") }
        let value = current == UInt8(ascii: "t")
        offset += value ? 4 : 5
        return value
    }

    /// Consumes a null, if it comes next.
    mutating func null() -> Bool {
        guard kind() == .null else { return false }
        offset += 4
        return true
    }

    /// An integer if the number has neither fraction nor exponent and fits in 64 bits.
    enum Number {
        case integer(Int64)
        case double(Double)
    }

    mutating func number(_ expected: String = "a number") throws(JSONMismatch) -> Number {
        guard kind() == .number else { throw mismatch(expected) }
        let start = offset
        try? checkNumber()
        let text = String(decoding: bytes[start..<offset], as: UTF8.self)
        if let value = Int64(text) { return .integer(value) }
        return .double(Double(text) ?? 0)
    }

    mutating func integer<Value: FixedWidthInteger>() throws(JSONMismatch) -> Value {
        let expected = "a whole number"
        let wide: Int64
        switch try number(expected) {
        case .integer(let value): wide = value
        case .double(let value):
            guard let value = Int64(exactly: value) else {
                throw JSONMismatch("", "expected \(expected), found a number")
            }
            wide = value
        }
        guard let narrow = Value(exactly: wide) else {
            throw JSONMismatch("", "\(wide) is outside \(Value.min)…\(Value.max)")
        }
        return narrow
    }

    mutating func double() throws(JSONMismatch) -> Double {
        switch try number() {
        case .integer(let value): Double(value)
        case .double(let value): value
        }
    }

    /// Calls `body` before each element. It must consume the element.
    mutating func array(_ body: (inout JSONReader) throws(JSONMismatch) -> Void) throws(JSONMismatch) {
        guard kind() == .array else { throw mismatch("an array") }
        offset += 1
        skipSpace()
        var index = 0
        while current != UInt8(ascii: "]") {
            do throws(JSONMismatch) { try body(&self) } catch { throw error.inside("[\(index)]") }
            index += 1
            skipSpace()
            guard current == UInt8(ascii: ",") else { break }
            offset += 1
        }
        offset += 1
    }

    // MARK: Objects

    /// As ``JSONRecord/read(from:unknown:)``.
    mutating func record<Record: JSONRecord>(_ record: inout Record, unknown: ((String) -> String)?)
        throws(JSONMismatch)
    {
        let first = try openObject()
        try withUnsafeMutablePointer(to: &self) { reader throws(JSONMismatch) in
            var fields = RecordReader(reader: reader, first: first)
            try record.visit(&fields)
        }
        var others: [String] = []
        var next = first
        while let index = next {
            if unknown != nil, !members[index].isRead { others.append(name(of: members[index])) }
            offset = members[index].end
            next = members[index].next
        }
        closeObject()
        if let other = others.min(), let unknown { throw JSONMismatch(other, unknown(other)) }
    }

    /// Calls `body` before the value of each member.
    mutating func object(_ body: (String, inout JSONReader) throws(JSONMismatch) -> Void) throws(JSONMismatch) {
        var next = try openObject()
        while let index = next {
            offset = members[index].value
            let name = name(of: members[index])
            do throws(JSONMismatch) { try body(name, &self) } catch { throw error.inside(name) }
            offset = members[index].end
            next = members[index].next
        }
        closeObject()
    }

    /// - Returns: index of the object's first member; `nil` without members.
    mutating func openObject() throws(JSONMismatch) -> Int? {
        guard kind() == .object else { throw mismatch("an object") }
        var (first, end) = (0, members.count)
        while first < end {
            let middle = (first + end) / 2
            if members[middle].name.lowerBound > offset { end = middle } else { first = middle + 1 }
        }
        offset += 1
        skipSpace()
        return current == UInt8(ascii: "}") ? nil : first
    }

    /// The offset is behind the last value.
    private mutating func closeObject() {
        skipSpace()
        offset += 1
    }

    /// Moves to the value of a member; false if the member is absent.
    /// - Parameter first: index of the object's first member.
    mutating func open(_ name: String, from first: Int?) -> Bool {
        var next = first
        while let index = next {
            if isNamed(name, members[index]) {
                members[index].isRead = true
                offset = members[index].value
                return true
            }
            next = members[index].next
        }
        return false
    }

    private func name(of member: Member) -> String {
        member.hasEscapes
            ? JSONString.unescaped(bytes[member.name]) : String(decoding: bytes[member.name], as: UTF8.self)
    }

    private func isNamed(_ name: String, _ member: Member) -> Bool {
        member.hasEscapes
            ? self.name(of: member) == name
            : name.utf8.count == member.name.count && name.utf8.elementsEqual(bytes[member.name])
    }

    /// Consumes nothing.
    mutating func isEmptyArray() -> Bool {
        guard kind() == .array else { return false }
        let start = offset
        defer { offset = start }
        offset += 1
        skipSpace()
        return current == UInt8(ascii: "]")
    }

    private var current: UInt8 { offset < bytes.count ? bytes[offset] : 0 }

    /// Moves behind a string.
    /// - Returns: the range between the quotation marks.
    private mutating func skipString() -> (content: Range<Int>, hasEscapes: Bool) {
        let start = offset + 1
        var end = start
        var hasEscapes = false
        while end < bytes.count, bytes[end] != UInt8(ascii: "\"") {
            if bytes[end] == UInt8(ascii: "\\") {
                hasEscapes = true
                end += 1
            }
            end += 1
        }
        offset = end + 1
        return (start..<end, hasEscapes)
    }
}

// MARK: Validation

extension JSONReader {
    /// Validates `bytes`, one JSON text. Reading begins at its value.
    init(_ bytes: UnsafeBufferPointer<UInt8>, depthLimit: Int = ControlLimits.nestingDepth) throws(JSONSyntaxError) {
        self.init(bytes: bytes, depthLimit: depthLimit)
        try checkValue(depth: 0)
        skipSpace()
        guard offset == bytes.count else { throw .trailingBytes(offset: offset) }
        offset = 0
    }

    private mutating func checkValue(depth: Int) throws(JSONSyntaxError) {
        skipSpace()
        switch try peek() {
        case UInt8(ascii: "{"): try checkObject(depth: depth + 1)
        case UInt8(ascii: "["):
            try checkList(UInt8(ascii: "]"), depth: depth + 1) { reader throws(JSONSyntaxError) in
                try reader.checkValue(depth: depth + 1)
            }
        case UInt8(ascii: "\""): _ = try checkString()
        case UInt8(ascii: "t"): try checkWord("true")
        case UInt8(ascii: "f"): try checkWord("false")
        case UInt8(ascii: "n"): try checkWord("null")
        case UInt8(ascii: "-"), UInt8(ascii: "0")...UInt8(ascii: "9"): try checkNumber()
        default: throw .unexpectedByte(offset: offset)
        }
    }

    private mutating func checkObject(depth: Int) throws(JSONSyntaxError) {
        if members.isEmpty { members.reserveCapacity(8) }
        let first = members.count
        var (count, last) = (0, first)
        var decoded: Set<String>?
        try checkList(UInt8(ascii: "}"), depth: depth) { reader throws(JSONSyntaxError) in
            reader.skipSpace()
            guard try reader.peek() == UInt8(ascii: "\"") else { throw .unexpectedByte(offset: reader.offset) }
            let start = reader.offset + 1
            let hasEscapes = try reader.checkString()
            let index = reader.members.count
            reader.members.append(Member(name: start..<reader.offset - 1, hasEscapes: hasEscapes))
            reader.skipSpace()
            try reader.expect(UInt8(ascii: ":"))
            reader.members[index].value = reader.offset
            try reader.checkValue(depth: depth)
            reader.members[index].end = reader.offset
            try reader.checkName(index, after: first, count, &decoded)
            if count > 0 { reader.members[last].next = index }
            last = index
            count += 1
        }
    }

    /// The offset is at the opening bracket.
    @inline(__always) private mutating func checkList(
        _ end: UInt8, depth: Int, _ element: (inout JSONReader) throws(JSONSyntaxError) -> Void
    ) throws(JSONSyntaxError) {
        guard depth <= depthLimit else { throw .tooDeep(limit: depthLimit) }
        offset += 1
        skipSpace()
        guard try peek() != end else {
            offset += 1
            return
        }
        while true {
            try element(&self)
            skipSpace()
            guard try peek() == UInt8(ascii: ",") else { return try expect(end) }
            offset += 1
        }
    }

    /// - Throws: when the object already has a member of that name.
    /// - Parameters:
    ///   - first: the object's first member.
    ///   - count: number of its members before this one.
    private func checkName(_ index: Int, after first: Int, _ count: Int, _ decoded: inout Set<String>?)
        throws(JSONSyntaxError)
    {
        let member = members[index]
        var other = first
        if decoded == nil, count < Self.linearNameCount {
            for _ in 0..<count {
                guard !isSame(member, members[other]) else { throw .duplicateKey(name(of: member)) }
                other = members[other].next ?? index
            }
            return
        }
        if decoded == nil {
            let others = sequence(first: first) { members[$0].next }.prefix(count)
            decoded = Set(others.map { name(of: members[$0]) })
        }
        guard decoded?.insert(name(of: member)).inserted ?? false else { throw .duplicateKey(name(of: member)) }
    }

    private func isSame(_ one: Member, _ other: Member) -> Bool {
        one.hasEscapes || other.hasEscapes
            ? name(of: one) == name(of: other) : bytes[one.name].elementsEqual(bytes[other.name])
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

    /// - Returns: whether the string has escapes.
    private mutating func checkString() throws(JSONSyntaxError) -> Bool {
        let start = offset
        offset += 1
        var (isASCII, hasEscapes) = (true, false)
        while true {
            let byte = try peek()
            switch byte {
            case UInt8(ascii: "\""):
                // A string of up to 15 bytes needs no allocation; a longer one is freed at once.
                guard isASCII || String(validating: bytes[start + 1..<offset], as: UTF8.self) != nil else {
                    throw .invalidString(offset: start)
                }
                offset += 1
                return hasEscapes
            case UInt8(ascii: "\\"):
                hasEscapes = true
                offset += 1
                try checkEscape()
            case 0..<0x20: throw .invalidString(offset: start)
            default:
                isASCII = isASCII && byte < 0x80
                offset += 1
            }
        }
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
            guard let digit = Hex.value(try peek()) else { throw .invalidString(offset: start) }
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
