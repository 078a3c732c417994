import Messaging

/// Messages of members that came since the start and are in memory no more: a message whose acknowledgement was lost comes
/// again, and is not shown again. Of those on the disk the disk is asked, unless it is locked. Their numbers alone, in
/// memory alone; of all inboxes together the oldest goes first.
struct KnownMessages {
    private struct Entry {
        /// Its place in the order of arrival, among those of all inboxes.
        var number: UInt64
        /// The disk has it; otherwise it is forgotten.
        var isStored: Bool
        /// A file is here, but not whole.
        var isPartial: Bool
    }

    private struct Name {
        var client: ClientID
        var message: Messaging.MessageID
    }

    private var entries: [ClientID: [Messaging.MessageID: Entry]] = [:]
    private var names: [UInt64: Name] = [:]
    private var nextNumber: UInt64 = 0
    /// No entry has a smaller number.
    private var oldest: UInt64 = 0
    /// Most of them.
    private let limit: Int

    init(limit: Int = 65_536) { self.limit = limit }

    var count: Int { names.count }

    /// - Parameter orStored: whether one that is on the disk counts.
    func contains(_ message: Messaging.MessageID, _ client: ClientID, orStored: Bool) -> Bool {
        guard let entry = entries[client]?[message] else { return false }
        return orStored || !entry.isStored
    }

    /// Whether it was shown whole, on the disk or in memory.
    func wasShown(_ message: Messaging.MessageID, _ client: ClientID) -> Bool {
        entries[client]?[message].map { !$0.isPartial } ?? false
    }

    /// A file is whole now.
    mutating func complete(_ message: Messaging.MessageID, _ client: ClientID) {
        entries[client]?[message]?.isPartial = false
    }

    mutating func insert(
        _ message: Messaging.MessageID,
        _ client: ClientID,
        isStored: Bool,
        isPartial: Bool = false
    ) {
        guard entries[client]?[message] == nil else { return }
        let entry = Entry(number: nextNumber, isStored: isStored, isPartial: isPartial)
        entries[client, default: [:]][message] = entry
        names[nextNumber] = Name(client: client, message: message)
        nextNumber += 1
        while names.count > limit {
            if let name = names[oldest] { remove(name.message, name.client) }
            oldest += 1
        }
    }

    /// The inbox is gone, and with it every trace.
    mutating func removeAll(_ client: ClientID) {
        for entry in (entries.removeValue(forKey: client) ?? [:]).values { names[entry.number] = nil }
    }

    /// The disk has refused something of this inbox: it is asked again.
    mutating func removeStored(_ client: ClientID) {
        for (message, entry) in entries[client] ?? [:] where entry.isStored { remove(message, client) }
    }

    private mutating func remove(_ message: Messaging.MessageID, _ client: ClientID) {
        guard let entry = entries[client]?.removeValue(forKey: message) else { return }
        names[entry.number] = nil
        if entries[client]?.isEmpty ?? false { entries[client] = nil }
    }
}
