import Messaging

/// Ids of members' messages received since the start that have left memory, for detecting duplicates after lost
/// acknowledgements. Stored messages are looked up on the disk, unless it is locked. In memory only; beyond the node's
/// bound this inbox's oldest id is dropped.
struct KnownMessages {
    private struct Entry {
        /// Position in order of arrival.
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
