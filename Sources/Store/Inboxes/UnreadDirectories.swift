import DequeModule

/// Rows whose directories were not read since the unlock. The reaper reads them once a bucket starts to fall due, a
/// bounded number at a time, so that a home with ten thousand inboxes stays responsive.
final class UnreadDirectories {
    static let scanLimit = 128

    private let services: StoreServices
    private let grid: Grid
    private let index: InboxIndex
    private let resting: RestingRows
    /// In slot order.
    private(set) var unknownRows: Deque<RowID> = []
    /// When the first bucket found at the unlock starts to fall due: unknown rows may have records in it.
    private var firstColumnStart: Int64?
    private var scanFailed = false

    init(_ services: StoreServices, grid: Grid, index: InboxIndex, resting: RestingRows) {
        self.services = services
        self.grid = grid
        self.index = index
        self.resting = resting
    }

    func begin() {
        unknownRows = Deque(grid.rows.keys.sorted())
        firstColumnStart = grid.columns.values.lazy.map(\.start).min()
    }

    func end() {
        unknownRows = []
        firstColumnStart = nil
    }

    private var hasUnknownRows: Bool { !unknownRows.isEmpty || grid.controlRow.map { !$0.isOpen } ?? false }

    /// When to read the next rows. After a scan in which every directory failed, the next one waits.
    var nextScan: Int64? {
        guard hasUnknownRows, let firstColumnStart else { return nil }
        return max(firstColumnStart, services.latestHide + (scanFailed ? Retry.interval - 1 : 0)) + 1
    }

    func scan(_ hide: Int64) {
        guard hasUnknownRows, let firstColumnStart, firstColumnStart < hide else { return }
        var failed: [RowID] = []
        var count = 0
        if let controlRow = grid.controlRow, !controlRow.isOpen { try? index.scan(controlRow) }
        while count < Self.scanLimit, let id = unknownRows.popFirst() {
            guard let row = grid.rows[id], case .unknown = row.contents else { continue }
            count += 1
            do throws(StoreError) { try index.scan(row) } catch { failed.append(id) }
            if row.isOpen, row.isAsleep { resting.noteDrowsy(row) }
        }
        scanFailed = count > 0 && failed.count == count
        unknownRows.append(contentsOf: failed)
    }
}
