import Crypto

/// Messages of inboxes.
extension Store {
    /// The inbox's row, to be used in place of its name where time counts. It is good until the inbox is destroyed or the
    /// store is locked.
    package func handle(_ id: RowID) throws(StoreError) -> Row { try grid.row(id) }

    // MARK: - Writing

    /// Stores a message; it is durable when a later commit completes.
    /// - Parameters:
    ///   - id: new among what the inbox has in memory.
    ///   - expiresAt: milliseconds since the epoch. At it the message is gone. It may be sooner than the tier's lifetime.
    ///   - place: its place is this one or a later one.
    ///   - isHidden: found by its identifier only: ``read(_:id:now:)``, ``contains(_:id:)``, ``update(_:id:payload:)``
    ///     and ``erase(_:id:)`` work as with any other; it is in no list and no count, has no place in the order, and no
    ///     ``ReapReport`` names it. For the parts of attachments.
    @discardableResult package func append(
        _ id: RowID, id messageID: [UInt8], tier: Tier, expiresAt: Int64, payload: [UInt8], notBefore place: UInt64 = 0,
        isHidden: Bool = false
    ) throws(StoreError) -> MessagePlace {
        try append(
            to: try grid.row(id), id: Bytes16.parse(messageID), tier: tier, expiresAt: expiresAt,
            byteCount: payload.count, notBefore: place, isHidden: isHidden
        ) { $0.copyBytes(from: payload) }
    }

    /// The same without a copy of the payload: it is written where it is sealed.
    /// - Parameters:
    ///   - row: of this store, see ``handle(_:)``.
    ///   - byteCount: of the payload.
    ///   - write: writes all of the payload.
    @discardableResult package func append(
        to row: Row, id: Bytes16, tier: Tier, expiresAt: Int64, byteCount: Int, notBefore place: UInt64 = 0,
        isHidden: Bool = false, _ write: (UnsafeMutableRawBufferPointer) -> Void
    ) throws(StoreError) -> MessagePlace {
        try writer.append(
            to: row, id: id, tier: tier, expiresAt: expiresAt, byteCount: byteCount, notBefore: place,
            isHidden: isHidden, write)
    }

    /// A new version of a message, with the same expiry and place. The old version's ciphertext is overwritten when the
    /// message expires.
    package func update(_ id: RowID, id messageID: [UInt8], payload: [UInt8]) throws(StoreError) {
        try writer.update(id, id: messageID, payload: payload)
    }

    /// Moves a live message or hidden record to another tier and expiry, sooner or later than before; identifier and order
    /// stay, and the payload unless there is a new one. Durable when a later commit completes, and that commit overwrites the old ciphertext too: after
    /// the new one is on the disk, so that the message is never lost. A crash in between leaves both; the new one is
    /// served then, and the old one is overwritten when the inbox is read; if the new one's time has come by then, the old
    /// one is served again. So the message goes at the later of its two expiries, at the latest.
    /// - Parameters:
    ///   - expiresAt: milliseconds since the epoch.
    ///   - payload: a new one; `nil` for the one before.
    /// - Throws: ``StoreError/unknownMessage`` too.
    package func reschedule(_ id: RowID, id messageID: [UInt8], tier: Tier, expiresAt: Int64, payload: [UInt8]? = nil)
        throws(StoreError)
    { try writer.reschedule(id, id: messageID, tier: tier, expiresAt: expiresAt, payload: payload) }

    /// Takes a message out of service and overwrites every version of it; durable when a later commit completes.
    package func erase(_ id: RowID, id messageID: [UInt8]) throws(StoreError) { try writer.erase(id, id: messageID) }

    // MARK: - Reading

    /// The payload, or `nil` when the message is unknown or due.
    package func read(_ id: RowID, id messageID: [UInt8], now: Int64) throws(StoreError) -> [UInt8]? {
        try reader.read(id, id: messageID, now: now)
    }

    /// Whether the message is stored; it may be due.
    package func contains(_ id: RowID, id messageID: [UInt8]) throws(StoreError) -> Bool {
        try reader.contains(id, id: messageID)
    }

    /// Messages in the order of their arrival, all at once: of an inbox that others fill, see
    /// ``visit(_:from:now:_:)``.
    /// - Parameters:
    ///   - last: only so many, the latest.
    ///   - after: only those after this message.
    /// - Throws: ``StoreError/unknownMessage`` when `after` is not, or no longer, there.
    package func list(_ id: RowID, last: Int? = nil, after: [UInt8]? = nil, now: Int64) throws(StoreError)
        -> [StoredMessage]
    { try reader.list(id, last: last, after: after, now: now) }

    /// How many messages of the inbox are not due.
    package func messageCount(_ id: RowID, now: Int64) throws(StoreError) -> Int {
        try reader.messageCount(id, now: now)
    }

    /// Sealed bytes of everything live in the inbox, hidden records included, and in how many records. What was not read
    /// since the inbox woke is counted as it lies on the disk, with versions and erased records.
    package func storedAmount(_ id: RowID) throws(StoreError) -> (byteCount: Int64, recordCount: Int) {
        try reader.storedAmount(id)
    }

    /// Visits the messages that are not due, the first to arrive first. Each is opened when it is its turn.
    /// - Parameters:
    ///   - place: only those from this place on.
    ///   - body: what is done with each; it says whether to go on.
    package func visit(
        _ id: RowID, from place: UInt64 = 0, now: Int64,
        _ body: (_ place: UInt64, _ message: StoredMessage) throws(StoreError) -> Bool
    ) throws(StoreError) { try reader.visit(id, from: place, now: now, body) }

    /// Visits the places of the messages that are not due, the last to arrive first, and opens none of them.
    /// - Parameter place: only those from this place on.
    package func visitPlaces(_ id: RowID, from place: UInt64 = 0, now: Int64, _ body: (_ place: UInt64) -> Bool)
        throws(StoreError)
    { try reader.visitPlaces(id, from: place, now: now, body) }

    /// The place of a message; `nil` when it is not, or no longer, there, or hidden.
    package func place(_ id: RowID, of messageID: [UInt8]) throws(StoreError) -> UInt64? {
        try reader.place(id, of: messageID)
    }

    /// The place that the next message gets, or a lower one than that.
    package func nextPlace(_ id: RowID) throws(StoreError) -> UInt64 { try reader.nextPlace(id) }

    /// Whether the disk has given all that there is of an inbox. What it refuses once is asked for again after a second.
    package func isWhole(_ id: RowID) -> Bool { grid.rows[id].map { !$0.hasUnreadSegments } ?? true }

    /// Identifiers of listed messages that are not due; none is opened.
    /// - Parameters:
    ///   - digits: the hexadecimal digits that they begin with.
    ///   - limit: most of them.
    package func messageIDs(_ id: RowID, beginningWith digits: [UInt8], limit: Int, now: Int64) throws(StoreError)
        -> [[UInt8]]
    { try reader.messageIDs(id, beginningWith: digits, limit: limit, now: now) }

    /// Whether an inbox may have any: what was not read since the inbox woke is known to have had some, or none.
    package func hasHidden(_ id: RowID) throws(StoreError) -> Bool { try reader.hasHidden(id) }

    /// Visits the identifiers of the hidden records, in no order; what they are, their owner knows. None is opened.
    /// - Parameters:
    ///   - place: only those that were appended behind messages with a lower one.
    ///   - body: given each with the number of its payload's bytes; it says whether to go on.
    package func visitHidden(
        _ id: RowID, from place: UInt64 = 0, _ body: (_ id: [UInt8], _ byteCount: Int) throws(StoreError) -> Bool
    ) throws(StoreError) { try reader.visitHidden(id, from: place, body) }

    // MARK: - Statuses

    /// - Returns: `nil` when the message is not, or no longer, there.
    package func locate(_ id: RowID, _ message: Bytes16) throws(StoreError) -> MessagePlace? {
        try reader.locate(id, message)
    }

    /// Appends a status; durable when a later commit completes. It is in no list and no count, has no id, and no
    /// ``ReapReport`` names it. What it says, and of which messages, its reader knows.
    /// - Parameters:
    ///   - row: of this store, see ``handle(_:)``.
    ///   - tier: of the message that it concerns and that expires last: it needs to be there no longer.
    ///   - expiresAt: when that one expires.
    ///   - places: of the messages that it concerns, from the first to the last; all of them are stored already.
    ///   - byteCount: of the status.
    ///   - write: writes all of it.
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

    /// Visits the statuses of an inbox that are not due, in the order in which they were appended.
    /// - Parameters:
    ///   - places: only those that concern messages from the first to the last of these, and perhaps others.
    ///   - body: given each; it says whether to go on.
    package func visitStatuses(
        _ id: RowID, concerning places: ClosedRange<UInt64>, now: Int64,
        _ body: (_ status: [UInt8]) throws(StoreError) -> Bool
    ) throws(StoreError) { try reader.visitStatuses(id, concerning: places, now: now, body) }
}
