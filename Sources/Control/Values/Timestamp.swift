/// A moment on the wall clock, in milliseconds since 1970-01-01T00:00:00Z; in JSON an ISO 8601 string in UTC.
///
/// Only for showing and for what a person asks for: no two nodes' timestamps are ever compared.
package struct Timestamp: Hashable, Sendable, Comparable {
    package let milliseconds: Int64

    package init(milliseconds: Int64) {
        self.milliseconds = milliseconds
    }

    package static func < (left: Timestamp, right: Timestamp) -> Bool { left.milliseconds < right.milliseconds }

    /// `2026-11-21T06:53:53Z`, or with three decimals when the milliseconds are not zero.
    package var iso8601: String {
        let (day, millisecondOfDay) = Self.split(milliseconds, by: 86_400_000)
        let (year, month, dayOfMonth) = Self.civil(day)
        let second = millisecondOfDay / 1000
        let fraction = millisecondOfDay % 1000
        let date = "\(Self.digits(year, 4))-\(Self.digits(month, 2))-\(Self.digits(dayOfMonth, 2))"
        let time = "\(Self.digits(second / 3600, 2)):\(Self.digits(second / 60 % 60, 2)):\(Self.digits(second % 60, 2))"
        return "\(date)T\(time)\(fraction == 0 ? "" : ".\(Self.digits(fraction, 3))")Z"
    }

    /// Reads `2026-11-21T06:53:53[.123](Z|±hh:mm)`, the form of RFC 3339, which allows a blank for the `T` and a second
    /// 60; years 1970 to 9999, in UTC as it is written. `Messaging` reads the same, for the seeds' JSON.
    package init?(iso8601 text: String) {
        let bytes = Array(text.utf8)
        func number(_ start: Int, _ count: Int) -> Int64? {
            guard start + count <= bytes.count else { return nil }
            var value: Int64 = 0
            for byte in bytes[start..<start + count] {
                guard byte >= UInt8(ascii: "0"), byte <= UInt8(ascii: "9") else { return nil }
                value = value * 10 + Int64(byte - UInt8(ascii: "0"))
            }
            return value
        }
        guard bytes.count >= 20,
            bytes[4] == UInt8(ascii: "-"), bytes[7] == UInt8(ascii: "-"), "Tt ".utf8.contains(bytes[10]),
            bytes[13] == UInt8(ascii: ":"), bytes[16] == UInt8(ascii: ":"),
            let year = number(0, 4), let month = number(5, 2), let day = number(8, 2),
            let hour = number(11, 2), let minute = number(14, 2), let second = number(17, 2),
            year >= 1970, (1...12).contains(month), day >= 1, day <= Self.dayCount(year: year, month: month),
            hour < 24, minute < 60, second <= 60
        else { return nil }
        var offset = 19
        var fraction: Int64 = 0
        if bytes[offset] == UInt8(ascii: ".") {
            offset += 1
            let start = offset
            while offset < bytes.count, let digit = number(offset, 1) {
                if offset - start < 3 { fraction = fraction * 10 + digit }
                offset += 1
            }
            guard offset > start else { return nil }
            for _ in 0..<max(0, 3 - (offset - start)) { fraction *= 10 }
        }
        var zone: Int64 = 0
        guard offset < bytes.count else { return nil }
        switch bytes[offset] {
        case UInt8(ascii: "Z"), UInt8(ascii: "z"):
            guard bytes.count == offset + 1 else { return nil }
        case UInt8(ascii: "+"), UInt8(ascii: "-"):
            guard bytes.count == offset + 6, bytes[offset + 3] == UInt8(ascii: ":"),
                let hours = number(offset + 1, 2), let minutes = number(offset + 4, 2), hours < 24, minutes < 60
            else { return nil }
            zone = (hours * 60 + minutes) * (bytes[offset] == UInt8(ascii: "-") ? -60 : 60)
        default: return nil
        }
        let seconds = Self.day(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second - zone
        // An offset may lead out of the years that have four digits.
        guard seconds >= 0, seconds < 253_402_300_800 else { return nil }
        self.init(milliseconds: seconds * 1000 + fraction)
    }

    private static func split(_ value: Int64, by divisor: Int64) -> (quotient: Int64, remainder: Int64) {
        let remainder = value % divisor
        return remainder < 0
            ? (value / divisor - 1, remainder + divisor)
            : (value / divisor, remainder)
    }

    private static func digits(_ value: Int64, _ count: Int) -> String {
        let text = String(value)
        return String(repeating: "0", count: max(0, count - text.utf8.count)) + text
    }

    private static func dayCount(year: Int64, month: Int64) -> Int64 {
        let next = month == 12 ? day(year + 1, 1, 1) : day(year, month + 1, 1)
        return next - day(year, month, 1)
    }

    /// Days since 1970-01-01 of a date in the proleptic Gregorian calendar, counted in years that start in March.
    private static func day(_ year: Int64, _ month: Int64, _ day: Int64) -> Int64 {
        let marchYear = month <= 2 ? year - 1 : year
        let dayOfYear = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1
        let (era, yearOfEra) = split(marchYear, by: 400)
        return era * 146_097 + yearOfEra * 365 + yearOfEra / 4 - yearOfEra / 100 + dayOfYear - 719_468
    }

    /// The inverse of ``day(_:_:_:)``.
    private static func civil(_ day: Int64) -> (year: Int64, month: Int64, day: Int64) {
        let (era, dayOfEra) = split(day + 719_468, by: 146_097)
        let yearOfEra = (dayOfEra - dayOfEra / 1460 + dayOfEra / 36_524 - dayOfEra / 146_096) / 365
        let dayOfYear = dayOfEra - (365 * yearOfEra + yearOfEra / 4 - yearOfEra / 100)
        let marchMonth = (5 * dayOfYear + 2) / 153
        let month = marchMonth < 10 ? marchMonth + 3 : marchMonth - 9
        let year = yearOfEra + era * 400 + (month <= 2 ? 1 : 0)
        return (year, month, dayOfYear - (153 * marchMonth + 2) / 5 + 1)
    }
}

extension Timestamp: JSONConvertible {
    package init(from reader: inout JSONReader) throws(JSONMismatch) {
        guard let timestamp = Timestamp(iso8601: try reader.string()) else {
            throw JSONMismatch("", "expected an ISO 8601 time such as 2026-11-21T06:53:53Z")
        }
        self = timestamp
    }

    package func write(to writer: inout JSONWriter) { writer.string(iso8601) }

    package static var schema: FieldSchema.Shape { FieldSchema.Shape(type: "timestamp") }
}

/// A length of time, in milliseconds; in JSON seconds, or a string with a unit: `90`, `"500ms"`, `"90s"`, `"5m"`,
/// `"24h"`, `"7d"`. At most ten years.
package struct Interval: Hashable, Sendable {
    package let milliseconds: Int64

    package init(milliseconds: Int64) {
        self.milliseconds = milliseconds
    }

    package var duration: Duration { .milliseconds(milliseconds) }

    /// Reads a whole number, or one with decimals, and a unit; seconds without a unit.
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

extension Interval: JSONConvertible {
    package init(from reader: inout JSONReader) throws(JSONMismatch) {
        let parsed =
            reader.kind() == .string
            ? Interval(text: try reader.string()) : Interval(bounding: try reader.double() * 1000)
        guard let parsed else {
            throw JSONMismatch("", "expected seconds or a length of time such as 90s, 24h or 7d")
        }
        self = parsed
    }

    package func write(to writer: inout JSONWriter) { writer.number(Double(milliseconds) / 1000) }

    package static var schema: FieldSchema.Shape { FieldSchema.Shape(type: "interval") }
}
