extension Store {
    /// Makes everything buffered before the call durable. Commits that are asked for while one runs share the next.
    ///
    /// - Parameter completion: on the commit thread (or before this returns, with ``CommitThread/caller``). A failure
    ///   says that something buffered since the commit before may not be on the disk, also when ``reap(hide:destroy:)``
    ///   or ``lock()`` has tried meanwhile; the messages concerned are no longer served and can be appended again.
    package func commit(_ completion: @escaping @Sendable (Result<Void, StoreError>) -> Void) {
        commits.commit(now: latestHide, completion)
        openFiles.closeSurplus()
    }

    /// The same for the store's own sake. It takes along what others have buffered, so a failure is told to their commit,
    /// the next one.
    func commitUntold(withCheckpoint: Bool = false) {
        commits.commit(now: latestHide, withCheckpoint: withCheckpoint, nil)
    }

    /// Does the commits that wait for ``CommitThread/later(_:)`` now. To be called before blocking for one.
    package func hurryCommits() { commits.committer.hurry() }

    /// Drops a file nobody will read again: what is buffered is forgotten.
    func discard(_ file: RecordFile) {
        commits.forget(file)
        openFiles.close(file)
    }

    /// Takes a segment out of service, keys and all; the file stays for whoever removes it.
    func bury(_ segment: Segment) {
        guard !segment.isDead else { return }
        segment.isDead = true
        discard(segment.file)
        let number = segment.file.number
        if !segment.row.isGone {
            segment.row.removeStatuses(of: segment)
            for record in segment.records.all where record.kind != .status {
                guard let place = segment.row.index[record.id], Int(place.file) == number else { continue }
                segment.row.removeFromIndex(record.id)
            }
        }
        segments[number] = nil
        segment.row.segments[number] = nil
        segment.row.noteRead(segment: number)
        withholding.remove(number)
        if segment.row.appending[segment.column.slot] === segment {
            segment.row.appending[segment.column.slot] = nil
        }
        if segment.row.lastAppended === segment { segment.row.lastAppended = nil }
        segment.column.segments[number] = nil
    }
}
