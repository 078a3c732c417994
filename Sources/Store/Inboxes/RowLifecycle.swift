import Crypto

final class RowLifecycle {
    private let services: StoreServices
    private let pages: KeyPages
    private let grid: Grid
    private let refused: RefusedRows
    private let resting: RestingRows
    private let destroyed: DestroyedRows

    init(
        _ services: StoreServices, pages: KeyPages, grid: Grid, refused: RefusedRows, resting: RestingRows,
        destroyed: DestroyedRows
    ) {
        self.services = services
        self.pages = pages
        self.grid = grid
        self.refused = refused
        self.resting = resting
        self.destroyed = destroyed
    }

    /// Creates a row. Its page is durable on return.
    func create() throws(StoreError) -> RowID {
        let (slot, secret) = try pages.rows.make(services.unlockedKeys())
        let row = Row(slot: slot, secret: secret)
        row.contents = .open
        row.isAsleep = false
        row.logIsLoaded = true
        grid.insert(row)
        return row.id
    }

    /// Overwrites a row's page and reads it back. ``DestroyedRows`` frees memory and files.
    func destroy(_ id: RowID) throws(StoreError) {
        if services.isLocked { return try destroyLocked(id) }
        guard let row = grid.rows[id] else { throw .unknownRow }
        if services.isReadOnly { throw .readOnly(path: pages.rows.file.path) }
        let slot = Int(id.slot)
        pages.rows.retire(slot)
        let directory = row.directory
        do throws(StoreError) { try pages.rows.destroy(slot, directory: directory) } catch {
            // If the process ends before the page is destroyed, the next start needs the journal's records.
            services.commitUntold(withCheckpoint: true)
            services.commits.committer.drain()
            services.commits.absorb()
            withdraw(row)
            pages.rows.doom(slot, directory: directory)
            services.report("an inbox waits for its destruction: \(error)")
            throw error
        }
        withdraw(row)
        pages.rows.reserve(slot)
        services.directories.abandon(directory)
        pages.extinguishFuses(of: id.slot)
    }

    private func destroyLocked(_ id: RowID) throws(StoreError) {
        guard let directory = grid.takeRowAtLock(id), !services.isClosed else { throw .locked }
        if services.isReadOnly { throw .readOnly(path: pages.rows.file.path) }
        let slot = Int(id.slot)
        pages.rows.retire(slot)
        do throws(StoreError) { try pages.rows.destroy(slot, directory: directory) } catch {
            pages.rows.doom(slot, directory: directory)
            services.report("an inbox waits for its destruction: \(error)")
            throw error
        }
        pages.rows.reserve(slot)
        services.directories.abandon(directory)
        pages.extinguishFuses(of: id.slot)
    }

    /// The reaper destroys the row at `moment`, unless an earlier moment is scheduled.
    func scheduleDestruction(of id: RowID, at moment: Int64) throws(StoreError) {
        let keys = try services.unlockedKeys()
        let row = try grid.row(id)
        guard Tier.times.contains(moment) else { throw .invalidArgument("time \(moment)") }
        let fuse = ColumnHeader(
            tier: .fuse, expiresAt: moment, rowSlot: id.slot, rowFingerprint: try pages.rows.fingerprint(id.slot))
        if let earlier = row.fuse, earlier <= moment { return }
        try pages.light(fuse, keys)
        row.fuse = moment
    }

    /// Withdraws a row and wipes its keys. The cost depends on the number of segments, not of messages.
    private func withdraw(_ row: Row) {
        grid.remove(row)
        row.isGone = true
        let (gate, directory) = (services.writer.gate, row.names.directory.name)
        row.wipe()
        // Commits under way must not create the directory again. Closing the gate may wait for the disk.
        gate.close(directory)
        services.commits.settled(directory)
        services.commits.committer.whenFinished { gate.forget(directory) }
        resting.forget(row)
        refused.remove(row)
        destroyed.append(row)
    }
}
