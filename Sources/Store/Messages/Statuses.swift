import Crypto

/// Status records hold facts learned after messages were stored, such as their delivery. One small record replaces new
/// versions of many messages, and is read together with them.
extension MessageReader {
    func locate(_ id: RowID, _ message: Bytes16) throws(StoreError) -> MessagePlace? {
        let row = try grid.row(id)
        guard let place = try index.find(message, in: row), let segment = row.segments[Int(place.file)] else {
            return nil
        }
        let record = segment.records[place.record]
        return MessagePlace(order: record.order, tier: segment.sidecar.tier, expiresAt: record.expiresAt)
    }

    func visitStatuses(
        _ id: RowID, concerning places: ClosedRange<UInt64>, now: Int64,
        _ body: (_ status: [UInt8]) throws(StoreError) -> Bool
    ) throws(StoreError) {
        let row = try grid.row(id)
        try index.index(row)
        guard !grid.isDue(row, now) else { return }
        segments.read(row, downTo: places.lowerBound)
        for place in row.statuses(concerning: places) {
            guard let status = try open(place, row, now) else { continue }
            guard try body(status.payload) else { return }
        }
    }
}
