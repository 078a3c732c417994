/// The key pages of a home: rows, columns and tombstones, their ends, and the pages that await destruction.
final class KeyPages {
    private let home: HomeDirectory
    private let directories: InboxDirectories
    private let findings: DamageList
    private let doomed = DoomedPages()
    /// `nil` while the store is locked.
    var keys: GridKeys?
    let rows: RowPages
    let columns: ColumnPages
    let tombstones: TombstoneTable
    private let files: [SlotFile]
    /// The first end of a column, a tombstone or a lost directory, due or not.
    private(set) var earliestEnd: Int64?

    init(
        _ home: HomeDirectory, _ directories: InboxDirectories, _ findings: DamageList, rows: SlotFile,
        columns: SlotFile, tombstones: SlotFile
    ) {
        self.home = home
        self.directories = directories
        self.findings = findings
        files = [rows, columns, tombstones]
        self.rows = RowPages(home, directories, findings, file: rows, doomed: doomed)
        self.columns = ColumnPages(home, findings, file: columns, doomed: doomed)
        self.tombstones = TombstoneTable(tombstones, isReadOnly: home.isReadOnly, damage: findings)
    }

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

    var hasDoomed: Bool { !doomed.all.isEmpty || tombstones.doomedCount > 0 }
    var doomedColumnCount: Int { doomed.all.count { $0.file == .columns } }

    /// Overwrites the marked pages and reads them back. The pages of returned failures stay marked.
    @discardableResult func destroyDoomed(only: DoomedPage? = nil) -> [StoreError] {
        guard !home.isReadOnly else { return [] }
        var failures: [StoreError] = []
        for page in doomed.all where only == nil || page == only {
            do throws(StoreError) {
                switch page.file {
                case .rows: try rows.destroyDoomed(page.slot, keys)
                case .columns: try columns.destroyDoomed(page.slot)
                }
                doomed.remove(page)
            } catch {
                findings.report("a page waits for its destruction: \(error)")
                failures.append(error)
            }
        }
        return failures
    }

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

/// A page whose destruction failed. Every reap retries it.
struct DoomedPage: Equatable {
    enum File { case rows, columns }
    let file: File
    let slot: Int
}

/// Pages of rows and columns that await destruction, in the order in which they were marked. They serve no data.
final class DoomedPages {
    private(set) var all: [DoomedPage] = []

    func insert(_ page: DoomedPage) { if !all.contains(page) { all.append(page) } }

    func remove(_ page: DoomedPage) { all.removeAll { $0 == page } }
    func contains(_ page: DoomedPage) -> Bool { all.contains(page) }
}
