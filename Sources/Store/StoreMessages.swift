import Crypto

extension Store {
    /// The inbox's row, for calls where lookup time counts. Valid until the inbox is destroyed or the store is locked.
    package func handle(_ id: RowID) throws(StoreError) -> Row { try grid.row(id) }

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
        _ id: RowID, id messageID: [UInt8], tier: Tier, expiresAt: Int64, payload: [UInt8], notBefore place: UInt64 = 0,
        isHidden: Bool = false
    ) throws(StoreError) -> MessagePlace {
        try append(
            to: try grid.row(id), id: Bytes16.parse(messageID), tier: tier, expiresAt: expiresAt,
            byteCount: payload.count, notBefore: place, isHidden: isHidden
        ) { $0.copyBytes(from: payload) }
    }

    /// The same without a copy: the payload is written where it is sealed.
    /// - Parameters:
    ///   - row: from ``handle(_:)`` of this store.
    ///   - byteCount: of the payload.
    ///   - write: writes the whole payload.
    @discardableResult package func append(
        to row: Row, id: Bytes16, tier: Tier, expiresAt: Int64, byteCount: Int, notBefore place: UInt64 = 0,
        isHidden: Bool = false, _ write: (UnsafeMutableRawBufferPointer) -> Void
    ) throws(StoreError) -> MessagePlace {
        try writer.append(
            to: row, id: id, tier: tier, expiresAt: expiresAt, byteCount: byteCount, notBefore: place,
            isHidden: isHidden, write)
    }

    /// Stores a new version with the same expiry and place. The old ciphertext is overwritten when the message expires.
    package func update(_ id: RowID, id messageID: [UInt8], payload: [UInt8]) throws(StoreError) {
        try writer.update(id, id: messageID, payload: payload)
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
    package func reschedule(_ id: RowID, id messageID: [UInt8], tier: Tier, expiresAt: Int64, payload: [UInt8]? = nil)
        throws(StoreError)
    { try writer.reschedule(id, id: messageID, tier: tier, expiresAt: expiresAt, payload: payload) }

    /// Withdraws a message and overwrites all its versions; durable when a later commit completes.
    package func erase(_ id: RowID, id messageID: [UInt8]) throws(StoreError) { try writer.erase(id, id: messageID) }

    // MARK: - Reading

    /// The payload, or `nil` when the message is unknown or due.
    package func read(_ id: RowID, id messageID: [UInt8], now: Int64) throws(StoreError) -> [UInt8]? {
        try reader.read(id, id: messageID, now: now)
    }

    /// Whether the message is stored, even if it is due.
    package func contains(_ id: RowID, id messageID: [UInt8]) throws(StoreError) -> Bool {
        try reader.contains(id, id: messageID)
    }

    /// All messages in arrival order, in memory at once. For an inbox that others fill use ``visit(_:from:now:_:)``.
    /// - Parameters:
    ///   - last: at most this many, the latest.
    ///   - after: only messages after this one.
    /// - Throws: ``StoreError/unknownMessage`` when `after` is not stored.
    package func list(_ id: RowID, last: Int? = nil, after: [UInt8]? = nil, now: Int64) throws(StoreError)
        -> [StoredMessage]
    { try reader.list(id, last: last, after: after, now: now) }

    package func messageCount(_ id: RowID, now: Int64) throws(StoreError) -> Int {
        try reader.messageCount(id, now: now)
    }

    /// Sealed bytes and number of all live records, hidden ones included. Segments not read since the inbox woke count
    /// with their size on the disk, including old versions and erased records.
    package func storedAmount(_ id: RowID) throws(StoreError) -> (byteCount: Int64, recordCount: Int) {
        try reader.storedAmount(id)
    }

    /// Visits the messages that are not due in arrival order, opening one at a time.
    /// - Parameters:
    ///   - place: the first place.
    ///   - body: returns whether to continue.
    package func visit(
        _ id: RowID, from place: UInt64 = 0, now: Int64,
        _ body: (_ place: UInt64, _ message: StoredMessage) throws(StoreError) -> Bool
    ) throws(StoreError) { try reader.visit(id, from: place, now: now, body) }

    /// Visits the places of messages that are not due, down to `place`, the last first, without opening them.
    package func visitPlaces(_ id: RowID, from place: UInt64 = 0, now: Int64, _ body: (_ place: UInt64) -> Bool)
        throws(StoreError)
    { try reader.visitPlaces(id, from: place, now: now, body) }

    /// The place of a message; `nil` when it is not stored or hidden.
    package func place(_ id: RowID, of messageID: [UInt8]) throws(StoreError) -> UInt64? {
        try reader.place(id, of: messageID)
    }

    /// A lower bound of the next message's place.
    package func nextPlace(_ id: RowID) throws(StoreError) -> UInt64 { try reader.nextPlace(id) }

    /// Whether every segment of the inbox could be read. Refused reads are retried after a second.
    package func isWhole(_ id: RowID) -> Bool { grid.rows[id].map { !$0.hasUnreadSegments } ?? true }

    /// Identifiers of listed messages that are not due, without opening them.
    /// - Parameters:
    ///   - digits: the hexadecimal digits of the prefix.
    ///   - limit: the most results.
    package func messageIDs(_ id: RowID, beginningWith digits: [UInt8], limit: Int, now: Int64) throws(StoreError)
        -> [[UInt8]]
    { try reader.messageIDs(id, beginningWith: digits, limit: limit, now: now) }

    /// Whether the inbox may have hidden records. Unread segments tell by the bounds of their last record.
    package func hasHidden(_ id: RowID) throws(StoreError) -> Bool { try reader.hasHidden(id) }

    /// Visits the identifiers of hidden records in no order, without opening them.
    /// - Parameters:
    ///   - place: only records appended after all messages with lower places.
    ///   - body: gets each identifier and its payload's size, and returns whether to continue.
    package func visitHidden(
        _ id: RowID, from place: UInt64 = 0, _ body: (_ id: [UInt8], _ byteCount: Int) throws(StoreError) -> Bool
    ) throws(StoreError) { try reader.visitHidden(id, from: place, body) }

    // MARK: - Statuses

    /// - Returns: `nil` when the message is not stored.
    package func locate(_ id: RowID, _ message: Bytes16) throws(StoreError) -> MessagePlace? {
        try reader.locate(id, message)
    }

    /// Appends a status record; durable when a later commit completes. It has no id, and no list, count or
    /// ``ReapReport`` includes it. The caller defines its content.
    /// - Parameters:
    ///   - row: from ``handle(_:)`` of this store.
    ///   - tier: of the concerned message that expires last.
    ///   - expiresAt: the expiry of that message.
    ///   - places: from the first to the last concerned message; all are stored already.
    ///   - byteCount: of the status.
    ///   - write: writes the whole status.
    package func appendStatus(
        to row: Row, tier: Tier, expiresAt: Int64, concerning places: ClosedRange<UInt64>, byteCount: Int,
        _ write: (UnsafeMutableRawBufferPointer) -> Void
    ) throws(StoreError) {
        try writer.appendStatus(
            to: row, tier: tier, expiresAt: expiresAt, concerning: places, byteCount: byteCount, write)
    }

    package func appendStatus(
        _ id: RowID, tier: Tier, expiresAt: Int64, concerning places: ClosedRange<UInt64>, _ status: [UInt8]
    ) throws(StoreError) {
        try appendStatus(
            to: try grid.row(id), tier: tier, expiresAt: expiresAt, concerning: places, byteCount: status.count
        ) { $0.copyBytes(from: status) }
    }

    /// Visits the statuses that are not due, in append order.
    /// - Parameters:
    ///   - places: only statuses that concern at least one of these places.
    ///   - body: returns whether to continue.
    package func visitStatuses(
        _ id: RowID, concerning places: ClosedRange<UInt64>, now: Int64,
        _ body: (_ status: [UInt8]) throws(StoreError) -> Bool
    ) throws(StoreError) { try reader.visitStatuses(id, concerning: places, now: now, body) }
}
