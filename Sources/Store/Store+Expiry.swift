import Cryptography
import DequeModule

/// Order: stop serving due records, wipe keys, overwrite pages and read them back, remove files.
extension Store {
    private static let dueByteCount = 4 << 20
    static let scanLimit = 128

    /// Destroys due data. Idempotent. Works while locked, by the clear headers only, and on a full disk.
    ///
    /// Never throws, because part of the work may be done: ``ReapReport/failures`` has the errors.
    /// - Parameters:
    ///   - hide: data that expires at or before it is no longer served. Not monotonic: a wrong clock may be corrected.
    ///   - destroy: a confirmed time, at most `hide`: data that expires at or before it is destroyed for good.
    @discardableResult package func reap(hide: Int64, destroy: Int64) -> ReapReport {
        var report = ReapReport()
        guard !isClosed else { return report }
        latestHide = hide
        let destroy = min(hide, destroy)
        commits.absorb()
        reapMessages(hide, destroy, &report)
        guard !isReadOnly else {
            if pages.hasOverdue(at: destroy) { report.failures.append(.overdueOnReadOnly(path: home.path)) }
            return report
        }
        if let earliestEnd = pages.earliestEnd, earliestEnd <= destroy { reapPages(destroy, &report) }
        let failures = pages.destroyDoomed() + pages.tombstones.destroyDoomed()
        if !failures.isEmpty {
            // Count only pages that were read back.
            report.tombstonesDestroyed = max(0, report.tombstonesDestroyed - pages.tombstones.doomed.count)
            report.columnsDestroyed = max(0, report.columnsDestroyed - pages.columns.doomed.count)
        }
        report.failures += failures
        commitOverdue(report)
        report.failures += commits.erasureErrors
        restDrowsyRows()
        collect()
        return report
    }

    private func reapPages(_ destroy: Int64, _ report: inout ReapReport) {
        reapFuses(destroy, &report)
        reapColumns(destroy, &report)
        report.tombstonesDestroyed += pages.tombstones.reap(destroy)
        directories.reapLost(destroy)
        pages.settleEnds()
    }

    private func reapMessages(_ hide: Int64, _ destroy: Int64, _ report: inout ReapReport) {
        guard !isLocked else { return }
        scanUnknownRows(hide)
        readRefusedRows()
        deadlines.reconsiderWithheld()
        var expired: [(moment: Int64, segment: Int, position: Int, ReapReport.Expired)] = []
        var budget = Self.dueByteCount
        hasUnreadDue = false
        while let segment = takeDueSegment(hide) {
            if segment.hasUnreadDue(hide), !segment.row.refusedSegments.contains(segment.file.number) {
                if budget <= 0 {
                    // Due records are hidden; the next reap continues.
                    hasUnreadDue = true
                    deadlines.announce(segment)
                    break
                }
                budget -= readDue(of: segment)
                deadlines.announce(segment)
                continue
            }
            while let position = segment.takeDue(hide) {
                reap(segment, position, destroy, &report) { message in
                    expired.append((segment.expiry(of: position), segment.file.number, position, message))
                }
            }
            if segment.withholds { deadlines.noteWithholding(segment) }
            deadlines.announce(segment)
        }
        report.expired += expired.sorted { ($0.moment, $0.segment, $0.position) < ($1.moment, $1.segment, $1.position) }
            .map(\.3)
    }

    /// Takes the next segment with a record that expires at or before `moment`. Opens a resting row for it.
    private func takeDueSegment(_ moment: Int64) -> Segment? {
        while let due = deadlines.takeDue(moment) {
            switch due {
            case .segment(let segment): return segment
            case .row(let row): wake(row)
            }
        }
        return nil
    }

    private func reap(
        _ segment: Segment, _ position: Int, _ destroy: Int64, _ report: inout ReapReport,
        _ tell: (ReapReport.Expired) -> Void
    ) {
        let record = segment.records[position]
        guard record.state != .erased else { return }
        if record.state == .live, !record.isReported {
            segment.records[position].isReported = true
            if segment.row !== grid.controlRow, record.isListed {
                tell(ReapReport.Expired(row: segment.row.id, id: record.id))
            }
        }
        if segment.expiry(of: position) > destroy || isReadOnly { return segment.withhold(position) }
        if let place = segment.row.index[record.id], Int(place.file) == segment.file.number, place.record == position {
            segment.row.removeFromIndex(record.id)
        }
        // A bucket that ends now needs no overwriting: its key is destroyed.
        guard segment.column.header.notAfter > destroy else { return }
        overwrite(segment, position, .due)
        report.recordsOverwritten += 1
    }

    /// Commits this reap's erasures, retries of earlier ones, and a due checkpoint.
    private func commitOverdue(_ report: ReapReport) {
        guard !isLocked else { return }
        let hasCheckpoint = commits.isDue(latestHide)
        let isRetry = commits.hasPendingErasures
        if isRetry { commits.retryErasures() }
        guard isRetry || hasCheckpoint || (report.recordsOverwritten > 0 || hasLeftBehind) && commits.hasChanges else {
            return
        }
        hasLeftBehind = false
        commitUntold(withCheckpoint: hasCheckpoint)
    }

    // MARK: - Pages

    private func reapFuses(_ destroy: Int64, _ report: inout ReapReport) {
        for slot in pages.columns.headers.keys.sorted() {
            guard let header = pages.columns.headers[slot], header.tier == .fuse, header.notAfter <= destroy else {
                continue
            }
            do throws(StoreError) {
                if let row = try row(of: header) {
                    try destroyRow(row.id)
                    report.rows.append(row.id)
                    report.rowsDestroyed += 1
                } else if try pages.rows.destroy(namedBy: header) {
                    report.rowsDestroyed += 1
                }
                pages.columns.end(slot)
            } catch {
                // The fuse stays armed.
                report.failures.append(error)
            }
        }
    }

    private func reapColumns(_ destroy: Int64, _ report: inout ReapReport) {
        var ended: Set<Int> = []
        var tags: [[UInt8]] = []
        for slot in pages.columns.headers.keys.sorted() {
            guard let header = pages.columns.headers[slot], header.tier != .fuse, header.notAfter <= destroy else {
                continue
            }
            ended.insert(slot)
            var dead: [Segment] = []
            if let column = grid.columns[slot] {
                dead = column.segments.sorted { $0.key < $1.key }.map(\.value)
                for segment in dead { drop(segment) }
                grid.remove(column)
                tags.append(column.tag)
            }
            pages.columns.end(slot)
            report.columnsDestroyed += 1
            report.failures += pages.columns.destroyDoomed(only: slot)
            for segment in dead where !segment.row.isGone {
                directories.discard(
                    segment: Hex.encode(segment.file.place.file.bytes), of: segment.file.place.directoryName)
            }
        }
        if !tags.isEmpty { commits.ended(columns: tags) }
        dropResting(columns: ended)
    }

    // MARK: - The next reap

    /// The next time a reap has work: an expiry, the end of a bucket or tombstone, a fuse, files to remove, or a retry.
    /// `nil` when there is none.
    ///
    /// Records that the last reap hid but was not allowed to destroy do not count: the caller knows when that changes.
    package var nextDeadline: Int64? { [nextExpiry, nextTask].compactMap { $0 }.min() }

    /// The part of ``nextDeadline`` for message expiries. A peer chooses these times.
    package var nextExpiry: Int64? { deadlines.nextMoment().flatMap { $0 > latestHide ? $0 : nil } }

    /// The next destruction of stored data: a message, an inbox by its fuse, a tombstone. A locked store knows no
    /// messages and gives the end of a bucket.
    package var nextDestruction: Int64? {
        let columns = pages.columns.headers.values.lazy
        let ends = [
            nextExpiry, columns.filter { [isLocked = isLocked] in isLocked || $0.tier == .fuse }.map(\.notAfter).min(),
            pages.tombstones.ends.min(),
        ]
        return ends.compactMap { $0 }.filter { $0 > latestHide }.min()
    }

    /// The rest of ``nextDeadline``.
    package var nextTask: Int64? {
        var next: Int64?
        func consider(_ moment: Int64) { if moment > latestHide { next = min(next ?? moment, moment) } }
        if let earliestEnd = pages.earliestEnd, earliestEnd > latestHide {
            consider(earliestEnd)
        } else if pages.earliestEnd != nil {
            for header in pages.columns.headers.values { consider(header.notAfter) }
            for moment in pages.tombstones.ends { consider(moment) }
            for moment in directories.lostEnds { consider(moment) }
        }
        if let nextScan { consider(nextScan) }
        for row in refusedRows {
            if let refusal = row.refusal { consider(max(refusal.end(at: latestHide), latestHide + 1)) }
        }
        if hasUnreadDue { consider(latestHide + 1) }
        if hasRemains { consider(latestHide + 1) }
        if pages.hasDoomed || commits.hasPendingErasures { consider(latestHide + Retry.interval) }
        if !isLocked, let checkpointAt = commits.checkpointAt { consider(max(checkpointAt, latestHide + 1)) }
        return next
    }

    // MARK: - Resting rows

    // Of an unused inbox, memory keeps only the earliest expiry of each segment.

    /// Frees the index, the open files and the loaded state of an inbox that goes to sleep. Later calls load them
    /// again. Expiry and destruction continue: the earliest expiry of each segment is kept.
    ///
    /// Data that is not durable stays in memory; a later ``reap(hide:destroy:)`` frees it.
    package func release(_ id: RowID) {
        guard !isLocked, let row = grid.rows[id] else { return }
        commits.absorb()
        row.isAsleep = true
        if !rest(row) { drowsyRows.insert(id) }
    }

    private func restDrowsyRows() {
        // Data that only the journal has keeps an inbox awake.
        if !drowsyRows.isEmpty, commits.hasUnwritten, !commits.isDeferred {
            let isWaiting = drowsyRows.contains { id in
                grid.rows[id].map { row in
                    row.isAsleep
                        && (row.segments.values.contains { $0.file.isUnwritten } || row.log?.file.isUnwritten ?? false)
                } ?? false
            }
            if isWaiting { commitUntold(withCheckpoint: true) }
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
        let files = row.segments.values.map(\.file) + [row.log?.file].compactMap { $0 }
        // Keep a row with a failed file in memory. Reopened, the file would accept appends although its sidecar may be
        // missing, and the next start would treat it as expired.
        guard files.allSatisfy({ !$0.isClosed && commits.isAtRest($0) }), row.halfMoved.isEmpty, !row.isRefused,
            !row.hasFailures, row.segments.values.allSatisfy({ !$0.withholds }),
            // A segment with due records is first read to its end, a part with each reap.
            row.segments.values.allSatisfy({ !$0.isProbed || $0.isIndexed || !$0.hasUnreadDue(latestHide) })
        else { return false }
        var resting: [Row.RestingSegment] = []
        for segment in row.segments.values {
            resting.append(
                Row.RestingSegment(id: segment.file.place.file, column: segment.column.slot, moment: segment.earliest))
            release(segment)
        }
        var log = row.log
        while let next = log {
            discard(next.file)
            log = next.previous
        }
        if row.isOpen {
            row.contents = .resting(resting)
            if let moment = row.restingMoment { deadlines.announce(row, moment) }
        }
        if row.refusal != nil { refusedRows.removeAll { $0 === row } }
        let lacksSegments = row.lacksSegments
        row.forgetContents()
        // The resting list omits the missing segments, and sidecars are not read again.
        if lacksSegments { row.lackSegment() }
        return true
    }

    /// Enters the segments of a resting row. Their records stay unread.
    func wake(_ row: Row) {
        guard case .resting(let resting) = row.contents else { return }
        row.contents = .open
        for part in resting {
            // The column has ended, and its segments with it.
            guard let column = grid.columns[part.column] else { continue }
            let sidecar = ExpirySidecar(
                segmentID: part.id.bytes, header: column.header, columnTag: column.tag, inboxTag: row.names.tag,
                key: row.names.sidecarKey.bytes)
            let segment = makeSegment(row: row, column: column, sidecar: sidecar)
            segment.earliest = part.moment
            enter(segment)
        }
        if row.isAsleep { drowsyRows.insert(row.id) }
    }

    /// Forgets resting segments whose buckets have ended, and queues their files for removal.
    private func dropResting(columns ended: Set<Int>) {
        guard !ended.isEmpty else { return }
        for row in grid.rows.values {
            guard case .resting(let resting) = row.contents, resting.contains(where: { ended.contains($0.column) })
            else { continue }
            for part in resting where ended.contains(part.column) {
                directories.discard(segment: Hex.encode(part.id.bytes), of: row.directoryOnce)
            }
            row.contents = .resting(resting.filter { !ended.contains($0.column) })
            if let moment = row.restingMoment { deadlines.announce(row, moment) }
        }
    }

    // MARK: - Refused rows

    private static let retryLimit = 128

    /// Retries the refused reads of a row, unless its retry pause is still running.
    func readAgain(_ row: Row) {
        guard row.isOpen, let refusal = row.refusal, refusal.end(at: latestHide) <= latestHide else { return }
        row.refusal?.goOn(at: latestHide)
        let isInUse = row.isProbed
        if !row.refusedSidecars.isEmpty, let directory = try? directories.open(row.directory) {
            defer { disk.close(directory) }
            for stem in row.refusedSidecars.sorted() { findSegment(stem + ".seg", stem, row, directory) }
        }
        for number in row.refusedSegments.sorted() {
            guard let segment = row.segments[number] else { continue }
            if segment.isProbed { readWhole(segment) } else { readTail(segment) }
        }
        if isInUse { probeSegments(of: row) }
        guard !row.isRefused else { return }
        row.refusal = nil
        row.erasedMeanwhile = []
        refusedRows.removeAll { $0 === row }
    }

    /// Due records are destroyed at their time, or as soon as the disk reads them. Expired segments are removed.
    func readRefusedRows() {
        let due = refusedRows.filter { $0.refusal.map { $0.end(at: latestHide) <= latestHide } ?? false }
        for row in due.prefix(Self.retryLimit) { readAgain(row) }
    }

    func noteRefused(_ row: Row) {
        guard row.refusal == nil else { return }
        row.refusal = Row.Refusal(at: latestHide)
        refusedRows.append(row)
    }

    // MARK: - Unknown rows

    private var hasUnknownRows: Bool { !unknownRows.isEmpty || grid.controlRow.map { !$0.isOpen } ?? false }

    /// When to read the next rows. After a scan in which every directory failed, the next one waits.
    private var nextScan: Int64? {
        guard hasUnknownRows, let firstColumnStart else { return nil }
        return max(firstColumnStart, latestHide + (scanFailed ? Retry.interval - 1 : 0)) + 1
    }

    private func scanUnknownRows(_ hide: Int64) {
        guard hasUnknownRows, let firstColumnStart, firstColumnStart < hide else { return }
        var failed: [RowID] = []
        var count = 0
        if let controlRow = grid.controlRow, !controlRow.isOpen { try? scan(controlRow) }
        while count < Self.scanLimit, let id = unknownRows.popFirst() {
            guard let row = grid.rows[id], case .unknown = row.contents else { continue }
            count += 1
            do throws(StoreError) { try scan(row) } catch { failed.append(id) }
            if row.isOpen, row.isAsleep { drowsyRows.insert(row.id) }
        }
        scanFailed = count > 0 && failed.count == count
        unknownRows.append(contentsOf: failed)
    }

    // MARK: - Destroyed inboxes

    // Memory and files are removed a little at a time, because their keys are already destroyed.

    package var hasRemains: Bool { !remains.isEmpty || directories.hasRemains }

    /// Removes a bounded number of files of destroyed inboxes and buckets. ``reap(hide:destroy:)`` calls it;
    /// ``nextDeadline`` says when more remain.
    /// - Parameter limit: in files.
    package func collect(limit: Int = Store.collectLimit) {
        guard !isReadOnly, !isClosed else { return }
        var budget = limit
        while budget > 0, hasRemains {
            if let next = remains.popFirst() {
                collect(next)
            } else {
                directories.collectNext(after: commits.committer)
            }
            budget -= 1
        }
    }

    private func collect(_ next: Remains) {
        var next = next
        let row = next.row
        while let log = row.log {
            discard(log.file)
            row.log = log.previous
        }
        if let segment = next.segments.popLast() {
            drop(segment)
            sweeper.free(segment.records.all)
            return remains.prepend(next)
        }
        sweeper.free(row.index)
        sweeper.free(row.timeline)
        row.forgetContents()
    }
}
