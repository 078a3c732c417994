import Crypto
import Glibc

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
        let files = [
            SlotFile.rowsName, SlotFile.columnsName, SlotFile.tombstonesName, Journal.name, ClockMark.name,
            KeyFile.name, Keystore.temporaryName,
        ]
        guard names.allSatisfy({ files.contains($0) || $0 == "lock" || $0 == StoreServices.inboxesName }) else {
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
            if !again.contains(StoreServices.inboxesName) {
                try disk.makeDirectory(StoreServices.inboxesName, in: home.descriptor)
            }
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
        guard (try? disk.list(home.descriptor))?.contains(Keystore.name) ?? true else {
            throw .notAHome(path: home.path)
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
        guard isLocked, !services.isClosed else { return }
        try loader.checkOverdue()
        try refreshKeystore()
        let keyFile = try keystore.keyFile(in: services.home, isNeeded: !isGiven(passphrase))
        let opened = try keystore.open(passphrase: passphrase, keyFile: keyFile, floor: argon2Floor)
        settleKeystore(by: opened.copy)
        loader.unlock(with: GridKeys(root: opened.root))
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
        guard isLocked, !services.isClosed else { return }
        try loader.checkOverdue()
        guard keystore.copies.contains(keys.copy) else { throw .wrongPassphrase }
        settleKeystore(by: keys.copy)
        loader.unlock(with: keys.keys)
    }

    // MARK: - The protection

    /// Protects the home with another passphrase or with a key file, locked or not. Durable on return: the old secret
    /// no longer opens the home.
    /// - Parameters:
    ///   - old: ignored in key-file mode.
    ///   - new: `nil` for a key file.
    /// - Throws: the errors of ``rewrapping()``, ``Rewrapping/sealed(from:to:)`` and ``protect(by:)``.
    package func changeProtection(from old: borrowing SecretBytes?, to new: borrowing SecretBytes?) throws(StoreError) {
        try protect(by: try rewrapping().sealed(from: old, to: new))
    }

    /// The slow part of ``changeProtection(from:to:)``, for any thread.
    /// - Throws: ``StoreError/readOnly(path:)``, and when the key file cannot be read.
    package func rewrapping() throws(StoreError) -> Rewrapping {
        if isReadOnly || isClosed { throw .readOnly(path: services.home.path) }
        try refreshKeystore()
        return Rewrapping(
            keystore: keystore, floor: argon2Floor, keyFile: try keystore.keyFile(in: services.home, isNeeded: false),
            newKeyFile: KeyFile(in: services.home))
    }

    /// The rest of ``changeProtection(from:to:)``.
    /// - Parameter root: from this store's ``rewrapping()``.
    /// - Throws: ``StoreError/wrongPassphrase`` when the passphrase was changed meanwhile,
    ///   ``StoreError/invalidArgument(_:)`` for a new key file in place of an old one. After a disk error either secret
    ///   may open the home, or both. The next one that opens it becomes the only one.
    package func protect(by root: RewrappedRoot) throws(StoreError) {
        let home = services.home
        if isReadOnly || isClosed { throw .readOnly(path: home.path) }
        try refreshKeystore()
        guard keystore.copies.contains(root.opened) else { throw .wrongPassphrase }
        if let keyFile = root.keyFile {
            guard protection == .passphrase else { throw .invalidArgument("protection: there is a key file") }
            // Left by an interrupted change; no copy is sealed by it.
            try KeyFile.destroy(in: home)
            try keyFile.write(in: home)
            try home.synchronize()
        }
        try writeKeystore(root.copy, over: root.opened)
        if root.keyFile == nil { try KeyFile.destroy(in: home) }
    }

    private func writeKeystore(_ copy: KeystoreCopy, over opened: KeystoreCopy) throws(StoreError) {
        isKeystoreStale = true
        defer { try? refreshKeystore() }
        try keystore.write(copy, over: opened, in: services.home)
    }

    private func refreshKeystore() throws(StoreError) {
        guard isKeystoreStale else { return }
        keystore = try Keystore(in: services.home)
        isKeystoreStale = false
    }

    /// Completes an interrupted change or repairs a copy: keeps only the copy that opened, and a key file it needs.
    private func settleKeystore(by opened: KeystoreCopy) {
        guard !isReadOnly else { return }
        do throws(StoreError) {
            if !keystore.isSettled { try writeKeystore(opened, over: opened) }
            if opened.protection == .passphrase { try KeyFile.destroy(in: services.home) }
        } catch { services.report("an unfinished change of the passphrase: \(error)") }
    }

    /// Commits appended data, wipes every key from memory, and serves no data until the next unlock.
    package func lock() { loader.lock() }

    package func close() {
        guard !isClosed else { return }
        lock()
        services.isClosed = true
        services.sweeper.drain()
        pages.close()
        services.journal.close()
        clock.close()
        services.directories.close()
        services.home.end()
        services.home.close()
    }

    // MARK: - After a run that was cut off

    // Data in the cache must be durable before we acknowledge a message or append behind a record.

    /// Makes the pages durable before the start reads them, and everything else if no barrier was refused. The key file
    /// was durable before it had its name.
    private func settlePages() {
        guard let doubt = services.home.doubt, !isReadOnly else { return }
        if doubt == .unsynchronised, (try? services.disk.synchronizeAll(services.home.descriptor)) != nil {
            return services.home.settle()
        }
        clock.isInDoubt = true
        do throws(StoreError) {
            try Keystore.rewrite(in: services.home)
            if doubt == .refused {
                try pages.rewrite()
                try services.journal.rewrite()
            }
            try clock.rewrite()
            try pages.synchronize()
            try services.journal.synchronize()
            try services.home.synchronize()
        } catch {
            services.report("what an earlier run has left cannot be made durable: \(error)")
            isUnsettled = true
            services.journal.needsReset = true
        }
    }

    /// Makes the inboxes' files durable. Nothing has read them yet, and overdue keys are destroyed by now.
    private func settleInboxes() {
        guard let doubt = services.home.doubt, !isReadOnly else { return }
        do throws(StoreError) { try services.directories.settleAll(doubt) } catch {
            services.report("what an earlier run has left cannot be made durable: \(error)")
            isUnsettled = true
        }
        if services.directories.unsettled.isEmpty, !isUnsettled { services.home.settle() }
    }
}
