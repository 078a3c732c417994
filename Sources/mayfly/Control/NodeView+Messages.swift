import Control
import Messaging
import NodeRuntime

/// Sent messages and what waits to be.
extension NodeView {
    /// A message ends with its conversation, if not before.
    static func end(
        of message: Messaging.Message,
        _ conversation: ConversationStateMachine?
    ) -> Messaging.Timestamp? {
        [message.expiresAt, conversation?.record.schedule?.expiresAt].compactMap { $0 }.min()
    }

    static func outbox(_ item: Node.OutboxItem, _ node: isolated Node) -> OutboxEntry {
        OutboxEntry(
            message: item.entry.message.description,
            conversation: item.conversation.conversation.description,
            to: name(item.member, item.conversation, node),
            member: member(item.member),
            attempts: item.entry.attempts,
            nextAttempt: item.entry.nextAttempt.map(timestamp),
            expiresAt: timestamp(
                min(item.entry.deadline, item.conversation.record.schedule?.expiresAt ?? .latest)
            ),
            state: item.entry.state.rawValue
        )
    }
}
