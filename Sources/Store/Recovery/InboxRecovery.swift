import Crypto

/// Makes the journal and the cached data of an earlier run durable before the files are read.
final class InboxRecovery {
    private let services: StoreServices
    private let pages: KeyPages
    private let grid: Grid

    init(_ services: StoreServices, pages: KeyPages, grid: Grid) {
        self.services = services
        self.pages = pages
        self.grid = grid
    }

    func recoverJournal(_ key: JournalKey) {
        let (journal, commits, directories) = (services.journal, services.commits, services.directories)
        let blocks = journal.recover(key, services.damage)
        var backlog = tasks(of: blocks)
        guard !services.isReadOnly else { return commits.begin(key, backlog: backlog, isReset: false) }
        var isReset = false
        // A directory set aside under another name must not be created again. Its inbox recovers at its first use.
        if !directories.mayBeSetAside {
            let failures = services.writer.perform(backlog)
            for index in failures.keys.sorted() {
                guard let error = failures[index] else { continue }
                if error.kind != .full { directories.unsettled[backlog[index].place.directoryName] = .refused }
                services.damage.report("\(journal.path) cannot be written out", of: error)
            }
            backlog = backlog.indices.filter { failures[$0] != nil }.map { backlog[$0] }
        }
        if backlog.isEmpty {
            do throws(StoreError) {
                try journal.reset(key)
                isReset = true
            } catch { services.damage.report("\(journal.path) cannot be overwritten", of: error) }
        }
        commits.begin(key, backlog: backlog, isReset: isReset)
    }

    /// Call before the first read of an inbox's files. If it throws, the inbox must not be served.
    func settle(_ row: Row) throws(StoreError) {
        let directories = services.directories
        try directories.bringBack(row.directory)
        try writeOut(row)
        guard let doubt = directories.unsettled[row.directory], !services.isReadOnly else { return }
        // No write may come between reading the files and writing them back.
        services.commits.committer.drain()
        try directories.settle(row.directory, doubt)
    }

    /// Writes the inbox's journal data into its files. If the disk is full, the readers of the files add the backlog
    /// instead.
    /// - Throws: when the disk fails otherwise. The inbox must not be served then.
    private func writeOut(_ row: Row) throws(StoreError) {
        let commits = services.commits
        guard !commits.backlog.isEmpty else { return }
        let tasks = commits.backlog.filter { $0.place.directory == row.names.directory.name }
        if tasks.isEmpty { return }
        if services.isReadOnly { throw .readOnly(path: services.home.path) }
        commits.committer.drain()
        do throws(StoreError) {
            for task in tasks { try services.writer.perform(task) }
            try services.directories.synchronize()
            commits.settled(row.names.directory.name)
        } catch { guard error.kind == .full else { throw error } }
    }

    /// The data for each file. Destroyed inboxes and ended buckets get none.
    private func tasks(of blocks: [JournalBlock]) -> [FileTask] {
        guard blocks.contains(where: { !$0.entries.isEmpty }) else { return [] }
        var known = Set(grid.rows.values.map { Row.Names.directory($0.secret) })
        if let controlRow = grid.controlRow { known.insert(controlRow.names.directory.name) }
        var order: [FilePlace] = []
        var found: [FilePlace: FoundFile] = [:]
        for block in blocks {
            var position = 0
            for entry in block.entries {
                let bytes = block.bodies[position..<(position + entry.byteCount)]
                position += entry.byteCount
                if let sidecar = entry.sidecar, hasEnded(sidecar) { continue }
                if found[entry.place] == nil { order.append(entry.place) }
                found[entry.place, default: FoundFile()].add(entry, bytes)
            }
        }
        return order.compactMap { place in found[place]?.task(place, isKnown: known.contains(place.directory)) }
    }

    private func hasEnded(_ sidecar: [UInt8]) -> Bool {
        pages.columns.isComplete && ExpirySidecar.columnTag(in: sidecar).map { grid.columnOfTag[$0] == nil } ?? false
    }
}

private struct FoundFile {
    private var sidecar: [UInt8]?
    private var fileID: [UInt8]?
    private var pieces: [FilePiece] = []
    private var hasBeginning = false

    mutating func add(_ entry: JournalEntry, _ bytes: ArraySlice<UInt8>) {
        if let bytes = entry.sidecar { sidecar = bytes }
        if entry.fileID != fileID {
            fileID = entry.fileID
            pieces = []
            hasBeginning = false
        }
        if entry.offset == 0 { hasBeginning = true }
        let buffer = RecordBuffer(capacity: bytes.count)
        bytes.withUnsafeBytes { buffer.append($0) }
        pieces.append(FilePiece(offset: entry.offset, buffer: buffer))
    }

    /// - Parameter isKnown: the directory belongs to a readable row. Otherwise it is only written to if it exists,
    ///   because its row page may have been unreadable.
    func task(_ place: FilePlace, isKnown: Bool) -> FileTask {
        var making = FileTask.Making.exists
        if place.kind == .log { making = hasBeginning ? .replacing : .onlyIfSame }
        if let sidecar { making = .withSidecar(sidecar) }
        return FileTask(file: -1, place: place, making: making, fileID: fileID, isDirectoryNew: isKnown, pieces: pieces)
    }
}
