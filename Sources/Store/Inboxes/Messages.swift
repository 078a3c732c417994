import Crypto

/// A stored message, opened.
package struct StoredMessage: Equatable, Sendable {
    package let id: Bytes16
    /// Milliseconds since the epoch.
    package let expiresAt: Int64
    package let payload: [UInt8]
}

extension Store {
    /// The inbox's row, to be used in place of its name where time counts. It is good until the inbox is destroyed or the
    /// store is locked.
    package func handle(_ id: RowID) throws(StoreError) -> Row { try row(id) }

    /// Stores a message; it is durable when a later commit completes.
    /// - Parameters:
    ///   - id: new among what the inbox has in memory.
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
        try append(
            to: try row(id),
            id: Bytes16.parse(messageID),
            tier: tier,
            expiresAt: expiresAt,
            byteCount: payload.count,
            notBefore: place,
            isHidden: isHidden
        ) { $0.copyBytes(from: payload) }
    }

    /// The same without a copy of the payload: it is written where it is sealed.
    /// - Parameters:
    ///   - row: of this store, see ``handle(_:)``.
    ///   - byteCount: of the payload.
    ///   - write: writes all of the payload.
    package func append(
        to row: Row,
        id: Bytes16,
        tier: Tier,
        expiresAt: Int64,
        byteCount: Int,
        notBefore place: UInt64 = 0,
        isHidden: Bool = false,
        _ write: (UnsafeMutableRawBufferPointer) -> Void
    ) throws(StoreError) {
        guard tier != .fuse, tier != .control else { throw .invalidArgument("tier for a message") }
        try append(
            to: row,
            id,
            tier,
            expiresAt,
            byteCount: byteCount,
            notBefore: place,
            kind: isHidden ? .hidden : .listed,
            write
        )
    }

    func append(
        to row: Row,
        _ id: Bytes16,
        _ tier: Tier,
        _ expiresAt: Int64,
        byteCount: Int,
        notBefore place: UInt64 = 0,
        kind: MessageRecord.Kind = .listed,
        _ write: (UnsafeMutableRawBufferPointer) -> Void
    ) throws(StoreError) {
        if row.isGone { throw .unknownRow }
        try index(row)
        guard byteCount <= Self.maximumPayload else { throw .tooLarge(limit: Self.maximumPayload) }
        guard Tier.times.contains(expiresAt) else { throw .invalidArgument("time \(expiresAt)") }
        guard row.index[id] == nil else { throw .duplicateMessage }
        let segment = try segment(for: row, tier, expiresAt: expiresAt)
        let order = kind == .hidden ? row.nextOrder : max(row.nextOrder, place)
        self.write(id, expiresAt, order: order, version: 0, kind: kind, byteCount: byteCount, to: segment, write)
    }

    /// A new version of a message, with the same expiry and place. The old version's ciphertext is overwritten when the
    /// message expires.
    package func update(_ id: RowID, id messageID: [UInt8], payload: [UInt8]) throws(StoreError) {
        let row = try row(id)
        guard payload.count <= Self.maximumPayload else { throw .tooLarge(limit: Self.maximumPayload) }
        guard let place = try find(Bytes16.parse(messageID), in: row), let holder = row.segments[Int(place.file)] else {
            throw .unknownMessage
        }
        try update(holder.records[place.record], in: holder, payload)
    }

    private func update(_ old: MessageRecord, in holder: Segment, _ payload: [UInt8]) throws(StoreError) {
        if isReadOnly { throw .readOnly(path: home.path) }
        guard old.version < MessageRecord.maximumVersion else { throw .invalidArgument("number of versions") }
        let segment = holder.acceptsAppends ? holder : try segment(for: holder.row, in: holder.column)
        write(
            old.id,
            old.expiresAt,
            order: old.order,
            version: old.version + 1,
            kind: old.kind,
            byteCount: payload.count,
            to: segment
        ) { $0.copyBytes(from: payload) }
    }

    /// Seals a record into memory and enters it.
    func write(
        _ id: Bytes16,
        _ expiresAt: Int64,
        order: UInt64,
        version: UInt32,
        kind: MessageRecord.Kind,
        byteCount: Int,
        to segment: Segment,
        _ write: (UnsafeMutableRawBufferPointer) -> Void
    ) {
        let number = segment.file.nextNumber
        let bounds = segment.bounds
        let headerByteCount = MessageRecord.headerByteCount
        let span = segment.file.append(byteCount: headerByteCount + byteCount, nonces: &nonces) { target in
            MessageRecord.writeHeader(
                id: id,
                expiresAt: expiresAt,
                order: order,
                version: version,
                kind: kind,
                bounds: bounds,
                to: target
            )
            write(UnsafeMutableRawBufferPointer(rebasing: target[headerByteCount...]))
        }
        commits.note(segment.file)
        segment.bounds.add(order: order, expiresAt: expiresAt, kind: kind)
        enter(
            MessageRecord(
                id: id,
                expiresAt: expiresAt,
                order: order,
                version: version,
                number: number,
                length: UInt32(truncatingIfNeeded: span.length),
                offset: UInt32(clamping: span.offset),
                kind: kind,
                state: .live
            ),
            in: segment
        )
        announce(segment)
    }

    /// Takes a message out of service and overwrites every version of it; durable when a later commit completes.
    package func erase(_ id: RowID, id messageID: [UInt8]) throws(StoreError) {
        let row = try row(id)
        let id = try Bytes16.parse(messageID)
        _ = try find(id, in: row)
        try erase(in: row, id)
    }

    func erase(in row: Row, _ id: Bytes16) throws(StoreError) {
        if isReadOnly { throw .readOnly(path: home.path) }
        guard let place = row.index[id], let holder = row.segments[Int(place.file)] else { throw .unknownMessage }
        row.removeFromIndex(id)
        if row.isRefused { row.erasedMeanwhile.insert(id) }
        let versions = place.hasOlder || row.hasFailures ? row.versions(of: id) : [(holder, place.record)]
        // A power cut must not leave an older version where a newer one was on the disk: that would be served. So the zeros
        // over the newest that is there for certain, and over what may or may not be there by now, come last.
        let newest =
            versions.lastIndex { segment, position in
                Int64(segment.records[position].offset) < segment.file.durable
            } ?? versions.endIndex
        for (index, (segment, position)) in versions.enumerated() {
            overwrite(segment, position, versions.count > 1 && index >= newest ? .last : .first)
        }
    }

    /// Zeros over a record with the next commit.
    func overwrite(_ segment: Segment, _ position: Int, _ kind: RecordFile.Erasure.Kind = .first) {
        let record = segment.records[position]
        guard record.state != .erased else { return }
        segment.records[position].state = .erased
        segment.file.erase(record.span, kind)
        commits.note(segment.file)
    }

    // MARK: - Reading

    /// The payload, or `nil` when the message is unknown or due.
    package func read(_ id: RowID, id messageID: [UInt8], now: Int64) throws(StoreError) -> [UInt8]? {
        let row = try row(id)
        guard !isDue(row, now), let place = try find(Bytes16.parse(messageID), in: row) else { return nil }
        return try open(place, row, now)?.payload
    }

    /// Whether the message is stored; it may be due.
    package func contains(_ id: RowID, id messageID: [UInt8]) throws(StoreError) -> Bool {
        let row = try row(id)
        return try find(Bytes16.parse(messageID), in: row) != nil
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
            guard let place = try place(of: Bytes16.parse(after), in: row) else { throw .unknownMessage }
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
        try indexAll(row)
        guard !isDue(row, now) else { return 0 }
        let moment = max(now, latestHide)
        // What is due and not reaped yet is in the segments whose first expiry has come.
        var due = 0
        for segment in row.segments.values where segment.earliest <= moment || segment.withholds {
            for position in segment.records.indices where segment.expiry(of: position) <= moment {
                let record = segment.records[position]
                guard record.isListed, let place = row.index[record.id] else { continue }
                if Int(place.file) == segment.file.number, place.record == position { due += 1 }
            }
        }
        return row.visibleCount - due
    }

    /// Sealed bytes of everything live in the inbox, hidden records included, and in how many records. What was not read
    /// since the inbox woke is counted as it lies on the disk, with versions and erased records.
    package func storedAmount(_ id: RowID) throws(StoreError) -> (byteCount: Int64, recordCount: Int) {
        let row = try row(id)
        try index(row)
        var amount = (byteCount: row.storedByteCount, recordCount: row.index.count)
        for segment in row.segments.values where segment.isProbed && segment.loadedFrom > 0 {
            amount.byteCount += segment.loadedFrom
            amount.recordCount += Int(segment.records.first?.number ?? 0)
        }
        return amount
    }

    /// What is due at `now`, or was at the last reap, is not served.
    func open(_ place: Row.Place, _ row: Row, _ now: Int64) throws(StoreError) -> StoredMessage? {
        guard let segment = row.segments[Int(place.file)],
            segment.expiry(of: place.record) > max(now, latestHide)
        else { return nil }
        let record = segment.records[place.record]
        let file = segment.file
        var found = file.withUnwritten(record.span) { file.open($0, number: record.number) }
        if found == nil {
            let descriptor = try openFiles.descriptor(of: file)
            let sealed = try onDisk(file.path) { () throws(SystemError) in
                try disk.read(descriptor, at: Int64(record.offset), count: Int(record.length))
            }
            found = file.open(sealed, number: record.number)
        }
        guard case .opened(var plaintext) = found, plaintext.count >= MessageRecord.headerByteCount else {
            report("\(home.path(Self.inboxesName))/\(file.path): a message cannot be opened")
            return nil
        }
        defer { wipe(&plaintext) }
        return StoredMessage(
            id: record.id,
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
        let messageID = try Bytes16.parse(id)
        guard payload.count <= Self.maximumPayload else { throw .tooLarge(limit: Self.maximumPayload) }
        if let place = row.index[messageID], let holder = row.segments[Int(place.file)] {
            try update(holder.records[place.record], in: holder, payload)
        } else {
            try append(to: row, messageID, .control, expiresAt, byteCount: payload.count) {
                $0.copyBytes(from: payload)
            }
        }
    }

    /// In the order of their first saving.
    package func fanOuts(now: Int64) throws(StoreError) -> [StoredMessage] {
        try list(indexedControlRow(), last: nil, after: nil, now: now)
    }

    /// Overwrites it with the next commit; unknown ids are no error, unless there is something that cannot be read.
    package func removeFanOut(id: [UInt8]) throws(StoreError) {
        let row = try indexedControlRow()
        let messageID = try Bytes16.parse(id)
        guard row.index[messageID] == nil else { return try erase(in: row, messageID) }
        if isReadOnly { throw .readOnly(path: home.path) }
        if row.hasUnreadSegments { throw .damaged(what: "\(home.path(Self.inboxesName))/\(row.directory)") }
        // One whose commit has failed may be on the disk all the same.
        for (segment, position) in row.versions(of: messageID) { overwrite(segment, position) }
    }

    private func indexedControlRow() throws(StoreError) -> Row {
        _ = try unlockedKeys()
        guard let controlRow else { throw .locked }
        try indexAll(controlRow)
        return controlRow
    }
}
