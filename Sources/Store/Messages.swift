import Primitives

/// A stored message, opened.
package struct StoredMessage: Equatable, Sendable {
    /// 16 bytes.
    package let id: [UInt8]
    /// Milliseconds since the epoch.
    package let expiresAt: Int64
    package let payload: [UInt8]
}

extension Store {
    /// Stores a message; it is durable when a later commit completes.
    /// - Parameters:
    ///   - id: 16 bytes, new in this inbox.
    ///   - expiresAt: milliseconds since the epoch. At it the message is gone. It may be sooner than the tier's lifetime.
    ///   - place: its place is this one or a later one.
    ///   - isHidden: found by its identifier only: ``read(_:id:now:)``, ``contains(_:id:)``, ``update(_:id:payload:)``
    ///     and ``erase(_:id:)`` work as with any other; it is in no list and no count, has no place in the order, and no
    ///     ``ReapReport`` names it. For the parts of attachments.
    package func append(
        _ id: RowID,
        id messageID: [UInt8],
        tier: Tier,
        expiresAt: Int64,
        payload: [UInt8],
        notBefore place: UInt64 = 0,
        isHidden: Bool = false
    ) throws(StoreError) {
        guard tier != .fuse, tier != .control else { throw .invalidArgument("tier for a message") }
        let row = try row(id)
        try append(to: row, MessageID.parse(messageID), tier, expiresAt, payload, notBefore: place, isHidden: isHidden)
    }

    func append(
        to row: Row,
        _ id: MessageID,
        _ tier: Tier,
        _ expiresAt: Int64,
        _ payload: [UInt8],
        notBefore place: UInt64 = 0,
        isHidden: Bool = false
    ) throws(StoreError) {
        try index(row)
        guard payload.count <= Self.maximumPayload else { throw .tooLarge(limit: Self.maximumPayload) }
        guard Tier.times.contains(expiresAt) else { throw .invalidArgument("time \(expiresAt)") }
        guard row.index[id] == nil else { throw .duplicateMessage }
        let segment = try segment(for: row, in: column(tier, expiresAt: expiresAt))
        let order = isHidden ? 0 : max(row.nextOrder, place)
        write(id, expiresAt, order: order, version: 0, isHidden: isHidden, payload, to: segment)
    }

    /// A new version of a message, with the same expiry and place. The old version's ciphertext is overwritten when the
    /// message expires.
    package func update(_ id: RowID, id messageID: [UInt8], payload: [UInt8]) throws(StoreError) {
        let row = try row(id)
        try index(row)
        guard payload.count <= Self.maximumPayload else { throw .tooLarge(limit: Self.maximumPayload) }
        guard let place = row.index[try MessageID.parse(messageID)], let holder = row.segments[Int(place.file)] else {
            throw .unknownMessage
        }
        let old = holder.records[place.record]
        guard old.version < MessageRecord.maximumVersion else { throw .invalidArgument("number of versions") }
        let segment = holder.acceptsAppends ? holder : try segment(for: row, in: holder.column)
        write(
            old.id,
            old.expiresAt,
            order: old.order,
            version: old.version + 1,
            isHidden: old.isHidden,
            payload,
            to: segment
        )
    }

    func write(
        _ id: MessageID,
        _ expiresAt: Int64,
        order: UInt64,
        version: UInt32,
        isHidden: Bool,
        _ payload: [UInt8],
        to segment: Segment
    ) {
        var plaintext = MessageRecord.encode(
            id: id,
            expiresAt: expiresAt,
            order: order,
            version: version,
            isHidden: isHidden,
            payload: payload
        )
        defer { wipe(&plaintext) }
        let number = segment.file.nextNumber
        let span = segment.file.append(plaintext)
        markDirty(segment.file)
        enter(
            MessageRecord(
                id: id,
                expiresAt: expiresAt,
                order: order,
                version: version,
                number: number,
                length: UInt32(span.length),
                offset: UInt32(clamping: span.offset),
                isHidden: isHidden,
                state: .live
            ),
            in: segment
        )
        announce(segment)
    }

    /// Takes a message out of service and overwrites every version of it; durable when a later commit completes.
    /// - Throws: also when a file that has failed before cannot be overwritten; ``reap(hide:destroy:)`` tries again.
    package func erase(_ id: RowID, id messageID: [UInt8]) throws(StoreError) {
        let row = try row(id)
        try index(row)
        try erase(in: row, MessageID.parse(messageID))
    }

    func erase(in row: Row, _ id: MessageID) throws(StoreError) {
        if isReadOnly { throw .readOnly(path: home.path) }
        guard let place = row.index[id], let holder = row.segments[Int(place.file)] else { throw .unknownMessage }
        _ = try descriptor(of: holder.file)
        row.removeFromIndex(id)
        if row.isRefused { row.erasedMeanwhile.insert(id) }
        // One whose commit has failed may be on the disk, too.
        let mayHaveFailed = row.segments.keys.contains { failedFiles.contains($0) }
        let versions = place.hasOlder || mayHaveFailed ? row.versions(of: id) : [(holder, place.record)]
        // A power cut must not leave an older version where a newer one was on the disk: that would be served. So the zeros
        // over the newest that is there for certain, and over what may or may not be there by now, come last.
        let newest = versions.lastIndex { segment, position in position < segment.durableCount } ?? versions.endIndex
        var failure: StoreError?
        for (index, (segment, position)) in versions.enumerated() {
            do throws(StoreError) {
                if segment.file.isClosed, segment.records[position].state != .erased {
                    try overwriteNow(segment, segment.records[position].span)
                    segment.records[position].state = .erased
                } else {
                    overwrite(segment, position, isLast: place.hasOlder && index >= newest)
                }
            } catch {
                overwrite(segment, position)
                failure = error
            }
        }
        if let failure { throw failure }
    }

    /// Zeros over a record with the next commit. On a file that has failed before: with the next reap, and read back.
    /// - Parameter isLast: once the other zeros of the commit are on the disk.
    func overwrite(_ segment: Segment, _ position: Int, isLast: Bool = false) {
        let record = segment.records[position]
        guard record.state != .erased else { return }
        segment.records[position].state = .erased
        if segment.file.isClosed {
            pendingErasures.append(PendingErasure(segment: segment.file.number, span: record.span))
        } else {
            if isLast {
                segment.file.erase(record.span, after: segment.file.number)
            } else {
                segment.file.erase(record.span)
            }
            markDirty(segment.file)
        }
    }

    // MARK: - Reading

    /// The payload, or `nil` when the message is unknown or due.
    package func read(_ id: RowID, id messageID: [UInt8], now: Int64) throws(StoreError) -> [UInt8]? {
        let row = try row(id)
        try index(row)
        guard !isDue(row, now), let place = row.index[try MessageID.parse(messageID)] else { return nil }
        return try open(place, row, now)?.payload
    }

    /// Whether the message is stored; it may be due.
    package func contains(_ id: RowID, id messageID: [UInt8]) throws(StoreError) -> Bool {
        let row = try row(id)
        try index(row)
        return row.index[try MessageID.parse(messageID)] != nil
    }

    /// Messages in the order of their arrival, all at once: of an inbox that others fill, see
    /// ``visit(_:from:now:_:)``.
    /// - Parameters:
    ///   - last: only so many, the latest.
    ///   - after: only those after this message.
    /// - Throws: ``StoreError/unknownMessage`` when `after` is not, or no longer, there.
    package func list(
        _ id: RowID,
        last: Int? = nil,
        after: [UInt8]? = nil,
        now: Int64
    ) throws(StoreError) -> [StoredMessage] {
        let row = try row(id)
        try index(row)
        return try list(row, last: last, after: after, now: now)
    }

    func list(_ row: Row, last: Int?, after: [UInt8]?, now: Int64) throws(StoreError) -> [StoredMessage] {
        var first: UInt64 = 0
        if let after {
            guard let place = place(of: try MessageID.parse(after), in: row) else { throw .unknownMessage }
            first = place + 1
        }
        if let last {
            guard last > 0 else { return [] }
            var left = last
            var newest = first
            visitPlaces(row, from: first, now: now) { place in
                newest = place
                left -= 1
                return left > 0
            }
            first = newest
        }
        var found: [StoredMessage] = []
        try visit(row, from: first, now: now) { _, message in
            found.append(message)
            return true
        }
        return found
    }

    /// How many messages of the inbox are not due.
    package func messageCount(_ id: RowID, now: Int64) throws(StoreError) -> Int {
        let row = try row(id)
        try index(row)
        guard !isDue(row, now) else { return 0 }
        let moment = max(now, latestHide)
        // What is due and not reaped yet is in the segments whose first expiry has come.
        var due = 0
        for segment in row.segments.values where segment.earliest <= moment || segment.withholds {
            for position in segment.records.indices where segment.expiry(of: position) <= moment {
                let record = segment.records[position]
                guard !record.isHidden, let place = row.index[record.id] else { continue }
                if Int(place.file) == segment.file.number, place.record == position { due += 1 }
            }
        }
        return row.visibleCount - due
    }

    /// Sealed bytes of everything live in the inbox, hidden records included, and in how many records.
    package func storedAmount(_ id: RowID) throws(StoreError) -> (byteCount: Int64, recordCount: Int) {
        let row = try row(id)
        try index(row)
        return (row.storedByteCount, row.index.count)
    }

    /// What is due at `now`, or was at the last reap, is not served.
    func open(_ place: Row.Place, _ row: Row, _ now: Int64) throws(StoreError) -> StoredMessage? {
        guard let segment = row.segments[Int(place.file)],
            segment.expiry(of: place.record) > max(now, latestHide)
        else { return nil }
        let record = segment.records[place.record]
        let file = segment.file
        let sealed: [UInt8]
        if let unwritten = file.unwritten(record.span) {
            sealed = unwritten
        } else {
            let descriptor = try descriptor(of: file)
            sealed = try onDisk(file.path) { () throws(SystemError) in
                try disk.read(descriptor, at: Int64(record.offset), count: Int(record.length))
            }
        }
        guard case .opened(let plaintext) = file.open(sealed, number: record.number),
            plaintext.count >= MessageRecord.headerByteCount
        else {
            report("\(home.path(Self.inboxesName))/\(file.path): a message cannot be opened")
            return nil
        }
        return StoredMessage(
            id: record.id.bytes,
            expiresAt: record.expiresAt,
            payload: Array(plaintext[MessageRecord.headerByteCount...])
        )
    }

    /// Whether the row's fuse has burnt down.
    func isDue(_ row: Row, _ now: Int64) -> Bool {
        guard row !== controlRow, let moment = row.fuse else { return false }
        return moment <= max(now, latestHide)
    }

    // MARK: - Fan-out lists

    /// A sealed bag that dies with a seven-day bucket and belongs to no inbox: the list of members that still have to
    /// learn of an explosion. Saving again under the same id replaces the payload and keeps the expiry.
    package func saveFanOut(id: [UInt8], expiresAt: Int64, payload: [UInt8]) throws(StoreError) {
        let row = try indexedControlRow()
        let messageID = try MessageID.parse(id)
        guard payload.count <= Self.maximumPayload else { throw .tooLarge(limit: Self.maximumPayload) }
        if let place = row.index[messageID], let holder = row.segments[Int(place.file)] {
            let old = holder.records[place.record]
            let segment = holder.acceptsAppends ? holder : try segment(for: row, in: holder.column)
            write(
                messageID,
                old.expiresAt,
                order: old.order,
                version: old.version + 1,
                isHidden: false,
                payload,
                to: segment
            )
        } else {
            try append(to: row, messageID, .control, expiresAt, payload)
        }
    }

    /// In the order of their first saving.
    package func fanOuts(now: Int64) throws(StoreError) -> [StoredMessage] {
        try list(indexedControlRow(), last: nil, after: nil, now: now)
    }

    /// Overwrites it with the next commit; unknown ids are no error, unless there is something that cannot be read.
    package func removeFanOut(id: [UInt8]) throws(StoreError) {
        let row = try indexedControlRow()
        let messageID = try MessageID.parse(id)
        guard row.index[messageID] == nil else { return try erase(in: row, messageID) }
        if isReadOnly { throw .readOnly(path: home.path) }
        if row.hasUnreadSegments { throw .damaged(what: "\(home.path(Self.inboxesName))/\(row.directory)") }
        // One whose commit has failed may be on the disk all the same.
        for (segment, position) in row.versions(of: messageID) {
            try overwriteNow(segment, segment.records[position].span)
            segment.records[position].state = .erased
        }
    }

    private func indexedControlRow() throws(StoreError) -> Row {
        _ = try unlockedKeys()
        guard let controlRow else { throw .locked }
        try index(controlRow)
        return controlRow
    }
}
