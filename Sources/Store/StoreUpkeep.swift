/// Commits, expiry and the clock.
extension Store {
    /// Makes everything buffered before the call durable. Commits that are asked for while one runs share the next.
    ///
    /// - Parameter completion: on the commit thread (or before this returns, with ``CommitThread/caller``). A failure
    ///   says that something buffered since the commit before may not be on the disk, also when ``reap(hide:destroy:)``
    ///   or ``lock()`` has tried meanwhile; the messages concerned are no longer served and can be appended again.
    package func commit(_ completion: @escaping @Sendable (Result<Void, StoreError>) -> Void) {
        services.commits.commit(now: services.latestHide, completion)
        services.openFiles.closeSurplus()
    }

    /// Does the commits that wait for ``CommitThread/later(_:)`` now. To be called before blocking for one.
    package func hurryCommits() { services.commits.committer.hurry() }

    // MARK: - Expiry

    /// Destroys what is due. Idempotent, and works locked (by the clear headers only) and on a full disk.
    ///
    /// Never throws, because half of it may have happened: what failed is in ``ReapReport/failures``.
    /// - Parameters:
    ///   - hide: what expires at or before it is not served any more. Not monotonic: a clock that was wrong may be
    ///     corrected.
    ///   - destroy: at most `hide`, a confirmed time: what expires at or before it is destroyed for good.
    @discardableResult package func reap(hide: Int64, destroy: Int64) -> ReapReport {
        reaper.reap(hide: hide, destroy: destroy)
    }

    /// The next moment at which a reap has something to do: a message's expiry, the end of a bucket, a fuse, a
    /// tombstone's end, files that are still to be removed, another attempt at what failed. `nil` when there is nothing.
    ///
    /// What the last reap hid and was not allowed to destroy does not count: who withheld the permission knows when to
    /// come back.
    package var nextDeadline: Int64? { [nextExpiry, nextTask].compactMap { $0 }.min() }

    /// Of ``nextDeadline``: when a message expires. A peer chooses these moments.
    package var nextExpiry: Int64? { reaper.nextExpiry }

    /// When something that is kept is destroyed next: a message, an inbox by its fuse, a tombstone. A locked store knows no
    /// message, and gives the end of a bucket.
    package var nextDestruction: Int64? { reaper.nextDestruction }

    /// Of ``nextDeadline``: everything else.
    package var nextTask: Int64? { reaper.nextTask }

    // MARK: - What was destroyed

    /// Whether there is something left to remove.
    package var hasRemains: Bool { destroyed.hasRemains }

    /// Removes a bounded part of what destroyed inboxes and buckets have left behind. ``reap(hide:destroy:)`` calls it;
    /// ``nextDeadline`` says when there is more.
    /// - Parameter limit: how much, in files.
    package func collect(limit: Int = Store.collectLimit) { destroyed.collect(limit: limit) }

    // MARK: - The disk

    /// Makes a few pages durable in a file without a name, which is gone at once.
    /// - Parameter byteCount: what is to be written next takes so many bytes.
    package func probe(for byteCount: Int = 0) throws(StoreError) {
        if isReadOnly || isClosed { throw .readOnly(path: services.home.path) }
        try services.home.probe(for: byteCount)
    }

    /// The latest time ever saved, in milliseconds since the epoch; zero at first.
    package func clockMark() -> Int64 { clock.value }

    /// Durable when this returns. A time before the mark is ignored.
    package func saveClockMark(_ milliseconds: Int64) throws(StoreError) {
        guard milliseconds <= Tier.times.upperBound else { throw .invalidArgument("time \(milliseconds)") }
        guard milliseconds > clock.value || clock.isInDoubt else { return }
        if isReadOnly || isClosed { throw .readOnly(path: services.home.path(ClockMark.name)) }
        try clock.save(max(milliseconds, clock.value))
    }
}
