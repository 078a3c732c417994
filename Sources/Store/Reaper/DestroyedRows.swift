import DequeModule

/// Memory and files of destroyed inboxes, removed a little at a time, because their keys are already destroyed.
final class DestroyedRows {
    private struct Remains {
        let row: Row
        var segments: [Segment]
    }

    /// Default limit of ``collect(limit:)``, in files: a millisecond or two.
    static let collectLimit = 64

    private let services: StoreServices
    private let segments: SegmentTable
    private var remains: Deque<Remains> = []

    init(_ services: StoreServices, segments: SegmentTable) {
        self.services = services
        self.segments = segments
    }

    var hasRemains: Bool { !remains.isEmpty || services.directories.hasRemains }

    func append(_ row: Row) { remains.append(Remains(row: row, segments: row.orderedSegments)) }

    /// - Parameter limit: in files.
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
