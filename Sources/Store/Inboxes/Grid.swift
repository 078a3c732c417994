import Cryptography

/// The grid of keys while the store is unlocked: rows, columns, and the segments in memory where they cross.
final class Grid {
    private struct BucketKey: Hashable {
        let tier: Tier
        let bucket: Int64
    }

    private(set) var rows: [RowID: Row] = [:]
    private(set) var rowOfSlot: [UInt32: Row] = [:]
    /// The pseudo-row that owns the fan-out lists.
    private(set) var controlRow: Row?
    private(set) var columns: [Int: Column] = [:]
    /// Keyed by the column tag in sidecars.
    private(set) var columnOfTag: [[UInt8]: Column] = [:]
    private var columnOfBucket: [BucketKey: Column] = [:]
    private(set) var segments: [Int: Segment] = [:]
    /// Directories of the rows that were live at the lock.
    private var rowsAtLock: [RowID: String] = [:]

    func insert(_ row: Row) {
        rows[row.id] = row
        rowOfSlot[row.id.slot] = row
    }

    func remove(_ row: Row) {
        rows[row.id] = nil
        rowOfSlot[row.id.slot] = nil
    }

    func takeRowAtLock(_ id: RowID) -> String? { rowsAtLock.removeValue(forKey: id) }

    func column(_ tier: Tier, _ bucket: Int64) -> Column? { columnOfBucket[BucketKey(tier: tier, bucket: bucket)] }

    func insert(_ column: Column) {
        columns[column.slot] = column
        columnOfTag[column.tag] = column
        columnOfBucket[BucketKey(tier: column.header.tier, bucket: column.header.bucket)] = column
    }

    func remove(_ column: Column) {
        columns[column.slot] = nil
        columnOfTag[column.tag] = nil
        let key = BucketKey(tier: column.header.tier, bucket: column.header.bucket)
        if columnOfBucket[key] === column { columnOfBucket[key] = nil }
    }

    func insert(_ segment: Segment) {
        segments[segment.file.number] = segment
        segment.row.segments[segment.file.number] = segment
        segment.column.segments[segment.file.number] = segment
    }

    /// The caller removes the segment from its row.
    func remove(_ segment: Segment) {
        segments[segment.file.number] = nil
        segment.column.segments[segment.file.number] = nil
    }

    func begin(controlRow: Row) {
        rowsAtLock = [:]
        self.controlRow = controlRow
    }

    /// Wipes every secret. Sealed bytes can still be written.
    func wipe() {
        rowsAtLock = rows.mapValues(\.directoryOnce)
        for row in rows.values { row.wipe() }
        controlRow?.wipe()
        for column in columns.values { column.secret.wipe() }
    }

    /// Forgets everything except which rows exist.
    func end() {
        for column in columns.values { column.segments = [:] }
        for row in rows.values {
            row.isGone = true
            row.forgetContents()
        }
        controlRow?.isGone = true
        controlRow?.forgetContents()
        controlRow = nil
        rows = [:]
        rowOfSlot = [:]
        columns = [:]
        columnOfBucket = [:]
        columnOfTag = [:]
        segments = [:]
    }
}

/// An open expiry bucket: its page, and the secret from that page.
final class Column {
    let slot: Int
    let header: ColumnHeader
    let secret: SharedSecret
    /// Identifies the page in sidecars: the bucket may have had an earlier page.
    let tag: [UInt8]
    var segments: [Int: Segment] = [:]

    init(slot: Int, header: ColumnHeader, secret: SharedSecret) {
        (self.slot, self.header, self.secret) = (slot, header, secret)
        tag = BLAKE2b.authenticate(key: secret.bytes, Array("mayfly column tag".utf8), byteCount: 16)
    }

    /// No record of the column expires at or before this moment, in milliseconds.
    var start: Int64 { header.notAfter - header.tier.bucketWidth }
}
