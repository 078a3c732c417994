import Crypto
import DequeModule
import Glibc
import HeapModule

extension Store {
    /// Makes a home: directory, preallocated page files, and last the keystore, which is what makes it one. All durable.
    ///
    /// An interrupted attempt can be repeated.
    /// - Parameters:
    ///   - passphrase: for ``Protection/passphrase``; ignored otherwise.
    ///   - journal: bytes of the journal.
    /// - Throws: ``StoreError/alreadyInitialised(path:)``, ``StoreError/notEmpty(path:)``, and whatever is wrong with the
    ///   place.
    package static func create(
        home path: String,
        protection: Protection,
        passphrase: borrowing SecretBytes?,
        fileSystem disk: any FileSystem = PosixFileSystem(),
        argon2: Argon2Parameters = .standard,
        journal: Int = Store.journalByteCount
    ) throws(StoreError) {
        let path = HomeDirectory.trimmed(path)
        try HomeDirectory.checkParents(of: path, disk: disk)
        do throws(SystemError) {
            try disk.makeDirectory(path, in: nil)
        } catch {
            if error.code != EEXIST { throw StoreError(error, path: path) }
        }
        let home = try HomeDirectory(path, disk: disk)
        defer { home.close() }
        let names = try onDisk(path) { () throws(SystemError) in try disk.list(home.descriptor) }
        if names.contains(Keystore.name) { throw .alreadyInitialised(path: path) }
        let files = [
            SlotFile.rowsName, SlotFile.columnsName, SlotFile.tombstonesName, Journal.name, ClockMark.name,
            Keystore.keyFileName, "keystore.new",
        ]
        guard names.allSatisfy({ files.contains($0) || $0 == "lock" || $0 == inboxesName }) else {
            throw .notEmpty(path: path)
        }
        try home.takeLock()
        if home.isReadOnly { throw .readOnly(path: path) }
        // Another process may have made the home before we had the lock.
        let again = try onDisk(path) { () throws(SystemError) in try disk.list(home.descriptor) }
        if again.contains(Keystore.name) { throw .alreadyInitialised(path: path) }
        try onDisk(path) { () throws(SystemError) in
            for name in files where again.contains(name) {
                try disk.remove(name, in: home.descriptor, isDirectory: false)
            }
            if !again.contains(inboxesName) { try disk.makeDirectory(inboxesName, in: home.descriptor) }
        }
        for name in [SlotFile.rowsName, SlotFile.columnsName, SlotFile.tombstonesName] {
            try SlotFile.create(name, in: home)
        }
        try ClockMark.create(in: home)
        try Journal.create(in: home, byteCount: journal)
        let parent = HomeDirectory.parent(of: path)
        try onDisk(parent) { () throws(SystemError) in
            let directory = try disk.open(parent, in: nil, .directory)
            defer { disk.close(directory) }
            try disk.synchronize(directory, dataOnly: false)
        }
        try Keystore.create(in: home, protection: protection, passphrase: passphrase, parameters: argon2)
        home.settle()
        home.end()
    }

    /// Opens a home, locked: takes its lock, checks modes and owners, and destroys everything overdue before anything
    /// can be served. No passphrase is needed for that.
    /// - Parameters:
    ///   - now: a time that is believed: what is overdue by it is destroyed for good.
    ///   - argon2Floor: weaker stored parameters are refused by ``unlock(passphrase:)``; tests lower it.
    package static func open(
        home path: String,
        fileSystem disk: any FileSystem = PosixFileSystem(),
        now: Int64,
        argon2Floor: Argon2Parameters = .standard,
        committingOn thread: CommitThread = .own
    ) throws(StoreError) -> Store {
        let home = try HomeDirectory(path, disk: disk)
        guard (try? disk.list(home.descriptor))?.contains(Keystore.name) ?? true else {
            throw .notAHome(path: home.path)
        }
        let smallFile = try home.takeLock()
        let store = try Store(
            home: home,
            smallFile: smallFile,
            now: now,
            argon2Floor: argon2Floor,
            committingOn: thread
        )
        store.settlePages()
        store.readClearHeaders()
        store.openingReport = store.reap(hide: now, destroy: now)
        store.settleInboxes()
        return store
    }

    /// `mayfly reap`: destroys what is overdue and leaves, without a passphrase.
    package static func reapHome(
        home path: String,
        fileSystem disk: any FileSystem = PosixFileSystem(),
        now: Int64
    ) throws(StoreError) -> ReapReport {
        let store = try open(home: path, fileSystem: disk, now: now, committingOn: .caller)
        defer { store.close() }
        return store.openingReport
    }

    /// What can be known without the passphrase. A page that says it is a column or a tombstone and is damaged is
    /// destroyed: its end is no longer known.
    private func readClearHeaders() {
        columnSlots.extend(to: columnFile.pageCount)
        columnFile.forEachPage { slot, page in
            guard let page else {
                columnSlots[slot] = .unreadable
                columnsAreComplete = false
                report("page \(slot) of \(columnFile.path) cannot be read")
                return
            }
            if let header = ColumnHeader(page: page) {
                columnSlots[slot] = .used
                headers[slot] = header
            } else if ColumnHeader.hasMagic(page) {
                report("header of page \(slot) of \(columnFile.path): its messages count as expired")
                if !isReadOnly { doom(.columns, slot) }
            }
        }
        tombstoneTable.readHeaders()
        settlePageEnds()
    }

    /// Derives the keys and makes the inboxes readable.
    /// - Parameter passphrase: not needed, and ignored, in key-file mode.
    /// - Throws: ``StoreError/wrongPassphrase``, ``StoreError/weakKeystore(iterations:memoryByteCount:)``,
    ///   ``StoreError/overdueOnReadOnly(path:)``.
    package func unlock(passphrase: borrowing SecretBytes?) throws(StoreError) {
        guard isLocked, !isClosed else { return }
        try checkOverdue()
        open(with: try keystore.unwrap(passphrase: passphrase, floor: argon2Floor, home: home))
    }

    /// What ``unlock(passphrase:)`` does first and longest, for any thread; `nil` for a home with a key file, where it
    /// takes no time.
    package var stretching: PassphraseStretching? {
        protection == .passphrase ? PassphraseStretching(keystore: keystore, floor: argon2Floor) : nil
    }

    /// The rest of ``unlock(passphrase:)``.
    /// - Parameter keys: of this store's ``stretching``.
    package func unlock(with keys: StretchedKeys) throws(StoreError) {
        guard isLocked, !isClosed else { return }
        try checkOverdue()
        open(with: keys.keys)
    }

    private func checkOverdue() throws(StoreError) {
        if isReadOnly, hasOverduePages(at: latestHide) { throw .overdueOnReadOnly(path: home.path) }
    }

    private func open(with keys: GridKeys) {
        self.keys = keys
        rowsAtLock = [:]
        controlRow = Row(slot: .max, secret: SharedSecret(keys.control.clone()))
        controlRow?.isAsleep = false
        let (isComplete, fingerprints) = openRows(keys)
        openColumns(keys, fingerprints)
        tombstoneTable.open(keys)
        unknownRows = Deque(rows.keys.sorted())
        firstColumnStart = columns.values.lazy.map(\.start).min()
        sortDirectories(isComplete: isComplete)
        recoverJournal(keys)
        collect()
    }

    /// - Returns: false when a page could not be read, so that a directory may belong to a row we do not see; and the
    ///   fingerprints of pages that a fuse may name.
    private func openRows(_ keys: GridKeys) -> (isComplete: Bool, fingerprints: [UInt32: [UInt8]]) {
        var isComplete = true
        var fingerprints: [UInt32: [UInt8]] = [:]
        let fused = Set(headers.values.lazy.filter { $0.tier == .fuse }.map(\.rowSlot))
        directories.forgetNames()
        burntSlots = []
        reservedSlots = []
        rowSlots = SlotMap()
        rowSlots.extend(to: rowFile.pageCount)
        if rowFile.pageCount < SlotFile.growth {
            // It was longer when it was made: what it lost may belong to the directories that no page names.
            report("\(rowFile.path) was cut off")
            isComplete = false
        }
        rowFile.forEachPage { slot, page in
            guard let page else {
                rowSlots[slot] = .unreadable
                report("page \(slot) of \(rowFile.path) cannot be read")
                isComplete = false
                return
            }
            if doomedPages.contains(DoomedPage(file: .rows, slot: slot)) {
                rowSlots[slot] = .unreadable
                return
            }
            let opened = KeyPage.open(page, file: rowFile.name, index: slot, headerByteCount: 0, keys: keys)
            guard let secret = opened, let number = UInt32(exactly: slot) else {
                if let directory = DestroyedRow.directory(page, slot: slot, keys: keys) {
                    directories.noteDestroyed(directory)
                    reserve(slot)
                } else if page.starts(with: DestroyedRow.burnt) {
                    burntSlots.append(slot)
                    reserve(slot)
                }
                return
            }
            rowSlots[slot] = .used
            let row = Row(slot: number, secret: secret)
            rows[row.id] = row
            rowOfSlot[number] = row
            if fused.contains(number) { fingerprints[number] = KeyPage.fingerprint(page) }
        }
        // An earlier process may have renamed or removed them without a barrier.
        if !reservedSlots.isEmpty { directories.noteAbandoned() }
        return (isComplete, fingerprints)
    }

    /// Opens the column pages. One that does not open was changed: it is destroyed, and with a changed fuse its row, so
    /// that a changed header can only shorten.
    private func openColumns(_ keys: GridKeys, _ fingerprints: [UInt32: [UInt8]]) {
        func row(of fuse: ColumnHeader) -> Row? {
            fingerprints[fuse.rowSlot] == fuse.rowFingerprint ? rowOfSlot[fuse.rowSlot] : nil
        }
        for slot in headers.keys.sorted() {
            guard let header = headers[slot] else { continue }
            guard let page = try? columnFile.read(slot) else {
                report("page \(slot) of \(columnFile.path) cannot be read")
                columnsAreComplete = false
                continue
            }
            let opened = KeyPage.open(
                page,
                file: columnFile.name,
                index: slot,
                headerByteCount: ColumnHeader.byteCount,
                keys: keys
            )
            if let secret = opened, ColumnHeader(page: page) == header {
                if header.tier != .fuse {
                    enter(Column(slot: slot, header: header, secret: secret))
                } else if let row = row(of: header) {
                    row.fuse = min(row.fuse ?? header.notAfter, header.notAfter)
                }
            } else {
                report("page \(slot) of \(columnFile.path) was changed: its messages count as expired")
                if header.tier == .fuse, let row = row(of: header) { try? destroyRow(row.id) }
                headers[slot] = nil
                doom(.columns, slot)
                _ = destroyDoomedPages()
            }
        }
    }

    /// Commits what was appended, wipes every key from memory, and serves nothing until the next unlock.
    package func lock() {
        guard !isLocked else { return }
        commitUntold(withCheckpoint: true)
        commits.end()
        collect(limit: .max)
        openFiles.closeAll()
        for column in columns.values { column.segments = [:] }
        rowsAtLock = rows.mapValues(\.directoryOnce)
        for row in rows.values {
            row.isGone = true
            row.forgetContents()
        }
        controlRow?.isGone = true
        controlRow?.forgetContents()
        controlRow = nil
        rows = [:]
        rowOfSlot = [:]
        columns = [:]
        columnOfBucket = [:]
        columnOfTag = [:]
        segments = [:]
        tombstoneTable.forgetPages()
        unknownRows = []
        firstColumnStart = nil
        drowsyRows = []
        refusedRows = []
        deadlines = []
        withholding = []
        keys = nil
    }

    /// ``lock()``, then lets go of the home.
    package func close() {
        guard !isClosed else { return }
        lock()
        isClosed = true
        sweeper.drain()
        rowFile.close()
        columnFile.close()
        tombstoneFile.close()
        journal.close()
        clock.close()
        directories.close()
        home.end()
        home.close()
    }
}
