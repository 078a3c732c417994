import DequeModule

/// Rows whose directories nobody has looked at since the unlock: they are read once a bucket has begun to fall due, a
/// bounded number at a time, so that a home with ten thousand inboxes answers meanwhile.
final class UnreadDirectories {
    /// Most directories looked through in one reap.
    static let scanLimit = 128

    private let services: StoreServices
    private let grid: Grid
    private let index: InboxIndex
    private let resting: RestingRows
    /// In slot order.
    private(set) var unknownRows: Deque<RowID> = []
    /// When the first of the buckets that the unlock has found begins to fall due: rows that are unknown may have records
    /// in it.
    private var firstColumnStart: Int64?
    /// No directory of the last scan could be read.
    private var scanFailed = false

    init(_ services: StoreServices, grid: Grid, index: InboxIndex, resting: RestingRows) {
        self.services = services
        self.grid = grid
        self.index = index
        self.resting = resting
    }

    /// The store is unlocked: every row is unknown.
    func begin() {
        unknownRows = Deque(grid.rows.keys.sorted())
        firstColumnStart = grid.columns.values.lazy.map(\.start).min()
    }

    /// The store is locked.
    func end() {
        unknownRows = []
        firstColumnStart = nil
    }

    private var hasUnknownRows: Bool { !unknownRows.isEmpty || grid.controlRow.map { !$0.isOpen } ?? false }

    /// When the next rows are to be looked at. A scan in which every directory failed is not repeated at once.
    var nextScan: Int64? {
        guard hasUnknownRows, let firstColumnStart else { return nil }
        return max(firstColumnStart, services.latestHide + (scanFailed ? Retry.interval - 1 : 0)) + 1
    }

    /// Looks through the next directories.
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
