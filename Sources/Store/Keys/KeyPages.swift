/// The key pages of a home: rows, columns and tombstones, when they end, and which could not be destroyed yet.
final class KeyPages {
    private let services: StoreServices
    private let doomed = DoomedPages()
    let rows: RowPages
    let columns: ColumnPages
    let tombstones: TombstoneTable
    private let files: [SlotFile]
    /// The first end of a column, a tombstone or a lost directory, due or not.
    private(set) var earliestEnd: Int64?

    init(_ services: StoreServices, rows: SlotFile, columns: SlotFile, tombstones: SlotFile) {
        self.services = services
        files = [rows, columns, tombstones]
        self.rows = RowPages(services, file: rows, doomed: doomed)
        self.columns = ColumnPages(services, file: columns, doomed: doomed)
        self.tombstones = TombstoneTable(tombstones, isReadOnly: services.isReadOnly, damage: services.damage)
    }

    /// What can be known without the passphrase. A page that says it is a column or a tombstone and is damaged is
    /// destroyed: its end is no longer known.
    func readClearHeaders() {
        columns.readHeaders()
        tombstones.readHeaders()
        settleEnds()
    }

    func close() { for file in files { file.close() } }

    // MARK: - After a run that was cut off

    /// Every page once more, as it is: see ``Doubt/refused``.
    func rewrite() throws(StoreError) { for file in files { try file.rewrite() } }

    func synchronize() throws(StoreError) { for file in files { try file.synchronize() } }

    // MARK: - Ends

    /// The earliest end of a page, due or not.
    func noteEnd(_ moment: Int64) { earliestEnd = min(earliestEnd ?? moment, moment) }

    /// Finds the earliest end of a page again.
    func settleEnds() {
        let ends = [
            columns.headers.values.lazy.map(\.notAfter).min(), tombstones.ends.min(),
            services.directories.lostEnds.min(),
        ]
        earliestEnd = ends.compactMap { $0 }.min()
    }

    /// Whether a page exists that should not, by the clear headers.
    func hasOverdue(at moment: Int64) -> Bool {
        columns.headers.values.contains { $0.notAfter <= moment } || tombstones.ends.contains { $0 <= moment }
            || hasDoomed
    }

    /// The page of a column, durable when this returns.
    func makeColumn(_ header: ColumnHeader, _ keys: GridKeys) throws(StoreError) -> Column {
        let column = try columns.make(header, keys)
        noteEnd(header.notAfter)
        return column
    }

    // MARK: - Destroying

    var hasDoomed: Bool { !doomed.all.isEmpty || tombstones.doomedCount > 0 }
    var doomedColumnCount: Int { doomed.all.count { $0.file == .columns } }

    /// Overwrites and reads back what is marked.
    /// - Returns: the failures; those pages stay marked.
    @discardableResult func destroyDoomed(only: DoomedPage? = nil) -> [StoreError] {
        guard !services.isReadOnly else { return [] }
        var failures: [StoreError] = []
        for page in doomed.all where only == nil || page == only {
            do throws(StoreError) {
                switch page.file {
                case .rows: try rows.destroyDoomed(page.slot)
                case .columns: try columns.destroyDoomed(page.slot)
                }
                doomed.remove(page)
            } catch {
                services.report("a page waits for its destruction: \(error)")
                failures.append(error)
            }
        }
        return failures
    }

    /// Whatever page the fuses of a slot were made for is gone now.
    func extinguishFuses(of slot: UInt32) {
        for (fuse, _) in columns.fuses(of: slot) { columns.end(fuse) }
        destroyDoomed()
    }

    // MARK: - Fuses

    /// Has a page destroyed at a moment, without a passphrase; a later fuse of the same page goes.
    func light(_ fuse: ColumnHeader, _ keys: GridKeys) throws(StoreError) {
        _ = try makeColumn(fuse, keys)
        for (slot, other) in columns.fuses(of: fuse.rowSlot)
        where other.rowFingerprint == fuse.rowFingerprint && other.notAfter > fuse.notAfter { columns.end(slot) }
        destroyDoomed()
    }
}
