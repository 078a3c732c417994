import Cryptography

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

extension Conversation {
    /// Limits the incomplete files of one member.
    private func hasAllFiles(of sender: Peer) -> Bool {
        files.values.count { $0.sender == sender.key } >= Limits.incomingAttachmentCount
    }

    /// - Returns: whether the message is kept.
    func receive(
        _ attachment: Attachment, _ message: Message, _ keeping: NodeAction.Keeping, from sender: Peer, on link: LinkID,
        _ turn: inout Turn
    ) -> Bool {
        let id = message.content.id
        var limit = turn.attachmentByteCount
        let hasRoom: Bool
        switch keeping {
        case .disk: hasRoom = turn.node.hasRoom(client) && turn.node.hasRoom(for: attachment.byteCount, client)
        case .memory:
            limit = min(limit, Limits.attachmentMemoryByteCount)
            hasRoom = attachment.byteCount <= turn.node.memoryAvailable - expectedInMemory
        // Its bytes would wait in memory for the unlock; the sender repeats the file after it.
        case .untilUnlocked: hasRoom = false
        }
        var message = message
        if attachment.byteCount > limit {
            message.state = .failed
            message.onReading = nil
            turn.add(.keep(client, [message], keeping))
            turn.send(.receipt(Receipt(.tooLarge, [id])), on: link)
            tell(.message(id), &turn)
            return true
        }
        // Without room the file is not acknowledged, so its sender repeats it.
        guard hasRoom, !hasAllFiles(of: sender) else {
            drop()
            return false
        }
        message.state = .receiving
        files[id] = IncomingFile(
            sender: sender.key, attachment: attachment, keeping: keeping, expiresAt: message.expiresAt,
            machine: AttachmentReceiverStateMachine(chunkCount: attachment.chunkCount) { _ in false },
            stallsAt: turn.now + Limits.transferPatience)
        turn.add(.keep(client, [message], keeping))
        tell(.message(id), &turn)
        resume(id, of: sender, on: link, &turn)
        return true
    }

    /// The sender repeats a known, incomplete file.
    func receiveAgain(
        _ known: Message, _ attachment: Attachment, isStored: Bool, from sender: Peer, on link: LinkID,
        _ turn: inout Turn
    ) {
        let id = known.content.id
        if let file = files[id] {
            if file.machine.nextDeadline == nil { resume(id, of: sender, on: link, &turn) }
            return
        }
        guard !hasAllFiles(of: sender) else { return drop() }
        // After a restart the archive's chunks need not come again.
        files[id] = IncomingFile(
            sender: sender.key, attachment: attachment,
            keeping: known.expiresAt.flatMap { end in isStored ? .disk(.holding(end - turn.now)) : nil } ?? .memory,
            expiresAt: known.expiresAt,
            machine: AttachmentReceiverStateMachine(chunkCount: attachment.chunkCount) {
                turn.node.hasChunk($0, of: id, client)
            }, stallsAt: turn.now + Limits.transferPatience)
        resume(id, of: sender, on: link, &turn)
    }

    /// Requests incomplete files at once: a sender that no longer has one says so instead of repeating it.
    func resume(of peer: Peer, on link: LinkID, _ turn: inout Turn) {
        let waiting = files.filter { $0.value.sender == peer.key && $0.value.machine.nextDeadline == nil }.keys
        for id in waiting.sorted() { resume(id, of: peer, on: link, &turn) }
    }

    private func resume(_ id: MessageID, of peer: Peer, on link: LinkID, _ turn: inout Turn) {
        guard peer.link.link == link else { return }
        let window = fileWindow(for: peer.key)
        let actions = files[id]?.machine.linkUp(now: turn.now, window: window) ?? []
        perform(actions, id, nil, over: link, &turn)
    }

    func pauseFiles(of peer: Peer) {
        for id in files.keys where files[id]?.sender == peer.key { files[id]?.machine.linkLost() }
    }

    func receive(_ chunk: AttachmentChunk, from peer: Peer, over link: LinkID, _ turn: inout Turn) {
        // Inflates no chunk that was not requested.
        guard let file = files[chunk.message], file.sender == peer.key, file.machine.isAwaited(chunk.index) else {
            return drop()
        }
        guard tally.holds(chunk.plain(byteCount: file.attachment.chunkByteCount(chunk.index)) != nil) else { return }
        let hasRoom =
            switch file.keeping {
            case .disk: !turn.isLocked && turn.node.hasRoom(for: Int64(chunk.bytes.count), client)
            case .memory: turn.node.memoryAvailable >= Int64(chunk.bytes.count)
            case .untilUnlocked: false
            }
        // A chunk without room is requested again later.
        guard hasRoom else { return drop() }
        files[chunk.message]?.stallsAt = turn.now + Limits.transferPatience
        let window = fileWindow(for: peer.key)
        let actions = files[chunk.message]?.machine.receive(chunk.index, now: turn.now, window: window) ?? []
        if actions.isEmpty { drop() }
        perform(actions, chunk.message, chunk, over: link, &turn)
    }

    func receiveGone(_ id: MessageID, from peer: Peer, _ turn: inout Turn) {
        guard files[id]?.sender == peer.key, files[id]?.machine.gone() == true else { return drop() }
        failFile(id, &turn)
    }

    package func attachmentVerified(_ id: MessageID, _ isRight: Bool, _ turn: inout Turn) {
        guard let file = files[id], files[id]?.machine.verified(isRight) == true else { return }
        let link = link(to: file.sender)
        guard isRight else {
            failFile(id, &turn)
            if let link { turn.send(.receipt(Receipt(.damaged, [id])), on: link) }
            return
        }
        files[id] = nil
        let isStored = if case .disk = file.keeping { true } else { false }
        turn.add(.setState(client, [id], .received))
        if let link { turn.send(.acknowledgement(id, stored: isStored), on: link) }
        tell(.messageState(id, .received, stored: isStored), &turn)
    }

    private func failFile(_ id: MessageID, _ turn: inout Turn) {
        let hasChunks = (files.removeValue(forKey: id)?.machine.count ?? 1) > 0
        if hasChunks { turn.add(.forgetChunks(client, id)) }
        turn.add(.setState(client, [id], .failed))
        tell(.messageState(id, .failed, stored: nil), &turn)
    }

    private func perform(
        _ actions: [AttachmentReceiverStateMachine.Action], _ id: MessageID, _ chunk: AttachmentChunk?,
        over link: LinkID?, _ turn: inout Turn
    ) {
        guard let file = files[id] else { return }
        for action in actions {
            switch action {
            case .keep: if let chunk { turn.add(.keepChunk(client, chunk, expiresAt: file.expiresAt, file.keeping)) }
            case .request(let first, let count):
                if let link { turn.send(.attachmentRequest(id, first: first, count: count), on: link) }
            case .verify: turn.add(.verifyAttachment(client, id))
            case .progress:
                let (count, total) = (file.machine.count, file.machine.chunkCount)
                tell(.attachmentProgress(id, file.sender, count: count, of: total), &turn)
            }
        }
    }

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

    var filesDeadline: Timestamp? {
        files.values.reduce(nil) { earliest($0, $1.machine.nextDeadline, $1.expiresAt, $1.stallsAt) }
    }

    func advanceFiles(_ turn: inout Turn) {
        for peer in peers where peer.stallsAt.map({ $0 <= turn.now }) ?? false { peer.stallsAt = nil }
        guard !files.isEmpty else { return }
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
            perform(actions, id, nil, over: link(to: file.sender), &turn)
        }
    }

    func abandonFiles(of peer: Peer, _ turn: inout Turn) {
        for id in files.keys.sorted() where files[id]?.sender == peer.key && files[id]?.machine.gone() == true {
            failFile(id, &turn)
        }
    }

    /// Received and total chunks of a file; `nil` when it is not being received.
    package func progress(of id: MessageID) -> (count: Int, of: Int)? {
        files[id].map { ($0.machine.count, $0.machine.chunkCount) }
    }
}
