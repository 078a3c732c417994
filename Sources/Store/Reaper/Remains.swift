import Crypto
import DequeModule

/// What is left in memory of an inbox that was destroyed.
struct RowRemains {
    let row: Row
    var segments: [Segment]
}

/// The lazy half of destroying. The key pages are gone before anything comes here: memory and files are removed a little at
/// a time, because nothing depends on when.
extension Store {
    /// Whether there is something left to remove.
    package var hasRemains: Bool { !remains.isEmpty || directories.hasRemains }

    /// Removes a bounded part of what destroyed inboxes and buckets have left behind. ``reap(hide:destroy:)`` calls it;
    /// ``nextDeadline`` says when there is more.
    /// - Parameter limit: how much, in files.
    package func collect(limit: Int = Store.collectLimit) {
        guard !isReadOnly, !isClosed else { return }
        var budget = limit
        while budget > 0, hasRemains {
            if let next = remains.popFirst() { collect(next) } else { directories.collectNext() }
            budget -= 1
        }
    }

    private func collect(_ next: RowRemains) {
        var next = next
        let row = next.row
        while let log = row.log {
            discard(log.file)
            row.log = log.previous
        }
        if let segment = next.segments.popLast() {
            bury(segment)
            sweeper.free(segment.records.all)
            return remains.prepend(next)
        }
        sweeper.free(row.index)
        sweeper.free(row.timeline)
        row.forgetContents()
    }

    /// Looks at the names in `inboxes`, once.
    /// - Parameter isComplete: every row page could be read, so that a directory without one has none.
    func sortDirectories(isComplete: Bool) {
        var known = Set(rows.values.map(\.directoryOnce))
        if let controlRow { known.insert(controlRow.directory) }
        // Their pages are still to be destroyed, and then they are.
        known.formUnion(doomedDirectories.values)
        directories.sort(known: known, isComplete: isComplete, burntCount: burntSlots.count, now: latestHide)
        if isComplete { settleAbandoned() }
        settlePageEnds()
    }
}
