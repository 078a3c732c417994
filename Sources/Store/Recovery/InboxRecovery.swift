import Crypto

/// What an earlier run has left in the journal goes into the record files, and what it has left in the cache to the disk,
/// before anything is read of them.
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
        // A directory that still has another name must not be made a second time: its inbox does this when it is used.
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

    /// Before files of an inbox are read for the first time.
    /// - Throws: when the disk does not take them; nothing is served from them then.
    func settle(_ row: Row) throws(StoreError) {
        let directories = services.directories
        try directories.bringBack(row.directory)
        try writeOut(row)
        guard let doubt = directories.unsettled[row.directory], !services.isReadOnly else { return }
        // Nothing is written between the reading and the writing.
        services.commits.committer.drain()
        try directories.settle(row.directory, doubt)
    }

    /// Before an inbox's files are read for the first time. A full disk may refuse: the backlog has then what the reader of
    /// each file adds to it.
    /// - Throws: when the disk does not take what the journal has of the inbox; nothing is served from it then.
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

    /// What each file is to have. Inboxes that are destroyed, and buckets that have ended, get nothing.
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

    /// The bucket's key page is gone.
    private func hasEnded(_ sidecar: [UInt8]) -> Bool {
        pages.columns.isComplete && ExpirySidecar.columnTag(in: sidecar).map { grid.columnOfTag[$0] == nil } ?? false
    }
}

/// What a journal has of one record file.
private struct FoundFile {
    private var sidecar: [UInt8]?
    private var fileID: [UInt8]?
    private var pieces: [FilePiece] = []
    private var hasBeginning = false

    mutating func add(_ entry: JournalEntry, _ bytes: ArraySlice<UInt8>) {
        if let bytes = entry.sidecar { sidecar = bytes }
        if entry.fileID != fileID {
            // A log that takes the place of the one before.
            fileID = entry.fileID
            pieces = []
            hasBeginning = false
        }
        if entry.offset == 0 { hasBeginning = true }
        let buffer = RecordBuffer(capacity: bytes.count)
        bytes.withUnsafeBytes { buffer.append($0) }
        pieces.append(FilePiece(offset: entry.offset, buffer: buffer))
    }

    /// - Parameter isKnown: the directory is that of an inbox; another one is written to if it is there, for its page may
    ///   not have been readable.
    func task(_ place: FilePlace, isKnown: Bool) -> FileTask {
        var making = FileTask.Making.exists
        if place.kind == .log { making = hasBeginning ? .replacing : .onlyIfSame }
        if let sidecar { making = .withSidecar(sidecar) }
        return FileTask(file: -1, place: place, making: making, fileID: fileID, isDirectoryNew: isKnown, pieces: pieces)
    }
}
