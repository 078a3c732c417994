import Crypto

/// The messages of an inbox in the order of their arrival, one at a time: whoever looks through an inbox holds no more of
/// it in memory than what is wanted of it.
///
/// A message's place is a number that it keeps, through new versions and new expiries; what came later has a higher one.
extension Store {
    /// Visits the messages that are not due, the first to arrive first. Each is opened when it is its turn.
    /// - Parameters:
    ///   - place: only those from this place on.
    ///   - body: what is done with each; it says whether to go on.
    package func visit(
        _ id: RowID,
        from place: UInt64 = 0,
        now: Int64,
        _ body: (_ place: UInt64, _ message: StoredMessage) throws(StoreError) -> Bool
    ) throws(StoreError) {
        let row = try row(id)
        try index(row)
        try visit(row, from: place, now: now, body)
    }

    func visit(
        _ row: Row,
        from place: UInt64,
        now: Int64,
        _ body: (_ place: UInt64, _ message: StoredMessage) throws(StoreError) -> Bool
    ) throws(StoreError) {
        guard !isDue(row, now) else { return }
        read(row, downTo: place)
        row.sortTimeline()
        // What the body changes is not seen before the next visit, except that what is gone is not opened.
        let timeline = row.timeline
        for entry in timeline[row.firstEntry(from: place)...] {
            guard let record = served(entry, row, now), let message = try open(record, row, now) else { continue }
            guard try body(entry.order, message) else { return }
        }
    }

    /// Visits the places of the messages that are not due, the last to arrive first, and opens none of them.
    /// - Parameter place: only those from this place on.
    package func visitPlaces(
        _ id: RowID,
        from place: UInt64 = 0,
        now: Int64,
        _ body: (_ place: UInt64) -> Bool
    ) throws(StoreError) {
        let row = try row(id)
        try index(row)
        visitPlaces(row, from: place, now: now, body)
    }

    func visitPlaces(_ row: Row, from place: UInt64, now: Int64, _ body: (_ place: UInt64) -> Bool) {
        guard !isDue(row, now) else { return }
        var end = row.nextOrder
        var count: UInt64 = 128
        // A stretch at a time, from the end, each twice as long as the one before.
        while end > place {
            let begin = end - place > count ? end - count : place
            read(row, downTo: begin)
            row.sortTimeline()
            let timeline = row.timeline[row.firstEntry(from: begin)..<row.firstEntry(from: end)]
            for entry in timeline.reversed() where served(entry, row, now) != nil {
                guard body(entry.order) else { return }
            }
            end = begin
            count *= 2
        }
    }

    /// The place of a message; `nil` when it is not, or no longer, there, or hidden.
    package func place(_ id: RowID, of messageID: [UInt8]) throws(StoreError) -> UInt64? {
        try place(of: Bytes16.parse(messageID), in: try row(id))
    }

    func place(of messageID: Bytes16, in row: Row) throws(StoreError) -> UInt64? {
        guard let record = try find(messageID, in: row).flatMap({ row.record(at: $0) }), record.isListed else {
            return nil
        }
        return record.order
    }

    /// The place that the next message gets, or a lower one than that.
    package func nextPlace(_ id: RowID) throws(StoreError) -> UInt64 {
        let row = try row(id)
        try index(row)
        return row.nextOrder
    }

    /// Whether the disk has given all that there is of an inbox. What it refuses once is asked for again after a second.
    package func isWhole(_ id: RowID) -> Bool { rows[id].map { !$0.hasUnreadSegments } ?? true }

    /// Identifiers of listed messages that are not due; none is opened.
    /// - Parameters:
    ///   - digits: the hexadecimal digits that they begin with.
    ///   - limit: most of them.
    package func messageIDs(
        _ id: RowID,
        beginningWith digits: [UInt8],
        limit: Int,
        now: Int64
    ) throws(StoreError) -> [[UInt8]] {
        let row = try row(id)
        try indexAll(row)
        guard !isDue(row, now), let prefix = Bytes16.Prefix(digits: digits) else { return [] }
        row.sortTimeline()
        var found: [[UInt8]] = []
        for entry in row.timeline where prefix.matches(entry.id) {
            guard found.count < limit else { break }
            if served(entry, row, now) != nil { found.append(entry.id.bytes) }
        }
        return found
    }

    /// Where the message of a timeline's entry is, if it is still there and not due.
    private func served(_ entry: (order: UInt64, id: Bytes16), _ row: Row, _ now: Int64) -> Row.Place? {
        guard let place = row.index[entry.id], let segment = row.segments[Int(place.file)],
            segment.records[place.record].order == entry.order,
            segment.expiry(of: place.record) > max(now, latestHide)
        else { return nil }
        return place
    }

    // MARK: - Hidden records

    /// Whether an inbox may have any: what was not read since the inbox woke is known to have had some, or none.
    package func hasHidden(_ id: RowID) throws(StoreError) -> Bool {
        let row = try row(id)
        try index(row)
        return row.index.count > row.visibleCount
            || row.segments.values.contains { $0.loadedFrom > 0 && $0.prefix.hasHidden }
    }

    /// Visits the identifiers of the hidden records, in no order; what they are, their owner knows. None is opened.
    /// - Parameters:
    ///   - place: only those that were appended behind messages with a lower one.
    ///   - body: given each with the number of its payload's bytes; it says whether to go on.
    package func visitHidden(
        _ id: RowID,
        from place: UInt64 = 0,
        _ body: (_ id: [UInt8], _ byteCount: Int) throws(StoreError) -> Bool
    ) throws(StoreError) {
        let row = try row(id)
        try index(row)
        read(row, downTo: place)
        // What the body reads may bring more records into memory.
        let found = row.segments.values.flatMap { segment in
            segment.records.all.filter { $0.kind == .hidden && $0.state == .live && $0.order >= place }
        }
        for record in found {
            guard try body(record.id.bytes, record.payloadByteCount) else { return }
        }
    }
}

extension Row {
    /// The first of the timeline, which must be sorted, with this place or a higher one.
    fileprivate func firstEntry(from place: UInt64) -> Int { timeline.partitioningIndex { $0.order >= place } }
}

extension MessageRecord {
    /// Of the sealed bytes all but the frame and what is sealed with the payload.
    fileprivate var payloadByteCount: Int {
        max(0, Int(length) - XChaChaPoly.overheadByteCount - Self.headerByteCount)
    }
}
