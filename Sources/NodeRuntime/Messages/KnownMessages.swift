import Messaging

/// Messages of members in one inbox that came since the start and are in memory no more: a message whose acknowledgement
/// was lost comes again, and is not shown again. Of those on the disk the disk is asked, unless it is locked. Their ids
/// alone, in memory alone; beyond the bound of all inboxes together the oldest of this one goes first.
struct KnownMessages {
    private struct Entry {
        /// Its place in the order of arrival.
        var number: UInt64
        /// The disk has it; otherwise it is forgotten.
        var isStored: Bool
        /// A file is here, but not whole.
        var isPartial: Bool
    }

    private var entries: [MessageID: Entry] = [:]
    private var names: [UInt64: MessageID] = [:]
    private var nextNumber: UInt64 = 0
    /// No entry has a smaller number.
    private var oldest: UInt64 = 0
    private let budget: MessageMemory

    init(budget: MessageMemory) { self.budget = budget }

    var count: Int { names.count }

    /// - Parameter orStored: whether one that is on the disk counts.
    func contains(_ message: MessageID, orStored: Bool) -> Bool {
        guard let entry = entries[message] else { return false }
        return orStored || !entry.isStored
    }

    /// Whether it was shown whole, on the disk or in memory.
    func wasShown(_ message: MessageID) -> Bool { entries[message].map { !$0.isPartial } ?? false }

    /// A file is whole now.
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

    /// The inbox is gone, and with it every trace.
    mutating func removeAll() {
        budget.knownCount -= names.count
        entries = [:]
        names = [:]
        oldest = nextNumber
    }

    /// The disk has refused something of this inbox: it is asked again.
    mutating func removeStored() { for (message, entry) in entries where entry.isStored { remove(message) } }

    private mutating func remove(_ message: MessageID) {
        guard let entry = entries.removeValue(forKey: message) else { return }
        names[entry.number] = nil
        budget.knownCount -= 1
    }
}
