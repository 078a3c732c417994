import Messaging

/// The reactions of one inbox by the message that they are at, in the order of their arrival: their numbers alone, in
/// memory alone. A member may put them at messages that nobody has, so they are bounded; the oldest goes first.
struct KnownReactions {
    /// Most of one inbox, at however many messages.
    static let limit = 16_384
    /// Most at one message: beyond that the oldest are not shown any more.
    static let limitAtOne = 256

    private struct Entry {
        var target: Messaging.MessageID
        /// Its place in the order of arrival.
        var number: UInt64
        /// `nil`: not by itself.
        var expiresAt: Timestamp?
    }

    private var entries: [Messaging.MessageID: Entry] = [:]
    private var targets: [Messaging.MessageID: [Messaging.MessageID]] = [:]
    private var names: [UInt64: Messaging.MessageID] = [:]
    private var nextNumber: UInt64 = 0
    /// No entry has a smaller number.
    private var oldest: UInt64 = 0
    private let limit: Int
    /// Not after the first expiry.
    private(set) var wakeAt: Timestamp?

    init(limit: Int = KnownReactions.limit) { self.limit = limit }

    var count: Int { entries.count }

    /// Those at a message, the first to arrive first.
    subscript(target: Messaging.MessageID) -> [Messaging.MessageID] { targets[target] ?? [] }

    mutating func insert(_ id: Messaging.MessageID, at target: Messaging.MessageID, expiresAt: Timestamp?) {
        guard entries[id] == nil else { return }
        entries[id] = Entry(target: target, number: nextNumber, expiresAt: expiresAt)
        names[nextNumber] = id
        nextNumber += 1
        targets[target, default: []].append(id)
        if let expiresAt { wakeAt = min(wakeAt ?? expiresAt, expiresAt) }
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

    /// The message is gone, and with it all that is at it.
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
