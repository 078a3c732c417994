import DequeModule

/// What is left in memory and on the disk of inboxes that were destroyed. The key pages are gone before anything comes here:
/// memory and files are removed a little at a time, because nothing depends on when.
final class DestroyedRows {
    /// What is left in memory of one of them.
    private struct Remains {
        let row: Row
        var segments: [Segment]
    }

    /// How much ``collect(limit:)`` does by default, in files: a millisecond or two.
    static let collectLimit = 64

    private let services: StoreServices
    private let segments: SegmentTable
    private var remains: Deque<Remains> = []

    init(_ services: StoreServices, segments: SegmentTable) {
        self.services = services
        self.segments = segments
    }

    /// Whether there is something left to remove.
    var hasRemains: Bool { !remains.isEmpty || services.directories.hasRemains }

    /// Leaves the memory of a row whose keys are wiped.
    func append(_ row: Row) { remains.append(Remains(row: row, segments: row.orderedSegments)) }

    /// Removes a bounded part.
    /// - Parameter limit: how much, in files.
    func collect(limit: Int = collectLimit) {
        guard !services.isReadOnly, !services.isClosed else { return }
        var budget = limit
        while budget > 0, hasRemains {
            if let next = remains.popFirst() {
                collect(next)
            } else {
                services.directories.collectNext(after: services.commits.committer)
            }
            budget -= 1
        }
    }

    private func collect(_ next: Remains) {
        var next = next
        let row = next.row
        while let log = row.log {
            services.discard(log.file)
            row.log = log.previous
        }
        if let segment = next.segments.popLast() {
            segments.bury(segment)
            services.sweeper.free(segment.records.all)
            return remains.prepend(next)
        }
        services.sweeper.free(row.index)
        services.sweeper.free(row.timeline)
        row.forgetContents()
    }
}
