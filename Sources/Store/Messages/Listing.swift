import Crypto

/// Visits the messages of an inbox one at a time in arrival order, so that memory need not hold the whole inbox.
///
/// A message keeps its place across new versions and expiries. Later messages have higher places.
extension MessageReader {
    func visit(
        _ id: RowID, from place: UInt64 = 0, now: Int64,
        _ body: (_ place: UInt64, _ message: StoredMessage) throws(StoreError) -> Bool
    ) throws(StoreError) {
        let row = try grid.row(id)
        try index.index(row)
        try visit(row, from: place, now: now, body)
    }

    func visit(
        _ row: Row, from place: UInt64, now: Int64,
        _ body: (_ place: UInt64, _ message: StoredMessage) throws(StoreError) -> Bool
    ) throws(StoreError) {
        guard !grid.isDue(row, now) else { return }
        segments.read(row, downTo: place)
        row.sortTimeline()
        // Changes made by the body show at the next visit, but removed messages are skipped at once.
        let timeline = row.timeline
        for entry in timeline[row.firstEntry(from: place)...] {
            guard let record = served(entry, row, now), let message = try open(record, row, now) else { continue }
            guard try body(entry.order, message) else { return }
        }
    }

    func visitPlaces(_ id: RowID, from place: UInt64 = 0, now: Int64, _ body: (_ place: UInt64) -> Bool)
        throws(StoreError)
    {
        let row = try grid.row(id)
        try index.index(row)
        visitPlaces(row, from: place, now: now, body)
    }

    func visitPlaces(_ row: Row, from place: UInt64, now: Int64, _ body: (_ place: UInt64) -> Bool) {
        guard !grid.isDue(row, now) else { return }
        var end = row.nextOrder
        var count: UInt64 = 128
        // Goes back from the end in stretches, each twice as long as the previous one.
        while end > place {
            let begin = end - place > count ? end - count : place
            segments.read(row, downTo: begin)
            row.sortTimeline()
            let timeline = row.timeline[row.firstEntry(from: begin)..<row.firstEntry(from: end)]
            for entry in timeline.reversed() where served(entry, row, now) != nil {
                guard body(entry.order) else { return }
            }
            end = begin
            count *= 2
        }
    }

    func place(_ id: RowID, of messageID: [UInt8]) throws(StoreError) -> UInt64? {
        try place(of: Bytes16.parse(messageID), in: try grid.row(id))
    }

    func place(of messageID: Bytes16, in row: Row) throws(StoreError) -> UInt64? {
        guard let record = try index.find(messageID, in: row).flatMap({ row.record(at: $0) }), record.isListed else {
            return nil
        }
        return record.order
    }

    func nextPlace(_ id: RowID) throws(StoreError) -> UInt64 {
        let row = try grid.row(id)
        try index.index(row)
        return row.nextOrder
    }

    func messageIDs(_ id: RowID, beginningWith digits: [UInt8], limit: Int, now: Int64) throws(StoreError) -> [[UInt8]]
    {
        let row = try grid.row(id)
        try index.indexAll(row)
        guard !grid.isDue(row, now), let prefix = Bytes16.Prefix(digits: digits) else { return [] }
        row.sortTimeline()
        var found: [[UInt8]] = []
        for entry in row.timeline where prefix.matches(entry.id) {
            guard found.count < limit else { break }
            if served(entry, row, now) != nil { found.append(entry.id.bytes) }
        }
        return found
    }

    /// The position of the entry's message, unless it was removed or is due.
    private func served(_ entry: (order: UInt64, id: Bytes16), _ row: Row, _ now: Int64) -> Row.Place? {
        guard let place = row.index[entry.id], let segment = row.segments[Int(place.file)],
            segment.records[place.record].order == entry.order,
            segment.expiry(of: place.record) > max(now, services.latestHide)
        else { return nil }
        return place
    }

    // MARK: - Hidden records

    func hasHidden(_ id: RowID) throws(StoreError) -> Bool {
        let row = try grid.row(id)
        try index.index(row)
        return row.index.count > row.visibleCount
            || row.segments.values.contains { $0.loadedFrom > 0 && $0.prefix.hasHidden }
    }

    func visitHidden(
        _ id: RowID, from place: UInt64 = 0, _ body: (_ id: [UInt8], _ byteCount: Int) throws(StoreError) -> Bool
    ) throws(StoreError) {
        let row = try grid.row(id)
        try index.index(row)
        segments.read(row, downTo: place)
        // The body may read further records into memory.
        let found = row.segments.values.flatMap { segment in
            segment.records.all.filter { $0.kind == .hidden && $0.state == .live && $0.order >= place }
        }
        for record in found { guard try body(record.id.bytes, record.payloadByteCount) else { return } }
    }
}

extension Row {
    /// Requires a sorted timeline.
    fileprivate func firstEntry(from place: UInt64) -> Int { timeline.partitioningIndex { $0.order >= place } }
}

extension MessageRecord {
    /// The sealed length without nonce, tag and record header.
    fileprivate var payloadByteCount: Int { max(0, Int(length) - XChaChaPoly.overheadByteCount - Self.headerByteCount) }
}
