import DequeModule
import Messaging
import Store

/// Totals and indexes over all archives' messages in memory, for bounds per node.
final class MessageMemory {
    /// Limit of remembered message ids of members.
    let knownLimit: Int
    /// Ids that each inbox may remember regardless of the limit.
    let knownOwnCount: Int
    var knownCount = 0
    /// Bytes of recently stored messages of ours.
    var outgoingByteCount = 0
    var chunkByteCount: Int64 = 0
    var waiting: Set<RowID> = []
    /// Inboxes whose read position is not saved.
    var unsavedMarks: Set<RowID> = []
    /// Expiries of messages in memory and of reactions.
    var expiries = DeadlineQueue<RowID>()
    var reactionExpiries = DeadlineQueue<RowID>()
    /// Inboxes with possibly expired content in memory. ``MessageArchive/expire(now:)`` queues them again.
    func takeExpired(until now: Timestamp) -> Set<RowID> {
        Set((expiries.take(until: now) + reactionExpiries.take(until: now)).map(\.key))
    }

    /// Running uploads: their chunks have no message yet.
    var uploading: Set<MessageID> = []

    init(knownLimit: Int = 65_536, knownOwnCount: Int = 64) {
        self.knownLimit = knownLimit
        self.knownOwnCount = knownOwnCount
    }
}

/// Ids of members' messages received since the start that have left memory, for detecting duplicates after lost
/// acknowledgements. Stored messages are looked up on the disk, unless it is locked. In memory only; beyond the node's
/// bound this inbox's oldest id is dropped.
struct KnownMessages {
    private struct Entry {
        var number: UInt64
        /// Stored on the disk; otherwise dropped from memory.
        var isStored: Bool
        /// An incomplete file.
        var isPartial: Bool
    }

    private var entries: [MessageID: Entry] = [:]
    private var names: [UInt64: MessageID] = [:]
    private var nextNumber: UInt64 = 0
    /// A lower bound of the entries' numbers.
    private var oldest: UInt64 = 0
    private let budget: MessageMemory

    init(budget: MessageMemory) { self.budget = budget }

    var count: Int { names.count }

    /// - Parameter orStored: whether a stored message counts.
    func contains(_ message: MessageID, orStored: Bool) -> Bool {
        guard let entry = entries[message] else { return false }
        return orStored || !entry.isStored
    }

    /// Whether the complete message was shown, stored or from memory.
    func wasShown(_ message: MessageID) -> Bool { entries[message].map { !$0.isPartial } ?? false }

    mutating func complete(_ message: MessageID) { entries[message]?.isPartial = false }

    mutating func insert(_ message: MessageID, isStored: Bool, isPartial: Bool = false) {
        guard entries[message] == nil else { return }
        entries[message] = Entry(number: nextNumber, isStored: isStored, isPartial: isPartial)
        names[nextNumber] = message
        nextNumber += 1
        budget.knownCount += 1
        while budget.knownCount > budget.knownLimit, names.count > budget.knownOwnCount {
            if let name = names[oldest] { remove(name) }
            oldest += 1
        }
    }

    mutating func removeAll() {
        budget.knownCount -= names.count
        entries = [:]
        names = [:]
        oldest = nextNumber
    }

    /// After a disk failure: forgets the stored messages, so that the disk is asked again.
    mutating func removeStored() { for (message, entry) in entries where entry.isStored { remove(message) } }

    private mutating func remove(_ message: MessageID) {
        guard let entry = entries.removeValue(forKey: message) else { return }
        names[entry.number] = nil
        budget.knownCount -= 1
    }
}

/// Ids of an inbox's reactions, by target message, in order of arrival. In memory only. A member may react to messages
/// that do not exist, so the count is bounded; the oldest is dropped first.
struct KnownReactions {
    static let limit = 16_384
    /// Limit per message: the oldest are no longer shown.
    static let limitAtOne = 256

    private struct Entry {
        var target: Messaging.MessageID
        var number: UInt64
        /// `nil`: only with its message.
        var expiresAt: Timestamp?
    }

    private var entries: [Messaging.MessageID: Entry] = [:]
    private var targets: [Messaging.MessageID: [Messaging.MessageID]] = [:]
    private var names: [UInt64: Messaging.MessageID] = [:]
    private var nextNumber: UInt64 = 0
    /// A lower bound of the entries' numbers.
    private var oldest: UInt64 = 0
    private let limit: Int
    /// A lower bound of the first expiry.
    private(set) var wakeAt: Timestamp?

    init(limit: Int = KnownReactions.limit) { self.limit = limit }

    var count: Int { entries.count }

    /// The reactions to a message, oldest first.
    subscript(target: Messaging.MessageID) -> [Messaging.MessageID] { targets[target] ?? [] }

    mutating func insert(_ id: Messaging.MessageID, at target: Messaging.MessageID, expiresAt: Timestamp?) {
        guard entries[id] == nil else { return }
        entries[id] = Entry(target: target, number: nextNumber, expiresAt: expiresAt)
        names[nextNumber] = id
        nextNumber += 1
        targets[target, default: []].append(id)
        wakeAt = earliest(wakeAt, expiresAt)
        if let all = targets[target], all.count > Self.limitAtOne { remove(all[0]) }
        while entries.count > limit {
            if let id = names[oldest] { remove(id) }
            oldest += 1
        }
    }

    mutating func remove(_ id: Messaging.MessageID) {
        guard let entry = entries.removeValue(forKey: id) else { return }
        names[entry.number] = nil
        targets[entry.target]?.removeAll { $0 == id }
        if targets[entry.target]?.isEmpty ?? false { targets[entry.target] = nil }
    }

    mutating func removeAll(at target: Messaging.MessageID) {
        for id in targets.removeValue(forKey: target) ?? [] {
            if let entry = entries.removeValue(forKey: id) { names[entry.number] = nil }
        }
    }

    mutating func expire(now: Timestamp) {
        guard let wakeAt, wakeAt <= now else { return }
        for (id, entry) in entries where entry.expiresAt.map({ $0 <= now }) ?? false { remove(id) }
        self.wakeAt = entries.values.lazy.compactMap(\.expiresAt).min()
    }
}

/// A cache of recently stored messages of one inbox that are being sent. A message is read again for sending and at its
/// acknowledgement; a hit avoids disk and codec.
///
/// The disk has them too, so evicted messages are read there. Bounded; the oldest is evicted first.
struct OutgoingMessages {
    private static let count = 1_024
    private static let byteCount = 1 << 20
    /// Over all inboxes.
    private static let totalByteCount = 8 << 20

    /// A class, so that reading one field does not copy the message.
    final class Entry {
        fileprivate(set) var message: Message
        let arrivedAt: Timestamp
        let place: MessagePlace

        fileprivate init(_ message: Message, arrivedAt: Timestamp, place: MessagePlace) {
            self.message = message
            self.arrivedAt = arrivedAt
            self.place = place
        }
    }

    private var entries: [Messaging.MessageID: Entry] = [:]
    /// In order of arrival; ids of removed entries remain until their turn.
    private var order: Deque<Messaging.MessageID> = []
    private var byteCount = 0
    private let budget: MessageMemory

    init(budget: MessageMemory) { self.budget = budget }

    subscript(message: Messaging.MessageID) -> Entry? { entries[message] }

    func deliveries(of message: Messaging.MessageID) -> [Delivery]? { entries[message]?.message.deliveries }

    mutating func insert(_ message: Message, arrivedAt: Timestamp, place: MessagePlace) {
        let entry = Entry(message, arrivedAt: arrivedAt, place: place)
        if let earlier = entries.updateValue(entry, forKey: message.content.id) { count(-earlier.message.byteCount) }
        count(message.byteCount)
        order.append(message.content.id)
        while order.count > Self.count || byteCount > Self.byteCount || budget.outgoingByteCount > Self.totalByteCount,
            let oldest = order.popFirst()
        { remove(oldest) }
    }

    func learn(_ status: MessageStatus) { entries[status.message]?.message.learn(status) }

    @discardableResult mutating func remove(_ message: Messaging.MessageID) -> Entry? {
        guard let entry = entries.removeValue(forKey: message) else { return nil }
        count(-entry.message.byteCount)
        return entry
    }

    mutating func removeAll() {
        count(-byteCount)
        entries = [:]
        order = []
    }

    private mutating func count(_ change: Int) {
        byteCount += change
        budget.outgoingByteCount += change
    }
}
