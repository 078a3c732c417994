import Glibc

/// Why what is read of a home may be in the kernel's cache only, to be lost with the next power cut.
enum Doubt {
    /// A process was killed and may not have come to its barriers.
    case unsynchronised
    /// The disk has refused a barrier: the kernel takes such pages for clean and does not write them again, whatever fsync
    /// says next time (Rebello et al., "Can Applications Recover from fsync Failures?", USENIX ATC 2020).
    case refused
}

/// How a run has gone so far, in the lock file: with no fsync, because a mark that a power cut takes along is not needed
/// any more.
enum RunMark: String {
    /// All that it has written is durable.
    case ended = "ended   "
    case running = "running "
    case refused = "refused "

    /// After the process number; the ``FileSystem/bootID`` follows.
    static let offset: Int64 = 16
    private static let byteCount = 8

    private static func boot(_ disk: any FileSystem) -> String { String(disk.bootID.prefix(36)) }

    func write(to file: FileDescriptor, on disk: any FileSystem) {
        // A full disk does not matter: there is room in the file's block.
        try? disk.write(file, at: Self.offset, Array((rawValue + Self.boot(disk)).utf8))
    }

    static func doubt(of file: FileDescriptor, on disk: any FileSystem) -> Doubt? {
        let bytes = (try? disk.read(file, at: offset, count: byteCount + 36)) ?? []
        let mark = RunMark(rawValue: String(decoding: bytes.prefix(byteCount), as: UTF8.self))
        // What an earlier start of the machine had in its cache is lost already.
        let isCached = String(decoding: bytes.dropFirst(byteCount), as: UTF8.self) == boot(disk)
        switch mark {
        case .ended: return nil
        case .running: return isCached ? .unsynchronised : nil
        case .refused: return isCached ? .refused : nil
        case nil: return .unsynchronised
        }
    }
}

extension Store {
    /// Makes durable what an earlier run, or this one, may have left in the cache, before anything is built on it: an answer
    /// that we have a message, or a record behind others. Once, file by file, as PostgreSQL does before it recovers.
    ///
    /// What cannot be made durable stays in doubt, is reported, and is tried again at the next unlock.
    func settleDoubt() {
        guard let doubt = home.doubt, !isReadOnly else { return }
        var failure: (path: String, error: SystemError)?
        func attempt(_ path: String, _ body: () throws(SystemError) -> Void) {
            do throws(SystemError) { try body() } catch { failure = failure ?? (path, error) }
        }
        // The keystore and the key file are never written again: they were durable before they had their names.
        for name in [Self.rowsName, Self.columnsName, Self.tombstonesName, ClockMark.name] {
            attempt(name) { () throws(SystemError) in try settle(name, in: home.descriptor, doubt) }
        }
        attempt(".") { () throws(SystemError) in try disk.synchronize(home.descriptor, dataOnly: false) }
        attempt(Self.inboxesName) { () throws(SystemError) in
            for name in try disk.list(inboxes) {
                attempt("\(Self.inboxesName)/\(name)") { () throws(SystemError) in
                    try settle(directory: name, doubt)
                }
            }
            try disk.synchronize(inboxes, dataOnly: false)
        }
        if let failure {
            report("\(home.path(failure.path)): what an earlier run has left cannot be made durable: \(failure.error)")
        } else {
            home.settle()
        }
    }

    private func settle(directory name: String, _ doubt: Doubt) throws(SystemError) {
        let directory: FileDescriptor
        do throws(SystemError) {
            directory = try openDirectory(name)
        } catch {
            // Removed meanwhile, or what does not belong there.
            if [ENOENT, ENOTDIR, ELOOP].contains(error.code) { return }
            throw error
        }
        defer { disk.close(directory) }
        for file in try disk.list(directory) { try settle(file, in: directory, doubt) }
        try disk.synchronize(directory, dataOnly: false)
    }

    private func settle(_ name: String, in directory: FileDescriptor, _ doubt: Doubt) throws(SystemError) {
        let file: FileDescriptor
        do throws(SystemError) {
            file = try disk.open(name, in: directory, .write)
        } catch {
            if [ENOENT, EISDIR, ELOOP, ENXIO].contains(error.code) { return }
            throw error
        }
        defer { disk.close(file) }
        let status = try disk.status(file)
        guard status.kind == .file else { return }
        if doubt == .refused {
            let chunk = 1 << 20
            for offset in stride(from: 0, to: status.byteCount, by: chunk) {
                try disk.write(file, at: offset, try disk.read(file, at: offset, count: chunk))
            }
        }
        try disk.synchronize(file, dataOnly: false)
    }
}
