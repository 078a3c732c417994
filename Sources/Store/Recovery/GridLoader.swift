import Crypto

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

    /// - Throws: when overdue data exists in a read-only home.
    func checkOverdue() throws(StoreError) {
        if services.isReadOnly, pages.hasOverdue(at: services.latestHide) {
            throw .overdueOnReadOnly(path: services.home.path)
        }
    }

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

    /// Opens the column pages. A page that does not open was altered: it is destroyed, and with an altered fuse its
    /// row. So altering a header can only shorten a lifetime.
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

    /// Classifies the names in `inboxes`, once. `isComplete`: every row page could be read.
    private func sortDirectories(isComplete: Bool) {
        var known = Set(grid.rows.values.map(\.directoryOnce))
        if let controlRow = grid.controlRow { known.insert(controlRow.directory) }
        // Keep the directories of rows that await destruction.
        known.formUnion(pages.rows.doomedDirectories.values)
        services.directories.sort(
            known: known, isComplete: isComplete, burntCount: pages.rows.burntSlots.count, now: services.latestHide)
        if isComplete { pages.rows.settleAbandoned() }
        pages.settleEnds()
    }

    func lock() {
        guard !services.isLocked else { return }
        // First, because the disk may hang. The data still to be written is sealed.
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
