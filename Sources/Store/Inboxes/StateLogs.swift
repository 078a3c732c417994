import Crypto
import Glibc

final class StateLogs {
    private let services: StoreServices
    private let grid: Grid
    private let index: InboxIndex
    private let recovery: InboxRecovery

    init(_ services: StoreServices, grid: Grid, index: InboxIndex, recovery: InboxRecovery) {
        self.services = services
        self.grid = grid
        self.index = index
        self.recovery = recovery
    }

    func save(_ id: RowID, _ state: [UInt8]) throws(StoreError) {
        let row = try grid.row(id)
        services.commits.absorb()
        if services.isReadOnly { throw .readOnly(path: services.home.path) }
        guard state.count <= RecordFile.maximumPlaintext else { throw .tooLarge(limit: RecordFile.maximumPlaintext) }
        var log: StateLog?
        do throws(StoreError) { log = try stateLog(row) } catch .damaged {
            // Saving over a damaged log is the caller's decision.
        }
        if let previous = log?.takePrevious() { services.discard(previous.file) }
        if let log, !log.file.isClosed, !log.needsReplacement(for: state) {
            log.append(state, nonces: &services.nonces)
            return services.commits.note(log.file)
        }
        // Keep the previous log until the new one has its name.
        let new = StateLog(
            row: row, fileID: randomBytes(16), number: services.takeFileNumber(), replacing: log, isNew: true)
        new.append(state, nonces: &services.nonces)
        row.log = new
        row.logIsLoaded = true
        services.commits.note(new.file)
    }

    func load(_ id: RowID) throws(StoreError) -> [UInt8]? {
        let row = try grid.row(id)
        services.commits.absorb()
        guard let log = try stateLog(row) else { return nil }
        guard let latest = log.latest else {
            if log.holdsUnreadableBytes { throw .damaged(what: services.inboxPath(log.file.path)) }
            return nil
        }
        if let found = log.file.withUnwritten(latest.span, { log.file.frames.open($0, number: latest.number) }) {
            guard case .opened(let state) = found else { throw .damaged(what: log.file.path) }
            return state
        }
        let descriptor = try services.openFiles.descriptor(of: log.file)
        let sealed = try onDisk(log.file.path) { () throws(SystemError) in
            try services.disk.read(descriptor, at: latest.span.offset, count: latest.span.length)
        }
        guard case .opened(let state) = log.file.frames.open(sealed, number: latest.number) else {
            throw .damaged(what: services.inboxPath(log.file.path))
        }
        return state
    }

    private func stateLog(_ row: Row) throws(StoreError) -> StateLog? {
        if row.logIsLoaded { return row.log }
        try recovery.settle(row)
        let path = services.inboxPath("\(row.directory)/\(row.logName)")
        let place = FilePlace(kind: .log, directory: row.names.directory.name, file: row.names.log)
        var task = services.commits.backlog(of: place)
        let opened = try open(row, path)
        guard opened != nil || task != nil else {
            row.logIsLoaded = true
            return nil
        }
        var bytes: [UInt8] = []
        if let opened {
            do throws(StoreError) {
                bytes = try onDisk(path) { () throws(SystemError) in
                    let count = try services.disk.status(opened).byteCount
                    guard count <= Int64(RecordFile.maximumByteCount) else { throw SystemError("read", EFBIG) }
                    return try services.disk.read(opened, at: 0, count: Int(count))
                }
            } catch {
                services.disk.close(opened)
                throw error
            }
        }
        if case .onlyIfSame = task?.making, StateLog.fileID(bytes) != task?.fileID { task = nil }
        if let task { bytes = task.applied(to: bytes) }
        guard let fileID = StateLog.fileID(bytes) else {
            if let opened { services.disk.close(opened) }
            if StateLog.isNewer(bytes) { throw .newerFormat(path: path) }
            // Zeros: the first write of the file was lost. Anything else was a state once.
            if bytes.contains(where: { $0 != 0 }) {
                services.report("\(path) has no valid beginning")
                throw .damaged(what: path)
            }
            row.logIsLoaded = true
            return nil
        }
        let log = StateLog(row: row, fileID: fileID, number: services.takeFileNumber(), isNew: false)
        let result = log.file.load(bytes, from: StateLog.headerByteCount) { number, span, found in
            if case .opened(var state) = found {
                log.found(StateLog.State(number: number, span: span))
                wipe(&state)
            }
        }
        log.holdsUnreadableBytes = log.latest == nil && bytes[StateLog.headerByteCount...].contains { $0 != 0 }
        if !result.isSound { services.report("\(path) is damaged; the last valid state is used") }
        if !result.isWhole {
            services.report("\(path): its end makes no state: a write that was interrupted, or damage")
        }
        if !result.isSound || !result.isWhole { log.file.isClosed = true }
        if let task {
            // The file on the disk may be another one.
            log.file.restore(bytes, from: task.offset, isPlaced: task.isPlaced)
            services.commits.restored(log.file)
            if let opened { services.disk.close(opened) }
        } else if let opened {
            services.openFiles.adopt(opened, for: log.file)
        }
        row.log = log
        row.logIsLoaded = true
        return log
    }

    private func open(_ row: Row, _ path: String) throws(StoreError) -> FileDescriptor? {
        do throws(SystemError) {
            let directory = try services.directories.open(row.directory)
            defer { services.disk.close(directory) }
            return try services.disk.open(row.logName, in: directory, [])
        } catch {
            guard error.code == ENOENT else { throw StoreError(error, path: path) }
            return nil
        }
    }

    /// Whether the inbox ever stored anything: a state, readable or not, or a message.
    func isUsed(_ id: RowID) throws(StoreError) -> Bool {
        let row = try grid.row(id)
        try index.index(row)
        if !row.index.isEmpty || row.hasUnreadSegments || row.log != nil { return true }
        return try onDisk(services.inboxPath(row.directory)) { () throws(SystemError) in
            if try hasLog(row) { return true }
            return try services.directories.isSetAside(row.directory)
        }
    }

    private func hasLog(_ row: Row) throws(SystemError) -> Bool {
        do throws(SystemError) {
            let directory = try services.directories.open(row.directory)
            defer { services.disk.close(directory) }
            return try services.disk.list(directory).contains(row.logName)
        } catch {
            if error.code == ENOENT { return false }
            throw error
        }
    }
}
