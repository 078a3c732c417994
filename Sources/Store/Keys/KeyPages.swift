/// The key pages of a home: rows, columns and tombstones, their ends, and the pages that await destruction.
final class KeyPages {
    let rows: RowPages
    let columns: ColumnPages
    let tombstones: TombstoneTable
    private let directories: InboxDirectories
    /// The first end of a column, a tombstone or a lost directory, due or not.
    private(set) var earliestEnd: Int64?

    /// - Parameter files: those of the rows, the columns and the tombstones.
    init(_ files: [SlotFile], isReadOnly: Bool, _ directories: InboxDirectories, _ findings: DamageList) {
        self.directories = directories
        rows = RowPages(files[0], directories, isReadOnly: isReadOnly, findings)
        columns = ColumnPages(files[1], isReadOnly: isReadOnly, findings)
        tombstones = TombstoneTable(files[2], isReadOnly: isReadOnly, findings)
    }

    /// `nil` while the store is locked.
    var keys: GridKeys? {
        get { rows.keys }
        set { rows.keys = newValue }
    }

    private var files: [SlotFile] { [rows.file, columns.file, tombstones.file] }

    /// Reads the clear headers. A damaged column or tombstone page is destroyed: its end is no longer known.
    func readClearHeaders() {
        columns.readHeaders()
        tombstones.readHeaders()
        settleEnds()
    }

    func close() { for file in files { file.close() } }

    // MARK: - After a run that was cut off

    /// Writes every page again: see ``Doubt/refused``.
    func rewrite() throws(StoreError) { for file in files { try file.rewrite() } }

    func synchronize() throws(StoreError) { for file in files { try file.synchronize() } }

    // MARK: - Ends

    func noteEnd(_ moment: Int64) { earliestEnd = min(earliestEnd ?? moment, moment) }

    func settleEnds() {
        let ends = [
            columns.headers.values.lazy.map(\.notAfter).min(), tombstones.ends.min(), directories.lostEnds.min(),
        ]
        earliestEnd = ends.compactMap { $0 }.min()
    }

    func hasOverdue(at moment: Int64) -> Bool {
        columns.headers.values.contains { $0.notAfter <= moment } || tombstones.ends.contains { $0 <= moment }
            || hasDoomed
    }

    func makeColumn(_ header: ColumnHeader, _ keys: GridKeys) throws(StoreError) -> Column {
        let column = try columns.make(header, keys)
        noteEnd(header.notAfter)
        return column
    }

    // MARK: - Destroying

    var hasDoomed: Bool { !rows.doomed.isEmpty || !columns.doomed.isEmpty || !tombstones.doomed.isEmpty }

    /// Overwrites the marked pages of rows and columns and reads them back. The pages of returned failures stay marked.
    @discardableResult func destroyDoomed() -> [StoreError] { rows.destroyDoomed() + columns.destroyDoomed() }

    func extinguishFuses(of slot: UInt32) {
        for (fuse, _) in columns.fuses(of: slot) { columns.end(fuse) }
        destroyDoomed()
    }

    // MARK: - Fuses

    /// Arms a fuse, which needs no passphrase to destroy the page. Removes later fuses of the same page.
    func light(_ fuse: ColumnHeader, _ keys: GridKeys) throws(StoreError) {
        _ = try makeColumn(fuse, keys)
        for (slot, other) in columns.fuses(of: fuse.rowSlot)
        where other.rowFingerprint == fuse.rowFingerprint && other.notAfter > fuse.notAfter { columns.end(slot) }
        destroyDoomed()
    }
}
