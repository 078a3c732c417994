import Crypto
import Glibc

extension Store {
    // MARK: - Rows

    /// A new inbox: its key page is on the disk when this returns.
    ///
    /// After a crash before it returned, the row may be among ``liveRows()`` all the same, without a state.
    package func createRow() throws(StoreError) -> RowID {
        let keys = try unlockedKeys()
        if isReadOnly { throw .readOnly(path: rowFile.path) }
        settleAbandoned()
        let slot = try rowSlots.take(growing: rowFile)
        guard let number = UInt32(exactly: slot), number < .max else { throw .full(path: rowFile.path) }
        let page = KeyPage.make(file: rowFile.name, index: slot, header: [], keys: keys)
        do throws(StoreError) {
            try rowFile.write(slot, page)
        } catch {
            // It may have arrived after all: the slot is not used again before it is destroyed.
            rowSlots[slot] = .unreadable
            doom(.rows, slot)
            throw error
        }
        let opened = KeyPage.open(page, file: rowFile.name, index: slot, headerByteCount: 0, keys: keys)
        guard let secret = opened else { preconditionFailure("a page that was just sealed opens") }
        let row = Row(slot: number, secret: secret)
        row.contents = .open
        row.isAsleep = false
        row.logIsLoaded = true
        rowSlots[slot] = .used
        rows[row.id] = row
        rowOfSlot[number] = row
        return row.id
    }

    /// In slot order.
    package func liveRows() -> [RowID] { rows.keys.sorted() }

    /// A secret of the inbox for a purpose: BLAKE2b keyed by S_i.
    package func secret(_ id: RowID, label: String) throws(StoreError) -> SecretBytes {
        try row(id).derive(label: label)
    }

    /// Overwrites the inbox's key page, which is the end of everything under it, and reads it back. That takes the same
    /// time whatever the inbox holds: memory and files are left to ``collect(limit:)``.
    /// - Throws: when the page may still be there. Nothing is served from the row any more, and ``reap(hide:destroy:)``
    ///   tries again.
    ///
    /// Works while the store is locked too, for the rows that were there when it was: forgetting needs no key.
    package func destroyRow(_ id: RowID) throws(StoreError) {
        if isLocked { return try destroyLockedRow(id) }
        guard let row = rows[id] else { throw .unknownRow }
        if isReadOnly { throw .readOnly(path: rowFile.path) }
        let slot = Int(id.slot)
        rowSlots[slot] = .unreadable
        let directory = row.directory
        do throws(StoreError) {
            try destroyPage(ofRow: slot, directory: directory)
        } catch {
            // If the process ends before the page is destroyed, the next start finds the inbox. It must find with it what
            // only the journal has now.
            commitUntold(withCheckpoint: true)
            commits.committer.drain()
            commits.absorb()
            withdraw(row)
            doom(.rows, slot)
            doomedDirectories[slot] = directory
            report("an inbox waits for its destruction: \(error)")
            throw error
        }
        withdraw(row)
        reserve(slot)
        directories.abandon(directory)
        extinguishFuses(of: id.slot)
    }

    /// Whatever page they were made for is gone now.
    private func extinguishFuses(of slot: UInt32) {
        for (fuse, _) in fuses(of: slot) {
            headers[fuse] = nil
            doom(.columns, fuse)
        }
        _ = destroyDoomedPages()
    }

    private func destroyLockedRow(_ id: RowID) throws(StoreError) {
        guard let directory = rowsAtLock.removeValue(forKey: id), !isClosed else { throw .locked }
        if isReadOnly { throw .readOnly(path: rowFile.path) }
        let slot = Int(id.slot)
        rowSlots[slot] = .unreadable
        do throws(StoreError) {
            try destroyPage(ofRow: slot, directory: directory)
        } catch {
            doom(.rows, slot)
            doomedDirectories[slot] = directory
            report("an inbox waits for its destruction: \(error)")
            throw error
        }
        reserve(slot)
        directories.abandon(directory)
        extinguishFuses(of: id.slot)
    }

    /// Lets the reaper destroy the row at a moment, without a passphrase. The earliest moment wins: a later one changes
    /// nothing, an earlier one takes the place of what was there.
    /// - Parameter moment: milliseconds since the epoch.
    package func scheduleDestruction(of id: RowID, at moment: Int64) throws(StoreError) {
        let keys = try unlockedKeys()
        let row = try row(id)
        guard Tier.times.contains(moment) else { throw .invalidArgument("time \(moment)") }
        let header = ColumnHeader(
            tier: .fuse,
            expiresAt: moment,
            rowSlot: id.slot,
            rowFingerprint: KeyPage.fingerprint(try rowFile.read(Int(id.slot)))
        )
        if let fuse = row.fuse, fuse <= moment { return }
        _ = try makeColumn(header, keys)
        row.fuse = moment
        for (fuse, other) in fuses(of: id.slot)
        where other.rowFingerprint == header.rowFingerprint && other.notAfter > moment {
            headers[fuse] = nil
            doom(.columns, fuse)
        }
        _ = destroyDoomedPages()
    }

    /// The earliest scheduled destruction of a row.
    package func scheduledDestruction(of id: RowID) -> Int64? {
        rows[id]?.fuse
    }

    func fuses(of slot: UInt32) -> [(slot: Int, header: ColumnHeader)] {
        headers.filter { $0.value.tier == .fuse && $0.value.rowSlot == slot }.map { ($0.key, $0.value) }
    }

    /// The live row a fuse names.
    func row(of fuse: ColumnHeader) throws(StoreError) -> Row? {
        guard let row = rowOfSlot[fuse.rowSlot],
            KeyPage.fingerprint(try rowFile.read(Int(fuse.rowSlot))) == fuse.rowFingerprint
        else { return nil }
        return row
    }

    func row(_ id: RowID) throws(StoreError) -> Row {
        _ = try unlockedKeys()
        guard let row = rows[id] else { throw .unknownRow }
        return row
    }

    /// Takes a row out of service and its keys out of memory: as much work as it has segments, not messages.
    private func withdraw(_ row: Row) {
        rows[row.id] = nil
        rowOfSlot[row.id.slot] = nil
        row.isGone = true
        let names = row.names
        writer.gate.close(names.directory.name)
        row.secret.wipe()
        names.sidecarKey.wipe()
        for segment in row.segments.values { segment.file.wipeKey() }
        var log = row.log
        while let next = log {
            next.file.wipeKey()
            log = next.previous
        }
        drowsyRows.remove(row.id)
        refusedRows.removeAll { $0 === row }
        remains.append(RowRemains(row: row, segments: row.orderedSegments))
    }

    // MARK: - Column pages

    /// The column for a tier and an expiry, its page durable before this returns.
    func column(_ tier: Tier, expiresAt: Int64) throws(StoreError) -> Column {
        let keys = try unlockedKeys()
        let key = BucketKey(tier: tier, bucket: tier.bucket(expiresAt: expiresAt))
        if let found = columnOfBucket[key] { return found }
        return try makeColumn(ColumnHeader(tier: tier, expiresAt: expiresAt), keys)
    }

    func enter(_ column: Column) {
        columns[column.slot] = column
        columnOfTag[column.tag] = column
        columnOfBucket[BucketKey(tier: column.header.tier, bucket: column.header.bucket)] = column
    }

    private func makeColumn(_ header: ColumnHeader, _ keys: GridKeys) throws(StoreError) -> Column {
        if isReadOnly { throw .readOnly(path: columnFile.path) }
        let slot = try columnSlots.take(growing: columnFile)
        let page = KeyPage.make(file: columnFile.name, index: slot, header: header.encoded, keys: keys)
        do throws(StoreError) {
            // The header last: a page of which a power cut has left only the header would be taken for one that was changed,
            // and a changed fuse takes its row along.
            try columnFile.write(slot, randomBytes(header.encoded.count) + page[header.encoded.count...])
            try columnFile.write(slot, page)
        } catch {
            doom(.columns, slot)
            throw error
        }
        let opened = KeyPage.open(
            page,
            file: columnFile.name,
            index: slot,
            headerByteCount: ColumnHeader.byteCount,
            keys: keys
        )
        guard let secret = opened else { preconditionFailure("a page that was just sealed opens") }
        columnSlots[slot] = .used
        headers[slot] = header
        notePageEnd(header.notAfter)
        let column = Column(slot: slot, header: header, secret: secret)
        if header.tier != .fuse { enter(column) }
        return column
    }

    /// Overwrites a column page and reads it back. Of a fuse the header goes first: half a fuse would be taken for one that
    /// was changed, and take its row along.
    func destroyColumnPage(_ slot: Int) throws(StoreError) {
        if let page = try? columnFile.read(slot), ColumnHeader(page: page)?.tier == .fuse {
            try columnFile.write(slot, randomBytes(ColumnHeader.byteCount) + page[ColumnHeader.byteCount...])
        }
        try columnFile.destroy(slot)
    }

    // MARK: - Directories

    /// Whether anything was ever stored in the inbox: a state, readable or not, or a message. A directory alone says
    /// nothing: the first commit may have been cut off. One that was set aside was an inbox's.
    /// - Throws: when that cannot be found out.
    package func isUsed(_ id: RowID) throws(StoreError) -> Bool {
        let row = try row(id)
        try index(row)
        if !row.index.isEmpty || row.hasUnreadSegments || row.log != nil { return true }
        return try onDisk("\(home.path(Self.inboxesName))/\(row.directory)") { () throws(SystemError) in
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
}
