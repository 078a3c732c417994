import Cryptography
import DequeModule
import Glibc

/// The node's disk. Expired messages are unreadable even with the raw disk and the passphrase.
///
/// The page ``Store`` describes the files and the order of writes. A grid of keys has one 4 KiB page per inbox (row)
/// and one per expiry bucket (column), destroyed by overwriting in place. The store keeps opaque bytes and knows no
/// protocol.
///
/// Use it from one thread. Only the group commit has a thread of its own, and reports through a `@Sendable` closure.
/// Times are arguments: milliseconds since the Unix epoch.
package final class Store {
    /// Journal size of a new home in bytes.
    package static let journalByteCount = 8 << 20
    /// A smaller journal would need a checkpoint with nearly every commit.
    package static let smallestJournalByteCount = 128 << 10
    /// Default limit of ``collect(limit:)``, in files: a millisecond or two.
    package static let collectLimit = 64

    package var protection: Protection { keystore.protection }
    package let erasurePromise: ErasurePromise
    /// The data that was overdue when the home was opened, and how it was destroyed.
    package private(set) var openingReport = ReapReport()
    /// Findings of damage on the disk, without duplicates, for `doctor` and `status`.
    package var damage: [String] { findings.entries }
    package var isLocked: Bool { pages.rows.keys == nil }
    package var isReadOnly: Bool { home.isReadOnly }
    package var isHomeGone: Bool { home.isGone }

    private(set) var isClosed = false
    var keystore: Keystore
    /// A change of the keystore failed, so the copies on the disk are unknown.
    var isKeystoreStale = false
    let argon2Floor: Argon2Parameters
    private let clock: ClockMark
    /// Other data of an earlier run may be only in the kernel's cache.
    private var isUnsettled = false

    let home: HomeDirectory
    let disk: any FileSystem
    let findings = DamageList()
    let sweeper: Sweeper
    let directories: InboxDirectories
    let openFiles: OpenFiles
    let journal: Journal
    let fileWriter: FileWriter
    let commits: GroupCommit
    let pages: KeyPages
    let grid = Grid()
    let deadlines: DeadlineQueue

    /// The latest known time, from the opening of the home and from reaps.
    var latestHide: Int64
    var nonces = NoncePool()
    private var nextFileNumber = 0
    /// Rows with segments or sidecars that the disk refused to read.
    var refusedRows: [Row] = []
    /// Interrupted moves need a commit.
    var hasLeftBehind = false
    /// Rows that go to rest once no write of theirs is pending.
    var drowsyRows: Set<RowID> = []
    /// Rows whose directories were not read since the unlock, in slot order. The reaper reads them once a bucket starts
    /// to fall due, a bounded number at a time, so that a home with ten thousand inboxes stays responsive.
    var unknownRows: Deque<RowID> = []
    /// When the first bucket found at the unlock starts to fall due: unknown rows may have records in it.
    var firstColumnStart: Int64?
    var scanFailed = false
    /// A reap left segments that may have due records.
    var hasUnreadDue = false
    /// Destroyed inboxes whose memory and files are still to be freed.
    var remains: Deque<Remains> = []

    struct Remains {
        let row: Row
        var segments: [Segment]
    }

    private init(
        home: HomeDirectory, smallFile: FileDescriptor, now: Int64, argon2Floor: Argon2Parameters,
        committingOn thread: CommitThread
    ) throws(StoreError) {
        self.home = home
        disk = home.disk
        latestHide = now
        self.argon2Floor = argon2Floor
        keystore = try Keystore(in: home)
        erasurePromise = home.disk.erasurePromise(home: home.descriptor, smallFile: smallFile)
        sweeper = Sweeper(disk: home.disk, thread: thread)
        let files = try SlotFile.names.map { name throws(StoreError) in try SlotFile(name, in: home) }
        clock = try ClockMark(in: home)
        directories = try InboxDirectories(in: home, damage: findings, sweeper: sweeper)
        openFiles = OpenFiles(disk: home.disk, directories: directories)
        journal = Journal(in: home, damage: findings)
        fileWriter = FileWriter(disk: home.disk, inboxes: directories.descriptor, gate: DirectoryGate())
        commits = GroupCommit(
            committer: Committer(journal: journal, writer: fileWriter, thread: thread), journal: journal,
            damage: findings, unsettled: directories.unsettled)
        pages = KeyPages(files, isReadOnly: home.isReadOnly, directories, findings)
        deadlines = DeadlineQueue(grid: grid)
        if keystore.copies.count < 2 { report("one of the two copies of \(home.path(Keystore.name)) is damaged") }
        if clock.isDamaged { report("\(home.path(ClockMark.name)) is damaged") }
    }

    func inboxPath(_ path: String) -> String { "\(directories.path)/\(path)" }

    func report(_ what: String) { findings.report(what) }

    func unlockedKeys() throws(StoreError) -> GridKeys {
        guard let keys = pages.rows.keys, !isClosed else { throw .locked }
        return keys
    }

    func takeFileNumber() -> Int {
        defer { nextFileNumber += 1 }
        return nextFileNumber
    }

    // MARK: - Commits

    /// Makes everything buffered before the call durable. Commits requested while one runs share the next one.
    ///
    /// - Parameter completion: called on the commit thread, or before the return with ``CommitThread/caller``. A
    ///   failure means that data buffered since the previous commit may not be on the disk, also if
    ///   ``reap(hide:destroy:)`` or ``lock()`` tried meanwhile. The messages concerned are no longer served and can be
    ///   appended again.
    package func commit(_ completion: @escaping @Sendable (Result<Void, StoreError>) -> Void) {
        commits.commit(now: latestHide, completion)
        openFiles.closeSurplus()
    }

    /// An internal commit. It includes callers' buffered data, so a caller's next commit reports its failure.
    func commitUntold(withCheckpoint: Bool = false) {
        commits.commit(now: latestHide, withCheckpoint: withCheckpoint, nil)
    }

    /// Runs the commits that wait for ``CommitThread/later(_:)`` now. Call before blocking on one.
    package func hurryCommits() { commits.committer.hurry() }

    func discard(_ file: RecordFile) {
        commits.forget(file)
        openFiles.close(file)
    }

    // MARK: - The disk

    /// A test write: makes a few pages durable in a temporary, already unlinked file.
    /// - Parameter byteCount: size of the next write.
    package func probe(for byteCount: Int = 0) throws(StoreError) {
        if isReadOnly || isClosed { throw .readOnly(path: home.path) }
        try home.probe(for: byteCount)
    }

    /// The latest time ever saved, in milliseconds since the epoch; zero at first.
    package func clockMark() -> Int64 { clock.value }

    /// Durable on return. A time before the mark is ignored.
    package func saveClockMark(_ milliseconds: Int64) throws(StoreError) {
        guard milliseconds <= Tier.times.upperBound else { throw .invalidArgument("time \(milliseconds)") }
        guard milliseconds > clock.value || clock.isInDoubt else { return }
        if isReadOnly || isClosed { throw .readOnly(path: home.path(ClockMark.name)) }
        try clock.save(max(milliseconds, clock.value))
    }
}

// MARK: - Opening and closing

extension Store {
    /// Creates a home: directory, preallocated page files, and last the keystore, which turns the directory into a
    /// home. All durable. An interrupted attempt can be repeated.
    /// - Parameters:
    ///   - passphrase: for ``Protection/passphrase``; ignored otherwise.
    ///   - journal: size of the journal in bytes.
    /// - Throws: ``StoreError/alreadyInitialised(path:)``, ``StoreError/notEmpty(path:)``, and errors of the
    ///   directory's checks.
    package static func create(
        home path: String, protection: Protection, passphrase: borrowing SecretBytes?,
        fileSystem disk: any FileSystem = PosixFileSystem(), argon2: Argon2Parameters = .standard,
        journal: Int = Store.journalByteCount
    ) throws(StoreError) {
        let path = HomeDirectory.trimmed(path)
        try HomeDirectory.checkParents(of: path, disk: disk)
        do throws(SystemError) { try disk.makeDirectory(path, in: nil) } catch {
            if error.code != EEXIST { throw StoreError(error, path: path) }
        }
        let home = try HomeDirectory(path, disk: disk)
        defer { home.close() }
        let names = try onDisk(path) { () throws(SystemError) in try disk.list(home.descriptor) }
        if names.contains(Keystore.name) { throw .alreadyInitialised(path: path) }
        let files = SlotFile.names + [Journal.name, ClockMark.name, KeyFile.name, Keystore.temporaryName]
        guard names.allSatisfy({ files.contains($0) || $0 == "lock" || $0 == InboxDirectories.name }) else {
            throw .notEmpty(path: path)
        }
        try home.takeLock()
        if home.isReadOnly { throw .readOnly(path: path) }
        // Another process may have created the home before we had the lock.
        let again = try onDisk(path) { () throws(SystemError) in try disk.list(home.descriptor) }
        if again.contains(Keystore.name) { throw .alreadyInitialised(path: path) }
        try onDisk(path) { () throws(SystemError) in
            for name in files where again.contains(name) {
                try disk.remove(name, in: home.descriptor, isDirectory: false)
            }
            if !again.contains(InboxDirectories.name) {
                try disk.makeDirectory(InboxDirectories.name, in: home.descriptor)
            }
        }
        for name in SlotFile.names { try SlotFile.create(name, in: home) }
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

    /// Opens a home, locked: takes its lock, checks modes and owners, and destroys all overdue data before any is
    /// served. Needs no passphrase.
    /// - Parameters:
    ///   - now: a trusted time; data overdue by it is destroyed for good.
    ///   - argon2Floor: ``unlock(passphrase:)`` refuses weaker stored parameters; tests lower it.
    package static func open(
        home path: String, fileSystem disk: any FileSystem = PosixFileSystem(), now: Int64,
        argon2Floor: Argon2Parameters = .standard, committingOn thread: CommitThread = .own
    ) throws(StoreError) -> Store {
        let home = try HomeDirectory(path, disk: disk)
        let names = try? disk.list(home.descriptor)
        guard names?.contains(Keystore.name) ?? true else {
            let isHome = names?.contains(SlotFile.rowsName) ?? false
            throw isHome ? .missing(path: home.path(Keystore.name)) : .notAHome(path: home.path)
        }
        try home.checkFiles()
        let smallFile = try home.takeLock()
        let store = try Store(
            home: home, smallFile: smallFile, now: now, argon2Floor: argon2Floor, committingOn: thread)
        store.settlePages()
        store.pages.readClearHeaders()
        store.openingReport = store.reap(hide: now, destroy: now)
        store.settleInboxes()
        return store
    }

    /// `mayfly reap`: destroys overdue data and closes the home, without a passphrase.
    package static func reapHome(home path: String, fileSystem disk: any FileSystem = PosixFileSystem(), now: Int64)
        throws(StoreError) -> ReapReport
    {
        let store = try open(home: path, fileSystem: disk, now: now, committingOn: .caller)
        defer { store.close() }
        return store.openingReport
    }

    /// Derives the keys and makes the inboxes readable.
    /// - Parameter passphrase: ignored in key-file mode.
    /// - Throws: ``StoreError/wrongPassphrase``, ``StoreError/weakKeystore(iterations:memoryByteCount:)``,
    ///   ``StoreError/overdueOnReadOnly(path:)``.
    package func unlock(passphrase: borrowing SecretBytes?) throws(StoreError) {
        guard isLocked, !isClosed else { return }
        try checkOverdue()
        try refreshKeystore()
        let keyFile = try keystore.keyFile(in: home, isNeeded: !isGiven(passphrase))
        let opened = try keystore.open(passphrase: passphrase, keyFile: keyFile, floor: argon2Floor)
        settleKeystore(by: opened.copy)
        load(GridKeys(root: opened.root))
    }

    /// The slow first part of ``unlock(passphrase:)``, for any thread; `nil` for a home with a key file.
    package var stretching: PassphraseStretching? {
        // A read error here shows again when the passphrase is checked.
        try? refreshKeystore()
        return protection == .passphrase ? PassphraseStretching(keystore: keystore, floor: argon2Floor) : nil
    }

    /// The rest of ``unlock(passphrase:)``.
    /// - Parameter keys: from this store's ``stretching``.
    /// - Throws: ``StoreError/wrongPassphrase`` when the passphrase was changed meanwhile.
    package func unlock(with keys: StretchedKeys) throws(StoreError) {
        guard isLocked, !isClosed else { return }
        try checkOverdue()
        guard keystore.copies.contains(keys.copy) else { throw .wrongPassphrase }
        settleKeystore(by: keys.copy)
        load(keys.keys)
    }

    /// - Throws: when overdue data exists in a read-only home.
    private func checkOverdue() throws(StoreError) {
        if isReadOnly, pages.hasOverdue(at: latestHide) { throw .overdueOnReadOnly(path: home.path) }
    }

    private func load(_ keys: GridKeys) {
        pages.rows.keys = keys
        let controlRow = Row(slot: .max, secret: SharedSecret(keys.control.clone()))
        controlRow.isAsleep = false
        grid.begin(controlRow: controlRow)
        let fused = Set(pages.columns.headers.values.lazy.filter { $0.tier == .fuse }.map(\.rowSlot))
        let (isComplete, fingerprints) = pages.rows.open(keys, fused: fused) { slot, secret in
            grid.insert(Row(slot: slot, secret: secret))
        }
        openColumns(keys, fingerprints)
        pages.tombstones.open(keys)
        unknownRows = Deque(grid.rows.keys.sorted())
        firstColumnStart = grid.columns.values.lazy.map(\.start).min()
        sortDirectories(isComplete: isComplete)
        recoverJournal(keys.journal)
        collect()
    }

    /// Opens the column pages. A page that does not open was altered: it is destroyed, and with an altered fuse its
    /// row. So altering a header can only shorten a lifetime.
    private func openColumns(_ keys: GridKeys, _ fingerprints: [UInt32: [UInt8]]) {
        func row(of fuse: ColumnHeader) -> Row? {
            fingerprints[fuse.rowSlot] == fuse.rowFingerprint ? grid.rowOfSlot[fuse.rowSlot] : nil
        }
        for slot in pages.columns.headers.keys.sorted() {
            guard let header = pages.columns.headers[slot] else { continue }
            switch pages.columns.open(slot, header, keys) {
            case .unreadable: continue
            case .column(let column):
                if header.tier != .fuse {
                    grid.insert(column)
                } else if let row = row(of: header) {
                    row.fuse = min(row.fuse ?? header.notAfter, header.notAfter)
                }
            case .changed:
                if header.tier == .fuse, let row = row(of: header) { try? destroyRow(row.id) }
                pages.columns.end(slot)
                pages.destroyDoomed()
            }
        }
    }

    /// Classifies the names in `inboxes`, once. `isComplete`: every row page could be read.
    private func sortDirectories(isComplete: Bool) {
        var known = Set(grid.rows.values.map(\.directoryOnce))
        if let controlRow = grid.controlRow { known.insert(controlRow.directory) }
        // Keep the directories of rows that await destruction.
        known.formUnion(pages.rows.doomedDirectories.values)
        directories.sort(known: known, isComplete: isComplete, burntCount: pages.rows.burntSlots.count, now: latestHide)
        if isComplete { pages.rows.settleAbandoned() }
        pages.settleEnds()
    }

    /// Commits appended data, wipes every key from memory, and serves no data until the next unlock.
    package func lock() {
        guard !isLocked else { return }
        // First, because the disk may hang. The data still to be written is sealed.
        grid.wipe()
        pages.tombstones.forgetPages()
        pages.rows.keys = nil
        commitUntold(withCheckpoint: true)
        commits.end()
        collect(limit: .max)
        openFiles.closeAll()
        grid.end()
        (unknownRows, firstColumnStart) = ([], nil)
        drowsyRows = []
        refusedRows = []
        deadlines.end()
    }

    package func close() {
        guard !isClosed else { return }
        lock()
        isClosed = true
        sweeper.drain()
        pages.close()
        journal.close()
        clock.close()
        directories.close()
        home.end()
        home.close()
    }

    // MARK: - After a run that was cut off

    // Data in the cache must be durable before we acknowledge a message or append behind a record.

    /// Makes the pages durable before the start reads them, and everything else if no barrier was refused. The key file
    /// was durable before it had its name.
    private func settlePages() {
        guard let doubt = home.doubt, !isReadOnly else { return }
        if doubt == .unsynchronised, (try? disk.synchronizeAll(home.descriptor)) != nil { return home.settle() }
        clock.isInDoubt = true
        do throws(StoreError) {
            try Keystore.rewrite(in: home)
            if doubt == .refused {
                try pages.rewrite()
                try journal.rewrite()
            }
            try clock.rewrite()
            try pages.synchronize()
            try journal.synchronize()
            try home.synchronize()
        } catch {
            report("what an earlier run has left cannot be made durable: \(error)")
            isUnsettled = true
            journal.needsReset = true
        }
    }

    /// Makes the inboxes' files durable. Nothing has read them yet, and overdue keys are destroyed by now.
    private func settleInboxes() {
        guard let doubt = home.doubt, !isReadOnly else { return }
        do throws(StoreError) { try directories.settleAll(doubt) } catch {
            report("what an earlier run has left cannot be made durable: \(error)")
            isUnsettled = true
        }
        if directories.unsettled.doubts.isEmpty, !isUnsettled { home.settle() }
    }

    /// Writes the journal of an earlier run into the files, before any of them is read.
    private func recoverJournal(_ key: JournalKey) {
        let blocks = journal.recover(key, findings)
        var known: Set<Bytes16> = []
        if blocks.contains(where: { !$0.entries.isEmpty }) {
            known = Set(grid.rows.values.map { Row.Names.directory($0.secret) })
            if let controlRow = grid.controlRow { known.insert(controlRow.names.directory.name) }
        }
        var backlog = FileTask.recovered(from: blocks, known: known) { sidecar in
            pages.columns.isComplete
                && ExpirySidecar.columnTag(in: sidecar).map { grid.columnOfTag[$0] == nil } ?? false
        }
        guard !isReadOnly else { return commits.begin(key, backlog: backlog, isReset: false) }
        var isReset = false
        // A directory set aside under another name must not be created again. Its inbox recovers at its first use.
        if !directories.mayBeSetAside {
            let failures = fileWriter.perform(backlog)
            for index in failures.keys.sorted() {
                guard let error = failures[index] else { continue }
                if error.kind != .full { directories.unsettled.doubts[backlog[index].place.directoryName] = .refused }
                findings.report("\(journal.path) cannot be written out", of: error)
            }
            backlog = backlog.indices.filter { failures[$0] != nil }.map { backlog[$0] }
        }
        if backlog.isEmpty {
            do throws(StoreError) {
                try journal.reset(key)
                isReset = true
            } catch { findings.report("\(journal.path) cannot be overwritten", of: error) }
        }
        commits.begin(key, backlog: backlog, isReset: isReset)
    }

    /// Call before the first read of an inbox's files. If it throws, the inbox must not be served.
    func settle(_ row: Row) throws(StoreError) {
        try directories.bringBack(row.directory)
        try writeOut(row)
        guard let doubt = directories.unsettled.doubts[row.directory], !isReadOnly else { return }
        // No write may come between reading the files and writing them back.
        commits.committer.drain()
        try directories.settle(row.directory, doubt)
    }

    /// Writes the inbox's journal data into its files. If the disk is full, the readers of the files add the backlog
    /// instead.
    /// - Throws: when the disk fails otherwise. The inbox must not be served then.
    private func writeOut(_ row: Row) throws(StoreError) {
        guard !commits.backlog.isEmpty else { return }
        let tasks = commits.backlog.filter { $0.place.directory == row.names.directory.name }
        if tasks.isEmpty { return }
        if isReadOnly { throw .readOnly(path: home.path) }
        commits.committer.drain()
        do throws(StoreError) {
            for task in tasks { try fileWriter.perform(task) }
            try directories.synchronize()
            commits.settled(row.names.directory.name)
        } catch { guard error.kind == .full else { throw error } }
    }
}
