import Crypto
import Glibc

extension Store {
    /// Replaces the inbox's state; durable when a later commit completes.
    package func saveState(_ id: RowID, _ state: [UInt8]) throws(StoreError) {
        let row = try row(id)
        commits.absorb()
        if isReadOnly { throw .readOnly(path: home.path) }
        guard state.count <= Self.maximumPayload else { throw .tooLarge(limit: Self.maximumPayload) }
        var log: StateLog?
        do throws(StoreError) {
            log = try stateLog(row)
        } catch .damaged {
            // Whoever saves over a damaged log has decided to.
        }
        if let previous = log?.takePrevious() { discard(previous.file) }
        if let log, !log.file.isClosed, !log.needsReplacement(for: state) {
            log.append(state, nonces: &nonces)
            return commits.note(log.file)
        }
        // The one before stays as it is until this one has its name.
        let new = StateLog(row: row, fileID: randomBytes(16), number: takeFileNumber(), replacing: log, isNew: true)
        new.append(state, nonces: &nonces)
        row.log = new
        row.logIsLoaded = true
        commits.note(new.file)
    }

    /// The newest state, committed or not; `nil` if none was ever saved.
    package func loadState(_ id: RowID) throws(StoreError) -> [UInt8]? {
        let row = try row(id)
        commits.absorb()
        guard let log = try stateLog(row) else { return nil }
        guard let latest = log.latest else {
            if log.holdsUnreadableBytes { throw .damaged(what: "\(home.path(Self.inboxesName))/\(log.file.path)") }
            return nil
        }
        if let found = log.file.withUnwritten(latest.span, { log.file.open($0, number: latest.number) }) {
            guard case .opened(let state) = found else { throw .damaged(what: log.file.path) }
            return state
        }
        let descriptor = try openFiles.descriptor(of: log.file)
        let sealed = try onDisk(log.file.path) { () throws(SystemError) in
            try disk.read(descriptor, at: latest.span.offset, count: latest.span.length)
        }
        guard case .opened(let state) = log.file.open(sealed, number: latest.number) else {
            throw .damaged(what: "\(home.path(Self.inboxesName))/\(log.file.path)")
        }
        return state
    }

    private func stateLog(_ row: Row) throws(StoreError) -> StateLog? {
        if row.logIsLoaded { return row.log }
        try settle(row)
        let path = "\(home.path(Self.inboxesName))/\(row.directory)/\(row.logName)"
        let opened: FileDescriptor
        do throws(SystemError) {
            let directory = try directories.open(row.directory)
            defer { disk.close(directory) }
            opened = try disk.open(row.logName, in: directory, [])
        } catch {
            guard error.code == ENOENT else { throw StoreError(error, path: path) }
            row.logIsLoaded = true
            return nil
        }
        let bytes: [UInt8]
        do throws(StoreError) {
            bytes = try onDisk(path) { () throws(SystemError) in
                let count = try disk.status(opened).byteCount
                guard count <= Int64(RecordFile.maximumByteCount) else { throw SystemError("read", EFBIG) }
                return try disk.read(opened, at: 0, count: Int(count))
            }
        } catch {
            disk.close(opened)
            throw error
        }
        guard let fileID = StateLog.fileID(bytes) else {
            disk.close(opened)
            // Zeros are a file whose first write was lost; anything else was a state once.
            if bytes.contains(where: { $0 != 0 }) {
                report("\(path) has no valid beginning")
                throw .damaged(what: path)
            }
            row.logIsLoaded = true
            return nil
        }
        let log = StateLog(row: row, fileID: fileID, number: takeFileNumber(), isNew: false)
        let result = log.file.load(bytes, from: StateLog.headerByteCount) { number, span, found in
            if case .opened(var state) = found {
                log.found(StateLog.State(number: number, span: span))
                wipe(&state)
            }
        }
        log.holdsUnreadableBytes = log.latest == nil && bytes[StateLog.headerByteCount...].contains { $0 != 0 }
        if !result.isSound { report("\(path) is damaged; the last valid state is used") }
        if !result.isWhole { report("\(path): its end makes no state: a write that was interrupted, or damage") }
        if !result.isSound || !result.isWhole { log.file.isClosed = true }
        openFiles.adopt(opened, for: log.file)
        row.log = log
        row.logIsLoaded = true
        return log
    }
}
