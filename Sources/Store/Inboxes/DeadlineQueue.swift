import Cryptography
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

struct Deadline: Comparable {
    let moment: Int64
    /// The segment's file number, or -1 - slot for a row.
    private let number: Int

    init(_ segment: Segment) {
        moment = segment.earliest
        number = segment.file.number
    }

    init(_ row: Row, _ moment: Int64) {
        self.moment = moment
        number = -1 - Int(row.id.slot)
    }

    var file: Int? { number >= 0 ? number : nil }
    var slot: UInt32 { UInt32(truncatingIfNeeded: -1 - number) }

    static func < (left: Deadline, right: Deadline) -> Bool {
        (left.moment, left.number) < (right.moment, right.number)
    }
}

package struct ReapReport: Sendable {
    package struct Expired: Equatable, Sendable {
        package let row: RowID
        package let id: Bytes16
    }

    /// Messages no longer served since this reap, in order of expiry. Hidden records are not included.
    package internal(set) var expired: [Expired] = []
    /// Records handed to the reap's commit for overwriting.
    package internal(set) var recordsOverwritten = 0
    package internal(set) var columnsDestroyed = 0
    /// Inboxes whose fuse was due. Empty while the store is locked: then only the count is known.
    package internal(set) var rows: [RowID] = []
    package internal(set) var rowsDestroyed = 0
    package internal(set) var tombstonesDestroyed = 0
    /// Failed destructions, which the next reap retries. Until then due data still exists.
    package internal(set) var failures: [StoreError] = []
}
