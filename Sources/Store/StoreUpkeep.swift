extension Store {
    /// Makes everything buffered before the call durable. Commits requested while one runs share the next one.
    ///
    /// - Parameter completion: called on the commit thread, or before the return with ``CommitThread/caller``. A
    ///   failure means that data buffered since the previous commit may not be on the disk, also if
    ///   ``reap(hide:destroy:)`` or ``lock()`` tried meanwhile. The messages concerned are no longer served and can be
    ///   appended again.
    package func commit(_ completion: @escaping @Sendable (Result<Void, StoreError>) -> Void) {
        services.commits.commit(now: services.latestHide, completion)
        services.openFiles.closeSurplus()
    }

    /// Runs the commits that wait for ``CommitThread/later(_:)`` now. Call before blocking on one.
    package func hurryCommits() { services.commits.committer.hurry() }

    // MARK: - Expiry

    /// Destroys due data. Idempotent. Works while locked, by the clear headers only, and on a full disk.
    ///
    /// Never throws, because part of the work may be done: ``ReapReport/failures`` has the errors.
    /// - Parameters:
    ///   - hide: data that expires at or before it is no longer served. Not monotonic: a wrong clock may be corrected.
    ///   - destroy: a confirmed time, at most `hide`: data that expires at or before it is destroyed for good.
    @discardableResult package func reap(hide: Int64, destroy: Int64) -> ReapReport {
        reaper.reap(hide: hide, destroy: destroy)
    }

    /// The next time a reap has work: an expiry, the end of a bucket or tombstone, a fuse, files to remove, or a retry.
    /// `nil` when there is none.
    ///
    /// Records that the last reap hid but was not allowed to destroy do not count: the caller knows when that changes.
    package var nextDeadline: Int64? { [nextExpiry, nextTask].compactMap { $0 }.min() }

    /// The part of ``nextDeadline`` for message expiries. A peer chooses these times.
    package var nextExpiry: Int64? { reaper.nextExpiry }

    /// The next destruction of stored data: a message, an inbox by its fuse, a tombstone. A locked store knows no
    /// messages and gives the end of a bucket.
    package var nextDestruction: Int64? { reaper.nextDestruction }

    /// The rest of ``nextDeadline``.
    package var nextTask: Int64? { reaper.nextTask }

    // MARK: - Destroyed inboxes

    package var hasRemains: Bool { destroyed.hasRemains }

    /// Removes a bounded number of files of destroyed inboxes and buckets. ``reap(hide:destroy:)`` calls it;
    /// ``nextDeadline`` says when more remain.
    /// - Parameter limit: in files.
    package func collect(limit: Int = Store.collectLimit) { destroyed.collect(limit: limit) }

    // MARK: - The disk

    /// A test write: makes a few pages durable in a temporary, already unlinked file.
    /// - Parameter byteCount: size of the next write.
    package func probe(for byteCount: Int = 0) throws(StoreError) {
        if isReadOnly || isClosed { throw .readOnly(path: services.home.path) }
        try services.home.probe(for: byteCount)
    }

    /// The latest time ever saved, in milliseconds since the epoch; zero at first.
    package func clockMark() -> Int64 { clock.value }

    /// Durable on return. A time before the mark is ignored.
    package func saveClockMark(_ milliseconds: Int64) throws(StoreError) {
        guard milliseconds <= Tier.times.upperBound else { throw .invalidArgument("time \(milliseconds)") }
        guard milliseconds > clock.value || clock.isInDoubt else { return }
        if isReadOnly || isClosed { throw .readOnly(path: services.home.path(ClockMark.name)) }
        try clock.save(max(milliseconds, clock.value))
    }
}
