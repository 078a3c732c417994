import Primitives

/// Status records: what is learned about messages after they were stored, for instance that members have them. A small
/// record is appended in place of new versions of all of them, and read together with them.
extension Store {
    /// Appends a status; durable when a later commit completes. It is in no list and no count, has no id, and no
    /// ``ReapReport`` names it. What it says, and of which messages, its reader knows: it concerns messages that were
    /// stored before it.
    /// - Parameters:
    ///   - row: of this store, see ``handle(_:)``.
    ///   - tier: of the message that it concerns and that expires last: it needs to be there no longer.
    ///   - expiresAt: when that one expires.
    ///   - byteCount: of the status.
    ///   - write: writes all of it.
    package func appendStatus(
        to row: Row,
        tier: Tier,
        expiresAt: Int64,
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
            Bytes16(0, 0),
            expiresAt,
            order: row.nextOrder,
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
        _ status: [UInt8]
    ) throws(StoreError) {
        try appendStatus(to: try row(id), tier: tier, expiresAt: expiresAt, byteCount: status.count) {
            $0.copyBytes(from: status)
        }
    }

    /// Visits the statuses of an inbox that are not due, in the order in which they were appended.
    /// - Parameters:
    ///   - place: only those after this place: all that concern messages from it on are among them.
    ///   - body: given each; it says whether to go on.
    package func visitStatuses(
        _ id: RowID,
        from place: UInt64 = 0,
        now: Int64,
        _ body: (_ status: [UInt8]) throws(StoreError) -> Bool
    ) throws(StoreError) {
        let row = try row(id)
        try index(row)
        guard !isDue(row, now) else { return }
        read(row, downTo: place)
        var found: [(order: UInt64, place: Row.Place)] = []
        for segment in row.segments.values {
            for position in segment.records.indices {
                let record = segment.records[position]
                guard record.kind == .status, record.state == .live, record.order >= place,
                    segment.expiry(of: position) > max(now, latestHide)
                else { continue }
                found.append((record.order, Row.Place(segment, position, hasOlder: false)))
            }
        }
        for (_, place) in found.sorted(by: { $0.order < $1.order }) {
            guard let status = try open(place, row, now) else { continue }
            guard try body(status.payload) else { return }
        }
    }
}
