import Messaging

/// Wall clock time in milliseconds since 1970-01-01T00:00:00Z; in JSON an ISO 8601 string in UTC.
///
/// Only for display and user input. Timestamps of different nodes are never compared.
package struct Timestamp: Hashable, Sendable, Comparable {
    package let milliseconds: Int64

    package init(milliseconds: Int64) { self.milliseconds = milliseconds }

    package static func < (left: Timestamp, right: Timestamp) -> Bool { left.milliseconds < right.milliseconds }

    /// `2026-11-21T06:53:53Z`, or with three decimals when the milliseconds are not zero.
    package var iso8601: String { Messaging.Timestamp(milliseconds: milliseconds).exactISO8601 }

    /// Parses `2026-11-21T06:53:53[.123](Z|±hh:mm)` as in RFC 3339, which allows a space for `T` and second 60. The
    /// year in UTC is 1970 to 9999.
    package init?(iso8601 text: String) {
        guard let time = Messaging.Timestamp(iso8601: text) else { return nil }
        self.init(milliseconds: time.milliseconds)
    }
}

extension Timestamp: JSONScalar {
    package init(from reader: inout JSONReader) throws(JSONMismatch) {
        guard let timestamp = Timestamp(iso8601: try reader.string()) else {
            throw JSONMismatch("", "expected an ISO 8601 time such as 2026-11-21T06:53:53Z")
        }
        self = timestamp
    }

    package func write(to writer: inout JSONWriter) { writer.string(iso8601) }

    package static var schema: FieldSchema.Shape { FieldSchema.Shape(type: "timestamp") }
}

/// A duration in milliseconds; in JSON seconds, or a string with a unit: `90`, `"500ms"`, `"90s"`, `"5m"`, `"24h"`,
/// `"7d"`. At most ten years.
package struct Interval: Hashable, Sendable {
    package let milliseconds: Int64

    package init(milliseconds: Int64) { self.milliseconds = milliseconds }

    package var duration: Duration { .milliseconds(milliseconds) }

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
        guard let parsed else { throw JSONMismatch("", "expected seconds or a length of time such as 90s, 24h or 7d") }
        self = parsed
    }

    package func write(to writer: inout JSONWriter) { writer.number(Double(milliseconds) / 1000) }

    package static var schema: FieldSchema.Shape { FieldSchema.Shape(type: "interval") }
}
