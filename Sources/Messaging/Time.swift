package typealias Milliseconds = Int64

extension Milliseconds {
    package static let second: Milliseconds = 1_000
    package static let minute: Milliseconds = 60 * second
    package static let hour: Milliseconds = 60 * minute
    package static let day: Milliseconds = 24 * hour
}

/// A time on the node's own wall clock. Decoded times are clamped to the years 1970 to 9999, so sums never overflow.
package struct Timestamp: Hashable, Sendable, Comparable, Codable {
    /// Since 1970-01-01T00:00:00Z; 0…253,402,300,799,000.
    package let milliseconds: Int64

    /// The end of the year 9999.
    package static let latest = Timestamp(milliseconds: 253_402_300_799_000)

    /// Clamped to 1970…9999.
    package init(milliseconds: Int64) { self.milliseconds = Swift.min(Swift.max(milliseconds, 0), 253_402_300_799_000) }

    package init(from decoder: any Decoder) throws {
        self.init(milliseconds: try decoder.singleValueContainer().decode(Int64.self))
    }

    package func encode(to encoder: any Encoder) throws {
        var container = encoder.singleValueContainer()
        try container.encode(milliseconds)
    }

    package static func < (left: Timestamp, right: Timestamp) -> Bool { left.milliseconds < right.milliseconds }
    package static func + (left: Timestamp, right: Milliseconds) -> Timestamp {
        let (sum, overflow) = left.milliseconds.addingReportingOverflow(right)
        return overflow ? latest : Timestamp(milliseconds: sum)
    }
    package static func - (left: Timestamp, right: Milliseconds) -> Timestamp {
        let (difference, overflow) = left.milliseconds.subtractingReportingOverflow(right)
        return overflow ? latest : Timestamp(milliseconds: difference)
    }
    /// Elapsed time; negative when `left` is earlier.
    package static func - (left: Timestamp, right: Timestamp) -> Milliseconds { left.milliseconds - right.milliseconds }

    /// Days since 1970; routing tokens change daily.
    package var day: UInt32 { UInt32(clamping: milliseconds / .day) }
}

/// The earliest of these times; `nil` if all are `nil`.
@inline(__always) package func earliest(
    _ a: Timestamp?, _ b: Timestamp?, _ c: Timestamp? = nil, _ d: Timestamp? = nil, _ e: Timestamp? = nil,
    _ f: Timestamp? = nil, _ g: Timestamp? = nil, _ h: Timestamp? = nil
) -> Timestamp? {
    // Not variadic, which would allocate an array: each turn compares the deadlines.
    func first(_ one: Timestamp?, _ other: Timestamp?) -> Timestamp? {
        guard let one, let other else { return one ?? other }
        return min(one, other)
    }
    return first(first(first(a, b), first(c, d)), first(first(e, f), first(g, h)))
}
