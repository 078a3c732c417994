import DequeModule
import Messaging
import Store
import Wire

/// Our own messages of one inbox that were stored a moment ago and are on their way: they are read again to be sent, and
/// once more when they are acknowledged, and by then neither the disk nor the codec has to be asked.
///
/// The disk has them, too: whatever is left out here is read there. Bounded; the oldest goes first.
struct OutgoingMessages {
    private static let count = 1_024
    private static let byteCount = 1 << 20
    /// Of all inboxes together.
    private static let totalByteCount = 8 << 20

    /// An object: whoever asks for a field of a message copies nothing else of it.
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
    /// In the order of their arrival; names of entries that are gone stay until their turn.
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

    /// Takes in what was learned of a message.
    func learn(_ status: MessageStatus) { entries[status.message]?.message.learn(status) }

    /// - Returns: what was removed.
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
