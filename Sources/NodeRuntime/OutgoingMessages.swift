import DequeModule
import Messaging

/// Our own messages that were stored a moment ago and are on their way: they are read again to be sent, and once more
/// when they are acknowledged, and by then neither the disk nor the codec has to be asked.
///
/// The disk has them, too: whatever is left out here is read there. Bounded; the oldest goes first.
struct OutgoingMessages {
    private static let count = 1_024
    private static let byteCount = 4 << 20

    struct Entry {
        var message: Message
        var arrivedAt: Timestamp
    }

    private struct Name {
        var client: ClientID
        var message: Messaging.MessageID
    }

    private var entries: [ClientID: [Messaging.MessageID: Entry]] = [:]
    /// In the order of their arrival; names of entries that are gone stay until their turn.
    private var order: Deque<Name> = []
    private var byteCount = 0

    subscript(client: ClientID, message: Messaging.MessageID) -> Entry? { entries[client]?[message] }

    mutating func insert(_ message: Message, arrivedAt: Timestamp, client: ClientID) {
        remove(message.content.id, client)
        entries[client, default: [:]][message.content.id] = Entry(message: message, arrivedAt: arrivedAt)
        byteCount += message.byteCount
        order.append(Name(client: client, message: message.content.id))
        while order.count > Self.count || byteCount > Self.byteCount, let oldest = order.popFirst() {
            remove(oldest.message, oldest.client)
        }
    }

    @discardableResult
    mutating func remove(_ message: Messaging.MessageID, _ client: ClientID) -> Entry? {
        guard let entry = entries[client]?.removeValue(forKey: message) else { return nil }
        byteCount -= entry.message.byteCount
        return entry
    }

    mutating func removeAll(_ client: ClientID) {
        for entry in (entries.removeValue(forKey: client) ?? [:]).values { byteCount -= entry.message.byteCount }
    }

    mutating func removeAll() { self = OutgoingMessages() }
}
