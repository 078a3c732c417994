import Crypto

extension Store {
    /// Creates an inbox. Its key page is durable on return.
    ///
    /// After a crash before the return, ``liveRows()`` may include the row, without a state.
    package func createRow() throws(StoreError) -> RowID { try rows.create() }

    /// In slot order.
    package func liveRows() -> [RowID] { grid.rows.keys.sorted() }

    package func secret(_ id: RowID, label: String) throws(StoreError) -> SecretBytes {
        try grid.row(id).derive(label: label)
    }

    /// Derives a secret of the inbox and of the bucket for this tier and expiry. Overwriting either page loses it.
    /// - Parameters:
    ///   - expiresAt: milliseconds since the epoch.
    ///   - isMade: creates a missing bucket; its page is durable on return.
    /// - Returns: `nil` for a bucket that does not exist.
    package func secret(_ id: RowID, tier: Tier, expiresAt: Int64, label: String, isMade: Bool) throws(StoreError)
        -> SecretBytes?
    {
        guard tier != .fuse, tier != .control else { throw .invalidArgument("tier for a secret") }
        guard Tier.times.contains(expiresAt) else { throw .invalidArgument("time \(expiresAt)") }
        let row = try grid.row(id)
        let column =
            isMade ? try grid.column(tier, expiresAt: expiresAt) : try grid.existingColumn(tier, expiresAt: expiresAt)
        return column.map { row.derive(label: label, with: $0.secret) }
    }

    /// Overwrites the inbox's key page and reads it back, which makes everything under it unreadable. Takes the same
    /// time for any inbox: ``collect(limit:)`` removes memory and files.
    ///
    /// Also works while locked, for the rows that were live at the lock.
    /// - Throws: when the page may still exist. The row serves no data any more, and ``reap(hide:destroy:)`` retries.
    package func destroyRow(_ id: RowID) throws(StoreError) { try rows.destroy(id) }

    /// Schedules the row's destruction, which needs no passphrase, at a time in milliseconds. The earliest time wins.
    package func scheduleDestruction(of id: RowID, at moment: Int64) throws(StoreError) {
        try rows.scheduleDestruction(of: id, at: moment)
    }

    package func scheduledDestruction(of id: RowID) -> Int64? { grid.rows[id]?.fuse }

    /// Whether the inbox ever stored anything: a state, readable or not, or a message. An empty directory does not
    /// count, because the first commit may have been interrupted. A directory that was set aside counts.
    /// - Throws: when this cannot be determined.
    package func isUsed(_ id: RowID) throws(StoreError) -> Bool { try states.isUsed(id) }

    // MARK: - States

    /// Replaces the inbox's state; durable when a later commit completes.
    package func saveState(_ id: RowID, _ state: [UInt8]) throws(StoreError) { try states.save(id, state) }

    /// The newest state, committed or not; `nil` if none was ever saved.
    package func loadState(_ id: RowID) throws(StoreError) -> [UInt8]? { try states.load(id) }

    /// Frees the index, the open files and the loaded state of an inbox that goes to sleep. Later calls load them
    /// again. Expiry and destruction continue: the earliest expiry of each segment is kept.
    ///
    /// Data that is not durable stays in memory; a later ``reap(hide:destroy:)`` frees it.
    package func release(_ id: RowID) { resting.release(id) }

    // MARK: - Summaries

    /// Replaces the file. Skips inboxes whose last state is not durable. A power failure only slows the next start.
    package func saveSummaries(_ entries: [(row: RowID, payload: [UInt8])]) throws(StoreError) {
        try SummaryFile(services: services, grid: grid).save(entries)
    }

    /// Payloads that are still valid. A missing, damaged or old file is not an error.
    package func loadSummaries() -> [RowID: [UInt8]] { SummaryFile(services: services, grid: grid).load() }

    // MARK: - Fan-out lists

    /// The list belongs to no inbox and expires with a seven-day bucket. Saving under the same id keeps the expiry.
    package func saveFanOut(id: [UInt8], expiresAt: Int64, payload: [UInt8]) throws(StoreError) {
        try fanOutLists.save(id: id, expiresAt: expiresAt, payload: payload)
    }

    /// - Returns: `nil` when it does not exist or has expired.
    package func fanOut(id: [UInt8], now: Int64) throws(StoreError) -> [UInt8]? {
        try fanOutLists.read(id: id, now: now)
    }

    /// In the order of their first saving.
    package func fanOuts(now: Int64) throws(StoreError) -> [StoredMessage] { try fanOutLists.all(now: now) }

    /// Overwrites the list with the next commit. An unknown id is an error only if some segments are unreadable.
    package func removeFanOut(id: [UInt8]) throws(StoreError) { try fanOutLists.remove(id: id) }
}
