import Crypto

/// A file that the conversation receives; the receiver pulls it in chunks (Delivery.md, "Files").
struct IncomingFile: Sendable {
    let sender: PublicKey
    let attachment: Attachment
    let keeping: NodeAction.Keeping
    let expiresAt: Timestamp?
    var machine: AttachmentReceiverStateMachine
    /// When the transfer counts as stalled; each chunk extends it. `nil` once stalled.
    var stallsAt: Timestamp?
}

extension ConversationStateMachine {
    /// Limits the incomplete files of one member.
    private func hasAllFiles(of sender: PublicKey) -> Bool {
        files.values.count { $0.sender == sender } >= Limits.incomingAttachmentCount
    }

    // MARK: Contents

    mutating func receive(
        _ attachment: Attachment, _ message: Message, _ keeping: NodeAction.Keeping, on link: LinkID, _ turn: Turn
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
        // Its bytes would wait in memory for the unlock; the sender repeats the file after it.
        case .untilUnlocked: hasRoom = false
        }
        var message = message
        if attachment.byteCount > limit {
            message.state = .failed
            message.onReading = nil
            return [
                .keep(client, [message], keeping), .transmit(link, .receipt(Receipt(.tooLarge, [id]))),
                event(.message(id), turn),
            ]
        }
        // Without room the file is not acknowledged, so its sender repeats it.
        guard hasRoom, !hasAllFiles(of: sender) else { return drop() }
        message.state = .receiving
        files[id] = IncomingFile(
            sender: sender, attachment: attachment, keeping: keeping, expiresAt: message.expiresAt,
            machine: AttachmentReceiverStateMachine(chunkCount: attachment.chunkCount) { _ in false },
            stallsAt: turn.now + Limits.transferPatience)
        return [.keep(client, [message], keeping), event(.message(id), turn)] + resume(id, on: link, turn)
    }

    /// The sender repeats a known, incomplete file.
    mutating func receiveAgain(
        _ known: Message, _ attachment: Attachment, isStored: Bool, on link: LinkID, _ turn: Turn
    ) -> [NodeAction] {
        guard let member = known.sender else { return [] }
        let id = known.content.id
        if let file = files[id] { return file.machine.nextDeadline == nil ? resume(id, on: link, turn) : [] }
        guard !hasAllFiles(of: member) else { return drop() }
        // After a restart the archive's chunks need not come again.
        files[id] = IncomingFile(
            sender: member, attachment: attachment,
            keeping: known.expiresAt.flatMap { end in isStored ? .disk(.holding(end - turn.now)) : nil } ?? .memory,
            expiresAt: known.expiresAt,
            machine: AttachmentReceiverStateMachine(chunkCount: attachment.chunkCount) {
                turn.contents.hasChunk(client, id, $0)
            }, stallsAt: turn.now + Limits.transferPatience)
        return resume(id, on: link, turn)
    }

    // MARK: Links

    /// Requests incomplete files at once: a sender that no longer has one says so instead of repeating it.
    mutating func resume(of member: PublicKey, on link: LinkID, _ turn: Turn) -> [NodeAction] {
        let waiting = files.filter { $0.value.sender == member && $0.value.machine.nextDeadline == nil }.keys
        return waiting.sorted().flatMap { resume($0, on: link, turn) }
    }

    private mutating func resume(_ id: MessageID, on link: LinkID, _ turn: Turn) -> [NodeAction] {
        guard let file = files[id], members[file.sender]?.link.link == link else { return [] }
        let window = fileWindow(for: file.sender)
        let actions = files[id]?.machine.linkUp(now: turn.now, window: window) ?? []
        return perform(actions, id, nil, over: link, turn)
    }

    mutating func pauseFiles(of member: PublicKey) {
        for id in files.keys where files[id]?.sender == member { files[id]?.machine.linkLost() }
    }

    // MARK: Chunks

    mutating func receive(_ chunk: AttachmentChunk, from member: PublicKey, over link: LinkID, _ turn: Turn)
        -> [NodeAction]
    {
        // Inflates no chunk that was not requested.
        guard let file = files[chunk.message], file.sender == member, file.machine.isAwaited(chunk.index) else {
            return drop()
        }
        guard tally.holds(chunk.plain(byteCount: file.attachment.chunkByteCount(chunk.index)) != nil) else { return [] }
        let hasRoom =
            switch file.keeping {
            case .disk: !turn.isLocked && turn.contents.hasRoom(client, Int64(chunk.bytes.count))
            case .memory: turn.contents.memoryAvailable() >= Int64(chunk.bytes.count)
            case .untilUnlocked: false
            }
        // A chunk without room is requested again later.
        guard hasRoom else { return drop() }
        files[chunk.message]?.stallsAt = turn.now + Limits.transferPatience
        let window = fileWindow(for: member)
        let actions = files[chunk.message]?.machine.receive(chunk.index, now: turn.now, window: window) ?? []
        if actions.isEmpty { tally.dropped += 1 }
        return perform(actions, chunk.message, chunk, over: link, turn)
    }

    mutating func receiveGone(_ id: MessageID, from member: PublicKey, _ turn: Turn) -> [NodeAction] {
        guard files[id]?.sender == member, files[id]?.machine.gone() == true else { return drop() }
        return failFile(id, turn)
    }

    mutating func attachmentVerified(_ id: MessageID, _ isRight: Bool, _ turn: Turn) -> [NodeAction] {
        guard let file = files[id], files[id]?.machine.verified(isRight) == true else { return [] }
        let link = members[file.sender]?.link.link
        guard isRight else {
            return failFile(id, turn) + (link.map { [.transmit($0, .receipt(Receipt(.damaged, [id])))] } ?? [])
        }
        files[id] = nil
        let isStored = if case .disk = file.keeping { true } else { false }
        return [.setState(client, [id], .received)]
            + (link.map { [.transmit($0, .acknowledgement(id, stored: isStored))] } ?? []) + [
                event(.messageState(id, .received, stored: isStored), turn)
            ]
    }

    private mutating func failFile(_ id: MessageID, _ turn: Turn) -> [NodeAction] {
        let hasChunks = (files.removeValue(forKey: id)?.machine.count ?? 1) > 0
        return (hasChunks ? [.forgetChunks(client, id)] : []) + [
            .setState(client, [id], .failed), event(.messageState(id, .failed, stored: nil), turn),
        ]
    }

    private func perform(
        _ actions: [AttachmentReceiverStateMachine.Action], _ id: MessageID, _ chunk: AttachmentChunk?,
        over link: LinkID?, _ turn: Turn
    ) -> [NodeAction] {
        guard let file = files[id] else { return [] }
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
                        turn)
                ]
            }
        }
    }

    // MARK: Bounds

    /// The files of one member share its window.
    private func fileWindow(for member: PublicKey) -> Int {
        let count = files.values.count { $0.sender == member && $0.machine.nextDeadline != nil }
        return max(2, Limits.attachmentWindow / max(1, count))
    }

    /// The most memory that these files may still need, in bytes.
    private var expectedInMemory: Int64 {
        files.values.reduce(0) { sum, file in
            guard file.keeping == .memory else { return sum }
            return sum + file.attachment.byteCount - Int64(file.machine.count * Limits.chunkByteCount)
        }
    }

    // MARK: Time and ends

    var filesDeadline: Timestamp? {
        files.values.reduce(nil) { earliest($0, $1.machine.nextDeadline, $1.expiresAt, $1.stallsAt) }
    }

    mutating func advanceFiles(_ turn: Turn) -> [NodeAction] {
        for member in members.keys where members[member]?.stallsAt.map({ $0 <= turn.now }) ?? false {
            members[member]!.stallsAt = nil
        }
        guard !files.isEmpty else { return [] }
        var result: [NodeAction] = []
        for id in files.keys.sorted() {
            guard let file = files[id] else { continue }
            if let stallsAt = file.stallsAt, stallsAt <= turn.now { files[id]?.stallsAt = nil }
            if let expiresAt = file.expiresAt, expiresAt <= turn.now {
                // The archive expires the chunks itself.
                files[id] = nil
                continue
            }
            let window = fileWindow(for: file.sender)
            let actions = files[id]?.machine.advance(now: turn.now, window: window) ?? []
            result += perform(actions, id, nil, over: members[file.sender]?.link.link, turn)
        }
        return result
    }

    mutating func abandonFiles(of member: PublicKey, _ turn: Turn) -> [NodeAction] {
        files.keys.sorted().flatMap { id in
            files[id]?.sender == member && files[id]?.machine.gone() == true ? failFile(id, turn) : []
        }
    }

    /// A file is arriving. A stalled one, without a moving chunk, keeps no inbox awake.
    var isFileMoving: Bool { files.values.contains { members[$0.sender]?.isEstablished == true && $0.stallsAt != nil } }

    /// Received and total chunks of a file; `nil` when it is not being received.
    package func progress(of id: MessageID) -> (count: Int, of: Int)? {
        files[id].map { ($0.machine.count, $0.machine.chunkCount) }
    }
}
