import DequeModule
import Messaging

/// Our own messages of one inbox that were stored a moment ago and are on their way: they are read again to be sent, and
/// once more when they are acknowledged, and by then neither the disk nor the codec has to be asked.
///
/// The disk has them, too: whatever is left out here is read there. Bounded; the oldest goes first.
struct OutgoingMessages {
    private static let count = 1_024
    private static let byteCount = 1 << 20
    /// Of all inboxes together.
    private static let totalByteCount = 8 << 20

    struct Entry {
        var message: Message
        var arrivedAt: Timestamp
    }

    private var entries: [MessageID: Entry] = [:]
    /// In the order of their arrival; names of entries that are gone stay until their turn.
    private var order: Deque<MessageID> = []
    private var byteCount = 0
    private let budget: MessageMemory

    init(budget: MessageMemory) { self.budget = budget }

    subscript(message: MessageID) -> Entry? { entries[message] }

    func deliveries(of message: MessageID) -> [Delivery]? { entries[message]?.message.deliveries }

    mutating func insert(_ message: Message, arrivedAt: Timestamp) {
        remove(message.content.id)
        entries[message.content.id] = Entry(message: message, arrivedAt: arrivedAt)
        count(message.byteCount)
        order.append(message.content.id)
        while order.count > Self.count || byteCount > Self.byteCount || budget.outgoingByteCount > Self.totalByteCount,
            let oldest = order.popFirst()
        {
            remove(oldest)
        }
    }

    mutating func update(_ message: MessageID, _ body: (inout Message) -> Void) {
        guard let index = entries.index(forKey: message) else { return }
        count(-entries.values[index].message.byteCount)
        body(&entries.values[index].message)
        count(entries.values[index].message.byteCount)
    }

    mutating func remove(_ message: MessageID) {
        guard let entry = entries.removeValue(forKey: message) else { return }
        count(-entry.message.byteCount)
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
