import Cryptography
import Glibc

extension Store {
    /// Creates an inbox. Its key page is durable on return.
    ///
    /// After a crash before the return, ``liveRows()`` may include the row, without a state.
    package func createRow() throws(StoreError) -> RowID {
        let (slot, secret) = try pages.rows.make(unlockedKeys())
        let row = Row(slot: slot, secret: secret)
        row.contents = .open
        row.isAsleep = false
        row.logIsLoaded = true
        grid.insert(row)
        return row.id
    }

    /// In slot order.
    package func liveRows() -> [RowID] { grid.rows.keys.sorted() }

    func liveRow(_ id: RowID) throws(StoreError) -> Row {
        _ = try unlockedKeys()
        guard let row = grid.rows[id] else { throw .unknownRow }
        return row
    }

    func row(of fuse: ColumnHeader) throws(StoreError) -> Row? {
        guard let row = grid.rowOfSlot[fuse.rowSlot], try pages.rows.fingerprint(fuse.rowSlot) == fuse.rowFingerprint
        else { return nil }
        return row
    }

    func isDue(_ row: Row, _ now: Int64) -> Bool {
        guard row !== grid.controlRow, let moment = row.fuse else { return false }
        return moment <= max(now, latestHide)
    }

    package func secret(_ id: RowID, label: String) throws(StoreError) -> SecretBytes {
        try liveRow(id).derive(label: label)
    }

    /// Derives a secret of the inbox and of the bucket for this tier and expiry. Overwriting either page loses it.
    /// - Parameters:
    ///   - expiresAt: milliseconds since the epoch.
    ///   - isMade: creates a missing bucket; its page is durable on return.
    /// - Returns: `nil` for a bucket that does not exist.
    package func secret(_ id: RowID, tier: Tier, expiresAt: Int64, label: String, isMade: Bool) throws(StoreError)
        -> SecretBytes?
    {
        guard tier != .fuse, tier != .control else { throw .invalidArgument("tier for a secret") }
        guard Tier.times.contains(expiresAt) else { throw .invalidArgument("time \(expiresAt)") }
        let row = try liveRow(id)
        let column = isMade ? try column(tier, expiresAt: expiresAt) : try existingColumn(tier, expiresAt: expiresAt)
        return column.map { row.derive(label: label, with: $0.secret) }
    }

    /// The column for a tier and an expiry. Its page is durable on return.
    func column(_ tier: Tier, expiresAt: Int64) throws(StoreError) -> Column {
        if let known = try existingColumn(tier, expiresAt: expiresAt) { return known }
        try prepareColumns(tier, [expiresAt])
        guard let column = try existingColumn(tier, expiresAt: expiresAt) else { throw .invalidArgument("time") }
        return column
    }

    /// Creates the missing columns for expiries in one tier. Their pages are durable on return; neighbouring ones share
    /// a write.
    package func prepareColumns(_ tier: Tier, _ expiries: [Int64]) throws(StoreError) {
        let keys = try unlockedKeys()
        var missing: [Int64: ColumnHeader] = [:]
        for time in expiries where Tier.times.contains(time) {
            let bucket = tier.bucket(expiresAt: time)
            if grid.column(tier, bucket) == nil { missing[bucket] = ColumnHeader(tier: tier, expiresAt: time) }
        }
        // Neighbouring pages end one after another, so that their slots become free together.
        var headers = missing.values.sorted { $0.bucket < $1.bucket }[...]
        while !headers.isEmpty {
            for column in try pages.makeColumns(Array(headers), keys) {
                grid.insert(column)
                headers.removeFirst()
            }
        }
    }

    func existingColumn(_ tier: Tier, expiresAt: Int64) throws(StoreError) -> Column? {
        _ = try unlockedKeys()
        return grid.column(tier, tier.bucket(expiresAt: expiresAt))
    }

    // MARK: - Destroying

    /// Overwrites the inbox's key page and reads it back, which makes everything under it unreadable. Takes the same
    /// time for any inbox: ``collect(limit:)`` removes memory and files.
    ///
    /// Also works while locked, for the rows that were live at the lock.
    /// - Throws: when the page may still exist. The row serves no data any more, and ``reap(hide:destroy:)`` retries.
    package func destroyRow(_ id: RowID) throws(StoreError) {
        let row = grid.rows[id]
        guard let directory = row?.directory ?? grid.takeRowAtLock(id), !isClosed else {
            throw isLocked ? .locked : .unknownRow
        }
        if isReadOnly { throw .readOnly(path: pages.rows.file.path) }
        let slot = Int(id.slot)
        pages.rows.retire(slot)
        do throws(StoreError) { try pages.rows.destroy(slot, directory: directory) } catch {
            if let row {
                // If the process ends before the page is destroyed, the next start needs the journal's records.
                commitUntold(withCheckpoint: true)
                commits.committer.drain()
                commits.absorb()
                withdraw(row)
            }
            pages.rows.doom(slot, directory: directory)
            report("an inbox waits for its destruction: \(error)")
            throw error
        }
        if let row { withdraw(row) }
        pages.rows.reserve(slot)
        directories.abandon(directory)
        pages.extinguishFuses(of: id.slot)
    }

    /// Withdraws a row and wipes its keys. The cost depends on the number of segments, not of messages.
    private func withdraw(_ row: Row) {
        grid.remove(row)
        row.isGone = true
        let (gate, directory) = (fileWriter.gate, row.names.directory.name)
        row.wipe()
        // Commits under way must not create the directory again. Closing the gate may wait for the disk.
        gate.close(directory)
        commits.settled(directory)
        commits.committer.whenFinished { gate.forget(directory) }
        drowsyRows.remove(row.id)
        refusedRows.removeAll { $0 === row }
        remains.append(Remains(row: row, segments: row.orderedSegments))
    }

    /// Schedules the row's destruction, which needs no passphrase, at a time in milliseconds. The earliest time wins.
    package func scheduleDestruction(of id: RowID, at moment: Int64) throws(StoreError) {
        let keys = try unlockedKeys()
        let row = try liveRow(id)
        guard Tier.times.contains(moment) else { throw .invalidArgument("time \(moment)") }
        let fuse = ColumnHeader(
            tier: .fuse, expiresAt: moment, rowSlot: id.slot, rowFingerprint: try pages.rows.fingerprint(id.slot))
        if let earlier = row.fuse, earlier <= moment { return }
        try pages.light(fuse, keys)
        row.fuse = moment
    }

    package func scheduledDestruction(of id: RowID) -> Int64? { grid.rows[id]?.fuse }

    // MARK: - States

    /// Replaces the inbox's state; durable when a later commit completes.
    package func saveState(_ id: RowID, _ state: [UInt8]) throws(StoreError) {
        let row = try liveRow(id)
        commits.absorb()
        if isReadOnly { throw .readOnly(path: home.path) }
        guard state.count <= RecordFile.maximumPlaintext else { throw .tooLarge(limit: RecordFile.maximumPlaintext) }
        var log: StateLog?
        do throws(StoreError) { log = try stateLog(row) } catch .damaged {
            // Saving over a damaged log is the caller's decision.
        }
        if let previous = log?.takePrevious() { discard(previous.file) }
        if let log, !log.file.isClosed, !log.needsReplacement(for: state) {
            log.append(state, nonces: &nonces)
            return commits.note(log.file)
        }
        // Keep the previous log until the new one has its name.
        let new = StateLog(row: row, fileID: randomBytes(16), number: takeFileNumber(), replacing: log, isNew: true)
        new.append(state, nonces: &nonces)
        row.log = new
        row.logIsLoaded = true
        commits.note(new.file)
    }

    /// The newest state, committed or not; `nil` if none was ever saved.
    package func loadState(_ id: RowID) throws(StoreError) -> [UInt8]? {
        let row = try liveRow(id)
        commits.absorb()
        guard let log = try stateLog(row) else { return nil }
        guard let latest = log.latest else {
            if log.holdsUnreadableBytes { throw .damaged(what: inboxPath(log.file.path)) }
            return nil
        }
        if let found = log.file.withUnwritten(latest.span, { log.file.frames.open($0, number: latest.number) }) {
            guard case .opened(let state) = found else { throw .damaged(what: log.file.path) }
            return state
        }
        let descriptor = try openFiles.descriptor(of: log.file)
        let sealed = try onDisk(log.file.path) { () throws(SystemError) in
            try disk.read(descriptor, at: latest.span.offset, count: latest.span.length)
        }
        guard case .opened(let state) = log.file.frames.open(sealed, number: latest.number) else {
            throw .damaged(what: inboxPath(log.file.path))
        }
        return state
    }

    private func stateLog(_ row: Row) throws(StoreError) -> StateLog? {
        if row.logIsLoaded { return row.log }
        try settle(row)
        let path = inboxPath("\(row.directory)/\(row.logName)")
        let place = FilePlace(kind: .log, directory: row.names.directory.name, file: row.names.log)
        var task = commits.backlog(of: place)
        let opened = try openLog(row, path)
        guard opened != nil || task != nil else {
            row.logIsLoaded = true
            return nil
        }
        var bytes: [UInt8] = []
        if let opened {
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
        }
        if case .onlyIfSame = task?.making, StateLog.fileID(bytes) != task?.fileID { task = nil }
        if let task { bytes = task.applied(to: bytes) }
        guard let fileID = StateLog.fileID(bytes) else {
            if let opened { disk.close(opened) }
            if StateLog.magic.isLater(bytes) { throw .newerFormat(path: path) }
            // Zeros: the first write of the file was lost. Anything else was a state once.
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
        if let task {
            // The file on the disk may be another one.
            log.file.restore(bytes, from: task.offset, isPlaced: task.isPlaced)
            commits.restored(log.file)
            if let opened { disk.close(opened) }
        } else if let opened {
            openFiles.adopt(opened, for: log.file)
        }
        row.log = log
        row.logIsLoaded = true
        return log
    }

    private func openLog(_ row: Row, _ path: String) throws(StoreError) -> FileDescriptor? {
        do throws(SystemError) {
            let directory = try directories.open(row.directory)
            defer { disk.close(directory) }
            return try disk.open(row.logName, in: directory, [])
        } catch {
            guard error.code == ENOENT else { throw StoreError(error, path: path) }
            return nil
        }
    }

    /// Whether the inbox ever stored anything: a state, readable or not, or a message. An empty directory does not
    /// count, because the first commit may have been interrupted. A directory that was set aside counts.
    /// - Throws: when this cannot be determined.
    package func isUsed(_ id: RowID) throws(StoreError) -> Bool {
        let row = try liveRow(id)
        try index(row)
        if !row.index.isEmpty || row.hasUnreadSegments || row.log != nil { return true }
        return try onDisk(inboxPath(row.directory)) { () throws(SystemError) in
            if try hasLog(row) { return true }
            return try directories.isSetAside(row.directory)
        }
    }

    private func hasLog(_ row: Row) throws(SystemError) -> Bool {
        do throws(SystemError) {
            let directory = try directories.open(row.directory)
            defer { disk.close(directory) }
            return try disk.list(directory).contains(row.logName)
        } catch {
            if error.code == ENOENT { return false }
            throw error
        }
    }

    // MARK: - Summaries

    // A cache of inbox summaries beside the state logs, so that a start with thousands of inboxes reads one file. Each
    // entry is sealed under its row and dies with it. It is valid only while the state log is unchanged.
    //
    //     magic (8) ‖ salt (16) ‖ { tag (16) ‖ length (4) ‖ sealed: log's file id (16) ‖ log's length (8) ‖ payload }
    //
    // The tag is a keyed hash under the row, new with every salt: nothing on the disk ties an entry to a slot.

    private static let summariesName = "summaries"
    private static let summariesMagic = Array("MFSUMS1\0".utf8)
    /// A longer file is never read.
    private static let maximumSummariesByteCount: Int64 = 256 << 20
    private static let summaryTagByteCount = 16

    /// Replaces the file. Skips inboxes whose last state is not durable. A power failure only slows the next start.
    package func saveSummaries(_ entries: [(row: RowID, payload: [UInt8])]) throws(StoreError) {
        _ = try unlockedKeys()
        commits.absorb()
        if isReadOnly { throw .readOnly(path: home.path) }
        let salt = randomBytes(16)
        var bytes = Self.summariesMagic + salt
        for (id, payload) in entries {
            // Skip an undurable state: the next start may find another one in the log.
            guard let row = grid.rows[id], row.log.map({ commits.isDurable($0.file) }) ?? true,
                let fingerprint = logFingerprint(row)
            else { continue }
            var plaintext = fingerprint + payload
            defer { wipe(&plaintext) }
            let sealed = XChaChaPoly.seal(
                plaintext, key: summaryKey(row, salt), nonce: randomBytes(XChaChaPoly.nonceByteCount),
                authenticating: Self.summariesMagic + salt)
            guard let length = UInt32(exactly: sealed.count) else { continue }
            bytes += summaryTag(row, salt) + length.littleEndianBytes + sealed
        }
        let temporary = Self.summariesName + ".new"
        try onDisk(home.path(Self.summariesName)) { () throws(SystemError) in
            try? disk.remove(temporary, in: home.descriptor, isDirectory: false)
            let file = try disk.open(temporary, in: home.descriptor, [.write, .create])
            defer { disk.close(file) }
            try disk.write(file, at: 0, bytes)
            try disk.synchronize(file, dataOnly: false)
            try disk.rename(temporary, to: Self.summariesName, in: home.descriptor)
        }
    }

    /// Payloads that are still valid. A missing, damaged or old file is not an error.
    package func loadSummaries() -> [RowID: [UInt8]] {
        guard !isLocked, let bytes = summaryBytes(), bytes.starts(with: Self.summariesMagic), bytes.count >= 24 else {
            return [:]
        }
        let salt = Array(bytes[8..<24])
        var rowOfTag: [[UInt8]: Row] = [:]
        for row in grid.rows.values { rowOfTag[summaryTag(row, salt)] = row }
        var found: [RowID: [UInt8]] = [:]
        var position = 24
        while let length = bytes.integer(UInt32.self, at: position + Self.summaryTagByteCount) {
            let start = position + Self.summaryTagByteCount + 4
            guard Int(length) <= bytes.count - start else { break }
            let tag = Array(bytes[position..<(position + Self.summaryTagByteCount)])
            position = start + Int(length)
            guard let row = rowOfTag[tag],
                let plaintext = try? XChaChaPoly.open(
                    bytes[start..<position], key: summaryKey(row, salt), authenticating: Self.summariesMagic + salt),
                let fingerprint = logFingerprint(row), plaintext.starts(with: fingerprint)
            else { continue }
            found[row.id] = Array(plaintext[fingerprint.count...])
        }
        return found
    }

    private func summaryBytes() -> [UInt8]? {
        guard let file = try? home.open(Self.summariesName, []) else { return nil }
        defer { disk.close(file) }
        guard let count = try? disk.status(file).byteCount, count <= Self.maximumSummariesByteCount else { return nil }
        return try? disk.read(file, at: 0, count: Int(count))
    }

    private func summaryTag(_ row: Row, _ salt: [UInt8]) -> [UInt8] {
        BLAKE2b.authenticate(
            key: row.secret.bytes, Array("mayfly row summary tag".utf8) + salt, byteCount: Self.summaryTagByteCount)
    }

    private func summaryKey(_ row: Row, _ salt: [UInt8]) -> SecretBytes {
        BLAKE2b.derive(key: row.secret.bytes, Array("mayfly row summary".utf8), salt)
    }

    /// The file id and the length of the row's state log: every saved state changes the pair.
    private func logFingerprint(_ row: Row) -> [UInt8]? {
        if let log = row.log { return log.id + UInt64(clamping: log.file.end).littleEndianBytes }
        // The journal has a state that the log on the disk lacks.
        if commits.backlog.contains(where: { $0.place.directory == row.names.directory.name }) { return nil }
        guard let directory = try? directories.open(row.directory) else { return nil }
        defer { disk.close(directory) }
        guard let file = try? disk.open(row.logName, in: directory, []) else { return nil }
        defer { disk.close(file) }
        guard let count = try? disk.status(file).byteCount,
            let header = try? disk.read(file, at: 0, count: StateLog.headerByteCount),
            let fileID = StateLog.fileID(header)
        else { return nil }
        return fileID + UInt64(clamping: count).littleEndianBytes
    }

    // MARK: - Tombstones

    /// Largest payload of a tombstone in bytes.
    package static let maximumTombstonePayload = TombstonePage.maximumPayload

    /// Durable on return.
    package func addTombstone(keepUntil: Int64, payload: [UInt8]) throws(StoreError) -> TombstoneID {
        let id = randomBytes(16)
        let page = TombstonePage(id: id, version: 0, keepUntil: keepUntil, payload: payload)
        try pages.tombstones.write(page, unlockedKeys())
        pages.noteEnd(keepUntil)
        return TombstoneID(bytes: id)
    }

    /// Replaces the payload durably: one of the two versions exists at every moment. Then destroys the old page.
    package func updateTombstone(_ id: TombstoneID, payload: [UInt8]) throws(StoreError) {
        try pages.tombstones.update(id, payload: payload, unlockedKeys())
    }

    /// In slot order.
    package func tombstones() throws(StoreError) -> [Tombstone] {
        _ = try unlockedKeys()
        return pages.tombstones.all
    }

    /// Destroys the page, also while locked.
    /// - Throws: when the page may still exist; ``reap(hide:destroy:)`` retries.
    package func removeTombstone(_ id: TombstoneID) throws(StoreError) {
        if isClosed { throw .locked }
        try pages.tombstones.remove(id)
    }
}
