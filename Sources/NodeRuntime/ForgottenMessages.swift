import DequeModule
import Messaging

/// Which messages of others were shown and are in memory no more: one whose acknowledgement was lost comes again, and is
/// acknowledged again, but not shown. Their numbers alone, in memory alone; the oldest goes first.
struct ForgottenMessages {
    /// Of all inboxes together.
    private static let count = 65_536

    private struct Name: Hashable {
        var client: ClientID
        var message: Messaging.MessageID
    }

    private var names: Set<Name> = []
    private var order: Deque<Name> = []

    func contains(_ message: Messaging.MessageID, _ client: ClientID) -> Bool {
        !names.isEmpty && names.contains(Name(client: client, message: message))
    }

    mutating func insert(_ message: Messaging.MessageID, _ client: ClientID) {
        let name = Name(client: client, message: message)
        guard names.insert(name).inserted else { return }
        order.append(name)
        while order.count > Self.count, let oldest = order.popFirst() { names.remove(oldest) }
    }

    /// The inbox is gone, and with it every trace.
    mutating func removeAll(_ client: ClientID) {
        guard names.contains(where: { $0.client == client }) else { return }
        order.removeAll { $0.client == client }
        names = names.filter { $0.client != client }
    }
}
