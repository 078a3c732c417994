import Crypto
import HeapModule

extension Store {
    /// The next moment at which a reap has something to do: a message's expiry, the end of a bucket, a fuse, a
    /// tombstone's end, files that are still to be removed, another attempt at what failed. `nil` when there is nothing.
    ///
    /// What the last reap hid and was not allowed to destroy does not count: who withheld the permission knows when to
    /// come back.
    package var nextDeadline: Int64? { [nextExpiry, nextTask].compactMap { $0 }.min() }

    /// Of ``nextDeadline``: when a message expires. A peer chooses these moments.
    package var nextExpiry: Int64? { nextRecordDeadline.flatMap { $0 > latestHide ? $0 : nil } }

    /// Of ``nextDeadline``: everything else.
    package var nextTask: Int64? {
        var next: Int64?
        func consider(_ moment: Int64) {
            if moment > latestHide { next = min(next ?? moment, moment) }
        }
        if let earliestPage, earliestPage > latestHide {
            consider(earliestPage)
        } else if earliestPage != nil {
            for header in headers.values { consider(header.notAfter) }
            for moment in tombstoneTable.ends { consider(moment) }
            for moment in directories.lostEnds { consider(moment) }
        }
        if hasUnknownRows, let firstColumnStart {
            // A scan in which every directory failed is not repeated at once.
            consider(max(firstColumnStart, latestHide + (scanFailed ? Retry.interval - 1 : 0)) + 1)
        }
        for row in refusedRows {
            if let refusal = row.refusal { consider(max(refusal.end(at: latestHide), latestHide + 1)) }
        }
        if hasUnreadDue { consider(latestHide + 1) }
        if hasRemains { consider(latestHide + 1) }
        if !doomedPages.isEmpty || tombstoneTable.doomedCount > 0 || commits.hasPendingErasures {
            consider(latestHide + Retry.interval)
        }
        if !isLocked, let checkpointAt = commits.checkpointAt { consider(max(checkpointAt, latestHide + 1)) }
        return next
    }

    /// The earliest end of a page, due or not.
    func notePageEnd(_ moment: Int64) { earliestPage = min(earliestPage ?? moment, moment) }

    /// Finds the earliest end of a page again.
    func settlePageEnds() {
        let ends = [headers.values.lazy.map(\.notAfter).min(), tombstoneTable.ends.min(), directories.lostEnds.min()]
        earliestPage = ends.compactMap { $0 }.min()
    }

    // MARK: - Records

    /// Enters a segment's earliest expiry in the queue, unless it is there.
    func announce(_ segment: Segment) {
        guard segment.earliest < segment.announced else { return }
        segment.announced = segment.earliest
        enter(Deadline(segment))
    }

    func announce(_ row: Row, _ moment: Int64) { enter(Deadline(row, moment)) }

    /// Of the queue, with what is out of date.
    var deadlineCount: Int { deadlines.count }

    private func enter(_ deadline: Deadline) {
        deadlines.insert(deadline)
        if deadlineCount > 2 * (segments.count + rows.count) + Self.staleDeadlineLimit { sweepDeadlines() }
    }

    /// Makes the queue anew: an inbox that wakes and sleeps leaves entries that are out of date, and may lie there for as
    /// long as a message may live.
    private func sweepDeadlines() {
        var current: [Deadline] = []
        for segment in segments.values where !segment.row.isGone {
            segment.announced = segment.earliest
            if segment.earliest < .max { current.append(Deadline(segment)) }
        }
        for row in rows.values {
            if let moment = row.restingMoment { current.append(Deadline(row, moment)) }
        }
        deadlines = Heap(current)
    }

    private func isValid(_ deadline: Deadline) -> Bool {
        if let file = deadline.file {
            guard let segment = segments[file], !segment.row.isGone else { return false }
            return segment.announced == deadline.moment
        }
        return rowOfSlot[deadline.slot]?.restingMoment == deadline.moment
    }

    private var nextRecordDeadline: Int64? {
        while let next = deadlines.min {
            if isValid(next) { return next.moment }
            deadlines.removeMin()
        }
        return nil
    }

    /// Takes the next segment with a record that expires at or before `moment`; a row at rest is opened for it.
    func takeDueSegment(_ moment: Int64) -> Segment? {
        while let next = deadlines.min, next.moment <= moment {
            deadlines.removeMin()
            guard isValid(next) else { continue }
            if let file = next.file, let segment = segments[file] {
                segment.announced = .max
                if segment.earliest <= moment { return segment }
                announce(segment)
            } else if let row = rowOfSlot[next.slot] {
                open(row)
            }
        }
        return nil
    }
}
