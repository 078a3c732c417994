import Control
import Messaging
import NodeRuntime

enum OutboxView {
    static func outbox(_ item: OutboxItem, _ node: isolated Node) -> OutboxEntry {
        OutboxEntry(
            message: item.entry.message.description, conversation: item.conversation.conversation.description,
            to: MemberName.shown(item.member, item.conversation, node), member: MemberName.id(item.member),
            attempts: item.entry.attempts, nextAttempt: item.entry.nextAttempt,
            expiresAt: min(item.entry.deadline, item.conversation.record.schedule?.expiresAt ?? .latest),
            state: item.entry.state.rawValue)
    }
}
