/// A class of lifetimes and the width of its expiry buckets.
///
/// A record that expires at T goes into the column whose bucket ends at the first edge at or after T. So its key is
/// destroyed at most one width after T.
package enum Tier: UInt8, CaseIterable, Sendable {
    case oneHour = 1
    case sixHours = 2
    case oneDay = 3
    case sevenDays = 4
    case thirtyDays = 5
    /// Fan-out lists of explosions: seven days, in no inbox.
    case control = 16
    /// The scheduled destruction of a row. Its bucket end is the exact moment.
    case fuse = 17

    /// Longest lifetime of records in the tier, in milliseconds. Zero for a fuse, which stores no data.
    package var lifetime: Int64 {
        switch self {
        case .oneHour: 3_600_000
        case .sixHours: 6 * 3_600_000
        case .oneDay: 24 * 3_600_000
        case .sevenDays, .control: 7 * 24 * 3_600_000
        case .thirtyDays: 30 * 24 * 3_600_000
        case .fuse: 0
        }
    }

    /// Milliseconds.
    package var bucketWidth: Int64 {
        switch self {
        case .oneHour: 10_000
        case .sixHours: 60_000
        case .oneDay: 5 * 60_000
        case .sevenDays, .control: 30 * 60_000
        case .thirtyDays: 2 * 3_600_000
        case .fuse: 1
        }
    }

    /// The bucket number for an expiry. The bucket ends at `bucket * bucketWidth`.
    package func bucket(expiresAt: Int64) -> Int64 { expiresAt / bucketWidth + (expiresAt % bucketWidth == 0 ? 0 : 1) }

    /// Times for which no sum overflows: 1970 to about the year 9,000.
    static let times: ClosedRange<Int64> = 0...(1 << 48)
}
