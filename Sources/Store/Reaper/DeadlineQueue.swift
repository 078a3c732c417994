import HeapModule

/// Segments, and rows at rest, by their next expiry. An entry that is out of date is skipped.
final class DeadlineQueue {
    /// So many entries may be out of date, and as many as are not.
    static let staleLimit = 1_024

    private let grid: Grid
    private var deadlines = Heap<Deadline>()
    /// Segments with records that expired, are hidden, and are not yet to be destroyed.
    private var withholding: Set<Int> = []

    init(grid: Grid) { self.grid = grid }

    /// Entries, with what is out of date.
    var count: Int { deadlines.count }

    /// Enters a segment's earliest expiry, unless it is there.
    func announce(_ segment: Segment) {
        guard segment.earliest < segment.announced else { return }
        segment.announced = segment.earliest
        enter(Deadline(segment))
    }

    func announce(_ row: Row, _ moment: Int64) { enter(Deadline(row, moment)) }

    private func enter(_ deadline: Deadline) {
        deadlines.insert(deadline)
        if count > 2 * (grid.segments.count + grid.rows.count) + Self.staleLimit { sweep() }
    }

    /// Makes the queue anew: an inbox that wakes and sleeps leaves entries that are out of date, and may lie there for as
    /// long as a message may live.
    private func sweep() {
        var current: [Deadline] = []
        for segment in grid.segments.values where !segment.row.isGone {
            segment.announced = segment.earliest
            if segment.earliest < .max { current.append(Deadline(segment)) }
        }
        for row in grid.rows.values { if let moment = row.restingMoment { current.append(Deadline(row, moment)) } }
        deadlines = Heap(current)
    }

    private func isValid(_ deadline: Deadline) -> Bool {
        if let file = deadline.file {
            guard let segment = grid.segments[file], !segment.row.isGone else { return false }
            return segment.announced == deadline.moment
        }
        return grid.rowOfSlot[deadline.slot]?.restingMoment == deadline.moment
    }

    /// The first that is not out of date.
    func nextMoment() -> Int64? {
        while let next = deadlines.min {
            if isValid(next) { return next.moment }
            deadlines.removeMin()
        }
        return nil
    }

    enum Due {
        case segment(Segment)
        /// A row at rest, to be opened.
        case row(Row)
    }

    /// Takes the next segment with a record that expires at or before `moment`, or the row at rest that has one.
    func takeDue(_ moment: Int64) -> Due? {
        while let next = deadlines.min, next.moment <= moment {
            deadlines.removeMin()
            guard isValid(next) else { continue }
            if let file = next.file, let segment = grid.segments[file] {
                segment.announced = .max
                if segment.earliest <= moment { return .segment(segment) }
                announce(segment)
            } else if let row = grid.rowOfSlot[next.slot] {
                return .row(row)
            }
        }
        return nil
    }

    // MARK: - Withheld records

    func noteWithholding(_ segment: Segment) { withholding.insert(segment.file.number) }
    func forgetWithholding(_ segment: Segment) { withholding.remove(segment.file.number) }

    /// What was withheld is due once more.
    func reconsiderWithheld() {
        for number in withholding.sorted() {
            guard let segment = grid.segments[number] else { continue }
            segment.reconsider()
            announce(segment)
        }
        withholding = []
    }

    /// The store is locked.
    func end() {
        deadlines = []
        withholding = []
    }
}
