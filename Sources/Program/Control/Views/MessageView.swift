import Control
import Messaging
import NodeRuntime

enum MessageView {
    static func message(_ read: Node.ReadMessage, _ conversation: ConversationStateMachine, _ node: isolated Node)
        -> Message
    {
        let message = read.message
        let content = message.content
        let text = content.displayText
        let reactions = node.reactions(to: content.id, client: conversation.client).map { one in
            MessageReaction(
                from: one.sender.map { MemberName.shown($0, conversation, node) } ?? MemberName.own,
                member: one.sender.map { MemberName.id($0) }, reaction: one.emoji)
        }
        var reaction: Reaction?
        if case .reaction(let one) = content.body { reaction = one }
        return Message(
            message: HexID(content.id), conversation: HexID(conversation.conversation),
            from: MemberName.sender(of: message, conversation, node), member: message.sender.map { MemberName.id($0) },
            type: content.type.description, text: text.isEmpty ? nil : text, sentAt: content.sentAt,
            expiresAt: end(of: message, conversation), stored: read.isStored, state: message.state.rawValue,
            replyTo: content.replyTo?.description, agreement: content.agreement?.description,
            file: content.attachment.map { file($0, message, conversation.client, node) },
            reactions: reactions.isEmpty ? nil : reactions, deliveries: deliveries(message, conversation, node),
            payload: content.isUnknown ? Base64.encode(content.payload) : nil, reactsTo: reaction?.message.description,
            removed: reaction?.isRemoved == true ? true : nil)
    }

    private static func file(
        _ attachment: Attachment, _ message: Messaging.Message, _ client: ClientID, _ node: isolated Node
    ) -> MessageFile {
        let state =
            switch message.state {
            case .receiving: "receiving"
            case .failed: message.sender == nil ? "complete" : "failed"
            case .queued, .sent, .mailed, .delivered, .expiredUndelivered, .cancelled, .received, .read: "complete"
            }
        let progress = node.progress(of: message, client: client) ?? (0, 0)
        return MessageFile(
            name: attachment.safeName, mediaType: attachment.mediaType, byteCount: attachment.byteCount, state: state,
            percent: state == "complete" ? 100 : progress.of == 0 ? 0 : progress.count * 100 / progress.of)
    }

    private static func deliveries(
        _ message: Messaging.Message, _ conversation: ConversationStateMachine, _ node: isolated Node
    ) -> [MessageDelivery]? {
        guard message.sender == nil, message.content.type != .systemMessage else { return nil }
        let said = message.deliveries.filter { $0.state != .queued }
        var result: [MessageDelivery] = said.map { one in
            MessageDelivery(
                member: MemberName.shown(one.member, conversation, node), state: one.state.rawValue, at: one.at)
        }
        for member in conversation.currentMembers {
            guard !said.contains(where: { $0.member == member.key }),
                let entry = conversation.outboxEntry(message.content.id, to: member.key)
            else { continue }
            result.append(
                MessageDelivery(member: MemberName.shown(member.key, conversation, node), state: entry.state.rawValue))
        }
        return result
    }

    /// Expiry of a message, at the latest with its conversation.
    static func end(of message: Messaging.Message, _ conversation: ConversationStateMachine?) -> Timestamp? {
        [message.expiresAt, conversation?.record.schedule?.expiresAt].compactMap { $0 }.min()
    }
}
