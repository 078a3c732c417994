import Crypto

/// Status records: what is learned about messages after they were stored, for instance that members have them. A small
/// record is appended in place of new versions of all of them, and read together with them.
extension Store {
    /// Where a message or a hidden record lies, and how long it is kept: what a status of it needs.
    package struct MessagePlace: Equatable, Sendable {
        package let order: UInt64
        package let tier: Tier
        package let expiresAt: Int64
    }

    /// - Returns: `nil` when the message is not, or no longer, there.
    package func locate(_ id: RowID, _ message: Bytes16) throws(StoreError) -> MessagePlace? {
        let row = try row(id)
        guard let place = try find(message, in: row), let segment = row.segments[Int(place.file)] else { return nil }
        let record = segment.records[place.record]
        return MessagePlace(order: record.order, tier: segment.sidecar.tier, expiresAt: record.expiresAt)
    }

    /// Appends a status; durable when a later commit completes. It is in no list and no count, has no id, and no
    /// ``ReapReport`` names it. What it says, and of which messages, its reader knows.
    /// - Parameters:
    ///   - row: of this store, see ``handle(_:)``.
    ///   - tier: of the message that it concerns and that expires last: it needs to be there no longer.
    ///   - expiresAt: when that one expires.
    ///   - places: of the messages that it concerns, from the first to the last; all of them are stored already.
    ///   - byteCount: of the status.
    ///   - write: writes all of it.
    package func appendStatus(
        to row: Row,
        tier: Tier,
        expiresAt: Int64,
        concerning places: ClosedRange<UInt64>,
        byteCount: Int,
        _ write: (UnsafeMutableRawBufferPointer) -> Void
    ) throws(StoreError) {
        guard tier != .fuse, tier != .control else { throw .invalidArgument("tier for a status") }
        if row.isGone { throw .unknownRow }
        try index(row)
        guard byteCount <= Self.maximumPayload else { throw .tooLarge(limit: Self.maximumPayload) }
        guard Tier.times.contains(expiresAt) else { throw .invalidArgument("time \(expiresAt)") }
        let segment = try segment(for: row, tier, expiresAt: expiresAt)
        self.write(
            Bytes16(places.lowerBound, places.upperBound),
            expiresAt,
            // After all that it concerns: a hidden record has the place of the next message.
            order: max(row.nextOrder, places.upperBound),
            version: 0,
            kind: .status,
            byteCount: byteCount,
            to: segment,
            write
        )
    }

    package func appendStatus(
        _ id: RowID,
        tier: Tier,
        expiresAt: Int64,
        concerning places: ClosedRange<UInt64>,
        _ status: [UInt8]
    ) throws(StoreError) {
        try appendStatus(
            to: try row(id),
            tier: tier,
            expiresAt: expiresAt,
            concerning: places,
            byteCount: status.count
        ) {
            $0.copyBytes(from: status)
        }
    }

    /// Visits the statuses of an inbox that are not due, in the order in which they were appended.
    /// - Parameters:
    ///   - places: only those that concern messages from the first to the last of these, and perhaps others.
    ///   - body: given each; it says whether to go on.
    package func visitStatuses(
        _ id: RowID,
        concerning places: ClosedRange<UInt64>,
        now: Int64,
        _ body: (_ status: [UInt8]) throws(StoreError) -> Bool
    ) throws(StoreError) {
        let row = try row(id)
        try index(row)
        guard !isDue(row, now) else { return }
        read(row, downTo: places.lowerBound)
        for place in row.statuses(concerning: places) {
            guard let status = try open(place, row, now) else { continue }
            guard try body(status.payload) else { return }
        }
    }
}
