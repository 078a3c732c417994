import Cryptography
import DequeModule
import Messaging
import Store

/// The messages of one inbox: with an agreement on the disk; without one, or before the unlock, in memory.
final class MessageArchive {
    struct Held {
        var message: Message
        var arrivedAt: Timestamp
        /// Its lifetime, if it is to be stored after the unlock.
        var tier: Lifetime?
        var isUnread: Bool
        /// Its place among stored messages: before those at this position and above. Never lower than the previous
        /// entry's. `nil`: received while locked, so it follows all stored messages.
        var place: UInt64?
    }

    /// Memory bound for ephemeral messages of one inbox; beyond it the oldest read ones are dropped.
    private static let heldByteCount = 8 << 20

    var held: [Held] = []
    private(set) var heldIndex: [Messaging.MessageID: Int] = [:]
    /// A lower bound of the first expiry in memory; exact after a due ``expire(now:)``.
    private(set) var wakeAt: Timestamp? { didSet { memory.expiries.set(row, wakeAt, queued: &queuedExpiry) } }
    /// See `DeadlineQueue`.
    private var queuedExpiry: Timestamp?
    private var queuedReactionExpiry: Timestamp?
    private(set) var heldBytes = 0
    private var mayWait = false {
        didSet { if mayWait { memory.waiting.insert(row) } else { memory.waiting.remove(row) } }
    }
    private var isUnplaced = false
    /// Stored queued messages that were handed to a link. Not written: after a restart they are queued again, and a
    /// delivery follows within a round trip and is written.
    private(set) var sent: Set<Messaging.MessageID> = []
    /// Status changes of stored messages for the next commit.
    var learned = LearnedStatuses()
    /// Deliveries that are written with the message's next state.
    private(set) var deliveries: [Messaging.MessageID: [Delivery]] = [:]
    /// Reactions in memory, and stored ones from ``reactionsFrom`` on.
    var reactions = KnownReactions() {
        didSet { memory.reactionExpiries.set(row, reactions.wakeAt, queued: &queuedReactionExpiry) }
    }
    /// Reactions to messages from this position on are indexed.
    var reactionsFrom = UInt64.max
    /// The newest hidden records were scanned since the start.
    var isHiddenKnown = false
    var heldChunks: [Messaging.MessageID: [Int: AttachmentChunk]] = [:]
    var chunkPrefixes: [Messaging.MessageID: Bytes16] = [:]
    var outgoing: OutgoingMessages
    /// Members' messages that have left memory.
    private(set) var known: KnownMessages
    /// Stored messages before this position count as read.
    private(set) var shownPlace: UInt64 = 0
    /// The last saved state contains ``shownPlace``.
    var isShownSaved = true {
        didSet { if isShownSaved { memory.unsavedMarks.remove(row) } else { memory.unsavedMarks.insert(row) } }
    }
    /// Positions of unread stored messages, sorted, at most ``unreadLimit``; `nil` before they are counted.
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

    // MARK: Storing

    func keep(_ message: Message, _ keeping: NodeAction.Keeping, now: Timestamp) throws(StoreError) {
        switch keeping {
        case .disk(let lifetime):
            guard let tier = lifetime.tier, let expiresAt = message.expiresAt else { return }
            settlePlaces()
            let place = try append(message, arrivedAt: now, tier, expiresAt, notBefore: held.last?.place)
            // The expiry of hidden records is not reported, so they would stay cached.
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
            // The store reuses the highest positions after their records are gone.
            shownPlace = place
            isShownSaved = false
        }
        guard !message.content.isAnnotation, let known = unread, !isUnreadCut else { return }
        if known.count < Self.unreadLimit { unread?.append(place) } else { isUnreadCut = true }
    }

    static let unreadLimit = 1_000

    /// `nil` before they are counted.
    var knownUnreadCount: Int? { isUnreadCut ? Self.unreadLimit : unread?.count }

    func setUnread(_ places: Deque<UInt64>) {
        unread = places
        isUnreadCut = places.count >= Self.unreadLimit
    }

    /// The next count starts at ``shownPlace`` again.
    private func forgetUnread() {
        unread = nil
        isUnreadCut = false
    }

    /// Marks all stored messages before a position as read.
    func show(before place: UInt64) {
        guard place > shownPlace else { return }
        shownPlace = place
        isShownSaved = false
        while let first = unread?.first, first < place { unread?.removeFirst() }
        if isUnreadCut, unread?.isEmpty ?? true { forgetUnread() }
    }

    /// Marks one stored message as read; earlier unread messages stay unread.
    func showStored(_ place: UInt64) {
        guard let index = unread?.firstIndex(of: place) else { return }
        unread?.remove(at: index)
        if index == 0 { show(before: unread?.first ?? place + 1) }
    }

    func load(shownPlace place: UInt64) {
        shownPlace = place
        isShownSaved = true
        forgetUnread()
    }

    @discardableResult private func append(
        _ message: Message, arrivedAt: Timestamp, _ tier: Tier, _ expiresAt: Timestamp, notBefore place: UInt64?
    ) throws(StoreError) -> MessagePlace {
        try store.append(
            row, id: message.content.id.value, tier: tier, expiresAt: expiresAt.milliseconds,
            payload: StoredCodec.encode(message, arrivedAt: arrivedAt),
            // After an expiry the store may count from a lower position.
            notBefore: place ?? 0, isHidden: message.content.isAnnotation)
    }

    /// The position for a new message in memory; `nil` if it is unknown.
    private func nextPlace(after last: UInt64?) -> UInt64? {
        guard !store.isLocked, let next = try? store.nextPlace(row) else { return nil }
        return max(next, last ?? 0)
    }

    /// Assigns positions to messages received while locked. Call this before the next write.
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
        wakeAt = earliest(wakeAt, entry.message.expiresAt)
        guard heldBytes > Self.heldByteCount else { return }
        // Drops read messages, and delivered ones of ours, from the older half.
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

    /// - Parameter stored: messages that are now on the disk.
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

    /// Whether a message waits for the disk, and so is not acknowledged yet.
    func awaitsStorage(_ id: Messaging.MessageID) -> Bool { heldIndex[id].map { held[$0].tier != nil } ?? false }

    var isWaiting: Bool { mayWait && held.contains { $0.tier != nil } }

    /// Whether a message of ours waits for the disk.
    var hasOwnWaiting: Bool { mayWait && held.contains { $0.tier != nil && $0.message.sender == nil } }

    var waitingByteCount: Int { mayWait ? held.reduce(0) { $1.tier == nil ? $0 : $0 + $1.message.byteCount } : 0 }

    /// Stores waiting messages with their own expiry. Messages that cannot be written stay in memory.
    /// - Returns: the stored contents of members, and why others were not stored.
    func storeWaiting(now: Timestamp) -> (stored: [StoredContent], failure: StoreError?) {
        var kept: [Held] = []
        var stored: [StoredContent] = []
        var onDisk: Set<Messaging.MessageID> = []
        var failure: StoreError?
        var isAllRead = (try? countUnread(now: now)) == 0
        let expiries = Dictionary(grouping: held.filter { ($0.message.expiresAt ?? now) > now }) { $0.tier?.tier }
        for case (let tier?, let entries) in expiries {
            // The first message without a column tells why.
            try? store.prepareColumns(tier, entries.compactMap { $0.message.expiresAt?.milliseconds })
        }
        for var entry in held {
            // In order of arrival: messages that stay in memory keep their place between stored ones.
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
                // The message came again while the storage was locked.
                if try !store.contains(row, id: id.value) {
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
            // A file is acknowledged when it is complete.
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
            // No member requests the file any more.
            if held[index].message.sender == nil, state != .sent, state != .mailed { forgetHeldChunks(id) }
            held[index].message.deliveries.merge(deliveries.removeValue(forKey: id) ?? [])
            return
        }
        if state == .sent {
            sent.insert(id)
            return
        }
        sent.remove(id)
        // Only the record of a cancelled message tells whether a member has it.
        if state == .cancelled, store.isLocked { return }
        let status = MessageStatus(message: id, state: state, said: deliveries.removeValue(forKey: id) ?? [])
        // A finished message is not resent, so its cached contents are dropped.
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

    /// Records a delivery state for one member. An acknowledgement is written with the message's next state, all others
    /// with the next commit.
    func setDelivery(_ delivery: Delivery, of id: Messaging.MessageID) {
        if let index = heldIndex[id] {
            held[index].message.deliveries.merge([delivery])
            return
        }
        deliveries[id, default: []].append(delivery)
        // A lost acknowledgement comes again over a link, so it may wait for the message's next state. That of a mailed
        // message may come by a mailbox, which does not repeat it.
        guard delivery.state != .delivered || isMailed(id) else { return }
        learn(MessageStatus(message: id, said: deliveries.removeValue(forKey: id) ?? []))
    }

    /// Whether a mailbox has or may have it. After a start, only the disk knows.
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
        for id in ids where try store.contains(row, id: id.value) { try store.erase(row, id: id.value) }
    }

    /// Drops all messages that exist only in memory.
    func forgetMemory() { replaceHeld(held.filter { $0.tier != nil }) }

    /// Clears the cache of sent messages and positions.
    func forgetOutgoing() {
        outgoing.removeAll()
        learned.forgetPlaces()
    }

    /// Before sleep: keeps only contents that are not on the disk.
    func sleep() {
        forgetOutgoing()
        sent = []
    }

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

    /// After a disk failure: looks up stored messages on the disk again.
    func forgetStored() { known.removeStored() }

    func expired(_ id: Messaging.MessageID) {
        if unread?.isEmpty == false { forgetUnread() }
        outgoing.remove(id)
        sent.remove(id)
        deliveries[id] = nil
        learned.remove(id)
        reactions.removeAll(at: id)
        chunkPrefixes[id] = nil
    }

    /// Queues the inbox's deadlines and read position again: both may have been taken while the inbox was not in the
    /// table.
    func enlist() {
        (queuedExpiry, queuedReactionExpiry) = (nil, nil)
        queueExpiries()
        noteUnsavedMark()
    }

    /// Lists the read position again: it may have been taken while the inbox slept.
    func noteUnsavedMark() { if !isShownSaved { memory.unsavedMarks.insert(row) } }

    private func queueExpiries() {
        memory.expiries.set(row, wakeAt, queued: &queuedExpiry)
        memory.reactionExpiries.set(row, reactions.wakeAt, queued: &queuedReactionExpiry)
    }

    /// Recomputes the deadline, which may belong to a removed message.
    func settleExpiry() {
        queuedExpiry = nil
        wakeAt = nextDeadline
    }

    /// Drops expired messages in memory. Takes time linear in the inbox, and members choose the expiries: do not call
    /// this per message.
    /// - Returns: their ids.
    func expire(now: Timestamp) -> [Messaging.MessageID] {
        // Due entries were already taken from the queue.
        if let queued = queuedExpiry, queued <= now { queuedExpiry = nil }
        if let queued = queuedReactionExpiry, queued <= now { queuedReactionExpiry = nil }
        defer { queueExpiries() }
        // The expiry of hidden records is not reported.
        reactions.expire(now: now)
        guard let wakeAt, wakeAt <= now else { return [] }
        let gone = held.filter { $0.message.expiresAt.map { $0 <= now } ?? false }.map(\.message.content.id)
        if !gone.isEmpty { replaceHeld(held.filter { $0.message.expiresAt.map { $0 > now } ?? true }) }
        self.wakeAt = nextDeadline
        return gone
    }

    /// The first expiry in memory; a linear scan.
    var nextDeadline: Timestamp? { held.compactMap(\.message.expiresAt).min() }

    /// - Returns: whether the message is in memory.
    func rescheduleHeld(_ id: Messaging.MessageID, expiresAt: Timestamp, now: Timestamp) -> Bool {
        guard let index = heldIndex[id] else { return false }
        held[index].message.expiresAt = expiresAt
        held[index].message.onReading = nil
        if held[index].tier != nil { held[index].tier = .holding(expiresAt - now) }
        wakeAt = earliest(wakeAt, expiresAt)
        return true
    }
}

extension Lifetime {
    /// The store's tier for this lifetime; `nil` for ephemeral.
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
