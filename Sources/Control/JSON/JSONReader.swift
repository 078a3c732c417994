/// A value that does not fit the requested type.
package struct JSONMismatch: Error, Hashable, Sendable {
    /// Path such as `timeout`, `with[2]` or `file.name`; empty for the value itself.
    package let field: String
    package let message: String

    package init(_ field: String, _ message: String) {
        self.field = field
        self.message = message
    }

    /// The same mismatch, with `outer` before its path.
    func inside(_ outer: String) -> JSONMismatch {
        guard !field.isEmpty else { return JSONMismatch(outer, message) }
        return JSONMismatch(field.hasPrefix("[") ? outer + field : "\(outer).\(field)", message)
    }
}

/// Reads values from bytes that ``JSONSyntax`` has validated.
///
/// Unvalidated input gives a meaningless result but no out-of-bounds read.
package struct JSONReader {
    private let bytes: UnsafeBufferPointer<UInt8>
    private var offset: Int
    /// A stack: the members of all objects being read. Each object keeps the index of its first.
    private var members: [MemberPlace] = []

    /// Offsets of a member.
    private struct MemberPlace {
        /// Without the quotation marks.
        var name: Range<Int>
        var hasEscapes: Bool
        var value: Int
        var isRead = false
    }

    /// - Parameter bytes: one validated JSON text.
    init(checked bytes: UnsafeBufferPointer<UInt8>, at offset: Int = 0) {
        self.bytes = bytes
        self.offset = offset
    }

    /// Validates `text` and reads it.
    package static func read<Value>(
        _ text: some Collection<UInt8>, depthLimit: Int = ControlLimits.nestingDepth,
        _ body: (inout JSONReader) throws(JSONMismatch) -> Value
    ) throws(JSONSyntaxError) -> Result<Value, JSONMismatch> {
        let contiguous = ContiguousArray(text)
        var syntax: JSONSyntaxError?
        var value: Result<Value, JSONMismatch>?
        contiguous.withUnsafeBufferPointer { bytes in
            do throws(JSONSyntaxError) {
                try JSONSyntax.check(bytes, depthLimit: depthLimit)
                var reader = JSONReader(checked: bytes)
                value = Result { () throws(JSONMismatch) in try body(&reader) }
            } catch { syntax = error }
        }
        if let syntax { throw syntax }
        return value ?? .failure(JSONMismatch("", "is missing"))
    }

    // MARK: Values

    enum Kind {
        case null, bool, number, string, array, object

        /// Name for error messages.
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

    /// Kind of the next value.
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
    mutating func mismatch(_ expected: String, found: String? = nil) -> JSONMismatch {
        JSONMismatch("", "expected \(expected), found \(found ?? kind().name)")
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
        skipWord()
        return value
    }

    /// Consumes a null, if it comes next.
    mutating func null() -> Bool {
        guard kind() == .null else { return false }
        skipWord()
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
        skipWord()
        let text = String(decoding: bytes[start..<offset], as: UTF8.self)
        if let value = Int64(text) { return .integer(value) }
        return .double(Double(text) ?? 0)
    }

    mutating func integer<Value: FixedWidthInteger>(_ type: Value.Type = Value.self) throws(JSONMismatch) -> Value {
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
        var index = 0
        while true {
            skipSpace()
            if offset >= bytes.count { return }
            switch current {
            case UInt8(ascii: "]"):
                offset += 1
                return
            case UInt8(ascii: ","): offset += 1
            default: break
            }
            let start = offset
            do throws(JSONMismatch) { try body(&self) } catch { throw error.inside("[\(index)]") }
            if offset == start { skip() }
            index += 1
        }
    }

    // MARK: Objects

    /// Reads the members of the record and ignores others.
    mutating func record<Record: JSONRecord>(_ record: inout Record) throws(JSONMismatch) {
        let first = try openObject()
        let end = offset
        try withUnsafeMutablePointer(to: &self) { reader throws(JSONMismatch) in
            var fields = RecordReader(reader: reader, first: first)
            try record.visit(&fields)
        }
        members.removeSubrange(first...)
        offset = end
    }

    /// Reads the members of the record.
    /// - Throws: also for an unknown member, with its name in `field`.
    mutating func strictRecord<Record: JSONRecord>(_ record: inout Record, unknown: (String) -> String)
        throws(JSONMismatch)
    {
        let first = try openObject()
        try withUnsafeMutablePointer(to: &self) { reader throws(JSONMismatch) in
            var fields = RecordReader(reader: reader, first: first)
            try record.visit(&fields)
        }
        guard members[first...].contains(where: { !$0.isRead }) else { return }
        let others = members[first...].filter { !$0.isRead }.map { name(of: $0) }
        if let other = others.min() { throw JSONMismatch(other, unknown(other)) }
    }

    /// Passes the members of the next object to `body`.
    mutating func visitObject(_ body: (inout RecordReader) -> Void) {
        guard kind() == .object, let first = try? openObject() else { return }
        let end = offset
        withUnsafeMutablePointer(to: &self) { reader in
            var fields = RecordReader(reader: reader, first: first)
            body(&fields)
        }
        members.removeSubrange(first...)
        offset = end
    }

    /// Calls `body` before the value of each member. It must consume the value.
    mutating func object(_ body: (String, inout JSONReader) throws(JSONMismatch) -> Void) throws(JSONMismatch) {
        let first = try openObject()
        let end = offset
        let found = Array(members[first...])
        members.removeSubrange(first...)
        for member in found {
            offset = member.value
            let name = name(of: member)
            do throws(JSONMismatch) { try body(name, &self) } catch { throw error.inside(name) }
        }
        offset = end
    }

    /// Consumes the next object and records its members.
    /// - Returns: index of its first member in ``members``.
    private mutating func openObject() throws(JSONMismatch) -> Int {
        guard kind() == .object else { throw mismatch("an object") }
        let first = members.count
        offset += 1
        while true {
            skipSpace()
            guard offset < bytes.count else { return first }
            switch current {
            case UInt8(ascii: "}"):
                offset += 1
                return first
            case UInt8(ascii: "\""):
                let (name, hasEscapes) = skipString()
                skipSpace()
                if offset < bytes.count, current == UInt8(ascii: ":") { offset += 1 }
                members.append(MemberPlace(name: name, hasEscapes: hasEscapes, value: offset))
                skip()
            default: offset += 1
            }
        }
    }

    private func name(of member: MemberPlace) -> String {
        member.hasEscapes
            ? JSONString.unescaped(bytes[member.name]) : String(decoding: bytes[member.name], as: UTF8.self)
    }

    /// Offset of a member's value; `nil` if the member is absent.
    fileprivate mutating func find(_ name: String, after first: Int) -> Int? {
        for index in members.indices[first...] where isNamed(name, members[index]) {
            members[index].isRead = true
            return members[index].value
        }
        return nil
    }

    private func isNamed(_ name: String, _ member: MemberPlace) -> Bool {
        member.hasEscapes
            ? JSONString.unescaped(bytes[member.name]) == name : name.utf8.elementsEqual(bytes[member.name])
    }

    /// Offset of the next value.
    var place: Int { offset }

    mutating func move(to place: Int) { offset = place }

    // MARK: Bytes

    private var current: UInt8 { offset < bytes.count ? bytes[offset] : 0 }

    private mutating func skipSpace() {
        while offset < bytes.count {
            switch bytes[offset] {
            case 0x20, 0x09, 0x0A, 0x0D: offset += 1
            default: return
            }
        }
    }

    /// Skips a number, `true`, `false` or `null`.
    private mutating func skipWord() {
        while offset < bytes.count {
            switch bytes[offset] {
            case 0x20, 0x09, 0x0A, 0x0D, UInt8(ascii: ","), UInt8(ascii: "]"), UInt8(ascii: "}"): return
            default: offset += 1
            }
        }
    }

    /// - Returns: the range between the quotation marks.
    private mutating func skipString() -> (content: Range<Int>, hasEscapes: Bool) {
        offset += 1
        let start = offset
        var hasEscapes = false
        while offset < bytes.count {
            switch bytes[offset] {
            case UInt8(ascii: "\""):
                offset += 1
                return (start..<offset - 1, hasEscapes)
            case UInt8(ascii: "\\"):
                hasEscapes = true
                offset = min(offset + 2, bytes.count)
            default: offset += 1
            }
        }
        return (start..<offset, hasEscapes)
    }

    /// Skips the next value.
    mutating func skip() {
        var depth = 0
        repeat {
            skipSpace()
            guard offset < bytes.count else { return }
            switch bytes[offset] {
            case UInt8(ascii: "\""): _ = skipString()
            case UInt8(ascii: "{"), UInt8(ascii: "["):
                depth += 1
                offset += 1
            case UInt8(ascii: "}"), UInt8(ascii: "]"):
                depth -= 1
                offset += 1
            case UInt8(ascii: ","), UInt8(ascii: ":"): offset += 1
            default: skipWord()
            }
        } while depth > 0
    }
}

/// Fills the fields of a record from an object's members.
struct RecordReader: FieldVisitor {
    /// Valid while the object is read.
    let reader: UnsafeMutablePointer<JSONReader>
    fileprivate let first: Int

    /// Moves to a member's value; false if the member is absent.
    func open(_ name: String) -> Bool {
        guard let place = reader.pointee.find(name, after: first) else { return false }
        reader.pointee.move(to: place)
        return true
    }

    func required<Value: JSONConvertible>(_ name: String, as type: Value.Type) throws(JSONMismatch) -> Value {
        guard open(name) else {
            guard let absent = Value.absent else { throw JSONMismatch(name, "is missing") }
            return absent
        }
        do throws(JSONMismatch) { return try Value(from: &reader.pointee) } catch { throw error.inside(name) }
    }

    func field<Value: JSONConvertible>(_ name: String, _ value: inout Value) throws(JSONMismatch) {
        value = try required(name, as: Value.self)
    }

    func field<Value: JSONConvertible>(_ name: String, _ value: inout Value?) throws(JSONMismatch) {
        value = open(name) && !reader.pointee.null() ? try required(name, as: Value.self) : nil
    }

    func fields<Record: CodableRecord>(of record: inout Record) throws(JSONMismatch) {
        do { record = try Record(from: RecordDecoder(fields: self)) } catch {
            throw error as? JSONMismatch ?? JSONMismatch("", "\(error)")
        }
    }

    /// The result of `read` for a member of any type; `nil` when the member is absent.
    func value<Value>(of name: String, _ read: (inout JSONReader) -> Value) -> Value? {
        open(name) ? read(&reader.pointee) : nil
    }
}
