import Glibc
import Primitives

extension Store {
    /// Replaces the inbox's state; durable when a later commit completes.
    package func saveState(_ id: RowID, _ state: [UInt8]) throws(StoreError) {
        let row = try row(id)
        absorbOutcomes()
        if isReadOnly { throw .readOnly(path: home.path) }
        guard state.count <= Self.maximumPayload else { throw .tooLarge(limit: Self.maximumPayload) }
        let log: StateLog?
        do throws(StoreError) {
            log = try stateLog(row)
        } catch .damaged {
            // Whoever saves over a damaged log has decided to.
            return try rewrite(row, state)
        }
        if let log, !log.file.isClosed, !log.needsCompaction(for: state) {
            _ = try descriptor(of: log.file)
            log.append(state)
            markDirty(log.file)
        } else if log != nil {
            try rewrite(row, state)
        } else {
            let log = StateLog(row: row, fileID: randomBytes(16), number: takeFileNumber(), isNew: true)
            // A log that is there has a state: an inbox whose first was cut off was never saved, and is not damaged.
            try prepare(log.file, row, under: row.logName + ".new")
            log.append(state)
            markDirty(log.file)
            enter(log, row)
        }
    }

    /// The newest state, committed or not; `nil` if none was ever saved.
    package func loadState(_ id: RowID) throws(StoreError) -> [UInt8]? {
        let row = try row(id)
        absorbOutcomes()
        guard let log = try stateLog(row) else { return nil }
        guard let latest = log.latest else {
            if log.holdsUnreadableBytes { throw .damaged(what: "\(home.path(Self.inboxesName))/\(log.file.path)") }
            return nil
        }
        var sealed = log.file.unwritten(latest.span)
        if sealed == nil {
            let descriptor = try descriptor(of: log.file)
            sealed = try onDisk(log.file.path) { () throws(SystemError) in
                try disk.read(descriptor, at: latest.span.offset, count: latest.span.length)
            }
        }
        guard let sealed, case .opened(let state) = log.file.open(sealed, number: latest.number) else {
            throw .damaged(what: "\(home.path(Self.inboxesName))/\(log.file.path)")
        }
        return state
    }

    private func enter(_ log: StateLog, _ row: Row) {
        row.log = log
        row.logIsLoaded = true
        stateLogs[log.file.number] = log
    }

    private func stateLog(_ row: Row) throws(StoreError) -> StateLog? {
        if row.logIsLoaded { return row.log }
        try settle(row)
        let path = "\(home.path(Self.inboxesName))/\(row.directory)/\(row.logName)"
        let opened: FileDescriptor
        do throws(SystemError) {
            let directory = try openDirectory(row.directory)
            defer { disk.close(directory) }
            opened = try disk.open(row.logName, in: directory, isReadOnly ? [] : .write)
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
                log.latest = (number, span)
                wipe(&state)
            }
        }
        log.durable = log.latest
        log.holdsUnreadableBytes = log.latest == nil && bytes[StateLog.headerByteCount...].contains { $0 != 0 }
        if !result.isSound { report("\(path) is damaged; the last valid state is used") }
        if !result.isWhole { report("\(path): its end makes no state: a write that was interrupted, or damage") }
        if !result.isSound || !result.isWhole { log.file.isClosed = true }
        adopt(opened, for: log.file)
        enter(log, row)
        return log
    }

    /// Writes the state into a new log and renames it over the old one. Nothing is destroyed by this: both are sealed
    /// under the row and die with it.
    private func rewrite(_ row: Row, _ state: [UInt8]) throws(StoreError) {
        let log = StateLog(row: row, fileID: randomBytes(16), number: takeFileNumber(), isNew: true)
        log.append(state)
        let temporary = row.logName + ".new"
        // The old one may have lost its name when this fails.
        row.log?.file.isClosed = true
        let before = unsettled[row.directory]
        unsettle(row)
        let opened = try onDisk("\(row.directory)/\(row.logName)") { () throws(SystemError) in
            let directory = try openDirectory(row.directory)
            defer { disk.close(directory) }
            try? disk.remove(temporary, in: directory, isDirectory: false)
            let file = try disk.open(temporary, in: directory, [.write, .create])
            do throws(SystemError) {
                let job = log.file.takeJob(sequence: 0, descriptor: file)
                for write in job.writes { try disk.write(file, at: write.offset, write.bytes) }
                try disk.synchronize(file, dataOnly: false)
                try disk.rename(temporary, to: row.logName, in: directory)
                try disk.synchronize(directory, dataOnly: false)
            } catch {
                disk.close(file)
                throw error
            }
            return file
        }
        unsettled[row.directory] = before
        log.file.committed(sequence: 0)
        log.durable = log.latest
        if let old = row.log {
            discard(old.file)
            stateLogs[old.file.number] = nil
        }
        adopt(opened, for: log.file)
        enter(log, row)
    }
}
