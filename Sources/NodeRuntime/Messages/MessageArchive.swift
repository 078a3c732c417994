import Crypto
import DequeModule
import Messaging
import Store
import Wire

/// The messages of one inbox: on the disk what has an agreement, in memory what has none or waits for the unlock.
final class MessageArchive {
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

    var held: [Held] = []
    private(set) var heldIndex: [Messaging.MessageID: Int] = [:]
    /// Not after the first expiry in memory; exact once ``expire(now:)`` has found it to be due.
    private(set) var wakeAt: Timestamp? { didSet { memory.expiries.set(row, wakeAt, queued: &queuedExpiry) } }
    /// See `DeadlineQueue`; so is ``queuedReactionExpiry``.
    private var queuedExpiry: Timestamp?
    private var queuedReactionExpiry: Timestamp?
    private(set) var heldBytes = 0
    /// Something waits for the disk, perhaps.
    private var mayWait = false {
        didSet { if mayWait { memory.waiting.insert(row) } else { memory.waiting.remove(row) } }
    }
    /// Some messages in memory have no place yet.
    private var isUnplaced = false
    /// Messages on the disk as queued that have been handed to a link. Not written: a restart queues them again, and
    /// delivery, which is written, follows within the time of a round trip.
    private(set) var sent: Set<Messaging.MessageID> = []
    /// What was learned of messages on the disk and is to be written with the next commit.
    var learned = LearnedStatuses()
    /// What members have said of our messages and waits for their next state.
    private(set) var deliveries: [Messaging.MessageID: [Delivery]] = [:]
    /// Those in memory, and those on the disk from ``reactionsFrom`` on.
    var reactions = KnownReactions() {
        didSet { memory.reactionExpiries.set(row, reactions.wakeAt, queued: &queuedReactionExpiry) }
    }
    /// Reactions at messages from this place on are known.
    var reactionsFrom = UInt64.max
    /// The newest hidden records have been looked through since the start.
    var isHiddenKnown = false
    /// Chunks of files without an agreement.
    var heldChunks: [Messaging.MessageID: [Int: AttachmentChunk]] = [:]
    /// What the identifiers of a file's chunks on the disk begin with.
    var chunkPrefixes: [Messaging.MessageID: [UInt8]] = [:]
    var outgoing: OutgoingMessages
    /// Messages of members that are in memory no more.
    private(set) var known: KnownMessages
    /// Stored messages before this place count as read.
    private(set) var shownPlace: UInt64 = 0
    /// The last saved state has ``shownPlace``.
    var isShownSaved = true {
        didSet { if isShownSaved { memory.unsavedMarks.remove(row) } else { memory.unsavedMarks.insert(row) } }
    }
    /// The places of unread stored messages, in order, at most ``unreadLimit``; `nil` before they were counted.
    private(set) var unread: Deque<UInt64>?
    /// More unread messages may follow those in ``unread``.
    private var isUnreadCut = false
    let store: Store
    let row: RowID
    let memory: MessageMemory

    init(store: Store, row: RowID, memory: MessageMemory) {
        self.store = store
        self.row = row
        self.memory = memory
        outgoing = OutgoingMessages(budget: memory)
        known = KnownMessages(budget: memory)
    }

    // MARK: Keeping

    func keep(_ message: Message, _ keeping: NodeAction.Keeping, now: Timestamp) throws(StoreError) {
        switch keeping {
        case .disk(let lifetime):
            guard let tier = lifetime.tier, let expiresAt = message.expiresAt else { return }
            settlePlaces()
            let place = try append(message, arrivedAt: now, tier, expiresAt, notBefore: held.last?.place)
            // Of hidden records nobody says when they have come to their end.
            if message.sender == nil, !message.content.isAnnotation {
                outgoing.insert(message, arrivedAt: now, place: place)
            }
            if message.sender != nil {
                noteUnread(message, at: place.order)
                let isPartial = message.content.attachment != nil && message.state != .received
                known.insert(message.content.id, isStored: true, isPartial: isPartial)
            }
        case .memory: hold(Held(message: message, arrivedAt: now, tier: nil, isUnread: message.sender != nil))
        case .untilUnlocked(let lifetime):
            hold(Held(message: message, arrivedAt: now, tier: lifetime, isUnread: message.sender != nil))
        }
        noteReaction(message)
    }

    private func noteUnread(_ message: Message, at place: UInt64) {
        if place < shownPlace {
            // The store reuses the highest places once their records are gone.
            shownPlace = place
            isShownSaved = false
        }
        guard !message.content.isAnnotation, let known = unread, !isUnreadCut else { return }
        if known.count < Self.unreadLimit { unread?.append(place) } else { isUnreadCut = true }
    }

    /// The highest count of unread messages.
    static let unreadLimit = 1_000

    /// The number of ``unread`` messages; `nil` before they were counted.
    var knownUnreadCount: Int? { isUnreadCut ? Self.unreadLimit : unread?.count }

    /// Sets the places of all unread stored messages, or of the first ``unreadLimit``.
    func setUnread(_ places: Deque<UInt64>) {
        unread = places
        isUnreadCut = places.count >= Self.unreadLimit
    }

    /// Forgets which stored messages are unread: they are counted again from ``shownPlace``.
    private func forgetUnread() {
        unread = nil
        isUnreadCut = false
    }

    /// Marks all stored messages before a place as read.
    func show(before place: UInt64) {
        guard place > shownPlace else { return }
        shownPlace = place
        isShownSaved = false
        while let first = unread?.first, first < place { unread?.removeFirst() }
        if isUnreadCut, unread?.isEmpty ?? true { forgetUnread() }
    }

    /// Marks one stored message as read. Unread messages before it stay unread.
    func showStored(_ place: UInt64) {
        guard let index = unread?.firstIndex(of: place) else { return }
        unread?.remove(at: index)
        if index == 0 { show(before: unread?.first ?? place + 1) }
    }

    /// Takes the mark of the saved state.
    func load(shownPlace place: UInt64) {
        shownPlace = place
        isShownSaved = true
        forgetUnread()
    }

    @discardableResult private func append(
        _ message: Message, arrivedAt: Timestamp, _ tier: Tier, _ expiresAt: Timestamp, notBefore place: UInt64?
    ) throws(StoreError) -> MessagePlace {
        try store.append(
            row, id: message.content.id.bytes, tier: tier, expiresAt: expiresAt.milliseconds,
            payload: StoredCodec.encode(message, arrivedAt: arrivedAt),
            // The store counts on from what is left on the disk, which may be less than there was.
            notBefore: place ?? 0, isHidden: message.content.isAnnotation)
    }

    /// Where a message that comes into memory now has its place; `nil` while that is not known.
    private func nextPlace(after last: UInt64?) -> UInt64? {
        guard !store.isLocked, let next = try? store.nextPlace(row) else { return nil }
        return max(next, last ?? 0)
    }

    /// What came while the storage was locked comes after all that is on the disk. Before anything more goes there.
    func settlePlaces() {
        guard isUnplaced else { return }
        var last: UInt64?
        for index in 0..<held.count {
            if held[index].place == nil {
                guard let place = nextPlace(after: last) else { return }
                held[index].place = place
            }
            last = held[index].place
        }
        isUnplaced = false
    }

    private func hold(_ entry: Held) {
        guard !isHeld(entry.message.content.id) else { return }
        var entry = entry
        settlePlaces()
        if !isUnplaced { entry.place = nextPlace(after: held.last?.place) }
        if entry.place == nil { isUnplaced = true }
        heldBytes += entry.message.byteCount
        heldIndex[entry.message.content.id] = held.count
        held.append(entry)
        if entry.tier != nil { mayWait = true }
        if let expiresAt = entry.message.expiresAt { wakeAt = min(wakeAt ?? expiresAt, expiresAt) }
        guard heldBytes > Self.heldByteCount else { return }
        // Let go of the older half of what has been read or is our own and delivered.
        var kept: [Held] = []
        let entries = held
        for (index, entry) in entries.enumerated() {
            let isDone =
                !entry.isUnread && entry.tier == nil && entry.message.state != .queued && entry.message.state != .sent
                && entry.message.state != .mailed && entry.message.state != .receiving
            if index < entries.count / 2, isDone { continue }
            kept.append(entry)
        }
        replaceHeld(kept)
    }

    /// - Parameter stored: those that are on the disk now.
    private func replaceHeld(_ entries: [Held], stored: Set<Messaging.MessageID> = []) {
        let kept = Set(entries.map(\.message.content.id))
        for entry in held {
            let id = entry.message.content.id
            guard !kept.contains(id) else { continue }
            if entry.message.content.isAnnotation, !stored.contains(id) { reactions.remove(id) }
            guard entry.message.sender != nil,
                entry.message.content.attachment == nil || entry.message.state == .received
            else { continue }
            known.insert(id, isStored: false)
        }
        for id in heldChunks.keys where !kept.contains(id) && !memory.uploading.contains(id) { forgetHeldChunks(id) }
        held = entries
        heldBytes = entries.reduce(0) { $0 + $1.message.byteCount }
        heldIndex = Dictionary(entries.enumerated().map { ($1.message.content.id, $0) }) { first, _ in first }
    }

    func isHeld(_ id: Messaging.MessageID) -> Bool { heldIndex[id] != nil }

    /// Whether a message waits in memory for the disk: until it is there it is not acknowledged.
    func awaitsStorage(_ id: Messaging.MessageID) -> Bool { heldIndex[id].map { held[$0].tier != nil } ?? false }

    /// Something waits for the disk.
    var isWaiting: Bool { mayWait && held.contains { $0.tier != nil } }

    /// What waits for the disk, in bytes.
    var waitingByteCount: Int { mayWait ? held.reduce(0) { $1.tier == nil ? $0 : $0 + $1.message.byteCount } : 0 }

    /// Writes what waited for the unlock, with its own expiry. What could not be written stays in memory.
    /// - Returns: what is on the disk now of members' contents, and why the rest is not.
    func storeWaiting(now: Timestamp) -> (stored: [StoredContent], failure: StoreError?) {
        var kept: [Held] = []
        var stored: [StoredContent] = []
        var onDisk: Set<Messaging.MessageID> = []
        var failure: StoreError?
        var isAllRead = unreadStoredCount(now: now) == 0
        for var entry in held {
            // In the order in which they came, so that what stays in memory stands between what goes.
            if entry.place == nil || !onDisk.isEmpty { entry.place = nextPlace(after: kept.last?.place) ?? entry.place }
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
                    let before = kept.last?.place
                    let place = try append(
                        entry.message, arrivedAt: entry.arrivedAt, tier, expiresAt, notBefore: before)
                    if entry.isUnread {
                        noteUnread(entry.message, at: place.order)
                        isAllRead = false
                    } else if isAllRead {
                        show(before: place.order + 1)
                    }
                }
                onDisk.insert(id)
            } catch {
                failure = error
                kept.append(entry)
                continue
            }
            guard let sender = entry.message.sender else { continue }
            known.insert(id, isStored: true)
            // A file is answered when it is whole.
            if entry.message.state == .received { stored.append(StoredContent(id: id, sender: sender)) }
        }
        replaceHeld(kept, stored: onDisk)
        if failure == nil { mayWait = false }
        if kept.allSatisfy({ $0.place != nil }) { isUnplaced = false }
        return (stored, failure)
    }

    func setState(_ state: DeliveryState, of id: Messaging.MessageID) {
        if state == .received { known.complete(id) }
        if let index = heldIndex[id] {
            held[index].message.state = state
            // Nobody asks for its file any more.
            if held[index].message.sender == nil, state != .sent, state != .mailed { forgetHeldChunks(id) }
            held[index].message.merge(deliveries.removeValue(forKey: id) ?? [])
            return
        }
        if state == .sent {
            sent.insert(id)
            return
        }
        sent.remove(id)
        guard !store.isLocked else { return }
        let status = MessageStatus(message: id, state: state, said: deliveries.removeValue(forKey: id) ?? [])
        // Nothing is to be sent of it any more: what it says is on the disk alone.
        if state == .queued || state == .mailed {
            learn(status)
        } else {
            learned.add(status, at: outgoing.remove(id)?.place)
        }
    }

    private func learn(_ status: MessageStatus) {
        learned.add(status, at: outgoing[status.message]?.place)
        outgoing.learn(status)
    }

    /// Notes how a message of ours stands with one member. An acknowledgement is written with the message's next state,
    /// everything else with the next commit.
    func setDelivery(_ delivery: Delivery, of id: Messaging.MessageID) {
        if let index = heldIndex[id] {
            held[index].message.merge([delivery])
            return
        }
        deliveries[id, default: []].append(delivery)
        // An acknowledgement is repeated when it was lost, unless it came by a mailbox.
        guard delivery.state != .delivered || isMailed(id), !store.isLocked else { return }
        learn(MessageStatus(message: id, said: deliveries.removeValue(forKey: id) ?? []))
    }

    /// Some member's mailbox has it, or may have it: after a start that is on the disk alone.
    private func isMailed(_ id: Messaging.MessageID) -> Bool {
        guard let known = outgoing.deliveries(of: id) else { return true }
        return known.contains { $0.state == .mailed } || learned[id]?.said.contains { $0.state == .mailed } ?? false
    }

    func erase(_ ids: [Messaging.MessageID]) throws(StoreError) {
        let gone = Set(ids)
        if unread?.isEmpty == false { forgetUnread() }
        for id in ids {
            outgoing.remove(id)
            deliveries[id] = nil
            learned.remove(id)
            reactions.removeAll(at: id)
            reactions.remove(id)
            try forgetChunks(id)
        }
        sent.subtract(gone)
        if !held.isEmpty { replaceHeld(held.filter { !gone.contains($0.message.content.id) }) }
        guard !store.isLocked else { return }
        for id in ids where try store.contains(row, id: id.bytes) { try store.erase(row, id: id.bytes) }
    }

    /// Forgets what is in memory only.
    func forgetMemory() { replaceHeld(held.filter { $0.tier != nil }) }

    /// What is on the disk is asked for again, also where it is.
    func forgetOutgoing() {
        outgoing.removeAll()
        learned.forgetPlaces()
    }

    /// The inbox sleeps: what is in memory only stays; the rest is read again.
    func sleep() {
        forgetOutgoing()
        sent = []
    }

    /// The inbox is gone.
    func forget() {
        outgoing.removeAll()
        known.removeAll()
        isHiddenKnown = false
        held = []
        mayWait = false
        isShownSaved = true
        isUnplaced = false
        heldIndex = [:]
        heldBytes = 0
        wakeAt = nil
        sent = []
        deliveries = [:]
        learned.removeAll()
        reactions = KnownReactions()
        reactionsFrom = .max
        chunkPrefixes = [:]
        for id in heldChunks.keys { forgetHeldChunks(id) }
    }

    /// The disk has refused something: what is on it must be asked for again.
    func forgetStored() { known.removeStored() }

    /// A message on the disk has come to its end.
    func expired(_ id: Messaging.MessageID) {
        if unread?.isEmpty == false { forgetUnread() }
        outgoing.remove(id)
        sent.remove(id)
        deliveries[id] = nil
        learned.remove(id)
        reactions.removeAll(at: id)
        chunkPrefixes[id] = nil
    }

    /// Lists the inbox again by its deadlines and its mark: both may have been taken while it was not in the table.
    func enlist() {
        (queuedExpiry, queuedReactionExpiry) = (nil, nil)
        queueExpiries()
        noteUnsavedMark()
    }

    /// Lists the mark again: it may have been taken while the inbox slept.
    func noteUnsavedMark() { if !isShownSaved { memory.unsavedMarks.insert(row) } }

    private func queueExpiries() {
        memory.expiries.set(row, wakeAt, queued: &queuedExpiry)
        memory.reactionExpiries.set(row, reactions.wakeAt, queued: &queuedReactionExpiry)
    }

    /// Sets the deadline, which may be that of a message that has gone, to the first expiry in memory.
    func settleExpiry() {
        queuedExpiry = nil
        wakeAt = nextDeadline
    }

    /// Drops what has expired in memory. That takes as long as there is much in an inbox, and a member chooses the moments:
    /// not to be done for each of them.
    /// - Returns: which.
    func expire(now: Timestamp) -> [Messaging.MessageID] {
        // What was due then has been taken from the queue.
        if let queued = queuedExpiry, queued <= now { queuedExpiry = nil }
        if let queued = queuedReactionExpiry, queued <= now { queuedReactionExpiry = nil }
        defer { queueExpiries() }
        // Nobody says of hidden records when they have come to their end.
        reactions.expire(now: now)
        guard let wakeAt, wakeAt <= now else { return [] }
        let gone = held.filter { $0.message.expiresAt.map { $0 <= now } ?? false }.map(\.message.content.id)
        if !gone.isEmpty { replaceHeld(held.filter { $0.message.expiresAt.map { $0 > now } ?? true }) }
        self.wakeAt = nextDeadline
        return gone
    }

    /// The first expiry in memory, found by looking at everything.
    var nextDeadline: Timestamp? { held.compactMap(\.message.expiresAt).min() }

    /// - Returns: whether it is in memory.
    func rescheduleHeld(_ id: Messaging.MessageID, expiresAt: Timestamp, now: Timestamp) -> Bool {
        guard let index = heldIndex[id] else { return false }
        held[index].message.expiresAt = expiresAt
        held[index].message.onReading = nil
        if held[index].tier != nil { held[index].tier = .holding(expiresAt - now) }
        wakeAt = min(wakeAt ?? expiresAt, expiresAt)
        return true
    }

    /// Our own messages in memory that name an agreement.
    func heldSent(under agreement: AgreementID) -> [Messaging.MessageID] {
        held.filter { $0.message.sender == nil && $0.message.content.agreement == agreement }.map(\.message.content.id)
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
