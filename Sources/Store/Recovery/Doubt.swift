import Glibc
import Primitives

/// Why what is read of a home may be in the kernel's cache only, to be lost with the next power cut; the worst is greatest.
enum Doubt: Int, Comparable {
    /// A process was killed before its barriers, or a full disk has taken a part of a write.
    case unsynchronised
    /// The disk has refused a barrier: the kernel takes such pages for clean and does not write them again, whatever fsync
    /// says next time (Rebello et al., "Can Applications Recover from fsync Failures?", USENIX ATC 2020).
    case refused

    static func < (left: Doubt, right: Doubt) -> Bool { left.rawValue < right.rawValue }
}

/// How a run has gone so far, in the lock file after the process number. Without an fsync: a mark that a power cut takes
/// along is not needed any more. What the kernel calls its boot id would tell, but in some containers it is not the kernel's.
enum RunMark: String {
    /// All that it has written is durable.
    case ended = "ended   "
    case running = "running "
    case refused = "refused "

    static let offset: Int64 = 16
    private static let byteCount = 8

    func write(to file: FileDescriptor, on disk: any FileSystem) {
        // A full disk does not matter: there is room in the file's block.
        try? disk.write(file, at: Self.offset, Array(rawValue.utf8))
    }

    static func doubt(of file: FileDescriptor, on disk: any FileSystem) -> Doubt? {
        let bytes = (try? disk.read(file, at: offset, count: byteCount)) ?? []
        switch RunMark(rawValue: String(decoding: bytes, as: UTF8.self)) {
        case .ended: return nil
        case .running, nil: return .unsynchronised
        case .refused: return .refused
        }
    }
}

/// Directories of inboxes whose files may be in the kernel's cache only.
final class UnsettledDirectories {
    private var doubts: [String: Doubt] = [:]
    var isEmpty: Bool { doubts.isEmpty }

    subscript(_ directory: String) -> Doubt? {
        get { doubts[directory] }
        set { doubts[directory] = newValue }
    }
}

/// What an earlier run has left in the cache becomes durable before anything is built on it: an answer that we have a
/// message, or a record behind others.
extension Store {
    /// What a start reads, before it does; and everything else where nothing was refused. The keystore and the key file
    /// were durable before they had their names.
    func settlePages() {
        guard let doubt = home.doubt, !isReadOnly else { return }
        if doubt == .unsynchronised, (try? disk.synchronizeAll(home.descriptor)) != nil { return home.settle() }
        clock.isInDoubt = true
        do throws(StoreError) {
            if doubt == .refused {
                for file in [rowFile, columnFile, tombstoneFile] { try file.rewrite() }
                try journal.rewrite()
            }
            try clock.rewrite()
            for file in [rowFile, columnFile, tombstoneFile] { try file.synchronize() }
            try journal.synchronize()
            try home.synchronize()
        } catch {
            report("what an earlier run has left cannot be made durable: \(error)")
            isUnsettled = true
        }
    }

    /// The inboxes' files, which nothing has read yet: overdue keys are destroyed by now.
    func settleInboxes() {
        guard let doubt = home.doubt, !isReadOnly else { return }
        do throws(StoreError) {
            try onDisk(home.path(Self.inboxesName)) { () throws(SystemError) in
                for name in try disk.list(inboxes) where Hex.decode(name)?.count == 16 {
                    do throws(SystemError) { try settle(directory: name, doubt) } catch { unsettled[name] = doubt }
                }
                try disk.synchronize(inboxes, dataOnly: false)
            }
        } catch {
            report("what an earlier run has left cannot be made durable: \(error)")
            isUnsettled = true
        }
        if unsettled.isEmpty, !isUnsettled { home.settle() }
    }

    /// Before files of an inbox are read for the first time.
    /// - Throws: when the disk does not take them; nothing is served from them then.
    func settle(_ row: Row) throws(StoreError) {
        try bringBack(row)
        try writeOut(row)
        guard let doubt = unsettled[row.directory], !isReadOnly else { return }
        // Nothing is written between the reading and the writing.
        commits.committer.drain()
        try onDisk("\(home.path(Self.inboxesName))/\(row.directory)") { () throws(SystemError) in
            try settle(directory: row.directory, doubt)
            try disk.synchronize(inboxes, dataOnly: false)
        }
        unsettled[row.directory] = nil
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
        if doubt == .refused { try disk.rewrite(file, byteCount: status.byteCount) }
        try disk.synchronize(file, dataOnly: false)
    }
}

extension FileSystem {
    /// Writes what is read of a file in the place where it is. What cannot be read is not in the cache.
    func rewrite(_ file: FileDescriptor, byteCount: Int64) throws(SystemError) {
        let run: Int64 = 1 << 20
        let sector: Int64 = 4_096
        for start in stride(from: 0, to: byteCount, by: Int(run)) {
            let end = min(start + run, byteCount)
            if let bytes = try? read(file, at: start, count: Int(end - start)) {
                try write(file, at: start, bytes)
                continue
            }
            for offset in stride(from: start, to: end, by: Int(sector)) {
                guard let bytes = try? read(file, at: offset, count: Int(min(sector, end - offset))) else { continue }
                try write(file, at: offset, bytes)
            }
        }
    }
}
