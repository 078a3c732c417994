import Glibc
import Primitives

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
