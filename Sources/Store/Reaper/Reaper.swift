import Crypto
import Glibc
import HeapModule

/// Expiry: first nothing due is served, then keys leave memory, pages are overwritten and read back, and files go last.
extension Store {
    /// Destroys what is due. Idempotent, and works locked (by the clear headers only) and on a full disk.
    ///
    /// Never throws, because half of it may have happened: what failed is in ``ReapReport/failures``.
    /// - Parameters:
    ///   - hide: what expires at or before it is not served any more. Not monotonic: a clock that was wrong may be
    ///     corrected.
    ///   - destroy: at most `hide`, a confirmed time: what expires at or before it is destroyed for good.
    @discardableResult
    package func reap(hide: Int64, destroy: Int64) -> ReapReport {
        var report = ReapReport()
        guard !isClosed else { return report }
        latestHide = hide
        let destroy = min(hide, destroy)
        commits.absorb()
        reapMessages(hide, destroy, &report)
        guard !isReadOnly else {
            if hasOverduePages(at: destroy) { report.failures.append(.overdueOnReadOnly(path: home.path)) }
            return report
        }
        if let earliestPage, earliestPage <= destroy { reapPages(destroy, &report) }
        let failures = destroyDoomedPages() + tombstoneTable.destroyDoomed()
        if !failures.isEmpty {
            // Only pages that were read back count.
            report.tombstonesDestroyed = max(0, report.tombstonesDestroyed - tombstoneTable.doomedCount)
            let columnsLeft = doomedPages.count { $0.file == .columns }
            report.columnsDestroyed = max(0, report.columnsDestroyed - columnsLeft)
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
        report.tombstonesDestroyed += tombstoneTable.reap(destroy)
        directories.reapLost(destroy)
        settlePageEnds()
    }

    // MARK: - Messages

    private func reapMessages(_ hide: Int64, _ destroy: Int64, _ report: inout ReapReport) {
        guard !isLocked else { return }
        scanNextRows(hide)
        readRefusedRows()
        for number in withholding.sorted() {
            guard let segment = segments[number] else { continue }
            segment.reconsider()
            announce(segment)
        }
        withholding = []
        var expired: [(moment: Int64, segment: Int, position: Int, ReapReport.Expired)] = []
        var budget = Self.dueByteCount
        hasUnreadDue = false
        while let segment = takeDueSegment(hide) {
            if segment.hasUnreadDue(hide), !segment.row.refusedSegments.contains(segment.file.number) {
                if budget <= 0 {
                    // The next reap goes on; what is due is hidden meanwhile.
                    hasUnreadDue = true
                    announce(segment)
                    break
                }
                budget -= readDue(of: segment)
                announce(segment)
                continue
            }
            while let position = segment.takeDue(hide) {
                reap(segment, position, destroy, &report) { message in
                    expired.append((segment.expiry(of: position), segment.file.number, position, message))
                }
            }
            if segment.withholds { withholding.insert(segment.file.number) }
            announce(segment)
        }
        report.expired += expired.sorted { ($0.moment, $0.segment, $0.position) < ($1.moment, $1.segment, $1.position) }
            .map(\.3)
    }

    private func reap(
        _ segment: Segment,
        _ position: Int,
        _ destroy: Int64,
        _ report: inout ReapReport,
        _ tell: (ReapReport.Expired) -> Void
    ) {
        let record = segment.records[position]
        guard record.state != .erased else { return }
        if record.state == .live, !record.isReported {
            segment.records[position].isReported = true
            if segment.row !== controlRow, record.isListed {
                tell(ReapReport.Expired(row: segment.row.id, id: record.id))
            }
        }
        if segment.expiry(of: position) > destroy || isReadOnly { return segment.withhold(position) }
        if let place = segment.row.index[record.id], Int(place.file) == segment.file.number, place.record == position {
            segment.row.removeFromIndex(record.id)
        }
        // A bucket that ends now needs no overwriting: its key goes.
        guard segment.column.header.notAfter > destroy else { return }
        overwrite(segment, position, .due)
        report.recordsOverwritten += 1
    }

    /// What this reap has overwritten, what an earlier one could not, and the journal when its time has come.
    private func commitOverdue(_ report: ReapReport) {
        guard !isLocked else { return }
        let hasCheckpoint = commits.isDue(latestHide)
        let isRetry = commits.hasPendingErasures
        if isRetry { commits.retryErasures() }
        guard isRetry || hasCheckpoint || commits.hasChanges && (report.recordsOverwritten > 0 || movesAreWaiting)
        else { return }
        movesAreWaiting = false
        commitUntold(withCheckpoint: hasCheckpoint)
    }

    // MARK: - Pages

    private func reapFuses(_ destroy: Int64, _ report: inout ReapReport) {
        for slot in headers.keys.sorted() {
            guard let header = headers[slot], header.tier == .fuse, header.notAfter <= destroy else { continue }
            do throws(StoreError) {
                if let row = try row(of: header) {
                    try destroyRow(row.id)
                    report.rows.append(row.id)
                    report.rowsDestroyed += 1
                } else {
                    let page = Int(header.rowSlot)
                    // The page that the fuse was made for, and not one that has its slot now.
                    if page < rowFile.pageCount, KeyPage.fingerprint(try rowFile.read(page)) == header.rowFingerprint {
                        try destroyPage(ofRow: page, directory: doomedDirectories[page])
                        doomedPages.removeAll { $0 == DoomedPage(file: .rows, slot: page) }
                        if let directory = doomedDirectories.removeValue(forKey: page) {
                            directories.abandon(directory)
                        }
                        reserve(page)
                        report.rowsDestroyed += 1
                    }
                }
                headers[slot] = nil
                doom(.columns, slot)
            } catch {
                // The fuse stays lit.
                report.failures.append(error)
            }
        }
    }

    private func reapColumns(_ destroy: Int64, _ report: inout ReapReport) {
        var ended: Set<Int> = []
        for slot in headers.keys.sorted() {
            guard let header = headers[slot], header.tier != .fuse, header.notAfter <= destroy else { continue }
            ended.insert(slot)
            var dead: [Segment] = []
            if let column = columns[slot] {
                dead = column.segments.sorted { $0.key < $1.key }.map(\.value)
                for segment in dead { bury(segment) }
                columns[slot] = nil
                columnOfTag[column.tag] = nil
                let key = BucketKey(tier: header.tier, bucket: header.bucket)
                if columnOfBucket[key] === column { columnOfBucket[key] = nil }
            }
            headers[slot] = nil
            doom(.columns, slot)
            report.columnsDestroyed += 1
            report.failures += destroyDoomedPages(only: DoomedPage(file: .columns, slot: slot))
            for segment in dead where !segment.row.isGone {
                directories.discard(
                    segment: Hex.encode(segment.file.place.file.bytes),
                    of: segment.file.place.directoryName
                )
            }
        }
        dropResting(columns: ended)
    }

    /// Marks a page for destruction; nothing is served from it from here on.
    func doom(_ file: DoomedPage.File, _ slot: Int) {
        let page = DoomedPage(file: file, slot: slot)
        if !doomedPages.contains(page) { doomedPages.append(page) }
        switch file {
        case .rows: rowSlots[slot] = .unreadable
        case .columns: columnSlots[slot] = .unreadable
        }
    }

    /// Overwrites and reads back what is marked.
    /// - Returns: the failures; those pages stay marked.
    func destroyDoomedPages(only: DoomedPage? = nil) -> [StoreError] {
        guard !isReadOnly else { return [] }
        var failures: [StoreError] = []
        for page in doomedPages where only == nil || page == only {
            do throws(StoreError) {
                switch page.file {
                case .rows:
                    let directory = doomedDirectories[page.slot]
                    try destroyPage(ofRow: page.slot, directory: directory)
                    reserve(page.slot)
                    doomedDirectories[page.slot] = nil
                    if let directory { directories.abandon(directory) }
                case .columns:
                    try destroyColumnPage(page.slot)
                    columnSlots[page.slot] = .free
                }
                doomedPages.removeAll { $0 == page }
            } catch {
                report("a page waits for its destruction: \(error)")
                failures.append(error)
            }
        }
        return failures
    }

    /// Whether a page exists that should not, by the clear headers.
    func hasOverduePages(at moment: Int64) -> Bool {
        headers.values.contains { $0.notAfter <= moment } || tombstoneTable.ends.contains { $0 <= moment }
            || !doomedPages.isEmpty || tombstoneTable.doomedCount > 0
    }
}
