import Crypto

/// Loads the grid of keys from the key pages when the store is unlocked, and wipes it when the store is locked.
final class GridLoader {
    private let services: StoreServices
    private let pages: KeyPages
    private let grid: Grid
    private let deadlines: DeadlineQueue
    private let refused: RefusedRows
    private let resting: RestingRows
    private let recovery: InboxRecovery
    private let unread: UnreadDirectories
    private let destroyed: DestroyedRows
    private let rows: RowLifecycle

    init(
        _ services: StoreServices, pages: KeyPages, grid: Grid, deadlines: DeadlineQueue, refused: RefusedRows,
        resting: RestingRows, recovery: InboxRecovery, unread: UnreadDirectories, destroyed: DestroyedRows,
        rows: RowLifecycle
    ) {
        self.services = services
        self.pages = pages
        self.grid = grid
        self.deadlines = deadlines
        self.refused = refused
        self.resting = resting
        self.recovery = recovery
        self.unread = unread
        self.destroyed = destroyed
        self.rows = rows
    }

    /// - Throws: when something overdue cannot be destroyed, because the home cannot be written.
    func checkOverdue() throws(StoreError) {
        if services.isReadOnly, pages.hasOverdue(at: services.latestHide) {
            throw .overdueOnReadOnly(path: services.home.path)
        }
    }

    /// Makes the inboxes readable.
    func unlock(with keys: GridKeys) {
        services.keys = keys
        let controlRow = Row(slot: .max, secret: SharedSecret(keys.control.clone()))
        controlRow.isAsleep = false
        grid.begin(controlRow: controlRow)
        let fused = Set(pages.columns.headers.values.lazy.filter { $0.tier == .fuse }.map(\.rowSlot))
        let (isComplete, fingerprints) = pages.rows.open(keys, fused: fused) { slot, secret in
            grid.insert(Row(slot: slot, secret: secret))
        }
        openColumns(keys, fingerprints)
        pages.tombstones.open(keys)
        unread.begin()
        sortDirectories(isComplete: isComplete)
        recovery.recoverJournal(keys.journal)
        destroyed.collect()
    }

    /// Opens the column pages. One that does not open was changed: it is destroyed, and with a changed fuse its row, so
    /// that a changed header can only shorten.
    private func openColumns(_ keys: GridKeys, _ fingerprints: [UInt32: [UInt8]]) {
        func row(of fuse: ColumnHeader) -> Row? {
            fingerprints[fuse.rowSlot] == fuse.rowFingerprint ? grid.rowOfSlot[fuse.rowSlot] : nil
        }
        for slot in pages.columns.headers.keys.sorted() {
            guard let header = pages.columns.headers[slot] else { continue }
            switch pages.columns.open(slot, header, keys) {
            case .unreadable: continue
            case .column(let column):
                if header.tier != .fuse {
                    grid.insert(column)
                } else if let row = row(of: header) {
                    row.fuse = min(row.fuse ?? header.notAfter, header.notAfter)
                }
            case .changed:
                if header.tier == .fuse, let row = row(of: header) { try? rows.destroy(row.id) }
                pages.columns.end(slot)
                pages.destroyDoomed()
            }
        }
    }

    /// Looks at the names in `inboxes`, once.
    /// - Parameter isComplete: every row page could be read, so that a directory without one has none.
    private func sortDirectories(isComplete: Bool) {
        var known = Set(grid.rows.values.map(\.directoryOnce))
        if let controlRow = grid.controlRow { known.insert(controlRow.directory) }
        // Their pages are still to be destroyed, and then they are.
        known.formUnion(pages.rows.doomedDirectories.values)
        services.directories.sort(
            known: known, isComplete: isComplete, burntCount: pages.rows.burntSlots.count, now: services.latestHide)
        if isComplete { pages.rows.settleAbandoned() }
        pages.settleEnds()
    }

    /// Commits what was appended, and wipes every key from memory.
    func lock() {
        guard !services.isLocked else { return }
        // Before anything waits for the disk, which may hang: what it is given is sealed.
        grid.wipe()
        pages.tombstones.forgetPages()
        services.keys = nil
        services.commitUntold(withCheckpoint: true)
        services.commits.end()
        destroyed.collect(limit: .max)
        services.openFiles.closeAll()
        grid.end()
        unread.end()
        resting.end()
        refused.removeAll()
        deadlines.end()
    }
}
