import Primitives

/// Replies, reactions, foreign types, and what members say of our messages.
extension ConversationStateMachine {
    // MARK: Sending

    /// Answers a message, which need not be known here.
    package mutating func reply(
        _ text: String,
        to message: MessageID,
        _ turn: inout Turn
    ) throws(CommandError) -> (message: Message, actions: [NodeAction]) {
        try check(text)
        let draft = Draft(
            type: .reply,
            fallback: text.shortened(toByteCount: Limits.fallbackByteCount),
            body: .reply(Reply(replyTo: message, text: text))
        )
        return try post(draft, &turn)
    }

    /// Puts a sign at a message, or takes it back.
    package mutating func react(
        _ emoji: String,
        to message: MessageID,
        isRemoved: Bool,
        _ turn: inout Turn
    ) throws(CommandError) -> (message: Message, actions: [NodeAction]) {
        guard Reaction.isEmoji(emoji) else { throw .invalidReaction(limit: Limits.reactionByteCount) }
        guard turn.contents.message(client, message) != nil else { throw .unknownMessage }
        let draft = Draft(
            type: .reaction,
            fallback: isRemoved ? "took back \(emoji)" : "reacted \(emoji)",
            shouldPush: false,
            body: .reaction(Reaction(message: message, emoji: emoji, isRemoved: isRemoved))
        )
        return try post(draft, &turn)
    }

    /// Sends a content of a type that this program does not make itself.
    package mutating func send(
        _ type: ContentType,
        payload: [UInt8],
        fallback: String,
        _ turn: inout Turn
    ) throws(CommandError) -> (message: Message, actions: [NodeAction]) {
        guard let parts = type.parts, type.description.utf8.count <= Limits.contentTypeByteCount else {
            throw .invalidContentType(type.description)
        }
        guard parts.authority != "mayfly", parts.authority != "convos.org" else {
            throw .reservedContentType(String(parts.authority))
        }
        guard payload.count <= Limits.payloadByteCount else {
            throw .payloadTooLong(byteCount: payload.count, limit: Limits.payloadByteCount)
        }
        let fallbackByteCount = fallback.utf8.count
        guard fallbackByteCount <= Limits.fallbackByteCount else {
            throw .fallbackTooLong(byteCount: fallbackByteCount, limit: Limits.fallbackByteCount)
        }
        return try post(Draft(type: type, fallback: fallback, payload: payload), &turn)
    }

    /// A reaction ends with the message it is at.
    func end(of reaction: Reaction, _ expiresAt: Timestamp?, _ batch: ReceivedBatch, _ turn: Turn) -> Timestamp? {
        let known = batch.ends[reaction.message] ?? turn.contents.message(client, reaction.message)?.expiresAt
        guard let expiresAt, let end = known else { return expiresAt }
        return min(expiresAt, end)
    }

    // MARK: What members say

    /// A member has acknowledged our message. It is delivered when every member has.
    mutating func delivered(_ id: MessageID, to member: PublicKey, stored: Bool, _ turn: Turn) -> [NodeAction] {
        var result: [NodeAction] = [
            .setDelivery(client, id, Delivery(member: member, state: .delivered, at: turn.now))
        ]
        if members.count > 1 { result.append(event(.messageDelivery(id, member, .delivered), turn)) }
        return result + settleDelivery(of: id, stored: stored, turn)
    }

    /// A message of ours had expired when it came to a member. It has not reached that member, and never will; what it has
    /// come to is said when no other is waited for.
    mutating func missed(_ id: MessageID, by member: PublicKey, _ turn: Turn) -> [NodeAction] {
        guard members[member]!.outbox.cancel(id) else {
            droppedCount += 1
            return []
        }
        members[member]!.serving.remove(id)
        record.undelivered[member, default: 0] += 1
        missedBySome.insert(id)
        var result: [NodeAction] = [
            .save(client), .setDelivery(client, id, Delivery(member: member, state: .expiredUndelivered, at: turn.now)),
        ]
        if members.count > 1 { result.append(event(.messageDelivery(id, member, .expiredUndelivered), turn)) }
        return result + settleDelivery(of: id, stored: nil, turn)
    }

    /// What a message has come to that only a member who has left had not acknowledged.
    mutating func waited(for id: MessageID, by former: PublicKey, _ turn: Turn) -> [NodeAction] {
        let deliveries = turn.contents.message(client, id)?.deliveries ?? []
        let isThere =
            missedBySome.contains(id)
            || deliveries.contains { $0.member != former && ($0.state == .delivered || $0.state == .read) }
        return isThere ? settleDelivery(of: id, stored: nil, turn) : cancelled([id], turn)
    }

    /// What a message has come to when no member is waited for any more; nothing before.
    private mutating func settleDelivery(of id: MessageID, stored: Bool?, _ turn: Turn) -> [NodeAction] {
        guard members.values.allSatisfy({ $0.outbox[id] == nil }) else { return [] }
        let said = Set(turn.contents.message(client, id)?.deliveries.map(\.state) ?? [])
        let isMissed = missedBySome.remove(id) != nil || said.contains(.expiredUndelivered)
        let state: DeliveryState = said.contains(.failed) ? .failed : isMissed ? .expiredUndelivered : .delivered
        return [
            .setState(client, id, state),
            event(.messageState(id, state, stored: state == .delivered ? stored : nil), turn),
        ]
    }

    mutating func receiveReceipt(_ receipt: Receipt, from member: PublicKey, _ turn: Turn) -> [NodeAction] {
        // It needs no session, and is said once: over a link whose place another has taken meanwhile, too.
        guard receipt.messages.count <= Limits.receiptCount else {
            droppedCount += 1
            return []
        }
        return Set(receipt.messages).sorted().flatMap { id in
            switch receipt.kind {
            case .read: wasRead(id, by: member, turn)
            case .tooLarge, .damaged: wasRefused(id, by: member, turn)
            }
        }
    }

    private mutating func wasRead(_ id: MessageID, by member: PublicKey, _ turn: Turn) -> [NodeAction] {
        guard let message = turn.contents.message(client, id), message.sender == nil,
            message.content.type != .systemMessage,
            !message.deliveries.contains(where: { $0.member == member && $0.state == .read }),
            // A file is read when it is whole, and then it has been acknowledged, or is when it is named again.
            message.content.attachment == nil || members[member]!.outbox[id] == nil
        else {
            droppedCount += 1
            return []
        }
        // Whoever has read it has it: its acknowledgement may still be on its way.
        var result: [NodeAction] = []
        if members[member]!.outbox.acknowledge(id) {
            members[member]!.serving.remove(id)
            result += settleDelivery(of: id, stored: nil, turn)
        }
        result.append(.setDelivery(client, id, Delivery(member: member, state: .read, at: turn.now)))
        if members.count > 1 { result.append(event(.messageDelivery(id, member, .read), turn)) }
        let isReadByAll = memberKeys.allSatisfy { one in
            one == member || message.deliveries.contains { $0.member == one && $0.state == .read }
        }
        guard isReadByAll else { return result }
        return result + [.setState(client, id, .read), event(.messageState(id, .read, stored: nil), turn)]
    }

    /// A member does not take our file.
    private mutating func wasRefused(_ id: MessageID, by member: PublicKey, _ turn: Turn) -> [NodeAction] {
        guard members[member]!.outbox[id] != nil,
            turn.contents.message(client, id)?.content.attachment != nil, members[member]!.outbox.cancel(id)
        else {
            droppedCount += 1
            return []
        }
        members[member]!.serving.remove(id)
        var result: [NodeAction] = [.setDelivery(client, id, Delivery(member: member, state: .failed, at: turn.now))]
        if members.count > 1 { result.append(event(.messageDelivery(id, member, .failed), turn)) }
        guard members.values.allSatisfy({ $0.outbox[id] == nil }) else { return result }
        result += [.setState(client, id, .failed), event(.messageState(id, .failed, stored: nil), turn)]
        return result
    }

    // MARK: What we say

    /// Whether the others are told what we have read.
    package func sendsReadReceipts(_ turn: Turn) -> Bool {
        record.sendsReadReceipts ?? turn.contents.sendsReadReceipts
    }

    /// - Parameter isOn: `nil` follows the node's default.
    package mutating func setReadReceipts(_ isOn: Bool?) -> [NodeAction] {
        record.sendsReadReceipts = isOn
        if isOn == false { for member in memberKeys { members[member]!.readReceipts = [] } }
        return [.save(client)]
    }

    /// The user has seen these messages, each with its sender.
    package mutating func markRead(_ seen: [(id: MessageID, sender: PublicKey)], _ turn: Turn) -> [NodeAction] {
        guard sendsReadReceipts(turn) else { return [] }
        if receipted.count > Limits.receiptedCount { receipted = [] }
        var told: Set<PublicKey> = []
        for (id, sender) in seen {
            // A file is read when it is whole.
            if turn.contents.message(client, id)?.state == .receiving { continue }
            guard let waiting = members[sender]?.readReceipts.count, waiting < Limits.pendingReceiptCount,
                receipted.insert(id).inserted
            else { continue }
            members[sender]!.readReceipts.append(id)
            told.insert(sender)
        }
        return told.sorted().flatMap { flushReadReceipts(to: $0, turn) }
    }

    /// What waits for the disk is kept back: for its sender a receipt is an acknowledgement, too.
    mutating func flushReadReceipts(to member: PublicKey, _ turn: Turn) -> [NodeAction] {
        guard let state = members[member], state.isEstablished, let link = state.link.link,
            !state.readReceipts.isEmpty
        else { return [] }
        let waiting = Set(state.readReceipts.filter { turn.contents.awaitsStorage(client, $0) })
        let read = state.readReceipts.filter { !waiting.contains($0) }
        members[member]!.readReceipts.removeAll { !waiting.contains($0) }
        return stride(from: 0, to: read.count, by: Limits.receiptCount).map { start in
            let end = min(start + Limits.receiptCount, read.count)
            return .transmit(link, .receipt(Receipt(.read, Array(read[start..<end]))))
        }
    }
}
