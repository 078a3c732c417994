import Messaging

package typealias Timestamp = Messaging.Timestamp

/// In JSON an ISO 8601 string in UTC, with three decimals when the milliseconds are not zero.
extension Timestamp: JSONConvertible {
    package init(from reader: inout JSONReader) throws(JSONMismatch) {
        guard let timestamp = Timestamp(iso8601: try reader.string()) else {
            throw JSONMismatch("", "expected an ISO 8601 time such as 2026-11-21T06:53:53Z")
        }
        self = timestamp
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
