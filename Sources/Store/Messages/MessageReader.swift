import Crypto

final class MessageReader {
    let services: StoreServices
    let grid: Grid
    let index: InboxIndex
    let segments: SegmentReader

    init(_ services: StoreServices, grid: Grid, index: InboxIndex, segments: SegmentReader) {
        self.services = services
        self.grid = grid
        self.index = index
        self.segments = segments
    }

    func read(_ id: RowID, id messageID: [UInt8], now: Int64) throws(StoreError) -> [UInt8]? {
        let row = try grid.row(id)
        guard !grid.isDue(row, now), let place = try index.find(Bytes16.parse(messageID), in: row) else { return nil }
        return try open(place, row, now)?.payload
    }

    func contains(_ id: RowID, id messageID: [UInt8]) throws(StoreError) -> Bool {
        let row = try grid.row(id)
        return try index.find(Bytes16.parse(messageID), in: row) != nil
    }

    func list(_ id: RowID, last: Int? = nil, after: [UInt8]? = nil, now: Int64) throws(StoreError) -> [StoredMessage] {
        let row = try grid.row(id)
        try index.index(row)
        return try list(row, last: last, after: after, now: now)
    }

    func list(_ row: Row, last: Int?, after: [UInt8]?, now: Int64) throws(StoreError) -> [StoredMessage] {
        var first: UInt64 = 0
        if let after {
            guard let place = try place(of: Bytes16.parse(after), in: row) else { throw .unknownMessage }
            first = place + 1
        }
        if let last {
            guard last > 0 else { return [] }
            var left = last
            var newest = first
            visitPlaces(row, from: first, now: now) { place in
                newest = place
                left -= 1
                return left > 0
            }
            first = newest
        }
        var found: [StoredMessage] = []
        try visit(row, from: first, now: now) { _, message in
            found.append(message)
            return true
        }
        return found
    }

    func messageCount(_ id: RowID, now: Int64) throws(StoreError) -> Int {
        let row = try grid.row(id)
        try index.indexAll(row)
        guard !grid.isDue(row, now) else { return 0 }
        let moment = max(now, services.latestHide)
        // Due messages that are not reaped yet: only segments whose first expiry has passed can have them.
        var due = 0
        for segment in row.segments.values where segment.earliest <= moment || segment.withholds {
            for position in segment.records.indices where segment.expiry(of: position) <= moment {
                let record = segment.records[position]
                guard record.isListed, let place = row.index[record.id] else { continue }
                if Int(place.file) == segment.file.number, place.record == position { due += 1 }
            }
        }
        return row.visibleCount - due
    }

    func storedAmount(_ id: RowID) throws(StoreError) -> (byteCount: Int64, recordCount: Int) {
        let row = try grid.row(id)
        try index.index(row)
        var amount = (byteCount: row.storedByteCount, recordCount: row.index.count)
        for segment in row.segments.values where segment.isProbed && segment.loadedFrom > 0 {
            amount.byteCount += segment.loadedFrom
            amount.recordCount += Int(segment.records.first?.number ?? 0)
        }
        return amount
    }

    /// `nil` for a message that is due at `now`, or was due at the last reap.
    func open(_ place: Row.Place, _ row: Row, _ now: Int64) throws(StoreError) -> StoredMessage? {
        guard let segment = row.segments[Int(place.file)],
            segment.expiry(of: place.record) > max(now, services.latestHide)
        else { return nil }
        let record = segment.records[place.record]
        let file = segment.file
        var found = file.withUnwritten(record.span) { file.frames.open($0, number: record.number) }
        if found == nil {
            let descriptor = try services.openFiles.descriptor(of: file)
            let sealed = try onDisk(file.path) { () throws(SystemError) in
                try services.disk.read(descriptor, at: Int64(record.offset), count: Int(record.length))
            }
            found = file.frames.open(sealed, number: record.number)
        }
        guard case .opened(var plaintext) = found, plaintext.count >= MessageRecord.headerByteCount else {
            services.report("\(services.inboxPath(file.path)): a message cannot be opened")
            return nil
        }
        defer { wipe(&plaintext) }
        return StoredMessage(
            id: record.id, expiresAt: record.expiresAt, payload: Array(plaintext[MessageRecord.headerByteCount...]))
    }
}
