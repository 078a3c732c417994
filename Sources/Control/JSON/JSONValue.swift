import Cryptography
import FoundationEssentials
import Messaging
import NIOCore

@_exported import enum Messaging.FailureKind

/// One JSON value (RFC 8259). Integers that fit in 64 bits stay exact; other numbers are `Double`.
///
/// Keys are written sorted, so that equal values have equal text.
package enum JSONValue: Hashable, Sendable {
    case null
    case bool(Bool)
    case integer(Int64)
    case number(Double)
    case string(String)
    case array([JSONValue])
    case object([String: JSONValue])

    /// `nil` for other values and for absent members.
    package subscript(_ name: String) -> JSONValue? {
        guard case .object(let members) = self else { return nil }
        return members[name]
    }

    package var stringValue: String? {
        guard case .string(let text) = self else { return nil }
        return text
    }

    /// Also for a number without a fraction.
    package var integerValue: Int64? {
        switch self {
        case .integer(let value): value
        case .number(let value): Int64(exactly: value)
        case .null, .bool, .string, .array, .object: nil
        }
    }

    package var arrayValue: [JSONValue]? {
        guard case .array(let elements) = self else { return nil }
        return elements
    }
}

extension JSONValue: ExpressibleByStringLiteral, ExpressibleByBooleanLiteral, ExpressibleByIntegerLiteral,
    ExpressibleByDictionaryLiteral, ExpressibleByArrayLiteral
{
    package init(stringLiteral value: String) { self = .string(value) }
    package init(booleanLiteral value: Bool) { self = .bool(value) }
    package init(integerLiteral value: Int64) { self = .integer(value) }
    package init(arrayLiteral elements: JSONValue...) { self = .array(elements) }
    package init(dictionaryLiteral elements: (String, JSONValue)...) {
        self = .object(Dictionary(elements, uniquingKeysWith: { _, last in last }))
    }
}

extension JSONValue: JSONScalar {
    /// Reads any value. Recursion is bounded by the depth limit of the validation.
    package init(from reader: inout JSONReader) {
        do throws(JSONMismatch) { self = try Self.read(&reader) } catch { self = .null }
    }

    private static func read(_ reader: inout JSONReader) throws(JSONMismatch) -> JSONValue {
        switch reader.kind() {
        case .null:
            _ = reader.null()
            return .null
        case .bool: return .bool(try reader.bool())
        case .number:
            switch try reader.number() {
            case .integer(let value): return .integer(value)
            case .double(let value): return .number(value)
            }
        case .string: return .string(try reader.string())
        case .array: return .array(try [JSONValue](from: &reader))
        case .object:
            var members: [String: JSONValue] = [:]
            try reader.object { name, reader in members[name] = JSONValue(from: &reader) }
            return .object(members)
        }
    }

    package func write(to writer: inout JSONWriter) {
        switch self {
        case .null: writer.literal("null")
        case .bool(let value): value.write(to: &writer)
        case .integer(let value): writer.integer(value)
        case .number(let value): writer.number(value)
        case .string(let value): writer.string(value)
        case .array(let elements): elements.write(to: &writer)
        case .object(let members): writer.object(sorted: members.sorted { $0.key < $1.key })
        }
    }

    package static var schema: FieldSchema.Shape { FieldSchema.Shape(type: "any") }
}

extension JSONValue {
    package init(of value: some JSONWritable) { self = (try? JSONReader.read(JSONWriter.bytes(of: value))) ?? .null }

    /// Decodes this value. The error names the field that does not fit.
    package func decoded<Value: JSONConvertible>(as type: Value.Type) throws(JSONMismatch) -> Value {
        let read: Result<Value, JSONMismatch>
        do throws(JSONSyntaxError) {
            read = try JSONReader.read(utf8, depthLimit: .max) { reader throws(JSONMismatch) in try Value(from: &reader)
            }
        } catch { throw JSONMismatch("", error.message) }
        return try read.get()
    }

    /// Compact text; see ``JSONWriter``.
    package var text: String { String(decoding: utf8, as: UTF8.self) }

    package var utf8: [UInt8] { JSONWriter.bytes(of: self) }
}

extension JSONReader {
    package static func read(_ text: some Collection<UInt8>, depthLimit: Int = ControlLimits.nestingDepth)
        throws(JSONSyntaxError) -> JSONValue
    {
        switch try read(text, depthLimit: depthLimit, { reader in JSONValue(from: &reader) }) {
        case .success(let value): value
        case .failure: .null
        }
    }
}

extension JSONWriter {
    /// Writes an object with names computed at run time.
    fileprivate mutating func object(sorted members: [(key: String, value: JSONValue)]) {
        buffer.writeInteger(UInt8(ascii: "{"))
        for (index, member) in members.enumerated() {
            if index > 0 { buffer.writeInteger(UInt8(ascii: ",")) }
            string(member.key)
            buffer.writeInteger(UInt8(ascii: ":"))
            member.value.write(to: &self)
        }
        buffer.writeInteger(UInt8(ascii: "}"))
    }
}

package typealias Timestamp = Messaging.Timestamp

/// In JSON an ISO 8601 string in UTC, with three decimals when the milliseconds are not zero.
extension Timestamp: JSONConvertible {
    package init(from reader: inout JSONReader) throws(JSONMismatch) {
        let text = try reader.string()
        guard let timestamp = Timestamp(iso8601: text) else {
            throw JSONMismatch("", "expected \(Timestamp.format(for: text))")
        }
        self = timestamp
    }

    /// The format for an error about `text`. Its most frequent mistake is a missing zone.
    package static func format(for text: String) -> String {
        let isLocal = Timestamp(iso8601: text + "Z") != nil
        return isLocal
            ? "a time zone, which is missing: \(text)Z for UTC, or an offset as in \(text)+01:00"
            : "a date, a time and a time zone such as 2026-11-21T06:53:53Z"
    }

    package func write(to writer: inout JSONWriter) { writer.string(exactISO8601) }

    package static var schema: FieldSchema.Shape { FieldSchema.Shape(type: "timestamp") }
}

/// A duration in milliseconds; in JSON seconds, or a string with a unit: `90`, `"500ms"`, `"90s"`, `"5m"`, `"24h"`,
/// `"7d"`. At most ten years.
package struct Interval: Hashable, Sendable {
    package let milliseconds: Int64

    package init(milliseconds: Int64) { self.milliseconds = milliseconds }

    package var duration: Duration { .milliseconds(milliseconds) }

    package static let format = "seconds or a length of time such as 90s, 24h or 7d"

    /// Parses a number, perhaps with decimals, and a unit. The default unit is seconds.
    package init?(text: String) {
        let units: [(String, Double)] = [
            ("ms", 1), ("s", 1000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000), ("w", 604_800_000),
        ]
        let unit = units.first { text.hasSuffix($0.0) }
        let digits = text.dropLast(unit?.0.count ?? 0)
        guard !digits.isEmpty, digits.utf8.allSatisfy({ (48...57).contains($0) || $0 == UInt8(ascii: ".") }),
            let value = Double(digits)
        else { return nil }
        self.init(bounding: value * (unit?.1 ?? 1000))
    }

    private init?(bounding milliseconds: Double) {
        guard milliseconds >= 0, milliseconds <= 315_360_000_000 else { return nil }
        self.init(milliseconds: Int64(milliseconds.rounded()))
    }
}

extension Interval: JSONScalar {
    package init(from reader: inout JSONReader) throws(JSONMismatch) {
        let parsed =
            reader.kind() == .string
            ? Interval(text: try reader.string()) : Interval(bounding: try reader.double() * 1000)
        guard let parsed else { throw JSONMismatch("", "expected \(Interval.format)") }
        self = parsed
    }

    package func write(to writer: inout JSONWriter) { writer.number(Double(milliseconds) / 1000) }

    package static var schema: FieldSchema.Shape { FieldSchema.Shape(type: "interval") }
}

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
                guard let digit = Hex.value(byte) else { return nil }
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

/// Padded Base64 (RFC 4648, section 4), the encoding of bytes on the control socket.
package enum Base64 {
    package static func encode(_ bytes: [UInt8]) -> String { Data(bytes).base64EncodedString() }

    /// `nil` unless `text` is a canonical encoding.
    package static func decode(_ text: String) -> [UInt8]? {
        guard let data = Data(base64Encoded: text), data.base64EncodedString() == text else { return nil }
        return [UInt8](data)
    }
}

/// Decodes validated strings.
enum JSONString {
    /// Decodes a string without its quotation marks.
    static func unescaped(_ content: Slice<UnsafeBufferPointer<UInt8>>) -> String {
        // An escape is never shorter than the bytes it decodes to.
        String(unsafeUninitializedCapacity: content.count) { unescape(content, into: $0) }
    }

    /// - Returns: the number of bytes written.
    private static func unescape(
        _ content: Slice<UnsafeBufferPointer<UInt8>>, into decoded: UnsafeMutableBufferPointer<UInt8>
    ) -> Int {
        var (rest, written) = (content, 0)
        func append(_ byte: UInt8) {
            decoded[written] = byte
            written += 1
        }
        func next() -> UInt8 { rest.popFirst() ?? 0 }
        func hex4() -> UInt32 { (0..<4).reduce(0) { value, _ in value << 4 | UInt32(Hex.value(next()) ?? 0) } }
        while let byte = rest.popFirst() {
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
                    rest = rest.dropFirst(2)
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
