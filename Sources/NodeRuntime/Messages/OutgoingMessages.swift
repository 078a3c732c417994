import DequeModule
import Messaging
import Store

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
