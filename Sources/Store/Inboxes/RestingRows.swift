import Crypto

/// Resting rows: of an unused inbox, memory keeps only the earliest expiry of each segment.
final class RestingRows {
    private let services: StoreServices
    private let grid: Grid
    private let deadlines: DeadlineQueue
    private let segments: SegmentTable
    private let refused: RefusedRows
    /// Rows that go to rest once no write of theirs is pending.
    private var drowsyRows: Set<RowID> = []

    init(_ services: StoreServices, grid: Grid, deadlines: DeadlineQueue, segments: SegmentTable, refused: RefusedRows)
    {
        self.services = services
        self.grid = grid
        self.deadlines = deadlines
        self.segments = segments
        self.refused = refused
    }

    /// Releases the memory of an inbox that goes to sleep. Data that is not durable stays until it is.
    func release(_ id: RowID) {
        guard !services.isLocked, let row = grid.rows[id] else { return }
        services.commits.absorb()
        row.isAsleep = true
        if !rest(row) { drowsyRows.insert(id) }
    }

    /// The row was read while unused.
    func noteDrowsy(_ row: Row) { drowsyRows.insert(row.id) }
    func forget(_ row: Row) { drowsyRows.remove(row.id) }
    func end() { drowsyRows = [] }

    func restDrowsyRows() {
        let commits = services.commits
        // Data that only the journal has keeps an inbox awake.
        if !drowsyRows.isEmpty, commits.hasUnwritten, !commits.isDeferred {
            let isWaiting = drowsyRows.contains { id in
                grid.rows[id].map { row in
                    row.isAsleep
                        && (row.segments.values.contains { $0.file.isUnwritten } || row.log?.file.isUnwritten ?? false)
                } ?? false
            }
            if isWaiting { services.commitUntold(withCheckpoint: true) }
        }
        for id in drowsyRows {
            guard let row = grid.rows[id], row.isAsleep, !rest(row) else {
                drowsyRows.remove(id)
                continue
            }
        }
    }

    /// - Returns: false when writes are pending or segments unread. Only a fully known row can rest.
    private func rest(_ row: Row) -> Bool {
        let commits = services.commits
        let files = row.segments.values.map(\.file) + [row.log?.file].compactMap { $0 }
        // Keep a row with a failed file in memory. Reopened, the file would accept appends although its sidecar may be
        // missing, and the next start would treat it as expired.
        guard files.allSatisfy({ !$0.isClosed && commits.isAtRest($0) }), row.halfMoved.isEmpty, !row.isRefused,
            !row.hasFailures, row.segments.values.allSatisfy({ !$0.withholds }),
            // A segment with due records is first read to its end, a part with each reap.
            row.segments.values.allSatisfy({ !$0.isProbed || $0.isIndexed || !$0.hasUnreadDue(services.latestHide) })
        else { return false }
        var resting: [Row.RestingSegment] = []
        for segment in row.segments.values {
            resting.append(
                Row.RestingSegment(id: segment.file.place.file, column: segment.column.slot, moment: segment.earliest))
            segments.release(segment)
        }
        var log = row.log
        while let next = log {
            services.discard(next.file)
            log = next.previous
        }
        if row.isOpen {
            row.contents = .resting(resting)
            if let moment = row.restingMoment { deadlines.announce(row, moment) }
        }
        if row.refusal != nil { refused.remove(row) }
        let lacksSegments = row.lacksSegments
        row.forgetContents()
        // The resting list omits the missing segments, and sidecars are not read again.
        if lacksSegments { row.lackSegment() }
        return true
    }

    /// Enters the segments of a resting row. Their records stay unread.
    func open(_ row: Row) {
        guard case .resting(let resting) = row.contents else { return }
        row.contents = .open
        for part in resting {
            // The column has ended, and its segments with it.
            guard let column = grid.columns[part.column] else { continue }
            let sidecar = ExpirySidecar(
                segmentID: part.id.bytes, header: column.header, columnTag: column.tag, inboxTag: row.names.tag,
                key: row.names.sidecarKey.bytes)
            let segment = segments.make(row: row, column: column, sidecar: sidecar)
            segment.earliest = part.moment
            segments.enter(segment)
        }
        if row.isAsleep { noteDrowsy(row) }
    }

    /// Forgets resting segments whose buckets have ended, and queues their files for removal.
    func dropResting(columns ended: Set<Int>) {
        guard !ended.isEmpty else { return }
        for row in grid.rows.values {
            guard case .resting(let resting) = row.contents, resting.contains(where: { ended.contains($0.column) })
            else { continue }
            for part in resting where ended.contains(part.column) {
                services.directories.discard(segment: Hex.encode(part.id.bytes), of: row.directoryOnce)
            }
            row.contents = .resting(resting.filter { !ended.contains($0.column) })
            if let moment = row.restingMoment { deadlines.announce(row, moment) }
        }
    }
}

extension Row {
    /// When the first record of a resting row expires.
    var restingMoment: Int64? {
        guard case .resting(let segments) = contents, let first = segments.lazy.map(\.moment).min(), first < .max else {
            return nil
        }
        return first
    }
}
