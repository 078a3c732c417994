import Crypto

/// Moving a message to another expiry: for lifetimes that count from reading.
extension Store {
    /// Moves a live message or hidden record to another tier and expiry, sooner or later than before; identifier, order
    /// and payload stay. Durable when a later commit completes, and that commit overwrites the old ciphertext too: after
    /// the new one is on the disk, so that the message is never lost. A crash in between leaves both; the new one is
    /// served then, and the old one is overwritten when the inbox is read; if the new one's time has come by then, the old
    /// one is served again. So the message goes at the later of its two expiries, at the latest.
    /// - Parameter expiresAt: milliseconds since the epoch.
    /// - Throws: ``StoreError/unknownMessage`` too.
    package func reschedule(
        _ id: RowID,
        id messageID: [UInt8],
        tier: Tier,
        expiresAt: Int64
    ) throws(StoreError) {
        guard tier != .fuse, tier != .control else { throw .invalidArgument("tier for a message") }
        guard Tier.times.contains(expiresAt) else { throw .invalidArgument("time \(expiresAt)") }
        let row = try row(id)
        if isReadOnly { throw .readOnly(path: home.path) }
        let messageID = try Bytes16.parse(messageID)
        guard let place = try find(messageID, in: row), let holder = row.segments[Int(place.file)],
            let message = try open(place, row, latestHide)
        else { throw .unknownMessage }
        let old = holder.records[place.record]
        let column = try column(tier, expiresAt: expiresAt)
        if old.expiresAt == expiresAt, holder.column === column { return }
        guard old.version < MessageRecord.maximumVersion else { throw .invalidArgument("number of versions") }
        let segment = try segment(for: row, in: column)
        var payload = message.payload
        defer { wipe(&payload) }
        write(
            messageID,
            expiresAt,
            order: old.order,
            version: old.version + 1,
            kind: old.kind,
            byteCount: payload.count,
            to: segment
        ) { $0.copyBytes(from: payload) }
        // The new one may have come back to an expiry that an older version had.
        row.halfMoved.remove(messageID)
        // Versions of before have the expiry of the old one, and so its column.
        let holders = place.hasOlder ? row.orderedSegments.filter { $0.column === holder.column } : [holder]
        eraseOlder(messageID, in: holders)
    }

    /// Has every superseded version with another expiry overwritten, once the live one is durable.
    private func eraseOlder(_ id: Bytes16, in holders: [Segment]) {
        guard let row = holders.first?.row, let live = row.index[id].flatMap({ row.record(at: $0) }) else { return }
        for holder in holders {
            for position in holder.records.indices {
                let record = holder.records[position]
                guard record.isVersion(of: id), record.state == .superseded, record.expiresAt != live.expiresAt else {
                    continue
                }
                holder.records[position].state = .moving
                holder.file.erase(record.span, .moved)
                commits.note(holder.file)
            }
        }
    }

    /// What an interrupted move has left twice: the newer version is made durable, and the older one overwritten.
    func eraseLeftBehind(_ row: Row) {
        guard !row.halfMoved.isEmpty, !isReadOnly else { return }
        for id in row.halfMoved.sorted(by: { $0.bytes.lexicographicallyPrecedes($1.bytes) }) {
            guard let place = row.index[id], let segment = row.segments[Int(place.file)] else { continue }
            segment.file.needsSynchronizing = true
            commits.note(segment.file)
            eraseOlder(id, in: row.orderedSegments)
        }
        row.halfMoved = []
        movesAreWaiting = true
    }
}
