import HeapModule

/// Segments and resting rows by their next expiry. Stale entries are skipped.
final class DeadlineQueue {
    /// Stale entries allowed, besides one for each valid entry.
    static let staleLimit = 1_024

    private let grid: Grid
    private var deadlines = Heap<Deadline>()
    /// Segments with records that are expired and hidden but must not be destroyed yet.
    private var withholding: Set<Int> = []

    init(grid: Grid) { self.grid = grid }

    /// Includes stale entries.
    var count: Int { deadlines.count }

    /// Enqueues a segment's earliest expiry, unless that or an earlier one is enqueued.
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

    /// Rebuilds the queue: sleeping inboxes leave stale entries for as long as a message may live.
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

    func nextMoment() -> Int64? {
        while let next = deadlines.min {
            if isValid(next) { return next.moment }
            deadlines.removeMin()
        }
        return nil
    }

    enum Due {
        case segment(Segment)
        case row(Row)
    }

    /// Takes the next segment or resting row with a record that expires at or before `moment`.
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

    func reconsiderWithheld() {
        for number in withholding.sorted() {
            guard let segment = grid.segments[number] else { continue }
            segment.reconsider()
            announce(segment)
        }
        withholding = []
    }

    func end() {
        deadlines = []
        withholding = []
    }
}
