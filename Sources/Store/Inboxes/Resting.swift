import Crypto
import DequeModule
import HeapModule

/// Rows at rest: of an inbox that nobody uses only the earliest expiry of each segment stays in memory.
extension Store {
    /// Drops the in-memory index, the open files and the loaded state of an inbox that goes to sleep. A later call on the
    /// row brings back what it needs. Expiries, fuse and destruction go on as before: the earliest expiry of each segment
    /// is kept, and when it comes the segment is read again for it.
    ///
    /// What is not durable yet stays until it is; the next ``reap(hide:destroy:)`` drops it then.
    package func release(_ id: RowID) {
        guard !isLocked, let row = rows[id] else { return }
        commits.absorb()
        row.isAsleep = true
        if !rest(row) { drowsyRows.insert(id) }
    }

    /// Tries again what could not rest while it was written.
    func restDrowsyRows() {
        // What only the journal has keeps an inbox awake.
        if !drowsyRows.isEmpty, commits.hasUnwritten, !commits.isDeferred {
            let isWaiting = drowsyRows.contains { id in
                rows[id].map { row in
                    row.isAsleep
                        && (row.segments.values.contains { $0.file.isUnwritten } || row.log?.file.isUnwritten ?? false)
                } ?? false
            }
            if isWaiting { commitUntold(withCheckpoint: true) }
        }
        for id in drowsyRows {
            guard let row = rows[id], row.isAsleep, !rest(row) else {
                drowsyRows.remove(id)
                continue
            }
        }
    }

    /// - Returns: false when something of the row is not finished yet, or not read: what rests is only what is known.
    private func rest(_ row: Row) -> Bool {
        let files = row.segments.values.map(\.file) + [row.log?.file].compactMap { $0 }
        // A file that has failed is remembered as such: opened anew it would take appends, and may not even have the sidecar
        // without which a start finds it expired.
        guard files.allSatisfy({ !$0.isClosed && commits.isAtRest($0) }), row.halfMoved.isEmpty, !row.isRefused,
            !row.hasFailures, row.segments.values.allSatisfy({ !$0.withholds }),
            // A segment with due records is read to its end first, a part of it with each reap.
            row.segments.values.allSatisfy({ !$0.isProbed || $0.isIndexed || !$0.hasUnreadDue(latestHide) })
        else { return false }
        var resting: [Row.RestingSegment] = []
        for segment in row.segments.values {
            resting.append(
                Row.RestingSegment(id: segment.file.place.file, column: segment.column.slot, moment: segment.earliest)
            )
            segments[segment.file.number] = nil
            segment.column.segments[segment.file.number] = nil
            segment.isDead = true
            discard(segment.file)
        }
        var log = row.log
        while let next = log {
            discard(next.file)
            log = next.previous
        }
        if row.isOpen {
            row.contents = .resting(resting)
            if let moment = row.restingMoment { announce(row, moment) }
        }
        if row.refusal != nil { refusedRows.removeAll { $0 === row } }
        row.forgetContents()
        return true
    }

    /// Enters the segments of a row at rest. Their records stay unread.
    func open(_ row: Row) {
        guard case .resting(let resting) = row.contents else { return }
        row.contents = .open
        for part in resting {
            // A bucket that has ended took its segments along.
            guard let column = columns[part.column] else { continue }
            let sidecar = ExpirySidecar(
                segmentID: part.id.bytes,
                column: column,
                inboxTag: row.names.tag,
                key: row.names.sidecarKey.bytes
            )
            let segment = makeSegment(row: row, column: column, sidecar: sidecar)
            segment.earliest = part.moment
            enter(segment)
        }
        if row.isAsleep { drowsyRows.insert(row.id) }
    }

    /// Of rows at rest: forgets the segments of buckets that have ended, and leaves their files to be removed.
    func dropResting(columns ended: Set<Int>) {
        guard !ended.isEmpty else { return }
        for row in rows.values {
            guard case .resting(let resting) = row.contents, resting.contains(where: { ended.contains($0.column) })
            else { continue }
            for part in resting where ended.contains(part.column) {
                directories.discard(segment: Hex.encode(part.id.bytes), of: row.directoryOnce)
            }
            row.contents = .resting(resting.filter { !ended.contains($0.column) })
            if let moment = row.restingMoment { announce(row, moment) }
        }
    }

    // MARK: - The scan

    var hasUnknownRows: Bool { !unknownRows.isEmpty || controlRow.map { !$0.isOpen } ?? false }

    /// Looks through the next directories that nobody has looked at since the unlock, once a bucket has begun to fall
    /// due: a bounded number at a time, so that a home with ten thousand inboxes answers meanwhile.
    func scanNextRows(_ hide: Int64) {
        guard hasUnknownRows, let firstColumnStart, firstColumnStart < hide else { return }
        var failed: [RowID] = []
        var count = 0
        if let controlRow, !controlRow.isOpen { try? scan(controlRow) }
        while count < Self.scanLimit, let id = unknownRows.popFirst() {
            guard let row = rows[id], case .unknown = row.contents else { continue }
            count += 1
            do throws(StoreError) { try scan(row) } catch { failed.append(id) }
            if row.isOpen, row.isAsleep { drowsyRows.insert(id) }
        }
        scanFailed = count > 0 && failed.count == count
        unknownRows.append(contentsOf: failed)
    }
}

extension Row {
    /// While it rests: when its first record expires.
    var restingMoment: Int64? {
        guard case .resting(let segments) = contents, let first = segments.lazy.map(\.moment).min(), first < .max
        else { return nil }
        return first
    }
}
