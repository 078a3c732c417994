import Cryptography

extension Conversation {
    /// - Parameter memoryAvailable: memory left for contents of all inboxes, in bytes.
    package func receive(
        _ frame: Frame, from member: PublicKey, on link: LinkID, memoryAvailable: Int, _ turn: inout Turn
    ) {
        guard let peer = peer(member) else { return turn.close(link) }
        let mark = turn.mark
        // A frame that a banned member sent before its link was closed is ignored.
        if !peer.isShunned(now: turn.now) {
            // A link closed as a duplicate proves nothing: the redial waits as after a failure.
            if frame != .closing(asleep: false) { peer.link.heard(link, now: turn.now) }
            let before = tally.forged
            answer(frame, from: peer, on: link, memoryAvailable: memoryAvailable, &turn)
            if tally.forged > before { noteForgery(by: peer, on: link, &turn) }
        }
        if turn.isIdle(since: mark, on: link), isPresent(peer),
            let wait = peer.idleFrames.note(elements: frame.elementCount, now: turn.now)
        {
            turn.add(.pauseReading(link, wait))
        }
    }

    /// Counts a frame, or a part of one, without effect.
    func drop() { tally.dropped += 1 }

    private func answer(_ frame: Frame, from peer: Peer, on link: LinkID, memoryAvailable: Int, _ turn: inout Turn) {
        switch frame {
        case .session(let start): receive(start, from: peer, on: link, &turn)
        case .contents(let contents): receive(contents, from: peer, on: link, memoryAvailable: memoryAvailable, &turn)
        case .acknowledgement(let said): receive(said, from: peer, on: link, &turn)
        case .lifetime(let message):
            // The session exchange on the link in use already covers messages of an earlier link.
            guard peer.establishedLink == link else { return drop() }
            receive(message, from: peer, &turn)
        case .explosion(let sealed): receiveExplosion(sealed, .link(link, peer.key), &turn)
        case .memberLeft(let departure): receive(departure, from: peer, &turn)
        case .group(let update):
            receive(update, from: peer, &turn)
            askForSlices(&turn)
        case .profile(let description):
            receive(description, from: peer, &turn)
            confirm(description, from: peer, on: link, &turn)
            askForSlices(&turn)
        case .joinCancelled: receiveJoinCancelled(from: peer, &turn)
        case .ping(let nonce): turn.send(.pong(nonce), on: link)
        case .pong(let nonce):
            if nonce == peer.wordPing, peer.establishedLink == link {
                peer.heardWord()
                record.unheard.remove(peer.key)
            }
            guard nonce == record.own.version else { return }
            // An unsaved one would be said again after the next start, and would keep the inbox out of the summaries.
            if record.told.updateValue(nonce, forKey: peer.key) != nonce { turn.save(client) }
            pruneRelay(&turn)
        case .unknown: break
        case .closing(asleep: false): receiveClosing(from: peer, on: link, &turn)
        case .closing(asleep: true): receiveSleep(of: peer, on: link, &turn)
        case .mailbox(let message): receive(message, from: peer, on: link, &turn)
        case .punch(let message):
            guard peer.link.isRelayed(link) else { return }
            perform(peer.punching.receive(message, now: turn.now), with: peer, &turn)
        case .receipt(let receipt): receive(receipt, from: peer, on: link, &turn)
        case .attachmentRequest(let id, let first, let count):
            receiveRequest(id, first: first, count: count, from: peer, on: link, &turn)
        case .attachmentChunk(let chunk):
            guard peer.link.link == link else { return drop() }
            receive(chunk, from: peer, over: link, &turn)
        case .attachmentGone(let id): receiveGone(id, from: peer, &turn)
        default: drop()
        }
    }

    /// Answers all contents of a frame with one acknowledgement.
    private func receive(
        _ contents: [AgedContent], from peer: Peer, on link: LinkID, memoryAvailable: Int, _ turn: inout Turn
    ) {
        guard contents.count <= Limits.contentsCount, peer.isEstablished else {
            tally.dropped += contents.count
            return
        }
        let mark = turn.mark
        var batch = ReceivedBatch(on: link, count: contents.count)
        receive(contents, from: peer, &batch, memoryAvailable: memoryAvailable, &turn)
        if !batch.said.isEmpty { turn.send(.acknowledgement(batch.said), on: link) }
        noteIdle(batch.idleCount, since: mark, of: peer, on: link, &turn)
    }

    private func receive(
        _ contents: [AgedContent], from peer: Peer, _ batch: inout ReceivedBatch, memoryAvailable: Int,
        _ turn: inout Turn
    ) {
        let heldBefore = heldByteCount
        for aged in contents {
            batch.memoryAvailable = memoryAvailable - (heldByteCount - heldBefore)
            let mark = turn.mark
            if let (message, keeping) = receive(aged, from: peer, &batch, &turn) {
                if keeping != batch.keeping { keepNew(&batch, &turn) }
                batch.keeping = keeping
                batch.kept[message.content.id] = message.expiresAt
                batch.new.append(message)
            } else {
                if turn.isIdle(since: mark, on: batch.link) { batch.idleCount += 1 }
                // The messages before this content come first.
                if turn.mark > mark, !batch.new.isEmpty {
                    let earlier = turn.apart { keepNew(&batch, &$0) }
                    turn.actions.insert(contentsOf: earlier, at: mark)
                }
            }
        }
        keepNew(&batch, &turn)
    }

    private func keepNew(_ batch: inout ReceivedBatch, _ turn: inout Turn) {
        guard !batch.new.isEmpty else { return }
        turn.add(.keep(client, batch.new, batch.keeping))
        tell(.came, batch.new.map(\.content.id), &turn)
        batch.new = []
    }

    /// Each element without effect counts like a frame, so batching is no cheaper. The caller counts frames without
    /// effect.
    func noteIdle(_ count: Int, since mark: Int, of peer: Peer, on link: LinkID, _ turn: inout Turn) {
        guard count > 0, !turn.isIdle(since: mark, on: link),
            let pause = peer.idleFrames.note(elements: count, now: turn.now)
        else { return }
        turn.add(.pauseReading(link, pause))
    }

    /// - Returns: a new message, to be stored and shown; `nil` for any other content. Its acknowledgement goes into
    ///   `batch`.
    private func receive(_ aged: AgedContent, from peer: Peer, _ batch: inout ReceivedBatch, _ turn: inout Turn) -> (
        Message, NodeAction.Keeping
    )? {
        let (content, age) = (aged.content, aged.age)
        let id = content.id
        // An id of another member would block that member's message. Contents of the same frame are in `batch` only,
        // not yet in the archive.
        guard id.belongs(to: peer.key, in: conversation), batch.kept[id] == nil else {
            drop()
            return nil
        }
        if turn.node.isKnown(id, client) {
            receiveAgain(content, from: peer, &batch, &turn)
            return nil
        }
        // No two clocks are compared (Lifetime.md, "Contents"): the age is by the sender's clock, the rest by ours.
        let terms = content.agreement.flatMap { lifetimes.machine?.storable(under: $0, age: age, now: turn.now) }
        let retention = terms.flatMap {
            Retention.received(content.kind, under: $0, age: age, cap: cap ?? turn.defaultCap, now: turn.now)
        }
        // Without a known agreement: memory only, and no longer than the sender keeps it.
        var expiresAt =
            retention?.expiresAt ?? content.lifetime.milliseconds.map { turn.now + ($0 - min(max(age, 0), $0)) }
        if let expiresAt, expiresAt <= turn.now {
            if batch.isAgeDoubtful { drop() } else { answerExpired(id, of: peer, &batch, &turn) }
            return nil
        }
        var onReading = retention?.onReading
        // Our user has read an earlier copy of this content, which may have expired.
        if onReading != nil, turn.node.wasRead(id, client) {
            batch.said.held.append(id)
            return nil
        }
        if case .reaction(let reaction) = content.body {
            // A reaction expires with its message, and is never opened.
            let end = batch.kept[reaction.message] ?? turn.node.message(reaction.message, client)?.expiresAt
            if let own = expiresAt, let end { expiresAt = min(own, end) }
            onReading = nil
        }
        let message = Message(
            content: content, sender: peer.key, state: .received, expiresAt: expiresAt, onReading: onReading)
        let keeping = Self.keeping(retention, turn)
        let isStored = if case .disk = keeping { true } else { false }
        // A content beyond the bound is not acknowledged, so its sender keeps it.
        let fits =
            isStored
            ? turn.node.hasRoom(client)
            : heldByteCount + message.byteCount <= Limits.memoryByteCount && message.byteCount <= batch.memoryAvailable
        guard fits else {
            tally.dropped += 1
            batch.refusedCount += 1
            return nil
        }
        if let attachment = content.attachment {
            if receive(attachment, message, keeping, from: peer, on: batch.link, &turn) {
                batch.kept[id] = expiresAt
                if !isStored { heldByteCount += message.byteCount }
            }
            return nil
        }
        if !isStored { heldByteCount += message.byteCount }
        switch keeping {
        case .memory: batch.said.held.append(id)
        case .disk: batch.said.stored.append(id)
        // Not acknowledged before it is on disk: the process may end before the unlock.
        case .untilUnlocked: break
        }
        return (message, keeping)
    }

    /// A duplicate, whose acknowledgement was lost, or an incomplete file.
    private func receiveAgain(_ content: Content, from peer: Peer, _ batch: inout ReceivedBatch, _ turn: inout Turn) {
        let id = content.id
        let known = turn.node.message(id, client)
        // The id is of another member's message. An acknowledgement would mark this content as delivered.
        if let known, known.sender != peer.key { return drop() }
        // The acknowledgement follows once it is on disk.
        if turn.node.awaitsStorage(id, client) { return }
        // While locked the stored sender is unreadable. The content will come again.
        if known == nil, turn.isLocked { return }
        let isStored = turn.node.isStored(id, client)
        if content.attachment != nil, let known, let attachment = known.content.attachment {
            if known.state == .receiving {
                return receiveAgain(known, attachment, isStored: isStored, from: peer, on: batch.link, &turn)
            }
            if known.state == .failed {
                let isTooLarge = attachment.byteCount > turn.attachmentByteCount
                return turn.send(.receipt(Receipt(isTooLarge ? .tooLarge : .damaged, [id])), on: batch.link)
            }
        }
        if isStored { batch.said.stored.append(id) } else { batch.said.held.append(id) }
    }

    /// Acknowledges an expired content as `expired`, or as `held` if it was shown. One event reports it.
    private func answerExpired(_ id: MessageID, of peer: Peer, _ batch: inout ReceivedBatch, _ turn: inout Turn) {
        if turn.node.wasShown(id, client) || turn.node.wasRead(id, client) { return batch.said.held.append(id) }
        if expiredOnArrival.count >= Limits.expiredOnArrivalCount { expiredOnArrival = [] }
        batch.said.expired.append(id)
        guard expiredOnArrival.insert(id).inserted else { return }
        tell(.messageExpired(id), &turn)
        // An expired content takes no room, so only this rate limits them.
        if let pause = peer.idleFrames.note(now: turn.now) { turn.add(.pauseReading(batch.link, pause)) }
    }

    /// - Returns: whether the slot may be deleted.
    func receiveMailed(_ frame: Frame, from peer: Peer, age: SlotAge, memoryAvailable: Int, _ turn: inout Turn) -> Bool
    {
        let mark = turn.mark
        switch frame {
        case .contents(let contents):
            guard contents.count <= Limits.contentsCount else { return true }
            var batch = ReceivedBatch(on: .none, count: contents.count)
            batch.isAgeDoubtful = age.isDoubtful
            let older = contents.map { aged in
                let total = max(0, aged.age).addingReportingOverflow(max(0, age.dwell))
                return AgedContent(aged.content, age: max(total.overflow ? .max : total.partialValue, age.least))
            }
            receive(older, from: peer, &batch, memoryAvailable: memoryAvailable, &turn)
            dropAnswers(since: mark, &turn)
            // A doubtful age may shorten a lifetime. Without an acknowledgement the sender keeps the content.
            if !age.isDoubtful { acknowledge(batch.said, to: peer, &turn) }
            return batch.refusedCount == 0
        case .acknowledgement(let said): receive(said, from: peer, on: .none, &turn)
        case .profile(let description):
            receive(description, from: peer, &turn)
            // A deferred profile is in memory only, so its slot stays until the profile is adopted.
            return peer.laterDescription != description
        case .explosion(let sealed): receiveExplosion(sealed, .link(.none, peer.key), &turn)
        default: drop()
        }
        dropAnswers(since: mark, &turn)
        return true
    }

    /// A slot has no link for answers.
    private func dropAnswers(since mark: Int, _ turn: inout Turn) {
        let kept = turn.actions[mark...].filter { !$0.concerns(.none) }
        turn.actions.replaceSubrange(mark..., with: kept)
    }

    /// Acknowledges over the link, or else through the member's mailbox.
    private func acknowledge(_ said: Acknowledgement, to peer: Peer, _ turn: inout Turn) {
        guard !said.isEmpty else { return }
        if let link = peer.establishedLink { return turn.send(.acknowledgement(said), on: link) }
        if !record.mailbox.acknowledgements[peer.key, default: Acknowledgement()].merge(said) {
            record.mailbox.acknowledgements[peer.key] = said
        }
        noteMail(for: peer, turn)
    }

    /// Each message that was not awaited counts like a frame without effect, so a batch is no cheaper.
    private func receive(_ said: Acknowledgement, from peer: Peer, on link: LinkID, _ turn: inout Turn) {
        guard said.count <= Limits.acknowledgementCount else { return drop() }
        let mark = turn.mark
        let stored = said.stored.filter(peer.settle)
        let held = said.held.filter(peer.settle)
        var idleCount = said.stored.count + said.held.count - stored.count - held.count
        delivered(stored, to: peer, stored: true, &turn)
        delivered(held, to: peer, stored: false, &turn)
        for id in said.expired {
            guard peer.settle(id) else {
                tally.dropped += 1
                idleCount += 1
                continue
            }
            record.undelivered[peer.key, default: 0] += 1
            missed([id], by: peer, &turn)
        }
        if turn.mark > mark { flush(peer, &turn) }
        noteIdle(idleCount, since: mark, of: peer, on: link, &turn)
    }

    /// Acknowledges contents now on disk. A sender without a link sends again, and is answered then.
    package func stored(_ contents: [StoredContent], _ turn: inout Turn) {
        for sender in Set(contents.map(\.sender)).sorted() {
            guard let peer = peer(sender) else { continue }
            if let link = peer.establishedLink {
                let ids = contents.lazy.filter { $0.sender == sender }.map(\.id)
                var said = Acknowledgement()
                for id in ids where !said.merge(Acknowledgement(stored: [id])) {
                    turn.send(.acknowledgement(said), on: link)
                    said = Acknowledgement(stored: [id])
                }
                turn.send(.acknowledgement(said), on: link)
            }
            flushReceipts(to: peer, &turn)
        }
        askForWord(&turn)
    }

    /// Uncounts memory-only contents that the user has seen or that are on disk now.
    /// - Parameter byteCount: `nil` for all of it.
    package func releaseMemory(byteCount: Int? = nil) {
        heldByteCount = byteCount.map { max(0, heldByteCount - $0) } ?? 0
    }

    package func sendsReadReceipts(_ turn: Turn) -> Bool { record.sendsReadReceipts ?? turn.sendsReadReceipts }

    /// - Parameter isOn: `nil` follows the node's default.
    package func setReadReceipts(_ isOn: Bool?, _ turn: inout Turn) {
        record.sendsReadReceipts = isOn
        if isOn == false { for peer in peers { (peer.readReceipts, peer.saidReceiptCount) = ([], 0) } }
        turn.save(client)
    }
}

/// The contents of one frame, while they are received.
struct ReceivedBatch {
    let link: LinkID
    /// Memory left for contents of all inboxes, in bytes.
    var memoryAvailable = 0
    /// The contents come from a mailbox, which may overstate their age: see ``SlotAge/isDoubtful``.
    var isAgeDoubtful = false
    /// Acknowledges all contents of the frame.
    var said = Acknowledgement()
    /// Contents refused for lack of room.
    var refusedCount = 0
    /// Contents without effect.
    var idleCount = 0
    /// Expiry of the messages that this frame adds; the archive does not know them before the turn ends.
    var kept: [MessageID: Timestamp?] = [:]
    /// New messages without a `keep` action yet, all with the same ``keeping``.
    var new: [Message] = []
    var keeping = NodeAction.Keeping.memory

    init(on link: LinkID, count: Int) {
        self.link = link
        kept.reserveCapacity(count)
        new.reserveCapacity(count)
    }
}

/// A received content that has moved from memory to disk.
package struct StoredContent: Hashable, Sendable {
    package let id: MessageID
    package let sender: PublicKey

    package init(id: MessageID, sender: PublicKey) {
        self.id = id
        self.sender = sender
    }
}
