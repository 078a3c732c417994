import Cryptography

/// A view of a home without its lock and keys, for `mayfly doctor`.
package struct HomeInspection: Sendable {
    package let keystoreCopyCount: Int
    package let protection: Protection
    /// The latest time ever saved, in milliseconds since the epoch. `nil`: neither copy can be read.
    package let clockMark: Int64?
    package let erasurePromise: ErasurePromise
    private let keystore: Keystore

    /// Checks owner, modes and the directories above, and changes nothing.
    /// - Throws: the errors with which ``Store/open(home:fileSystem:now:argon2Floor:committingOn:)`` refuses the
    ///   directory.
    package init(home path: String, fileSystem disk: any FileSystem = PosixFileSystem()) throws(StoreError) {
        let home = try HomeDirectory(path, disk: disk)
        defer { home.close() }
        keystore = try Keystore(in: home)
        try home.checkFiles()
        for name in SlotFile.names { disk.close(try home.open(name, [])) }
        if keystore.protection == .keyFile { disk.close(try home.open(KeyFile.name, [])) }
        keystoreCopyCount = keystore.copies.count
        protection = keystore.protection
        let file = try home.open(ClockMark.name, [])
        defer { disk.close(file) }
        erasurePromise = disk.erasurePromise(home: home.descriptor, smallFile: file)
        clockMark = ClockMark.read(file, disk)
    }

    /// - Throws: ``StoreError/wrongPassphrase``, ``StoreError/weakKeystore(iterations:memoryByteCount:)``,
    ///   ``StoreError/outOfMemory(byteCount:)``.
    package func check(passphrase: borrowing SecretBytes?) throws(StoreError) {
        _ = try keystore.open(passphrase: passphrase, keyFile: nil, floor: .standard)
    }
}

extension HomeDirectory {
    /// Refuses a home with files that others may use, or pages of a later format. Writes nothing. An unreadable file is
    /// left to its own reader to report.
    func checkFiles() throws(StoreError) {
        let files: [(name: String, magic: Magic?)] = [
            ("lock", nil), (ClockMark.name, nil), (KeyFile.name, nil), (SlotFile.rowsName, nil),
            (SlotFile.columnsName, ColumnHeader.magic), (SlotFile.tombstonesName, TombstonePage.magic),
            (Journal.name, JournalBlock.magic),
        ]
        for (name, magic) in files {
            let file: FileDescriptor
            do throws(StoreError) { file = try open(name, []) } catch {
                guard error.kind != .permission else { throw error }
                continue
            }
            defer { disk.close(file) }
            if let magic { try refuseLater(magic, file, name) }
        }
    }

    private func refuseLater(_ magic: Magic, _ file: FileDescriptor, _ name: String) throws(StoreError) {
        let run: Int64 = 1 << 20
        let size = (try? disk.status(file))?.byteCount ?? 0
        let count = name == Journal.name ? min(size, Journal.maximumByteCount) : size
        for start in stride(from: 0, to: count, by: Int(run)) {
            guard let bytes = try? disk.read(file, at: start, count: Int(min(run, count - start))) else { continue }
            for page in stride(from: 0, to: bytes.count, by: SlotFile.pageByteCount)
            where bytes[page] == magic.bytes[0] && magic.isLater(bytes[page...]) {
                throw .newerFormat(path: path(name))
            }
        }
    }
}

/// A test write: whether a disk that refused a write accepts new data again.
extension HomeDirectory {
    private static let probeName = "probe"
    private static let probeByteCount = 65_536

    /// Makes a few pages durable in a temporary, already unlinked file.
    /// - Parameter byteCount: size of the next write.
    func probe(for byteCount: Int) throws(StoreError) {
        try onDisk(path) { () throws(SystemError) in
            // Left, empty, by a process that ended in between.
            try? disk.remove(Self.probeName, in: descriptor, isDirectory: false)
            let file = try disk.open(Self.probeName, in: descriptor, [.write, .create])
            defer { disk.close(file) }
            try disk.remove(Self.probeName, in: descriptor, isDirectory: false)
            let pages = [UInt8](repeating: 0, count: Self.probeByteCount)
            // A record takes space in two files: the journal and its segment.
            for offset in stride(from: 0, through: 2 * max(0, byteCount), by: pages.count) {
                try disk.write(file, at: Int64(offset), pages)
            }
            try disk.synchronize(file, dataOnly: false)
        }
    }
}
