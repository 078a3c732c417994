import Crypto

/// Delivery states of our messages, and the read receipts that we send.
extension ConversationStateMachine {
    // MARK: Our messages

    /// A message is delivered when every member has acknowledged it.
    func delivered(_ messages: [MessageID], to member: PublicKey, stored: Bool, _ turn: Turn) -> [NodeAction] {
        guard !messages.isEmpty else { return [] }
        return said(messages, .delivered, by: member, turn) + settle(messages, stored: stored, turn)
    }

    /// A message is mailed when the mailbox of each member without an acknowledgement has it.
    func mailed(_ messages: [MessageID], to member: PublicKey, _ turn: Turn) -> [NodeAction] {
        guard !messages.isEmpty else { return [] }
        let all = messages.filter { id in members.values.allSatisfy { $0.outbox[id]?.isMailed ?? true } }
        return said(messages, .mailed, by: member, turn) + become(.mailed, all, stored: nil, turn)
    }

    /// The messages expired before the member had them. The final state is reported when no other member is awaited.
    /// The caller counts them as undelivered.
    func missed(_ messages: [MessageID], by member: PublicKey, _ turn: Turn) -> [NodeAction] {
        [.save(client)] + said(messages, .expiredUndelivered, by: member, turn)
            + settle(messages, stored: nil, areMissed: true, turn)
    }

    /// The final state of a message when the only member without an acknowledgement has left.
    func waited(for id: MessageID, by former: PublicKey, _ turn: Turn) -> [NodeAction] {
        let deliveries = turn.contents.deliveries(client, id)
        let isThere = deliveries.contains { said in
            guard said.member != former else { return false }
            return switch said.state {
            case .delivered, .read, .expiredUndelivered: true
            case .queued, .sent, .mailed, .failed, .cancelled, .received, .receiving: false
            }
        }
        return isThere ? settle([id], stored: nil, turn) : cancelled([id], turn)
    }

    /// Reports the final state of messages that no member still has to acknowledge, and skips the others.
    /// - Parameter areMissed: the member of this turn never gets them, which the archive does not know yet.
    private func settle(_ messages: [MessageID], stored: Bool?, areMissed: Bool = false, _ turn: Turn) -> [NodeAction] {
        var delivered: [MessageID] = []
        delivered.reserveCapacity(messages.count)
        var missed: [MessageID] = []
        var refused: [MessageID] = []
        for id in messages where isSettled(id) {
            let said = turn.contents.deliveries(client, id)
            let isMissed = areMissed || said.contains { $0.state == .expiredUndelivered }
            if said.contains(where: { $0.state == .failed }) {
                refused.append(id)
            } else if isMissed {
                missed.append(id)
            } else {
                delivered.append(id)
            }
        }
        return become(.delivered, delivered, stored: stored, turn)
            + become(.expiredUndelivered, missed, stored: nil, turn) + become(.failed, refused, stored: nil, turn)
    }

    func isSettled(_ id: MessageID) -> Bool { members.values.allSatisfy { $0.outbox[id] == nil } }

    func cancelled(_ messages: [MessageID], _ turn: Turn) -> [NodeAction] {
        become(.cancelled, messages, stored: nil, turn)
    }

    func become(_ state: DeliveryState, _ messages: [MessageID], stored: Bool?, _ turn: Turn) -> [NodeAction] {
        guard !messages.isEmpty else { return [] }
        return [.setState(client, messages, state), names.events(.state(state, stored: stored), messages, turn)]
    }

    private func said(_ messages: [MessageID], _ state: DeliveryState, by member: PublicKey, _ turn: Turn)
        -> [NodeAction]
    {
        let noted = NodeAction.setDelivery(client, messages, Delivery(member: member, state: state, at: turn.now))
        return members.count > 1 ? [noted, names.events(.delivery(member, state), messages, turn)] : [noted]
    }

    // MARK: Receipts for our messages

    /// - Returns: the actions, and how many of the named messages the receipt does not change.
    mutating func receive(_ receipt: Receipt, from member: PublicKey, _ turn: Turn) -> (
        actions: [NodeAction], idleCount: Int
    ) {
        // A receipt is sent once and needs no session, so one on a superseded link counts too.
        guard receipt.messages.count <= Limits.receiptCount else {
            tally.dropped += 1
            return ([], receipt.messages.count)
        }
        var result: [NodeAction] = []
        var idleCount = receipt.messages.count
        for id in Set(receipt.messages).sorted() {
            let actions =
                switch receipt.kind {
                case .read: wasRead(id, by: member, turn)
                case .tooLarge, .damaged: wasRefused(id, by: member, turn)
                }
            if !actions.isEmpty { idleCount -= 1 }
            result += actions
        }
        return (result, idleCount)
    }

    private mutating func wasRead(_ id: MessageID, by member: PublicKey, _ turn: Turn) -> [NodeAction] {
        guard let message = turn.contents.message(client, id), message.sender == nil,
            message.content.type != .systemMessage,
            !message.deliveries.contains(where: { $0.member == member && $0.state == .read }),
            // A file is read only when complete. Its acknowledgement precedes the receipt, or follows the next resend.
            message.content.attachment == nil || members[member]?.outbox[id] == nil
        else {
            tally.dropped += 1
            return []
        }
        // A read message has arrived, though its acknowledgement may still be under way.
        var result: [NodeAction] = []
        if members[member]?.settle(id) == true { result += settle([id], stored: nil, turn) }
        result += said([id], .read, by: member, turn)
        let isReadByAll = members.keys.allSatisfy { one in
            one == member || message.deliveries.contains { $0.member == one && $0.state == .read }
        }
        return isReadByAll ? result + become(.read, [id], stored: nil, turn) : result
    }

    /// A member refuses our file: it is too large or damaged.
    private mutating func wasRefused(_ id: MessageID, by member: PublicKey, _ turn: Turn) -> [NodeAction] {
        guard members[member]?.outbox[id] != nil, turn.contents.message(client, id)?.content.attachment != nil,
            members[member]?.settle(id) == true
        else {
            tally.dropped += 1
            return []
        }
        let result = said([id], .failed, by: member, turn)
        return isSettled(id) ? result + become(.failed, [id], stored: nil, turn) : result
    }

    // MARK: Our read receipts

    package mutating func markRead(_ seen: [(id: MessageID, sender: PublicKey)], _ turn: Turn) -> [NodeAction] {
        guard sendsReadReceipts(turn) else { return [] }
        if receipted.count > Limits.receiptedCount { receipted = [] }
        var told: Set<PublicKey> = []
        for (id, sender) in seen {
            // An incomplete file cannot be read yet.
            if turn.contents.message(client, id)?.state == .receiving { continue }
            guard let waiting = members[sender]?.readReceipts.count, waiting < Limits.pendingReceiptCount,
                receipted.insert(id).inserted
            else { continue }
            members[sender]?.readReceipts.append(id)
            told.insert(sender)
        }
        var result: [NodeAction] = []
        for sender in told.sorted() { result += flushReceipts(to: sender, turn) }
        return result + askForWord(now: turn.now)
    }

    /// Defers receipts for messages that are not on disk yet: their sender takes a receipt as an acknowledgement.
    mutating func flushReceipts(to member: PublicKey, _ turn: Turn) -> [NodeAction] {
        guard let link = members[member]?.establishedLink, let said = members[member]?.saidReceiptCount,
            let unsaid = members[member]?.readReceipts.dropFirst(said), !unsaid.isEmpty
        else { return [] }
        let waiting = unsaid.filter { turn.contents.awaitsStorage(client, $0) }
        let isWaiting = Set(waiting)
        let read = unsaid.filter { !isWaiting.contains($0) }
        guard !read.isEmpty else { return [] }
        // Receipts stay queued until a pong confirms them, since a lost link may lose them.
        members[member]?.readReceipts.replaceSubrange(said..., with: read + waiting)
        members[member]?.saidReceiptCount = said + read.count
        members[member]?.noteWord()
        return stride(from: 0, to: read.count, by: Limits.receiptCount).map { start in
            let end = min(start + Limits.receiptCount, read.count)
            return .transmit(link, .receipt(Receipt(.read, Array(read.dropFirst(start).prefix(end - start)))))
        }
    }
}
