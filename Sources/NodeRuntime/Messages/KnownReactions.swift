import Messaging

/// Ids of an inbox's reactions, by target message, in order of arrival. In memory only. A member may react to messages
/// that do not exist, so the count is bounded; the oldest is dropped first.
struct KnownReactions {
    static let limit = 16_384
    /// Limit per message: the oldest are no longer shown.
    static let limitAtOne = 256

    private struct Entry {
        var target: Messaging.MessageID
        /// Position in order of arrival.
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
