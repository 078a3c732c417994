import Messaging
import Primitives

/// The outbox in parts: it may have a hundred thousand messages for each member.
extension Node {
    /// Where an entry stands in the order of the outbox, which does not change when entries, conversations or members come
    /// and go, or inboxes fall asleep. As text it is for whoever asks for the next part.
    package struct OutboxPlace: Hashable, Sendable, CustomStringConvertible {
        let client: ClientID
        let member: InboxID
        let sentAt: Timestamp
        let message: Messaging.MessageID

        package var description: String { "\(client).\(member).\(sentAt.milliseconds).\(message)" }

        /// `nil` unless it was a place once.
        package init?(_ text: String) {
            let parts = text.split(separator: ".", omittingEmptySubsequences: false)
            guard parts.count == 4, let client = ClientID(hex: parts[0]), let member = InboxID(hex: parts[1]),
                let sentAt = Milliseconds(parts[2]), let message = Messaging.MessageID(hex: parts[3])
            else { return nil }
            self.client = client
            self.member = member
            self.sentAt = Timestamp(milliseconds: sentAt)
            self.message = message
        }

        fileprivate init(_ client: ClientID, _ member: InboxID, _ entry: OutboxStateMachine.Entry) {
            self.client = client
            self.member = member
            sentAt = entry.sentAt
            message = entry.message
        }
    }

    /// Visits what waits, by inbox and member, the first to be sent first. Nobody is woken.
    /// - Parameters:
    ///   - only: of this inbox alone.
    ///   - place: only what stands behind it.
    ///   - body: given each entry and where it stands; it says whether to go on.
    /// - Throws: ``NodeError/locked``.
    package func visitOutbox(
        of only: ClientID?,
        after place: OutboxPlace?,
        _ body: (OutboxItem, OutboxPlace) -> Bool
    ) throws(NodeError) {
        try unlocked()
        let asleep = core.sleepers.filter { $0.outboxCount > 0 }.map(\.client)
        let clients = (core.conversations.map(\.client) + asleep).sorted()
        for client in clients where (only ?? client) == client && client >= place?.client ?? client {
            guard let conversation = peek(client) else { continue }
            let reached = place.flatMap { $0.client == client ? $0 : nil }
            let members = conversation.currentMembers.map { (key: $0.key, id: InboxID($0.key)) }
            for member in members.sorted(by: { $0.id < $1.id }) where member.id >= reached?.member ?? member.id {
                let last = reached.flatMap { $0.member == member.id ? $0 : nil }
                let entries = conversation.outbox(to: member.key).sorted { Self.order($0) < Self.order($1) }
                for entry in entries where last.map({ Self.order(entry) > ($0.sentAt, $0.message) }) ?? true {
                    let item = OutboxItem(conversation: conversation, member: member.key, entry: entry)
                    guard body(item, OutboxPlace(client, member.id, entry)) else { return }
                }
            }
        }
    }

    private static func order(_ entry: OutboxStateMachine.Entry) -> (Timestamp, Messaging.MessageID) {
        (entry.sentAt, entry.message)
    }
}
