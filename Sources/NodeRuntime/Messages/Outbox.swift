import Crypto
import Messaging

/// A message that one member has not acknowledged.
package struct OutboxItem {
    package var conversation: Conversation
    package var member: PublicKey
    package var entry: OutboxStateMachine.Entry
}

/// A cursor into the outbox's order. The order is stable when entries, conversations or members change, and when
/// inboxes sleep. The text form is for clients that page.
package struct OutboxPlace: Hashable, Sendable, CustomStringConvertible {
    let client: ClientID
    let member: InboxID
    let sentAt: Timestamp
    let message: Messaging.MessageID

    package var description: String { "\(client).\(member).\(sentAt.milliseconds).\(message)" }

    /// `nil` unless `text` is a cursor's description.
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

/// The outbox over all inboxes, read in parts: it may have a hundred thousand messages per member.
final class Outbox: Part {
    func items() throws(NodeError) -> [OutboxItem] {
        try shell.directory.checkUnlocked()
        var items: [OutboxItem] = []
        let asleep = core.machine.sleepers.filter { $0.outboxCount > 0 }.sorted {
            ($0.createdAt, $0.client) < ($1.createdAt, $1.client)
        }
        for conversation in core.machine.conversations + asleep.compactMap({ shell.sleep.peek($0.client) }) {
            for member in conversation.currentMembers {
                items += conversation.outbox(to: member.key).map {
                    OutboxItem(conversation: conversation, member: member.key, entry: $0)
                }
            }
        }
        return items
    }

    /// - Parameter text: the beginning of a message's id.
    /// - Throws: ``NodeError/unknownMessage(_:)``, ``NodeError/ambiguous(_:matches:)``.
    func item(_ text: String) throws(NodeError) -> OutboxItem {
        let prefix = text.lowercased()
        let whole = MessageID(hex: prefix)
        let matches = try items().filter { item in
            whole.map { $0 == item.entry.message } ?? item.entry.message.description.hasPrefix(prefix)
        }
        guard let first = matches.first, !text.isEmpty else { throw .unknownMessage(text) }
        guard Set(matches.map(\.entry.message)).count == 1 else {
            throw .ambiguous(text, matches: matches.map(\.entry.message.description))
        }
        return first
    }

    /// Visits waiting messages by inbox and member, in sending order. Wakes no inbox.
    /// - Parameters:
    ///   - only: limits the visit to this inbox.
    ///   - place: start after this cursor.
    ///   - body: called for each entry with its cursor; returns whether to continue.
    /// - Throws: ``NodeError/locked``.
    func visit(of only: ClientID?, after place: OutboxPlace?, _ body: (OutboxItem, OutboxPlace) -> Bool)
        throws(NodeError)
    {
        try shell.directory.checkUnlocked()
        let asleep = core.machine.sleepers.filter { $0.outboxCount > 0 }.map(\.client)
        let clients = (core.machine.conversations.map(\.client) + asleep).sorted()
        for client in clients where (only ?? client) == client && client >= place?.client ?? client {
            guard let conversation = shell.sleep.peek(client) else { continue }
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
