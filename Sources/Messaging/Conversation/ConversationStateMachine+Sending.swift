import Crypto

extension ConversationStateMachine {
    // MARK: Sending

    package mutating func send(_ text: String, _ turn: inout Turn) throws(CommandError) -> (
        message: Message, actions: [NodeAction]
    ) {
        let (made, actions) = send([text], &turn)
        return (try made[0].get(), actions)
    }

    /// - Returns: for each text its message, or its error.
    package mutating func send(_ texts: [String], _ turn: inout Turn) -> (
        made: [Result<Message, CommandError>], actions: [NodeAction]
    ) {
        var posted = Posted()
        posted.numbers = turn.random.numbers(texts.count)
        let made = texts.map { text in
            Result { () throws(CommandError) in
                try check(text)
                return try make(Draft(type: .text, fallback: "", payload: Array(text.utf8)), &posted, &turn)
            }
        }
        return (made, finish(posted, &turn))
    }

    package func check(_ text: String) throws(CommandError) {
        let byteCount = text.utf8.count
        guard byteCount > 0 else { throw .emptyText }
        guard byteCount <= Limits.textByteCount else {
            throw .textTooLong(byteCount: byteCount, limit: Limits.textByteCount)
        }
    }

    /// A content to send, without id and time.
    struct Draft {
        var type: ContentType
        var fallback: String
        var shouldPush = true
        var payload: [UInt8] = []
        var body = ContentBody.opaque
        /// A file's id, time and terms, fixed when its upload began; `nil` for other contents.
        var prepared: PreparedAttachment?
    }

    /// Messages made in one turn, all with the same ``keeping``.
    private struct Posted {
        var messages: [Message] = []
        var numbers: [UInt64] = []
        /// Shared by all messages; a file brings its own expiry and keeping.
        var placement: Placement?
        var keeping = NodeAction.Keeping.memory
    }

    mutating func post(_ draft: Draft, _ turn: inout Turn) throws(CommandError) -> (
        message: Message, actions: [NodeAction]
    ) {
        var posted = Posted()
        let message = try make(draft, &posted, &turn)
        return (message, finish(posted, &turn))
    }

    private mutating func finish(_ posted: Posted, _ turn: inout Turn) -> [NodeAction] {
        guard !posted.messages.isEmpty else { return [] }
        var actions: [NodeAction] = [.keep(client, posted.messages, posted.keeping)]
        for member in memberKeys { actions += flush(member, &turn) }
        return actions
    }

    private mutating func make(_ draft: Draft, _ posted: inout Posted, _ turn: inout Turn) throws(CommandError)
        -> Message
    {
        guard !record.isRemoved else { throw .removed }
        guard !members.isEmpty else { throw .noOtherMember }
        let id =
            draft.prepared?.message
            ?? MessageID.make(by: key.publicKey, in: conversation, from: posted.numbers.popLast() ?? turn.random.next())
        let sentAt = draft.prepared?.sentAt ?? turn.now
        var kept = posted.placement ?? placement(of: draft.prepared == nil ? .text : .attachment, turn)
        posted.placement = kept
        if let prepared = draft.prepared {
            kept.expiresAt = prepared.expiresAt
            kept.keeping = prepared.keeping
        }
        let expiresAt = kept.expiresAt
        let memberKeys = memberKeys
        var message = Message(
            content: Content(
                type: draft.type, id: id, sentAt: sentAt, lifetime: kept.lifetime, agreement: kept.agreement,
                fallback: draft.fallback, shouldPush: draft.shouldPush, payload: draft.payload, body: draft.body),
            sender: nil, state: .queued, expiresAt: expiresAt)
        // Only the current members get it, no later joiner.
        message.deliveries = memberKeys.map { Delivery(member: $0, state: .queued, at: sentAt) }
        let deadline = min(expiresAt ?? .latest, sentAt + Limits.outboxLifetime)
        guard members.values.allSatisfy({ $0.outbox.count < Limits.outboxCount }) else {
            throw .outboxFull(limit: Limits.outboxCount)
        }
        let unsentDeadline = unsentDeadline(of: message.content)
        for member in memberKeys {
            _ = members[member]!.outbox.enqueue(
                id, sentAt: sentAt, deadline: deadline, unsentDeadline: unsentDeadline,
                isStored: kept.keeping != .memory)
        }
        noteUnconfirmed(message.content)
        posted.messages.append(message)
        posted.keeping = kept.keeping
        return message
    }

    /// From when on a receiver that gets the content for the first time finds it expired; `nil`: not before our copy
    /// expires.
    private func unsentDeadline(of content: Content) -> Timestamp? {
        let terms = content.agreement.flatMap { lifetimes.machine?.knownTerms(of: $0) }
        return terms?.unreadTime(of: content.kind).map { content.sentAt + $0 }
    }

    /// Enqueues a message again that was undelivered when the node stopped.
    package mutating func restoreOutbox(_ message: Message) {
        noteUnconfirmed(message.content)
        // No unsent deadline: it may have been transmitted, and only its receivers know whether they showed it.
        let deadline = min(message.expiresAt ?? .latest, message.content.sentAt + Limits.outboxLifetime)
        let mailed = Set(message.deliveries.filter { $0.state == .mailed }.map(\.member))
        let waiting = mailed.union(message.deliveries.filter { $0.state == .queued }.map(\.member))
        for member in memberKeys where waiting.contains(member) {
            _ = members[member]!.outbox.enqueue(
                message.content.id, sentAt: message.content.sentAt, deadline: deadline, isStored: true,
                isMailed: mailed.contains(member))
        }
    }

    /// Cancels a message that some member has not acknowledged.
    /// - Throws: ``CommandError/unknownMessage``.
    package mutating func cancel(_ message: MessageID, _ turn: inout Turn) throws(CommandError) -> [NodeAction] {
        var found = false
        for member in memberKeys where members[member]?.settle(message) == true { found = true }
        guard found else { throw .unknownMessage }
        return cancelled([message], turn)
    }

    package mutating func retry(_ turn: inout Turn) -> [NodeAction] {
        for member in memberKeys { members[member]!.link.hurry(now: turn.now) }
        return advance(&turn)
    }

    mutating func flush(_ member: PublicKey, _ turn: inout Turn) -> [NodeAction] {
        guard let link = members[member]?.establishedLink else {
            // Dials a sleeping or resting member for this.
            if members[member]?.outbox.isEmpty == false { members[member]!.link.wanted(at: turn.now) }
            noteMail(for: member, turn)
            return []
        }
        let actions = members[member]!.outbox.flush(now: turn.now, random: &turn.random)
        return perform(actions, to: member, on: link, turn)
    }

    mutating func perform(_ actions: OutboxStateMachine.Actions, to member: PublicKey, on link: LinkID?, _ turn: Turn)
        -> [NodeAction]
    {
        var result: [NodeAction] = []
        if !actions.expired.isEmpty {
            // The next session start reports the gap to the member.
            record.undelivered[member, default: 0] += UInt64(actions.expired.count)
            result += missed(actions.expired, by: member, turn)
        }
        result += become(.sent, actions.sent, stored: nil, turn)
        if let link, !actions.transmitted.isEmpty {
            result.append(.transmitMessages(link, client, actions.transmitted))
        }
        return result
    }

    /// The answered message need not be known here.
    package mutating func reply(_ text: String, to message: MessageID, _ turn: inout Turn) throws(CommandError) -> (
        message: Message, actions: [NodeAction]
    ) {
        try check(text)
        let draft = Draft(
            type: .reply, fallback: text.shortened(toByteCount: Limits.fallbackByteCount),
            body: .reply(Reply(replyTo: message, text: text)))
        return try post(draft, &turn)
    }

    /// Adds or removes an emoji reaction.
    package mutating func react(_ emoji: String, to message: MessageID, isRemoved: Bool, _ turn: inout Turn)
        throws(CommandError) -> (message: Message, actions: [NodeAction])
    {
        guard Reaction.isEmoji(emoji) else { throw .invalidReaction(limit: Limits.reactionByteCount) }
        guard turn.contents.message(client, message) != nil else { throw .unknownMessage }
        let draft = Draft(
            type: .reaction, fallback: isRemoved ? "took back \(emoji)" : "reacted \(emoji)", shouldPush: false,
            body: .reaction(Reaction(message: message, emoji: emoji, isRemoved: isRemoved)))
        return try post(draft, &turn)
    }

    /// Sends a content of another program's type.
    package mutating func send(_ type: ContentType, payload: [UInt8], fallback: String, _ turn: inout Turn)
        throws(CommandError) -> (message: Message, actions: [NodeAction])
    {
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

    // MARK: Files

    /// - Parameter byteCount: the size known so far.
    package func prepareAttachment(byteCount: Int64, _ turn: inout Turn) throws(CommandError) -> PreparedAttachment {
        guard !members.isEmpty else { throw .noOtherMember }
        let kept = placement(of: .attachment, turn)
        let prepared = PreparedAttachment(
            message: MessageID.make(by: key.publicKey, in: conversation, &turn.random), sentAt: turn.now,
            agreement: kept.agreement, expiresAt: kept.expiresAt, keeping: kept.keeping)
        try checkPrepared(prepared, byteCount: byteCount, turn)
        return prepared
    }

    /// Whether the upload may go on, now that it has `byteCount` bytes.
    package func checkPrepared(_ prepared: PreparedAttachment, byteCount: Int64, _ turn: Turn) throws(CommandError) {
        guard prepared.agreement == placement(of: .attachment, turn).agreement else { throw .agreementChanged }
        guard byteCount <= turn.contents.attachmentByteCount else {
            throw .fileTooLarge(limit: turn.contents.attachmentByteCount)
        }
        guard prepared.keeping == .memory, byteCount > Limits.attachmentMemoryByteCount else { return }
        throw .fileTooLargeForMemory(limit: Limits.attachmentMemoryByteCount, in: conversation)
    }

    /// Sends a file whose chunks are all in the archive.
    package mutating func send(_ attachment: Attachment, _ prepared: PreparedAttachment, _ turn: inout Turn)
        throws(CommandError) -> (message: Message, actions: [NodeAction])
    {
        if !attachment.text.isEmpty { try check(attachment.text) }
        try checkPrepared(prepared, byteCount: attachment.byteCount, turn)
        let draft = Draft(
            type: .attachment, fallback: attachment.fallback.shortened(toByteCount: Limits.fallbackByteCount),
            body: .attachment(attachment), prepared: prepared)
        return try post(draft, &turn)
    }

    mutating func receiveRequest(
        _ id: MessageID, first: Int, count: Int, from member: PublicKey, on link: LinkID, _ turn: Turn
    ) -> [NodeAction] {
        guard members[member]!.isEstablished, members[member]!.link.link == link else { return drop() }
        // No entry: cancelled, delivered, expired or never ours. A locked node stays silent; the member asks again.
        guard members[member]!.outbox[id] != nil else { return [.transmit(link, .attachmentGone(id))] }
        guard let message = turn.contents.message(client, id), message.sender == nil,
            let attachment = message.content.attachment
        else { return turn.isLocked ? [] : [.transmit(link, .attachmentGone(id))] }
        let wasIdle = members[member]!.serving.isIdle
        guard members[member]!.serving.request(id, first: first, count: count, chunkCount: attachment.chunkCount) else {
            return drop()
        }
        if wasIdle { members[member]!.stallsAt = turn.now + Limits.transferPatience }
        return [.serveChunks(link)]
    }

    /// The link has room for more chunks.
    mutating func chunksMayGo(to member: PublicKey, on link: LinkID, _ turn: Turn) -> [NodeAction] {
        guard members[member]?.isEstablished == true, members[member]?.link.link == link else { return [] }
        var result: [NodeAction] = []
        for _ in 0..<Limits.attachmentBurst {
            guard let (id, index, total) = members[member]!.serving.next() else { break }
            members[member]!.stallsAt = turn.now + Limits.transferPatience
            result.append(.transmitChunk(link, client, id, index: index))
            guard members[member]!.serving.shows(id, index: index, of: total, now: turn.now) else { continue }
            result.append(event(.attachmentProgress(id, member, count: index + 1, of: total), turn))
        }
        return result
    }
}

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
            // A member that joined later never got the message.
            message.deliveries.contains(where: { $0.member == member && $0.state != .read }),
            // A file is read only when complete. Its acknowledgement precedes the receipt, or follows the next resend.
            message.content.attachment == nil || members[member]?.outbox[id] == nil
        else { return drop() }
        // A read message has arrived, though its acknowledgement may still be under way.
        var result: [NodeAction] = []
        if members[member]?.settle(id) == true { result += settle([id], stored: nil, turn) }
        result += said([id], .read, by: member, turn)
        let isReadByAll = message.deliveries.allSatisfy {
            $0.member == member || $0.state == .read || members[$0.member] == nil
        }
        return isReadByAll ? result + become(.read, [id], stored: nil, turn) : result
    }

    /// A member refuses our file: it is too large or damaged.
    private mutating func wasRefused(_ id: MessageID, by member: PublicKey, _ turn: Turn) -> [NodeAction] {
        guard members[member]?.outbox[id] != nil, turn.contents.message(client, id)?.content.attachment != nil,
            members[member]?.settle(id) == true
        else { return drop() }
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
