import Cryptography

extension Store {
    // MARK: - Writing

    /// Stores a message; durable when a later commit completes.
    /// - Parameters:
    ///   - id: must not be among the messages that the inbox has in memory.
    ///   - expiresAt: milliseconds since the epoch; at this time the message is gone. It may come before the tier's
    ///     lifetime ends.
    ///   - place: the lowest place allowed.
    ///   - isHidden: for attachment chunks and reactions. Only ``visitHidden(_:from:_:)`` and calls that take an
    ///     identifier find the record: ``read(_:id:now:)``, ``contains(_:id:)``, ``update(_:id:payload:)``,
    ///     ``reschedule(_:id:tier:expiresAt:payload:)`` and ``erase(_:id:)``. It has no place in the order, and no
    ///     list, count or ``ReapReport`` includes it.
    @discardableResult package func append(
        _ id: RowID, id messageID: Bytes16, tier: Tier, expiresAt: Int64, payload: [UInt8], notBefore place: UInt64 = 0,
        isHidden: Bool = false
    ) throws(StoreError) -> MessagePlace {
        let row = try liveRow(id)
        guard tier != .fuse, tier != .control else { throw .invalidArgument("tier for a message") }
        let order = try append(
            to: row, messageID, tier, expiresAt, payload, notBefore: place, kind: isHidden ? .hidden : .listed)
        return MessagePlace(order: order, tier: tier, expiresAt: expiresAt)
    }

    /// - Returns: the record's order.
    @discardableResult private func append(
        to row: Row, _ id: Bytes16, _ tier: Tier, _ expiresAt: Int64, _ payload: [UInt8], notBefore place: UInt64 = 0,
        kind: MessageRecord.Kind = .listed
    ) throws(StoreError) -> UInt64 {
        try index(row)
        guard payload.count <= RecordFile.maximumPlaintext else { throw .tooLarge(limit: RecordFile.maximumPlaintext) }
        guard Tier.times.contains(expiresAt) else { throw .invalidArgument("time \(expiresAt)") }
        guard kind == .status || row.index[id] == nil else { throw .duplicateMessage }
        let segment = try segment(for: row, tier, expiresAt: expiresAt)
        let order = kind == .hidden ? row.nextOrder : max(row.nextOrder, place)
        write(id, expiresAt, order: order, version: 0, kind: kind, payload, to: segment)
        return order
    }

    /// Stores a new version with the same expiry and place. The old ciphertext is overwritten when the message expires.
    package func update(_ id: RowID, id messageID: Bytes16, payload: [UInt8]) throws(StoreError) {
        let row = try liveRow(id)
        guard payload.count <= RecordFile.maximumPlaintext else { throw .tooLarge(limit: RecordFile.maximumPlaintext) }
        guard let place = try find(messageID, in: row), let holder = row.segments[Int(place.file)] else {
            throw .unknownMessage
        }
        try update(holder.records[place.record], in: holder, payload)
    }

    func update(_ old: MessageRecord, in holder: Segment, _ payload: [UInt8]) throws(StoreError) {
        if isReadOnly { throw .readOnly(path: home.path) }
        guard old.version < MessageRecord.maximumVersion else { throw .invalidArgument("number of versions") }
        let segment = holder.acceptsAppends ? holder : try segment(for: holder.row, in: holder.column)
        write(old.id, old.expiresAt, order: old.order, version: old.version + 1, kind: old.kind, payload, to: segment)
    }

    private func write(
        _ id: Bytes16, _ expiresAt: Int64, order: UInt64, version: UInt32, kind: MessageRecord.Kind, _ payload: [UInt8],
        to segment: Segment
    ) {
        let number = segment.file.nextNumber
        let bounds = segment.bounds
        let span = segment.file.append(payload, after: MessageRecord.headerByteCount, nonces: &nonces) { target in
            MessageRecord.writeHeader(
                id: id, expiresAt: expiresAt, order: order, version: version, kind: kind, bounds: bounds, to: target)
        }
        commits.note(segment.file)
        segment.bounds.add(order: order, expiresAt: expiresAt, kind: kind)
        enter(
            MessageRecord(
                id: id, expiresAt: expiresAt, order: order, version: version, number: number,
                length: UInt32(truncatingIfNeeded: span.length), offset: UInt32(clamping: span.offset), kind: kind,
                state: .live), in: segment)
    }

    /// Moves a live message or hidden record to another tier and expiry. Identifier and order stay, and the payload
    /// unless a new one is given. A later commit makes it durable and then overwrites the old ciphertext.
    ///
    /// A crash in between leaves both versions. The new one is served then, and the next read of the inbox overwrites
    /// the old one. If the new one has expired by then, the old one is served. So the message expires at the later of
    /// its two expiries, at the latest.
    /// - Parameters:
    ///   - expiresAt: milliseconds since the epoch.
    ///   - payload: `nil` keeps the old one.
    /// - Throws: ``StoreError/unknownMessage`` too.
    package func reschedule(_ id: RowID, id messageID: Bytes16, tier: Tier, expiresAt: Int64, payload: [UInt8]? = nil)
        throws(StoreError)
    {
        guard tier != .fuse, tier != .control else { throw .invalidArgument("tier for a message") }
        guard Tier.times.contains(expiresAt) else { throw .invalidArgument("time \(expiresAt)") }
        guard (payload?.count ?? 0) <= RecordFile.maximumPlaintext else {
            throw .tooLarge(limit: RecordFile.maximumPlaintext)
        }
        let row = try liveRow(id)
        if isReadOnly { throw .readOnly(path: home.path) }
        guard let place = try find(messageID, in: row), let holder = row.segments[Int(place.file)],
            let message = try message(place, row, latestHide)
        else { throw .unknownMessage }
        let old = holder.records[place.record]
        let column = try column(tier, expiresAt: expiresAt)
        if old.expiresAt == expiresAt, holder.column === column {
            if let payload { try update(old, in: holder, payload) }
            return
        }
        guard old.version < MessageRecord.maximumVersion else { throw .invalidArgument("number of versions") }
        let segment = try segment(for: row, in: column)
        var payload = payload ?? message.payload
        defer { wipe(&payload) }
        write(messageID, expiresAt, order: old.order, version: old.version + 1, kind: old.kind, payload, to: segment)
        // The new version may have returned to an expiry of an older version.
        row.halfMoved.remove(messageID)
        // Older versions have the old expiry, and so the old column.
        let holders = place.hasOlder ? row.orderedSegments.filter { $0.column === holder.column } : [holder]
        eraseOlder(messageID, in: holders)
    }

    /// Withdraws a message and overwrites all its versions; durable when a later commit completes.
    package func erase(_ id: RowID, id messageID: Bytes16) throws(StoreError) {
        let row = try liveRow(id)
        _ = try find(messageID, in: row)
        try erase(in: row, messageID)
    }

    func erase(in row: Row, _ id: Bytes16) throws(StoreError) {
        if isReadOnly { throw .readOnly(path: home.path) }
        guard let place = row.index[id], let holder = row.segments[Int(place.file)] else { throw .unknownMessage }
        row.removeFromIndex(id)
        if row.isRefused { row.erasedMeanwhile.insert(id) }
        let versions = place.hasOlder || row.hasFailures ? row.versions(of: id) : [(holder, place.record)]
        // A power cut must not leave an older version where the disk had a newer one: the older one would be served. So
        // the newest version that is surely on the disk, and versions that may be on it, are zeroed last.
        let newest =
            versions.lastIndex { segment, position in Int64(segment.records[position].offset) < segment.file.durable }
            ?? versions.endIndex
        for (index, (segment, position)) in versions.enumerated() {
            overwrite(segment, position, versions.count > 1 && index >= newest ? .last : .first)
        }
    }

    // MARK: - Reading

    /// The payload, or `nil` when the message is unknown or due.
    package func read(_ id: RowID, id messageID: Bytes16, now: Int64) throws(StoreError) -> [UInt8]? {
        let row = try liveRow(id)
        guard !isDue(row, now), let place = try find(messageID, in: row) else { return nil }
        return try message(place, row, now)?.payload
    }

    /// Whether the message is stored, even if it is due.
    package func contains(_ id: RowID, id messageID: Bytes16) throws(StoreError) -> Bool {
        let row = try liveRow(id)
        return try find(messageID, in: row) != nil
    }

    /// All messages in arrival order, in memory at once. For an inbox that others fill use ``visit(_:from:now:_:)``.
    /// - Parameter last: at most this many, the latest.
    package func list(_ id: RowID, last: Int = .max, now: Int64) throws(StoreError) -> [StoredMessage] {
        var found: [StoredMessage] = []
        try visitBack(id, now: now) { _, message in
            if let message { found.append(message) }
            return found.count < last
        }
        return found.reversed()
    }

    /// The row once its newest messages are indexed.
    private func indexedRow(_ id: RowID) throws(StoreError) -> Row {
        let row = try liveRow(id)
        try index(row)
        return row
    }

    /// Sealed bytes and number of all live records, hidden ones included. Segments not read since the inbox woke count
    /// with their size on the disk, including old versions and erased records.
    package func storedAmount(_ id: RowID) throws(StoreError) -> (byteCount: Int64, recordCount: Int) {
        let row = try indexedRow(id)
        var amount = (byteCount: row.storedByteCount, recordCount: row.index.count)
        for segment in row.segments.values where segment.isProbed && segment.loadedFrom > 0 {
            amount.byteCount += segment.loadedFrom
            amount.recordCount += Int(segment.records.first?.number ?? 0)
        }
        return amount
    }

    /// `nil` for a message that is due at `now`, or was due at the last reap.
    func message(_ place: Row.Place, _ row: Row, _ now: Int64) throws(StoreError) -> StoredMessage? {
        guard let segment = row.segments[Int(place.file)], segment.expiry(of: place.record) > max(now, latestHide)
        else { return nil }
        let record = segment.records[place.record]
        let file = segment.file
        var found = file.withUnwritten(record.span) { file.frames.open($0, number: record.number) }
        if found == nil {
            let descriptor = try openFiles.descriptor(of: file)
            let sealed = try onDisk(file.path) { () throws(SystemError) in
                try disk.read(descriptor, at: Int64(record.offset), count: Int(record.length))
            }
            found = file.frames.open(sealed, number: record.number)
        }
        guard case .opened(var plaintext) = consume found, plaintext.count >= MessageRecord.headerByteCount else {
            report("\(inboxPath(file.path)): a message cannot be opened")
            return nil
        }
        // In place, because a copy of a file's chunk would cost as much as opening it.
        plaintext.removeFirst(MessageRecord.headerByteCount)
        return StoredMessage(id: record.id, expiresAt: record.expiresAt, payload: plaintext)
    }

    // MARK: - In arrival order

    // A message keeps its place across new versions and expiries. Later messages have higher places.

    /// Visits the messages that are not due in arrival order, opening one at a time.
    /// - Parameters:
    ///   - place: the first place.
    ///   - body: returns whether to continue.
    package func visit(
        _ id: RowID, from place: UInt64 = 0, now: Int64,
        _ body: (_ place: UInt64, _ message: StoredMessage) throws(StoreError) -> Bool
    ) throws(StoreError) { try visit(indexedRow(id), from: place, now: now, body) }

    func visit(
        _ row: Row, from place: UInt64, now: Int64,
        _ body: (_ place: UInt64, _ message: StoredMessage) throws(StoreError) -> Bool
    ) throws(StoreError) {
        guard !isDue(row, now) else { return }
        read(row, downTo: place)
        row.sortTimeline()
        // Changes made by the body show at the next visit, but removed messages are skipped at once.
        let timeline = row.timeline
        for entry in timeline[row.firstEntry(from: place)...] {
            guard let record = served(entry, row, now), let message = try message(record, row, now) else { continue }
            guard try body(entry.order, message) else { return }
        }
    }

    /// Visits the messages that are not due, from the last one before `end` down to `place`.
    /// - Parameter opens: whether they are opened; otherwise the body gets only their places.
    package func visitBack(
        _ id: RowID, from place: UInt64 = 0, before end: UInt64 = .max, now: Int64, opens: Bool = true,
        _ body: (_ place: UInt64, _ message: StoredMessage?) throws(StoreError) -> Bool
    ) throws(StoreError) {
        let row = try indexedRow(id)
        guard !isDue(row, now) else { return }
        var end = min(end, row.nextOrder)
        var count: UInt64 = 128
        // Goes back from the end in stretches, each twice as long as the previous one.
        while end > place {
            let begin = end - place > count ? end - count : place
            read(row, downTo: begin)
            row.sortTimeline()
            let timeline = row.timeline[row.firstEntry(from: begin)..<row.firstEntry(from: end)]
            for entry in timeline.reversed() {
                guard let record = served(entry, row, now) else { continue }
                let opened = opens ? try message(record, row, now) : nil
                if opens, opened == nil { continue }
                guard try body(entry.order, opened) else { return }
            }
            end = begin
            count *= 2
        }
    }

    /// The place of a message; `nil` when it is not stored or hidden.
    package func place(_ id: RowID, of messageID: Bytes16) throws(StoreError) -> UInt64? {
        let row = try liveRow(id)
        guard let record = try find(messageID, in: row).flatMap({ row.record(at: $0) }), record.isListed else {
            return nil
        }
        return record.order
    }

    /// A lower bound of the next message's place.
    package func nextPlace(_ id: RowID) throws(StoreError) -> UInt64 { try indexedRow(id).nextOrder }

    /// Whether every segment of the inbox could be read. Refused reads are retried after a second.
    package func isWhole(_ id: RowID) -> Bool { grid.rows[id].map { !$0.hasUnreadSegments } ?? true }

    /// Identifiers of listed messages that are not due, without opening them.
    /// - Parameters:
    ///   - digits: the hexadecimal digits of the prefix.
    ///   - limit: the most results.
    package func messageIDs(_ id: RowID, beginningWith digits: [UInt8], limit: Int, now: Int64) throws(StoreError)
        -> [Bytes16]
    {
        let row = try liveRow(id)
        try indexAll(row)
        guard !isDue(row, now), let prefix = Bytes16.Prefix(digits: digits) else { return [] }
        row.sortTimeline()
        var found: [Bytes16] = []
        for entry in row.timeline where prefix.matches(entry.id) {
            guard found.count < limit else { break }
            if served(entry, row, now) != nil { found.append(entry.id) }
        }
        return found
    }

    /// The position of the entry's message, unless it was removed or is due.
    private func served(_ entry: (order: UInt64, id: Bytes16), _ row: Row, _ now: Int64) -> Row.Place? {
        guard let place = row.index[entry.id], let segment = row.segments[Int(place.file)],
            segment.records[place.record].order == entry.order, segment.expiry(of: place.record) > max(now, latestHide)
        else { return nil }
        return place
    }

    // MARK: - Hidden records

    /// Whether the inbox may have hidden records. Unread segments tell by the bounds of their last record.
    package func hasHidden(_ id: RowID) throws(StoreError) -> Bool {
        let row = try indexedRow(id)
        return row.index.count > row.visibleCount
            || row.segments.values.contains { $0.loadedFrom > 0 && $0.prefix.hasHidden }
    }

    /// Visits the identifiers of hidden records in no order, without opening them.
    /// - Parameters:
    ///   - place: only records appended after all messages with lower places.
    ///   - body: gets each identifier and its payload's size, and returns whether to continue.
    package func visitHidden(
        _ id: RowID, from place: UInt64 = 0, _ body: (_ id: Bytes16, _ byteCount: Int) throws(StoreError) -> Bool
    ) throws(StoreError) {
        let row = try indexedRow(id)
        read(row, downTo: place)
        // The body may read further records into memory.
        let found = row.segments.values.flatMap { segment in
            segment.records.all.filter { $0.kind == .hidden && $0.state == .live && $0.order >= place }
        }
        for record in found { guard try body(record.id, record.payloadByteCount) else { return } }
    }

    // MARK: - Statuses

    // Status records hold facts learned after messages were stored, such as their delivery. One small record replaces
    // new versions of many messages, and is read together with them.

    /// - Returns: `nil` when the message is not stored.
    package func locate(_ id: RowID, _ message: Bytes16) throws(StoreError) -> MessagePlace? {
        let row = try liveRow(id)
        guard let place = try find(message, in: row), let segment = row.segments[Int(place.file)] else { return nil }
        let record = segment.records[place.record]
        return MessagePlace(order: record.order, tier: segment.sidecar.tier, expiresAt: record.expiresAt)
    }

    /// Appends a status record; durable when a later commit completes. It has no id, and no list, count or
    /// ``ReapReport`` includes it. The caller defines its content.
    /// - Parameters:
    ///   - tier: of the concerned message that expires last.
    ///   - expiresAt: the expiry of that message.
    ///   - places: from the first to the last concerned message; all are stored already.
    package func appendStatus(
        _ id: RowID, tier: Tier, expiresAt: Int64, concerning places: ClosedRange<UInt64>, _ status: [UInt8]
    ) throws(StoreError) {
        let row = try liveRow(id)
        guard tier != .fuse, tier != .control else { throw .invalidArgument("tier for a status") }
        // After all concerned messages: a hidden record has the place of the next message.
        try append(
            to: row, Bytes16(places.lowerBound, places.upperBound), tier, expiresAt, status,
            notBefore: places.upperBound, kind: .status)
    }

    /// Visits the statuses that are not due, in append order.
    /// - Parameters:
    ///   - places: only statuses that concern at least one of these places.
    ///   - body: returns whether to continue.
    package func visitStatuses(
        _ id: RowID, concerning places: ClosedRange<UInt64>, now: Int64,
        _ body: (_ status: [UInt8]) throws(StoreError) -> Bool
    ) throws(StoreError) {
        let row = try indexedRow(id)
        guard !isDue(row, now) else { return }
        read(row, downTo: places.lowerBound)
        for place in row.statuses(concerning: places) {
            guard let status = try message(place, row, now) else { continue }
            guard try body(status.payload) else { return }
        }
    }

    // MARK: - Fan-out lists

    // Members who still have to learn of an explosion.

    /// The list belongs to no inbox and expires with a seven-day bucket. Saving under the same id keeps the expiry.
    package func saveFanOut(id: Bytes16, expiresAt: Int64, payload: [UInt8]) throws(StoreError) {
        let row = try indexedControlRow()
        guard payload.count <= RecordFile.maximumPlaintext else { throw .tooLarge(limit: RecordFile.maximumPlaintext) }
        if let place = row.index[id], let holder = row.segments[Int(place.file)] {
            try update(holder.records[place.record], in: holder, payload)
        } else {
            try append(to: row, id, .control, expiresAt, payload)
        }
    }

    /// - Returns: `nil` when it does not exist or has expired.
    package func fanOut(id: Bytes16, now: Int64) throws(StoreError) -> [UInt8]? {
        let row = try indexedControlRow()
        guard let place = row.index[id] else { return nil }
        return try message(place, row, now)?.payload
    }

    /// In the order of their first saving.
    package func fanOuts(now: Int64) throws(StoreError) -> [StoredMessage] {
        var found: [StoredMessage] = []
        try visit(indexedControlRow(), from: 0, now: now) { _, message in
            found.append(message)
            return true
        }
        return found
    }

    /// Overwrites the list with the next commit. An unknown id is an error only if some segments are unreadable.
    package func removeFanOut(id: Bytes16) throws(StoreError) {
        let row = try indexedControlRow()
        guard row.index[id] == nil else { return try erase(in: row, id) }
        if isReadOnly { throw .readOnly(path: home.path) }
        if row.hasUnreadSegments { throw .damaged(what: inboxPath(row.directory)) }
        // A version whose commit failed may be on the disk.
        for (segment, position) in row.versions(of: id) { overwrite(segment, position) }
    }

    private func indexedControlRow() throws(StoreError) -> Row {
        _ = try unlockedKeys()
        guard let controlRow = grid.controlRow else { throw .locked }
        try indexAll(controlRow)
        return controlRow
    }
}
