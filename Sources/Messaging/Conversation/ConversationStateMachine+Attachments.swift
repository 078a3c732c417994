import Primitives

/// A file on its way to us, as its conversation holds it.
struct IncomingAttachment: Sendable {
    var sender: PublicKey
    var attachment: Attachment
    var keeping: NodeAction.Keeping
    var expiresAt: Timestamp?
    var machine: AttachmentReceiverStateMachine
    /// When it counts as stalled, unless something of it comes; `nil` once it does.
    var stallsAt: Timestamp?
}

/// What a file is sent under: fixed when its user begins to hand it over, since its bytes are kept from then on.
package struct PreparedAttachment: Hashable, Sendable {
    package let message: MessageID
    package let sentAt: Timestamp
    package let agreement: AgreementID?
    package let expiresAt: Timestamp?
    package let keeping: NodeAction.Keeping
}

/// Files: the receiver pulls them in chunks (section 3).
extension ConversationStateMachine {
    // MARK: Sending

    /// Begins to take a file from its user.
    /// - Parameter byteCount: as far as it is known.
    package func prepareAttachment(
        byteCount: Int64,
        _ turn: inout Turn
    ) throws(CommandError) -> PreparedAttachment {
        guard !members.isEmpty else { throw .noOtherMember }
        let kept = placement(of: .attachment, turn)
        let prepared = PreparedAttachment(
            message: MessageID.make(by: key.publicKey, in: conversation, &turn.random),
            sentAt: turn.now,
            agreement: kept.agreement,
            expiresAt: kept.expiresAt,
            keeping: kept.keeping
        )
        try checkPrepared(prepared, byteCount: byteCount, turn)
        return prepared
    }

    /// Whether a file may go on to be taken, now that it has so many bytes.
    package func checkPrepared(
        _ prepared: PreparedAttachment,
        byteCount: Int64,
        _ turn: Turn
    ) throws(CommandError) {
        guard prepared.agreement == placement(of: .attachment, turn).agreement else { throw .agreementChanged }
        guard byteCount <= turn.contents.attachmentByteCount else {
            throw .fileTooLarge(limit: turn.contents.attachmentByteCount)
        }
        guard prepared.keeping == .memory, byteCount > Limits.attachmentMemoryByteCount else { return }
        throw .fileTooLargeForMemory(limit: Limits.attachmentMemoryByteCount)
    }

    /// Sends a file whose chunks are all in the archive.
    package mutating func send(
        _ attachment: Attachment,
        _ prepared: PreparedAttachment,
        _ turn: inout Turn
    ) throws(CommandError) -> (message: Message, actions: [NodeAction]) {
        if !attachment.text.isEmpty { try check(attachment.text) }
        try checkPrepared(prepared, byteCount: attachment.byteCount, turn)
        let draft = Draft(
            type: .attachment,
            fallback: attachment.fallback.shortened(toByteCount: Limits.fallbackByteCount),
            body: .attachment(attachment),
            prepared: prepared
        )
        return try post(draft, &turn)
    }

    /// A member asks for chunks of a file of ours.
    mutating func receiveRequest(
        _ id: MessageID,
        first: Int,
        count: Int,
        from member: PublicKey,
        on link: LinkID,
        _ turn: Turn
    ) -> [NodeAction] {
        guard members[member]!.isEstablished, members[member]!.link.link == link else {
            droppedCount += 1
            return []
        }
        // Cancelled, delivered, past its time, or never ours. A locked node has it still; it is asked again.
        guard members[member]!.outbox[id] != nil else { return [.transmit(link, .attachmentGone(id))] }
        guard let message = turn.contents.message(client, id), message.sender == nil,
            let attachment = message.content.attachment
        else { return turn.isLocked ? [] : [.transmit(link, .attachmentGone(id))] }
        let wasIdle = members[member]!.serving.isIdle
        guard
            members[member]!.serving.request(
                id,
                first: first,
                count: count,
                chunkCount: attachment.chunkCount
            )
        else {
            droppedCount += 1
            return []
        }
        if wasIdle { members[member]!.stallsAt = turn.now + Limits.transferPatience }
        return [.serveChunks(link)]
    }

    /// The link takes more.
    /// - Returns: nothing when there is nothing to send.
    mutating func chunksMayGo(to member: PublicKey, on link: LinkID, _ turn: Turn) -> [NodeAction] {
        guard members[member]?.isEstablished == true, members[member]?.link.link == link else { return [] }
        var result: [NodeAction] = []
        for _ in 0..<Limits.attachmentBurst {
            guard let (id, index) = members[member]!.serving.next() else { break }
            members[member]!.stallsAt = turn.now + Limits.transferPatience
            result.append(.transmitChunk(link, client, id, index: index))
            guard let total = turn.contents.message(client, id)?.content.attachment?.chunkCount,
                members[member]!.serving.shows(id, index: index, of: total, now: turn.now)
            else { continue }
            result.append(event(.attachmentProgress(id, member, count: index + 1, of: total), turn))
        }
        return result
    }

    // MARK: Receiving

    /// A file that we did not know.
    mutating func receiveAttachment(
        _ attachment: Attachment,
        _ message: Message,
        _ keeping: NodeAction.Keeping,
        on link: LinkID,
        _ turn: Turn
    ) -> [NodeAction] {
        guard let sender = message.sender else { return [] }
        let id = message.content.id
        var limit = turn.contents.attachmentByteCount
        let hasRoom: Bool
        switch keeping {
        case .disk: hasRoom = turn.hasRoom(client) && turn.contents.hasRoom(client, attachment.byteCount)
        case .memory:
            limit = min(limit, Limits.attachmentMemoryByteCount)
            hasRoom = attachment.byteCount <= turn.contents.memoryAvailable() - expectedInMemory
        // Its bytes would have to wait in memory for the unlock: it comes again after that.
        case .untilUnlocked: hasRoom = false
        }
        var message = message
        if attachment.byteCount > limit {
            message.state = .failed
            message.onReading = nil
            return [
                .keep(client, message, keeping),
                .transmit(link, .receipt(Receipt(.tooLarge, [id]))),
                event(.message(id), turn),
            ]
        }
        // What has no room now is not acknowledged, so the sender names it again.
        guard hasRoom, incoming.values.count(where: { $0.sender == sender }) < Limits.incomingAttachmentCount else {
            droppedCount += 1
            return []
        }
        message.state = .receiving
        incoming[id] = IncomingAttachment(
            sender: sender,
            attachment: attachment,
            keeping: keeping,
            expiresAt: message.expiresAt,
            machine: AttachmentReceiverStateMachine(chunkCount: attachment.chunkCount) { _ in false },
            stallsAt: turn.now + Limits.transferPatience
        )
        return [.keep(client, message, keeping), event(.message(id), turn)] + resumeFile(id, on: link, turn)
    }

    /// A content that we have: the acknowledgement was lost, or it is a file that is not whole yet.
    mutating func receiveAgain(
        _ content: Content,
        from member: PublicKey,
        _ batch: inout ReceivedBatch,
        _ turn: Turn
    ) -> [NodeAction] {
        let id = content.id
        let known = turn.contents.message(client, id)
        if let known, known.sender != member {
            // Another member's message has this id: who chose it anew must not have this one taken for delivered.
            droppedCount += 1
            return []
        }
        // It is acknowledged once it is on the disk.
        if turn.contents.awaitsStorage(client, id) { return [] }
        // Locked: what is on the disk cannot be looked at, so nobody knows whose it is. It comes again.
        if known == nil, turn.isLocked { return [] }
        let isStored = turn.contents.isStored(client, id)
        guard content.attachment != nil, let known, let attachment = known.content.attachment else {
            batch.acknowledge(id, isStored: isStored)
            return []
        }
        let link = batch.link
        switch known.state {
        case .receiving: break
        case .failed:
            let isTooLarge = attachment.byteCount > turn.contents.attachmentByteCount
            return [.transmit(link, .receipt(Receipt(isTooLarge ? .tooLarge : .damaged, [id])))]
        case .queued, .sent, .delivered, .expiredUndelivered, .cancelled, .received, .read:
            batch.acknowledge(id, isStored: isStored)
            return []
        }
        if incoming[id] == nil {
            guard incoming.values.count(where: { $0.sender == member }) < Limits.incomingAttachmentCount else {
                droppedCount += 1
                return []
            }
            // After a restart: what is here need not come again.
            incoming[id] = IncomingAttachment(
                sender: member,
                attachment: attachment,
                keeping: known.expiresAt.flatMap { end in
                    isStored ? .disk(.holding(end - turn.now)) : nil
                } ?? .memory,
                expiresAt: known.expiresAt,
                machine: AttachmentReceiverStateMachine(chunkCount: attachment.chunkCount) {
                    turn.contents.hasChunk(client, id, $0)
                },
                stallsAt: turn.now + Limits.transferPatience
            )
            return resumeFile(id, on: link, turn)
        }
        guard incoming[id]!.machine.nextDeadline == nil else { return [] }
        return resumeFile(id, on: link, turn)
    }

    /// Of files that are not whole we ask at once: a sender that has one no more does not name it again, but says so.
    mutating func resumeFiles(of member: PublicKey, on link: LinkID, _ turn: Turn) -> [NodeAction] {
        let waiting = incoming.filter { $0.value.sender == member && $0.value.machine.nextDeadline == nil }.keys
        return waiting.sorted().flatMap { resumeFile($0, on: link, turn) }
    }

    private mutating func resumeFile(_ id: MessageID, on link: LinkID, _ turn: Turn) -> [NodeAction] {
        guard let file = incoming[id], members[file.sender]?.link.link == link else { return [] }
        let actions = incoming[id]!.machine.linkUp(now: turn.now, window: window(for: file.sender))
        return perform(actions, id, nil, turn)
    }

    mutating func receiveChunk(
        _ chunk: AttachmentChunk,
        from member: PublicKey,
        on link: LinkID,
        _ turn: Turn
    ) -> [NodeAction] {
        // Nothing is inflated that was not asked for.
        guard let file = incoming[chunk.message], file.sender == member, members[member]!.link.link == link,
            file.machine.isAwaited(chunk.index)
        else {
            droppedCount += 1
            return []
        }
        guard chunk.plain(byteCount: file.attachment.chunkByteCount(chunk.index)) != nil else {
            droppedCount += 1
            forgedCount += 1
            return []
        }
        let hasRoom =
            switch file.keeping {
            case .disk: !turn.isLocked && turn.contents.hasRoom(client, Int64(chunk.bytes.count))
            case .memory: turn.contents.memoryAvailable() >= Int64(chunk.bytes.count)
            case .untilUnlocked: false
            }
        // What has no room is asked for again later.
        guard hasRoom else {
            droppedCount += 1
            return []
        }
        incoming[chunk.message]!.stallsAt = turn.now + Limits.transferPatience
        let actions = incoming[chunk.message]!.machine.receive(
            chunk.index,
            now: turn.now,
            window: window(for: member)
        )
        if actions.isEmpty { droppedCount += 1 }
        return perform(actions, chunk.message, chunk, turn)
    }

    mutating func receiveGone(_ id: MessageID, from member: PublicKey, _ turn: Turn) -> [NodeAction] {
        guard incoming[id]?.sender == member, incoming[id]?.machine.gone() == true else {
            droppedCount += 1
            return []
        }
        return failFile(id, turn)
    }

    /// The chunks were compared with the hash.
    mutating func attachmentVerified(_ id: MessageID, _ isRight: Bool, _ turn: Turn) -> [NodeAction] {
        guard let file = incoming[id], incoming[id]!.machine.verified(isRight) else { return [] }
        let link = link(to: file.sender)
        guard isRight else {
            return failFile(id, turn)
                + (link.map { [.transmit($0, .receipt(Receipt(.damaged, [id])))] } ?? [])
        }
        incoming[id] = nil
        let isStored = if case .disk = file.keeping { true } else { false }
        return [.setState(client, id, .received)]
            + (link.map { [.transmit($0, .acknowledgement(id, stored: isStored))] } ?? [])
            + [event(.messageState(id, .received, stored: isStored), turn)]
    }

    private mutating func failFile(_ id: MessageID, _ turn: Turn) -> [NodeAction] {
        let hasChunks = (incoming.removeValue(forKey: id)?.machine.count ?? 1) > 0
        return (hasChunks ? [.forgetChunks(client, id)] : []) + [
            .setState(client, id, .failed), event(.messageState(id, .failed, stored: nil), turn),
        ]
    }

    private func perform(
        _ actions: [AttachmentReceiverStateMachine.Action],
        _ id: MessageID,
        _ chunk: AttachmentChunk?,
        _ turn: Turn
    ) -> [NodeAction] {
        guard let file = incoming[id] else { return [] }
        let link = link(to: file.sender)
        return actions.flatMap { action -> [NodeAction] in
            switch action {
            case .keep: chunk.map { [.keepChunk(client, $0, expiresAt: file.expiresAt, file.keeping)] } ?? []
            case .request(let first, let count):
                link.map { [.transmit($0, .attachmentRequest(id, first: first, count: count))] } ?? []
            case .verify: [.verifyAttachment(client, id)]
            case .progress:
                [
                    event(
                        .attachmentProgress(id, file.sender, count: file.machine.count, of: file.machine.chunkCount),
                        turn
                    )
                ]
            }
        }
    }

    // MARK: Time and links

    /// Files of one member share its window.
    private func window(for member: PublicKey) -> Int {
        let count = incoming.values.count { $0.sender == member && $0.machine.nextDeadline != nil }
        return max(2, Limits.attachmentWindow / max(1, count))
    }

    /// What the files on their way may still take in memory, in bytes, at most.
    private var expectedInMemory: Int64 {
        incoming.values.reduce(0) { sum, file in
            guard file.keeping == .memory else { return sum }
            return sum + file.attachment.byteCount - Int64(file.machine.count * Limits.chunkByteCount)
        }
    }

    mutating func filesLost(to member: PublicKey) {
        members[member]?.serving.linkLost()
        for id in incoming.keys where incoming[id]?.sender == member { incoming[id]!.machine.linkLost() }
    }

    mutating func advanceFiles(_ turn: Turn) -> [NodeAction] {
        for member in members.keys where members[member]?.stallsAt.map({ $0 <= turn.now }) ?? false {
            members[member]!.stallsAt = nil
        }
        guard !incoming.isEmpty else { return [] }
        var result: [NodeAction] = []
        for id in incoming.keys.sorted() {
            guard let file = incoming[id] else { continue }
            if let stallsAt = file.stallsAt, stallsAt <= turn.now { incoming[id]!.stallsAt = nil }
            if let expiresAt = file.expiresAt, expiresAt <= turn.now {
                // Its chunks expire by themselves.
                incoming[id] = nil
                continue
            }
            let actions = incoming[id]!.machine.advance(now: turn.now, window: window(for: file.sender))
            result += perform(actions, id, nil, turn)
        }
        return result
    }

    /// A member has left: what it was sending does not come any more.
    mutating func abandonFiles(of member: PublicKey, _ turn: Turn) -> [NodeAction] {
        incoming.keys.sorted().flatMap { id in
            incoming[id]?.sender == member && incoming[id]?.machine.gone() == true ? failFile(id, turn) : []
        }
    }

    /// How many chunks of a file have come, and of how many; `nil` when none is awaited.
    package func progress(of id: MessageID) -> (count: Int, of: Int)? {
        incoming[id].map { ($0.machine.count, $0.machine.chunkCount) }
    }
}
