import Crypto

/// Members who still have to learn of an explosion. The lists belong to no inbox and expire with a seven-day bucket.
final class FanOutLists {
    private let services: StoreServices
    private let grid: Grid
    private let segments: SegmentTable
    private let index: InboxIndex
    private let reader: MessageReader
    private let writer: MessageWriter

    init(
        _ services: StoreServices, grid: Grid, segments: SegmentTable, index: InboxIndex, reader: MessageReader,
        writer: MessageWriter
    ) {
        self.services = services
        self.grid = grid
        self.segments = segments
        self.index = index
        self.reader = reader
        self.writer = writer
    }

    func save(id: [UInt8], expiresAt: Int64, payload: [UInt8]) throws(StoreError) {
        let row = try indexedControlRow()
        let messageID = try Bytes16.parse(id)
        guard payload.count <= RecordFile.maximumPlaintext else { throw .tooLarge(limit: RecordFile.maximumPlaintext) }
        if let place = row.index[messageID], let holder = row.segments[Int(place.file)] {
            try writer.update(holder.records[place.record], in: holder, payload)
        } else {
            try writer.append(to: row, messageID, .control, expiresAt, byteCount: payload.count) {
                $0.copyBytes(from: payload)
            }
        }
    }

    func read(id: [UInt8], now: Int64) throws(StoreError) -> [UInt8]? {
        let row = try indexedControlRow()
        guard let place = row.index[try Bytes16.parse(id)] else { return nil }
        return try reader.open(place, row, now)?.payload
    }

    func all(now: Int64) throws(StoreError) -> [StoredMessage] {
        try reader.list(indexedControlRow(), last: nil, after: nil, now: now)
    }

    func remove(id: [UInt8]) throws(StoreError) {
        let row = try indexedControlRow()
        let messageID = try Bytes16.parse(id)
        guard row.index[messageID] == nil else { return try writer.erase(in: row, messageID) }
        if services.isReadOnly { throw .readOnly(path: services.home.path) }
        if row.hasUnreadSegments { throw .damaged(what: services.inboxPath(row.directory)) }
        // A version whose commit failed may be on the disk.
        for (segment, position) in row.versions(of: messageID) { segments.overwrite(segment, position) }
    }

    private func indexedControlRow() throws(StoreError) -> Row {
        _ = try services.unlockedKeys()
        guard let controlRow = grid.controlRow else { throw .locked }
        try index.indexAll(controlRow)
        return controlRow
    }
}
