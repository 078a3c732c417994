extension Store {
    /// Drops the loaded state log of an inbox that goes to sleep; the next use reads it again. What no commit has made
    /// durable yet stays.
    package func release(_ id: RowID) {
        guard let row = rows[id], let log = row.log, !log.file.isDirty, log.file.inFlight.isEmpty, log.covered.isEmpty
        else { return }
        discard(log.file)
        stateLogs[log.file.number] = nil
        row.log = nil
        row.logIsLoaded = false
    }
}
