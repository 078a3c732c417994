import Cryptography

/// Contents from our user to the outbox.
extension Conversation {
    package func send(_ text: String, _ turn: inout Turn) throws(CommandError) -> Message {
        try send([text], &turn)[0].get()
    }

    /// - Returns: for each text its message, or its error.
    package func send(_ texts: [String], _ turn: inout Turn) -> [Result<Message, CommandError>] {
        var posted = Posted()
        posted.numbers = turn.random.numbers(texts.count)
        let made = texts.map { text in
            Result { () throws(CommandError) in
                try check(text)
                return try make(Draft(type: .text, fallback: "", payload: Array(text.utf8)), &posted, &turn)
            }
        }
        finish(posted, &turn)
        return made
    }

    package func check(_ text: String) throws(CommandError) {
        let byteCount = text.utf8.count
        guard byteCount > 0 else { throw .emptyText }
        guard byteCount <= Limits.textByteCount else {
            throw .tooLong("text", byteCount, limit: Limits.textByteCount, "send it in parts")
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

    func post(_ draft: Draft, _ turn: inout Turn) throws(CommandError) -> Message {
        var posted = Posted()
        let message = try make(draft, &posted, &turn)
        finish(posted, &turn)
        return message
    }

    private func finish(_ posted: Posted, _ turn: inout Turn) {
        guard !posted.messages.isEmpty else { return }
        turn.add(.keep(client, posted.messages, posted.keeping))
        for peer in peers { flush(peer, &turn) }
    }

    private func make(_ draft: Draft, _ posted: inout Posted, _ turn: inout Turn) throws(CommandError) -> Message {
        guard !record.isRemoved else { throw .removed }
        guard !peers.isEmpty else { throw .noOtherMember }
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
        var message = Message(
            content: Content(
                type: draft.type, id: id, sentAt: sentAt, lifetime: kept.lifetime, agreement: kept.agreement,
                fallback: draft.fallback, shouldPush: draft.shouldPush, payload: draft.payload, body: draft.body),
            sender: nil, state: .queued, expiresAt: expiresAt)
        // Only the current members get it, no later joiner.
        message.deliveries = peers.map { Delivery(member: $0.key, state: .queued, at: sentAt) }
        let deadline = min(expiresAt ?? .latest, sentAt + Limits.outboxLifetime)
        guard peers.allSatisfy({ $0.outbox.count < Limits.outboxCount }) else { throw .outboxFull }
        // From then on a receiver that gets the content for the first time finds it expired.
        let terms = kept.agreement.flatMap { lifetimes.machine?.knownTerms(of: $0) }
        let unsentDeadline = terms?.unreadTime(of: message.content.kind).map { sentAt + $0 }
        for peer in peers {
            _ = peer.outbox.enqueue(
                id, sentAt: sentAt, deadline: deadline, unsentDeadline: unsentDeadline,
                isStored: kept.keeping != .memory)
        }
        posted.messages.append(message)
        posted.keeping = kept.keeping
        return message
    }

    /// Enqueues a message again that was undelivered when the node stopped.
    package func restoreOutbox(_ message: Message) {
        // No unsent deadline: it may have been transmitted, and only its receivers know whether they showed it.
        let deadline = min(message.expiresAt ?? .latest, message.content.sentAt + Limits.outboxLifetime)
        let mailed = Set(message.deliveries.filter { $0.state == .mailed }.map(\.member))
        let waiting = mailed.union(message.deliveries.filter { $0.state == .queued }.map(\.member))
        for peer in peers where waiting.contains(peer.key) {
            _ = peer.outbox.enqueue(
                message.content.id, sentAt: message.content.sentAt, deadline: deadline, isStored: true,
                isMailed: mailed.contains(peer.key))
        }
    }

    /// Cancels a message that some member has not acknowledged.
    /// - Throws: ``CommandError/unknownMessage``.
    package func cancel(_ message: MessageID, _ turn: inout Turn) throws(CommandError) {
        var found = false
        for peer in peers where peer.settle(message) { found = true }
        guard found else { throw .unknownMessage }
        become(.cancelled, [message], stored: nil, &turn)
    }

    package func retry(_ turn: inout Turn) {
        for peer in peers { peer.link.hurry(now: turn.now) }
        advance(&turn)
    }

    func flush(_ peer: Peer, _ turn: inout Turn) {
        guard let link = peer.establishedLink else {
            // Dials a sleeping or resting member for this.
            if !peer.outbox.isEmpty { peer.link.wanted(at: turn.now) }
            return noteMail(for: peer, turn)
        }
        let actions = peer.outbox.flush(now: turn.now, random: &turn.random)
        perform(actions, to: peer, on: link, &turn)
    }

    func perform(_ actions: OutboxStateMachine.Actions, to peer: Peer, on link: LinkID?, _ turn: inout Turn) {
        if !actions.expired.isEmpty {
            // The next session start reports the gap to the member.
            record.undelivered[peer.key, default: 0] += UInt64(actions.expired.count)
            missed(actions.expired, by: peer, &turn)
        }
        become(.sent, actions.sent, stored: nil, &turn)
        if let link, !actions.transmitted.isEmpty { turn.add(.transmitMessages(link, client, actions.transmitted)) }
    }

    /// The answered message need not be known here.
    package func reply(_ text: String, to message: MessageID, _ turn: inout Turn) throws(CommandError) -> Message {
        try check(text)
        let draft = Draft(
            type: .reply, fallback: text.shortened(toByteCount: Limits.fallbackByteCount),
            body: .reply(Reply(replyTo: message, text: text)))
        return try post(draft, &turn)
    }

    package func react(_ emoji: String, to message: MessageID, isRemoved: Bool, _ turn: inout Turn) throws(CommandError)
        -> Message
    {
        guard Reaction.isEmoji(emoji) else { throw .invalidReaction }
        guard turn.node.message(message, client) != nil else { throw .unknownMessage }
        let draft = Draft(
            type: .reaction, fallback: isRemoved ? "took back \(emoji)" : "reacted \(emoji)", shouldPush: false,
            body: .reaction(Reaction(message: message, emoji: emoji, isRemoved: isRemoved)))
        return try post(draft, &turn)
    }

    package func send(_ type: ContentType, payload: [UInt8], fallback: String, _ turn: inout Turn) throws(CommandError)
        -> Message
    {
        guard let parts = type.parts, type.description.utf8.count <= Limits.contentTypeByteCount else {
            throw .invalidContentType(type.description)
        }
        guard parts.authority != "mayfly", parts.authority != "convos.org" else {
            throw .reservedContentType(String(parts.authority))
        }
        guard payload.count <= Limits.payloadByteCount else {
            throw .tooLong(
                "payload", payload.count, limit: Limits.payloadByteCount,
                "send it as a file: `mayfly send C --file FILE`")
        }
        let fallbackByteCount = fallback.utf8.count
        guard fallbackByteCount <= Limits.fallbackByteCount else {
            throw .tooLong("fallback", fallbackByteCount, limit: Limits.fallbackByteCount)
        }
        return try post(Draft(type: type, fallback: fallback, payload: payload), &turn)
    }

    // MARK: Files

    /// - Parameter byteCount: the size known so far.
    package func prepareAttachment(byteCount: Int64, _ turn: inout Turn) throws(CommandError) -> PreparedAttachment {
        guard !peers.isEmpty else { throw .noOtherMember }
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
        guard byteCount <= turn.attachmentByteCount else { throw .fileTooLarge(limit: turn.attachmentByteCount) }
        guard prepared.keeping == .memory, byteCount > Limits.attachmentMemoryByteCount else { return }
        throw .fileTooLargeForMemory(byteCount)
    }

    /// Sends a file whose chunks are all in the archive.
    package func send(_ attachment: Attachment, _ prepared: PreparedAttachment, _ turn: inout Turn) throws(CommandError)
        -> Message
    {
        if !attachment.text.isEmpty { try check(attachment.text) }
        try checkPrepared(prepared, byteCount: attachment.byteCount, turn)
        let draft = Draft(
            type: .attachment, fallback: attachment.fallback.shortened(toByteCount: Limits.fallbackByteCount),
            body: .attachment(attachment), prepared: prepared)
        return try post(draft, &turn)
    }

    func receiveRequest(_ id: MessageID, first: Int, count: Int, from peer: Peer, on link: LinkID, _ turn: inout Turn) {
        guard peer.establishedLink == link else { return drop() }
        // No entry: cancelled, delivered, expired or never ours. A locked node stays silent; the member asks again.
        guard peer.outbox[id] != nil else { return turn.send(.attachmentGone(id), on: link) }
        guard let message = turn.node.message(id, client), message.sender == nil,
            let attachment = message.content.attachment
        else {
            if !turn.isLocked { turn.send(.attachmentGone(id), on: link) }
            return
        }
        let wasIdle = peer.serving.isIdle
        guard peer.serving.request(id, first: first, count: count, chunkCount: attachment.chunkCount) else {
            return drop()
        }
        if wasIdle { peer.stallsAt = turn.now + Limits.transferPatience }
        turn.add(.serveChunks(link))
    }

    func chunksMayGo(to member: PublicKey, on link: LinkID, _ turn: inout Turn) {
        guard let peer = peer(member), peer.establishedLink == link else { return }
        for _ in 0..<Limits.attachmentBurst {
            guard let (id, index, total) = peer.serving.next() else { break }
            peer.stallsAt = turn.now + Limits.transferPatience
            turn.add(.transmitChunk(link, client, id, index: index))
            guard peer.serving.shows(id, index: index, of: total, now: turn.now) else { continue }
            tell(.attachmentProgress(id, member, count: index + 1, of: total), &turn)
        }
    }
}

/// Delivery states of our messages, and the read receipts that we send.
extension Conversation {
    // MARK: Our messages

    /// A message is delivered when every member has acknowledged it.
    func delivered(_ messages: [MessageID], to peer: Peer, stored: Bool, _ turn: inout Turn) {
        guard !messages.isEmpty else { return }
        said(messages, .delivered, by: peer, &turn)
        settle(messages, stored: stored, &turn)
    }

    /// A message is mailed when the mailbox of each member without an acknowledgement has it.
    func mailed(_ messages: [MessageID], to peer: Peer, _ turn: inout Turn) {
        guard !messages.isEmpty else { return }
        let all = messages.filter { id in peers.allSatisfy { $0.outbox[id]?.isMailed ?? true } }
        said(messages, .mailed, by: peer, &turn)
        become(.mailed, all, stored: nil, &turn)
    }

    /// The messages expired before the member had them. The final state is reported when no other member is awaited.
    /// The caller counts them as undelivered.
    func missed(_ messages: [MessageID], by peer: Peer, _ turn: inout Turn) {
        turn.save(client)
        said(messages, .expiredUndelivered, by: peer, &turn)
        settle(messages, stored: nil, areMissed: true, &turn)
    }

    /// The final state of a message when the only member without an acknowledgement has left.
    func waited(for id: MessageID, by former: Peer, _ turn: inout Turn) {
        let isThere = turn.node.deliveries(of: id, client).contains {
            $0.member != former.key && [.delivered, .read, .expiredUndelivered].contains($0.state)
        }
        if isThere { settle([id], stored: nil, &turn) } else { become(.cancelled, [id], stored: nil, &turn) }
    }

    /// Reports the final state of messages that no member still has to acknowledge, and skips the others.
    /// - Parameter areMissed: the member of this turn never gets them, which the archive does not know yet.
    private func settle(_ messages: [MessageID], stored: Bool?, areMissed: Bool = false, _ turn: inout Turn) {
        var delivered: [MessageID] = []
        delivered.reserveCapacity(messages.count)
        var missed: [MessageID] = []
        var refused: [MessageID] = []
        for id in messages where isSettled(id) {
            let said = turn.node.deliveries(of: id, client)
            let isMissed = areMissed || said.contains { $0.state == .expiredUndelivered }
            if said.contains(where: { $0.state == .failed }) {
                refused.append(id)
            } else if isMissed {
                missed.append(id)
            } else {
                delivered.append(id)
            }
        }
        become(.delivered, delivered, stored: stored, &turn)
        become(.expiredUndelivered, missed, stored: nil, &turn)
        become(.failed, refused, stored: nil, &turn)
    }

    func isSettled(_ id: MessageID) -> Bool { peers.allSatisfy { $0.outbox[id] == nil } }

    func become(_ state: DeliveryState, _ messages: [MessageID], stored: Bool?, _ turn: inout Turn) {
        guard !messages.isEmpty else { return }
        turn.add(.setState(client, messages, state))
        tell(.state(state, stored: stored), messages, &turn)
    }

    private func said(_ messages: [MessageID], _ state: DeliveryState, by peer: Peer, _ turn: inout Turn) {
        turn.add(.setDelivery(client, messages, Delivery(member: peer.key, state: state, at: turn.now)))
        if peers.count > 1 { tell(.delivery(peer.key, state), messages, &turn) }
    }

    // MARK: Receipts for our messages

    func receive(_ receipt: Receipt, from peer: Peer, on link: LinkID, _ turn: inout Turn) {
        // A receipt is sent once and needs no session, so one on a superseded link counts too.
        guard receipt.messages.count <= Limits.receiptCount else { return drop() }
        let mark = turn.mark
        var idleCount = receipt.messages.count
        for id in Set(receipt.messages).sorted() {
            let isNews =
                switch receipt.kind {
                case .read: wasRead(id, by: peer, &turn)
                case .tooLarge, .damaged: wasRefused(id, by: peer, &turn)
                }
            if isNews { idleCount -= 1 } else { drop() }
        }
        noteIdle(idleCount, since: mark, of: peer, on: link, &turn)
    }

    private func wasRead(_ id: MessageID, by peer: Peer, _ turn: inout Turn) -> Bool {
        guard let message = turn.node.message(id, client), message.sender == nil,
            message.content.type != .systemMessage,
            // A member that joined later never got the message.
            message.deliveries.contains(where: { $0.member == peer.key && $0.state != .read }),
            // A file is read only when complete. Its acknowledgement precedes the receipt, or follows the next resend.
            message.content.attachment == nil || peer.outbox[id] == nil
        else { return false }
        // A read message has arrived, though its acknowledgement may still be under way.
        if peer.settle(id) { settle([id], stored: nil, &turn) }
        said([id], .read, by: peer, &turn)
        let isReadByAll = message.deliveries.allSatisfy {
            $0.member == peer.key || $0.state == .read || self.peer($0.member) == nil
        }
        if isReadByAll { become(.read, [id], stored: nil, &turn) }
        return true
    }

    /// A member refuses our file: it is too large or damaged.
    private func wasRefused(_ id: MessageID, by peer: Peer, _ turn: inout Turn) -> Bool {
        guard peer.outbox[id] != nil, turn.node.message(id, client)?.content.attachment != nil, peer.settle(id) else {
            return false
        }
        said([id], .failed, by: peer, &turn)
        if isSettled(id) { become(.failed, [id], stored: nil, &turn) }
        return true
    }

    // MARK: Our read receipts

    package func markRead(_ seen: [(id: MessageID, sender: PublicKey)], _ turn: inout Turn) {
        guard sendsReadReceipts(turn) else { return }
        if receipted.count > Limits.receiptedCount { receipted = [] }
        var told: Set<PublicKey> = []
        for (id, sender) in seen {
            // An incomplete file cannot be read yet.
            if turn.node.message(id, client)?.state == .receiving { continue }
            guard let peer = peer(sender), peer.readReceipts.count < Limits.pendingReceiptCount,
                receipted.insert(id).inserted
            else { continue }
            peer.readReceipts.append(id)
            told.insert(sender)
        }
        for peer in peers where told.contains(peer.key) { flushReceipts(to: peer, &turn) }
        askForWord(&turn)
    }

    /// Defers receipts for messages that are not on disk yet: their sender takes a receipt as an acknowledgement.
    func flushReceipts(to peer: Peer, _ turn: inout Turn) {
        guard let link = peer.establishedLink else { return }
        let unsaid = peer.readReceipts.dropFirst(peer.saidReceiptCount)
        guard !unsaid.isEmpty else { return }
        let waiting = unsaid.filter { turn.node.awaitsStorage($0, client) }
        let isWaiting = Set(waiting)
        let read = unsaid.filter { !isWaiting.contains($0) }
        guard !read.isEmpty else { return }
        // Receipts stay queued until a pong confirms them, since a lost link may lose them.
        peer.readReceipts.replaceSubrange(peer.saidReceiptCount..., with: read + waiting)
        peer.saidReceiptCount += read.count
        peer.noteWord()
        for start in stride(from: 0, to: read.count, by: Limits.receiptCount) {
            turn.send(.receipt(Receipt(.read, Array(read.dropFirst(start).prefix(Limits.receiptCount)))), on: link)
        }
    }
}

/// The id, time and terms of a file, fixed when its upload begins, since its bytes are kept from then on.
package struct PreparedAttachment: Hashable, Sendable {
    package let message: MessageID
    package let sentAt: Timestamp
    package let agreement: AgreementID?
    package let expiresAt: Timestamp?
    package let keeping: NodeAction.Keeping
}
