import Crypto

/// Order: stop serving due records, wipe keys, overwrite pages and read them back, remove files.
final class Reaper {
    private static let dueByteCount = 4 << 20

    private let services: StoreServices
    private let pages: KeyPages
    private let grid: Grid
    private let deadlines: DeadlineQueue
    private let segments: SegmentTable
    private let refused: RefusedRows
    private let olderVersions: OlderVersions
    private let reader: SegmentReader
    private let resting: RestingRows
    private let index: InboxIndex
    private let unread: UnreadDirectories
    private let destroyed: DestroyedRows
    private let rows: RowLifecycle
    /// A reap left segments that may have due records.
    private var hasUnreadDue = false

    init(
        _ services: StoreServices, pages: KeyPages, grid: Grid, deadlines: DeadlineQueue, segments: SegmentTable,
        refused: RefusedRows, olderVersions: OlderVersions, reader: SegmentReader, resting: RestingRows,
        index: InboxIndex, unread: UnreadDirectories, destroyed: DestroyedRows, rows: RowLifecycle
    ) {
        self.services = services
        self.pages = pages
        self.grid = grid
        self.deadlines = deadlines
        self.segments = segments
        self.refused = refused
        self.olderVersions = olderVersions
        self.reader = reader
        self.resting = resting
        self.index = index
        self.unread = unread
        self.destroyed = destroyed
        self.rows = rows
    }

    func reap(hide: Int64, destroy: Int64) -> ReapReport {
        var report = ReapReport()
        guard !services.isClosed else { return report }
        services.latestHide = hide
        let destroy = min(hide, destroy)
        services.commits.absorb()
        reapMessages(hide, destroy, &report)
        guard !services.isReadOnly else {
            if pages.hasOverdue(at: destroy) { report.failures.append(.overdueOnReadOnly(path: services.home.path)) }
            return report
        }
        if let earliestEnd = pages.earliestEnd, earliestEnd <= destroy { reapPages(destroy, &report) }
        let failures = pages.destroyDoomed() + pages.tombstones.destroyDoomed()
        if !failures.isEmpty {
            // Count only pages that were read back.
            report.tombstonesDestroyed = max(0, report.tombstonesDestroyed - pages.tombstones.doomedCount)
            report.columnsDestroyed = max(0, report.columnsDestroyed - pages.doomedColumnCount)
        }
        report.failures += failures
        commitOverdue(report)
        report.failures += services.commits.erasureErrors
        resting.restDrowsyRows()
        destroyed.collect()
        return report
    }

    private func reapPages(_ destroy: Int64, _ report: inout ReapReport) {
        reapFuses(destroy, &report)
        reapColumns(destroy, &report)
        report.tombstonesDestroyed += pages.tombstones.reap(destroy)
        services.directories.reapLost(destroy)
        pages.settleEnds()
    }

    // MARK: - Messages

    private func reapMessages(_ hide: Int64, _ destroy: Int64, _ report: inout ReapReport) {
        guard !services.isLocked else { return }
        unread.scan(hide)
        index.readRefusedRows()
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
                budget -= reader.readDue(of: segment)
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
            case .row(let row): resting.open(row)
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
        if segment.expiry(of: position) > destroy || services.isReadOnly { return segment.withhold(position) }
        if let place = segment.row.index[record.id], Int(place.file) == segment.file.number, place.record == position {
            segment.row.removeFromIndex(record.id)
        }
        // A bucket that ends now needs no overwriting: its key is destroyed.
        guard segment.column.header.notAfter > destroy else { return }
        segments.overwrite(segment, position, .due)
        report.recordsOverwritten += 1
    }

    /// Commits this reap's erasures, retries of earlier ones, and a due checkpoint.
    private func commitOverdue(_ report: ReapReport) {
        guard !services.isLocked else { return }
        let commits = services.commits
        let hasCheckpoint = commits.isDue(services.latestHide)
        let isRetry = commits.hasPendingErasures
        if isRetry { commits.retryErasures() }
        guard
            isRetry || hasCheckpoint
                || commits.hasChanges && (report.recordsOverwritten > 0 || olderVersions.areWaiting)
        else { return }
        olderVersions.areWaiting = false
        services.commitUntold(withCheckpoint: hasCheckpoint)
    }

    // MARK: - Pages

    private func reapFuses(_ destroy: Int64, _ report: inout ReapReport) {
        for slot in pages.columns.headers.keys.sorted() {
            guard let header = pages.columns.headers[slot], header.tier == .fuse, header.notAfter <= destroy else {
                continue
            }
            do throws(StoreError) {
                if let row = try grid.row(of: header) {
                    try rows.destroy(row.id)
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
                for segment in dead { segments.bury(segment) }
                grid.remove(column)
                tags.append(column.tag)
            }
            pages.columns.end(slot)
            report.columnsDestroyed += 1
            report.failures += pages.destroyDoomed(only: DoomedPage(file: .columns, slot: slot))
            for segment in dead where !segment.row.isGone {
                services.directories.discard(
                    segment: Hex.encode(segment.file.place.file.bytes), of: segment.file.place.directoryName)
            }
        }
        if !tags.isEmpty { services.commits.ended(columns: tags) }
        resting.dropResting(columns: ended)
    }

    // MARK: - The next reap

    var nextExpiry: Int64? { deadlines.nextMoment().flatMap { $0 > services.latestHide ? $0 : nil } }

    var nextDestruction: Int64? {
        let columns = pages.columns.headers.values.lazy
        let ends = [
            nextExpiry,
            columns.filter { [isLocked = services.isLocked] in isLocked || $0.tier == .fuse }.map(\.notAfter).min(),
            pages.tombstones.ends.min(),
        ]
        return ends.compactMap { $0 }.filter { $0 > services.latestHide }.min()
    }

    var nextTask: Int64? {
        var next: Int64?
        func consider(_ moment: Int64) { if moment > services.latestHide { next = min(next ?? moment, moment) } }
        if let earliestEnd = pages.earliestEnd, earliestEnd > services.latestHide {
            consider(earliestEnd)
        } else if pages.earliestEnd != nil {
            for header in pages.columns.headers.values { consider(header.notAfter) }
            for moment in pages.tombstones.ends { consider(moment) }
            for moment in services.directories.lostEnds { consider(moment) }
        }
        if let nextScan = unread.nextScan { consider(nextScan) }
        for row in refused.all {
            if let refusal = row.refusal {
                consider(max(refusal.end(at: services.latestHide), services.latestHide + 1))
            }
        }
        if hasUnreadDue { consider(services.latestHide + 1) }
        if destroyed.hasRemains { consider(services.latestHide + 1) }
        if pages.hasDoomed || services.commits.hasPendingErasures { consider(services.latestHide + Retry.interval) }
        if !services.isLocked, let checkpointAt = services.commits.checkpointAt {
            consider(max(checkpointAt, services.latestHide + 1))
        }
        return next
    }
}
