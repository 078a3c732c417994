import Messaging
import Primitives
import Store
import Wire

/// The messages of all inboxes: on the disk what has an agreement, in memory what has none or waits for the unlock.
struct MessageArchive {
    /// A message in memory.
    struct Held {
        var message: Message
        var arrivedAt: Timestamp
        /// Where it goes when the storage is unlocked.
        var tier: Lifetime?
        var isUnread: Bool
        /// It came before what is on the disk from this place on, and after what is before it; no lower than that of the
        /// message before. `nil` while the storage has been locked since it came: nothing came to the disk since.
        var place: UInt64?
    }

    /// Ephemeral messages of one inbox in memory; beyond it the oldest read ones are let go.
    private static let heldByteCount = 8 << 20

    var held: [ClientID: [Held]] = [:]
    private(set) var heldIndex: [ClientID: [Messaging.MessageID: Int]] = [:]
    /// Not after the first expiry in memory; exact once ``expire(now:)`` has found it to be due.
    private(set) var wakeAt: Timestamp?
    private var heldBytes: [ClientID: Int] = [:]
    /// All inboxes with something that waits for the disk, perhaps more.
    private var mayWait: Set<ClientID> = []
    /// Inboxes with messages in memory that have no place yet.
    private var unplaced: Set<ClientID> = []
    /// Messages on the disk as queued that have been handed to a link. Not written: a restart queues them again, and
    /// delivery, which is written, follows within the time of a round trip.
    private(set) var sent: [ClientID: Set<Messaging.MessageID>] = [:]
    /// Sleeping inboxes that hold contents in memory, the one that sleeps longest first.
    private var asleep: [ClientID] = []
    /// What members have said of our messages and is not in their records yet: written with the next state.
    private(set) var deliveries: [ClientID: [Messaging.MessageID: [Delivery]]] = [:]
    /// Of inboxes that were read.
    var reactions: [ClientID: KnownReactions] = [:]
    /// Inboxes whose hidden records have been looked through since the start.
    var hiddenIsKnown: Set<ClientID> = []
    /// Chunks of files without an agreement, and how many bytes they are in all.
    var heldChunks: [ClientID: [Messaging.MessageID: [Int: AttachmentChunk]]] = [:]
    var heldChunkByteCount: Int64 = 0
    /// What the identifiers of a file's chunks on the disk begin with.
    var chunkPrefixes: [ClientID: [Messaging.MessageID: [UInt8]]] = [:]
    /// Files that their users are handing over: their chunks have no message yet.
    var uploading: Set<Messaging.MessageID> = []
    var outgoing = OutgoingMessages()
    /// Messages of members that are in memory no more.
    private(set) var known = KnownMessages()
    let store: Store

    init(store: Store) { self.store = store }

    // MARK: Keeping

    mutating func keep(
        _ message: Message,
        _ keeping: NodeAction.Keeping,
        client: ClientID,
        row: RowID,
        now: Timestamp
    ) throws(StoreError) {
        switch keeping {
        case .disk(let lifetime):
            guard let tier = lifetime.tier, let expiresAt = message.expiresAt else { return }
            settlePlaces(client, row)
            try append(message, arrivedAt: now, tier, expiresAt, notBefore: held[client]?.last?.place, row)
            // Of hidden records nobody says when they have come to their end.
            if message.sender == nil, !message.content.isAnnotation {
                outgoing.insert(message, arrivedAt: now, client: client)
            }
            if message.sender != nil {
                let isPartial = message.content.attachment != nil && message.state != .received
                known.insert(message.content.id, client, isStored: true, isPartial: isPartial)
            }
        case .memory:
            hold(Held(message: message, arrivedAt: now, tier: nil, isUnread: message.sender != nil), client, row)
        case .untilUnlocked(let lifetime):
            hold(Held(message: message, arrivedAt: now, tier: lifetime, isUnread: message.sender != nil), client, row)
        }
        noteReaction(message, client)
    }

    private func append(
        _ message: Message,
        arrivedAt: Timestamp,
        _ tier: Tier,
        _ expiresAt: Timestamp,
        notBefore place: UInt64?,
        _ row: RowID
    ) throws(StoreError) {
        try store.append(
            row,
            id: message.content.id.bytes,
            tier: tier,
            expiresAt: expiresAt.milliseconds,
            payload: StoredCodec.encode(message, arrivedAt: arrivedAt),
            // The store counts on from what is left on the disk, which may be less than there was.
            notBefore: place ?? 0,
            isHidden: message.content.isAnnotation
        )
    }

    /// Where a message that comes into memory now has its place; `nil` while that is not known.
    private func nextPlace(after last: UInt64?, _ row: RowID) -> UInt64? {
        guard !store.isLocked, let next = try? store.nextPlace(row) else { return nil }
        return max(next, last ?? 0)
    }

    /// What came while the storage was locked comes after all that is on the disk. Before anything more goes there.
    mutating func settlePlaces(_ client: ClientID, _ row: RowID) {
        guard unplaced.contains(client) else { return }
        var last: UInt64?
        for index in 0..<(held[client]?.count ?? 0) {
            if held[client]![index].place == nil {
                guard let place = nextPlace(after: last, row) else { return }
                held[client]![index].place = place
            }
            last = held[client]![index].place
        }
        unplaced.remove(client)
    }

    private mutating func hold(_ entry: Held, _ client: ClientID, _ row: RowID) {
        var entry = entry
        settlePlaces(client, row)
        if !unplaced.contains(client) { entry.place = nextPlace(after: held[client]?.last?.place, row) }
        if entry.place == nil { unplaced.insert(client) }
        heldBytes[client, default: 0] += entry.message.byteCount
        heldIndex[client, default: [:]][entry.message.content.id] = held[client, default: []].count
        held[client, default: []].append(entry)
        if entry.tier != nil { mayWait.insert(client) }
        if let expiresAt = entry.message.expiresAt { wakeAt = min(wakeAt ?? expiresAt, expiresAt) }
        guard heldBytes[client, default: 0] > Self.heldByteCount else { return }
        // Let go of the older half of what has been read or is our own and delivered.
        var kept: [Held] = []
        let entries = held[client, default: []]
        for (index, entry) in entries.enumerated() {
            let isDone =
                !entry.isUnread && entry.tier == nil && entry.message.state != .queued && entry.message.state != .sent
                && entry.message.state != .receiving
            if index < entries.count / 2, isDone { continue }
            kept.append(entry)
        }
        replaceHeld(kept, client)
    }

    /// - Parameter stored: those that are on the disk now.
    private mutating func replaceHeld(_ entries: [Held], stored: Set<Messaging.MessageID> = [], _ client: ClientID) {
        let kept = Set(entries.map(\.message.content.id))
        for entry in held[client] ?? [] {
            let id = entry.message.content.id
            guard !kept.contains(id) else { continue }
            if entry.message.content.isAnnotation, !stored.contains(id) { reactions[client]?.remove(id) }
            guard entry.message.sender != nil,
                entry.message.content.attachment == nil || entry.message.state == .received
            else { continue }
            known.insert(id, client, isStored: false)
        }
        if let files = heldChunks[client] {
            for id in files.keys where files[id] != nil && !kept.contains(id) && !uploading.contains(id) {
                forgetHeldChunks(id, client)
            }
        }
        held[client] = entries.isEmpty ? nil : entries
        heldBytes[client] = entries.reduce(0) { $0 + $1.message.byteCount }
        heldIndex[client] = Dictionary(
            uniqueKeysWithValues: entries.enumerated().map { ($1.message.content.id, $0) }
        )
    }

    func isHeld(_ id: Messaging.MessageID, client: ClientID) -> Bool { heldIndex[client]?[id] != nil }

    /// Whether a message waits in memory for the disk: until it is there it is not acknowledged.
    func awaitsStorage(_ id: Messaging.MessageID, client: ClientID) -> Bool {
        heldIndex[client]?[id].map { held[client]![$0].tier != nil } ?? false
    }

    /// Inboxes with something that waits for the disk.
    var waiting: [ClientID] {
        mayWait.isEmpty ? [] : mayWait.filter { held[$0]?.contains { $0.tier != nil } ?? false }.sorted()
    }

    /// What waits for the disk in all inboxes, in bytes.
    var waitingByteCount: Int {
        mayWait.reduce(0) { sum, client in
            (held[client] ?? []).reduce(sum) { $1.tier == nil ? $0 : $0 + $1.message.byteCount }
        }
    }

    /// Writes what waited for the unlock, with its own expiry. What could not be written stays in memory.
    /// - Returns: what is on the disk now of members' contents, and why the rest is not.
    mutating func storeWaiting(client: ClientID, row: RowID, now: Timestamp) -> (
        stored: [StoredContent], failure: StoreError?
    ) {
        var kept: [Held] = []
        var stored: [StoredContent] = []
        var onDisk: Set<Messaging.MessageID> = []
        var failure: StoreError?
        for var entry in held[client] ?? [] {
            // In the order in which they came, so that what stays in memory stands between what goes.
            if entry.place == nil || !onDisk.isEmpty {
                entry.place = nextPlace(after: kept.last?.place, row) ?? entry.place
            }
            guard failure == nil, let lifetime = entry.tier, let tier = lifetime.tier,
                let expiresAt = entry.message.expiresAt
            else {
                kept.append(entry)
                continue
            }
            let id = entry.message.content.id
            if expiresAt <= now { continue }
            do throws(StoreError) {
                // It came again while the storage was locked.
                if try !store.contains(row, id: id.bytes) {
                    let place = kept.last?.place
                    try append(entry.message, arrivedAt: entry.arrivedAt, tier, expiresAt, notBefore: place, row)
                }
                onDisk.insert(id)
            } catch {
                failure = error
                kept.append(entry)
                continue
            }
            guard let sender = entry.message.sender else { continue }
            known.insert(id, client, isStored: true)
            // A file is answered when it is whole.
            if entry.message.state == .received { stored.append(StoredContent(id: id, sender: sender)) }
        }
        replaceHeld(kept, stored: onDisk, client)
        if failure == nil { mayWait.remove(client) }
        if kept.allSatisfy({ $0.place != nil }) { unplaced.remove(client) }
        return (stored, failure)
    }

    mutating func setState(_ state: DeliveryState, of id: Messaging.MessageID, client: ClientID, row: RowID?)
        throws(StoreError)
    {
        if state == .received { known.complete(id, client) }
        if let index = heldIndex[client]?[id] {
            held[client]![index].message.state = state
            // Nobody asks for its file any more.
            if held[client]![index].message.sender == nil, state != .sent { forgetHeldChunks(id, client) }
            held[client]![index].message.merge(deliveries[client]?.removeValue(forKey: id) ?? [])
            return
        }
        if state == .sent {
            sent[client, default: []].insert(id)
            return
        }
        sent[client]?.remove(id)
        guard let row, !store.isLocked else { return }
        let said = deliveries[client]?.removeValue(forKey: id) ?? []
        var known = outgoing.remove(id, client)
        if known == nil { known = try stored(id, row: row) }
        // A message that is gone needs no state.
        guard let known, try store.contains(row, id: id.bytes) else { return }
        var message = known.message
        message.state = state
        message.merge(said)
        // Who says that all have it may not have seen the record.
        if state == .delivered {
            let said = message.deliveries.map(\.state)
            if said.contains(.failed) {
                message.state = .failed
            } else if said.contains(.expiredUndelivered) {
                message.state = .expiredUndelivered
            }
        }
        try store.update(row, id: id.bytes, payload: StoredCodec.encode(message, arrivedAt: known.arrivedAt))
    }

    /// A message as the disk has it, due or not.
    private func stored(_ id: Messaging.MessageID, row: RowID) throws(StoreError) -> OutgoingMessages.Entry? {
        guard let bytes = try store.read(row, id: id.bytes, now: 0),
            let (message, arrivedAt) = try? StoredCodec.decodeMessage(bytes)
        else { return nil }
        return OutgoingMessages.Entry(message: message, arrivedAt: arrivedAt)
    }

    /// What a member has said of a message of ours. Written with the message's next state; at once when it was read.
    mutating func setDelivery(_ delivery: Delivery, of id: Messaging.MessageID, client: ClientID, row: RowID?)
        throws(StoreError)
    {
        if let index = heldIndex[client]?[id] {
            held[client]![index].message.merge([delivery])
            return
        }
        deliveries[client, default: [:]][id, default: []].append(delivery)
        guard delivery.state == .read, let row, !store.isLocked, let known = try stored(id, row: row) else { return }
        outgoing.remove(id, client)
        var message = known.message
        message.merge(deliveries[client]?.removeValue(forKey: id) ?? [])
        try store.update(row, id: id.bytes, payload: StoredCodec.encode(message, arrivedAt: known.arrivedAt))
    }

    mutating func erase(_ ids: [Messaging.MessageID], client: ClientID, row: RowID?) throws(StoreError) {
        let gone = Set(ids)
        for id in ids {
            outgoing.remove(id, client)
            deliveries[client]?[id] = nil
            reactions[client]?.removeAll(at: id)
            reactions[client]?.remove(id)
            try forgetChunks(id, client: client, row: row)
        }
        sent[client]?.subtract(gone)
        if let entries = held[client] { replaceHeld(entries.filter { !gone.contains($0.message.content.id) }, client) }
        guard let row, !store.isLocked else { return }
        for id in ids where try store.contains(row, id: id.bytes) { try store.erase(row, id: id.bytes) }
    }

    /// Forgets what is in memory only.
    mutating func forgetMemory(_ client: ClientID) {
        replaceHeld((held[client] ?? []).filter { $0.tier != nil }, client)
    }

    /// The inbox sleeps: what is in memory only stays, within bounds; the rest is read again.
    mutating func sleep(_ client: ClientID) {
        outgoing.removeAll(client)
        sent[client] = nil
        guard held[client] != nil else { return }
        asleep.removeAll { $0 == client }
        asleep.append(client)
        // Read and delivered contents of those that sleep longest go first.
        var total = asleep.reduce(0) { $0 + (heldBytes[$1] ?? 0) }
        while total > Limits.memoryTotalByteCount, let oldest = asleep.first {
            asleep.removeFirst()
            total -= heldBytes[oldest] ?? 0
            // What waits for the disk is not acknowledged, and bounded by what its inbox may hold.
            forgetMemory(oldest)
        }
    }

    mutating func wake(_ client: ClientID) { if !asleep.isEmpty { asleep.removeAll { $0 == client } } }

    mutating func forget(_ client: ClientID) {
        outgoing.removeAll(client)
        known.removeAll(client)
        hiddenIsKnown.remove(client)
        wake(client)
        held[client] = nil
        mayWait.remove(client)
        unplaced.remove(client)
        heldIndex[client] = nil
        heldBytes[client] = nil
        sent[client] = nil
        deliveries[client] = nil
        reactions[client] = nil
        chunkPrefixes[client] = nil
        for id in (heldChunks[client] ?? [:]).keys { forgetHeldChunks(id, client) }
    }

    /// The disk has refused something: what is on it must be asked for again.
    mutating func forgetStored(_ client: ClientID) { known.removeStored(client) }

    /// A message on the disk has come to its end.
    mutating func expired(_ id: Messaging.MessageID, client: ClientID) {
        outgoing.remove(id, client)
        sent[client]?.remove(id)
        deliveries[client]?[id] = nil
        reactions[client]?.removeAll(at: id)
        chunkPrefixes[client]?[id] = nil
    }

    /// Drops what has expired in memory. That takes as long as there is much in an inbox, and a member chooses the moments:
    /// not to be done for each of them.
    /// - Returns: which.
    mutating func expire(now: Timestamp) -> [(ClientID, Messaging.MessageID)] {
        // Nobody says of hidden records when they have come to their end.
        for client in reactions.filter({ $1.wakeAt.map { $0 <= now } ?? false }).keys {
            reactions[client]?.expire(now: now)
        }
        guard let wakeAt, wakeAt <= now else { return [] }
        var gone: [(ClientID, Messaging.MessageID)] = []
        for client in held.keys.sorted() {
            let entries = held[client] ?? []
            let kept = entries.filter { $0.message.expiresAt.map { $0 > now } ?? true }
            guard kept.count != entries.count else { continue }
            for entry in entries where entry.message.expiresAt.map({ $0 <= now }) ?? false {
                gone.append((client, entry.message.content.id))
            }
            replaceHeld(kept, client)
        }
        self.wakeAt = nextDeadline
        return gone
    }

    /// The first expiry in memory, found by looking at everything.
    var nextDeadline: Timestamp? {
        held.values.compactMap { $0.compactMap(\.message.expiresAt).min() }.min()
    }

    /// - Returns: whether it is in memory.
    mutating func rescheduleHeld(
        _ id: Messaging.MessageID,
        expiresAt: Timestamp,
        client: ClientID,
        now: Timestamp
    ) -> Bool {
        guard let index = heldIndex[client]?[id] else { return false }
        held[client]![index].message.expiresAt = expiresAt
        held[client]![index].message.onReading = nil
        if held[client]![index].tier != nil { held[client]![index].tier = .holding(expiresAt - now) }
        wakeAt = min(wakeAt ?? expiresAt, expiresAt)
        return true
    }

    /// Our own messages in memory that name an agreement.
    func heldSent(under agreement: AgreementID, _ client: ClientID) -> [Messaging.MessageID] {
        (held[client] ?? []).filter { $0.message.sender == nil && $0.message.content.agreement == agreement }
            .map(\.message.content.id)
    }
}

extension Lifetime {
    /// The store's class for this lifetime; `nil` for ephemeral.
    var tier: Tier? {
        switch self {
        case .ephemeral: nil
        case .oneHour: .oneHour
        case .sixHours: .sixHours
        case .oneDay: .oneDay
        case .sevenDays: .sevenDays
        case .thirtyDays: .thirtyDays
        }
    }
}
