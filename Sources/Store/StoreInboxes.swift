import Crypto

/// Inboxes: their rows, their states, and what is known of them without opening them.
extension Store {
    /// A new inbox: its key page is on the disk when this returns.
    ///
    /// After a crash before it returned, the row may be among ``liveRows()`` all the same, without a state.
    package func createRow() throws(StoreError) -> RowID { try rows.create() }

    /// In slot order.
    package func liveRows() -> [RowID] { grid.rows.keys.sorted() }

    /// A secret of the inbox for a purpose: BLAKE2b keyed by S_i.
    package func secret(_ id: RowID, label: String) throws(StoreError) -> SecretBytes {
        try grid.row(id).derive(label: label)
    }

    /// A secret of the inbox for a purpose that dies with an expiry bucket, too: whichever page is overwritten first. The
    /// bucket is that of a message with this tier and expiry.
    /// - Parameters:
    ///   - expiresAt: milliseconds since the epoch.
    ///   - isMade: a bucket that is not there is made; its page is on the disk when this returns.
    /// - Returns: `nil` for a bucket that is not there, or not any more.
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

    /// Overwrites the inbox's key page, which is the end of everything under it, and reads it back. That takes the same
    /// time whatever the inbox holds: memory and files are left to ``collect(limit:)``.
    /// - Throws: when the page may still be there. Nothing is served from the row any more, and ``reap(hide:destroy:)``
    ///   tries again.
    ///
    /// Works while the store is locked too, for the rows that were there when it was: forgetting needs no key.
    package func destroyRow(_ id: RowID) throws(StoreError) { try rows.destroy(id) }

    /// Lets the reaper destroy the row at a moment, without a passphrase. The earliest moment wins: a later one changes
    /// nothing, an earlier one takes the place of what was there.
    /// - Parameter moment: milliseconds since the epoch.
    package func scheduleDestruction(of id: RowID, at moment: Int64) throws(StoreError) {
        try rows.scheduleDestruction(of: id, at: moment)
    }

    /// The earliest scheduled destruction of a row.
    package func scheduledDestruction(of id: RowID) -> Int64? { grid.rows[id]?.fuse }

    /// Whether anything was ever stored in the inbox: a state, readable or not, or a message. A directory alone says
    /// nothing: the first commit may have been cut off. One that was set aside was an inbox's.
    /// - Throws: when that cannot be found out.
    package func isUsed(_ id: RowID) throws(StoreError) -> Bool { try states.isUsed(id) }

    // MARK: - States

    /// Replaces the inbox's state; durable when a later commit completes.
    package func saveState(_ id: RowID, _ state: [UInt8]) throws(StoreError) { try states.save(id, state) }

    /// The newest state, committed or not; `nil` if none was ever saved.
    package func loadState(_ id: RowID) throws(StoreError) -> [UInt8]? { try states.load(id) }

    /// Drops the in-memory index, the open files and the loaded state of an inbox that goes to sleep. A later call on the
    /// row brings back what it needs. Expiries, fuse and destruction go on as before: the earliest expiry of each segment
    /// is kept, and when it comes the segment is read again for it.
    ///
    /// What is not durable yet stays until it is; the next ``reap(hide:destroy:)`` drops it then.
    package func release(_ id: RowID) { resting.release(id) }

    // MARK: - Summaries

    /// Replaces the file. A power failure may cost it, which costs the next start time, and nothing else.
    /// - Parameter entries: of inboxes whose last state is on the disk; others are left out.
    package func saveSummaries(_ entries: [(row: RowID, payload: [UInt8])]) throws(StoreError) {
        try SummaryFile(services: services, grid: grid).save(entries)
    }

    /// The payloads that still say how it is. A file that is missing, damaged or old is not an error.
    package func loadSummaries() -> [RowID: [UInt8]] { SummaryFile(services: services, grid: grid).load() }

    // MARK: - Fan-out lists

    /// A sealed bag that dies with a seven-day bucket and belongs to no inbox: the list of members that still have to
    /// learn of an explosion. Saving again under the same id replaces the payload and keeps the expiry.
    package func saveFanOut(id: [UInt8], expiresAt: Int64, payload: [UInt8]) throws(StoreError) {
        try fanOutLists.save(id: id, expiresAt: expiresAt, payload: payload)
    }

    /// - Returns: `nil` when there is none, or it has ended.
    package func fanOut(id: [UInt8], now: Int64) throws(StoreError) -> [UInt8]? {
        try fanOutLists.read(id: id, now: now)
    }

    /// In the order of their first saving.
    package func fanOuts(now: Int64) throws(StoreError) -> [StoredMessage] { try fanOutLists.all(now: now) }

    /// Overwrites it with the next commit; unknown ids are no error, unless there is something that cannot be read.
    package func removeFanOut(id: [UInt8]) throws(StoreError) { try fanOutLists.remove(id: id) }
}
