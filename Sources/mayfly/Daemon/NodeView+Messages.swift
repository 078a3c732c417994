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

    /// The answer to `send`, once the message has come as far as asked.
    static func sentMessage(
        _ id: Messaging.MessageID,
        _ client: ClientID,
        until stage: DeliveryStage,
        _ node: isolated Node
    ) -> Result<SendMethod.Result, any Error>? {
        guard let read = node.message(id, client: client) else {
            if node.isLockedAway(client) { return .failure(NodeError.locked) }
            return .failure(ControlError(.expired, "message \(id) has expired or its conversation has exploded"))
        }
        let state: DeliveryStage
        switch read.message.state {
        case .queued, .received: state = .queued
        case .sent: state = .sent
        case .delivered, .read: state = .delivered
        case .receiving: state = .queued
        case .failed:
            return .failure(
                ControlError(
                    .refused,
                    "a member did not take the file of message \(id)",
                    hint: "it is larger than that member takes, or did not arrive as it was sent"
                )
            )
        case .expiredUndelivered: return .failure(ControlError(.expired, "message \(id) expired undelivered"))
        case .cancelled: return .failure(ControlError(.failed, "message \(id) was cancelled"))
        }
        let reached =
            switch stage {
            case .queued: true
            case .sent: state != .queued
            case .delivered: state == .delivered
            }
        guard reached else { return nil }
        return .success(
            SendMethod.Result(
                message: id.description,
                state: state,
                stored: read.isStored,
                expiresAt: end(of: read.message, try? node.conversation(client.description)).map(timestamp)
            )
        )
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
