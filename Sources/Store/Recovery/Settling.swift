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
            try directories.settleAll(doubt)
        } catch {
            report("what an earlier run has left cannot be made durable: \(error)")
            isUnsettled = true
        }
        if directories.unsettled.isEmpty, !isUnsettled { home.settle() }
    }

    /// Before files of an inbox are read for the first time.
    /// - Throws: when the disk does not take them; nothing is served from them then.
    func settle(_ row: Row) throws(StoreError) {
        try directories.bringBack(row.directory)
        try writeOut(row)
        guard let doubt = directories.unsettled[row.directory], !isReadOnly else { return }
        // Nothing is written between the reading and the writing.
        commits.committer.drain()
        try directories.settle(row.directory, doubt)
    }
}
