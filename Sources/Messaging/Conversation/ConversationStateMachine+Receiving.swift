import Crypto

extension ConversationStateMachine {
    // MARK: Frames

    /// - Parameter memoryAvailable: memory left for contents of all inboxes, in bytes.
    package mutating func receive(
        _ frame: Frame, from member: PublicKey, on link: LinkID, memoryAvailable: Int, _ turn: inout Turn
    ) -> [NodeAction] {
        guard let isShunned = members[member]?.isShunned(now: turn.now) else { return [.close(link)] }
        var result: [NodeAction] = []
        // A frame that a banned member sent before its link was closed is ignored.
        if !isShunned {
            // A link closed as a duplicate proves nothing: the redial waits as after a failure.
            if frame != .closing(asleep: false) { members[member]!.link.heard(link, now: turn.now) }
            let before = tally.forged
            result = answer(frame, from: member, on: link, memoryAvailable: memoryAvailable, &turn)
            if tally.forged > before { result += noteForgery(by: member, on: link, turn) }
        }
        if result.isIdle(on: link),
            let wait = members[member]?.idleFrames.note(elements: frame.elementCount, now: turn.now)
        {
            result.append(.pauseReading(link, wait))
        }
        return result
    }

    /// Counts a frame, or a part of one, without effect.
    mutating func drop() -> [NodeAction] {
        tally.dropped += 1
        return []
    }

    /// Charges a frame without effect that cost as much as many others.
    mutating func noteCostlyFrame(of member: PublicKey, now: Timestamp) {
        _ = members[member]?.idleFrames.note(elements: Limits.costlyFrame, now: now)
    }

    private mutating func answer(
        _ frame: Frame, from member: PublicKey, on link: LinkID, memoryAvailable: Int, _ turn: inout Turn
    ) -> [NodeAction] {
        switch frame {
        case .session(let start): return receive(start, from: member, on: link, &turn)
        case .contents(let contents):
            return receive(contents, from: member, on: link, memoryAvailable: memoryAvailable, turn)
        case .acknowledgement(let said): return receive(said, from: member, on: link, &turn)
        case .lifetime(let message):
            // The session exchange on the link in use already covers messages of an earlier link.
            guard members[member]!.isEstablished, members[member]!.link.link == link else { return drop() }
            return receive(message, from: member, &turn)
        case .explosion(let sealed): return receiveExplosion(sealed, .link(link, member), &turn)
        case .memberLeft(let departure): return receive(departure, from: member, &turn)
        case .group(let update): return receive(update, from: member, &turn) + askForSlices(now: turn.now)
        case .profile(let description):
            return receive(description, from: member, &turn) + confirm(description, from: member, on: link, turn)
                + askForSlices(now: turn.now)
        case .joinCancelled: return receiveJoinCancelled(from: member, &turn)
        case .ping(let nonce): return [.transmit(link, .pong(nonce))]
        case .pong(let nonce):
            if nonce == members[member]!.wordPing, members[member]!.establishedLink == link {
                members[member]!.heardWord()
            }
            guard nonce == record.own.version else { return [] }
            record.told[member] = nonce
            return pruneRelay(turn)
        case .unknown: return []
        case .closing(asleep: false): return receiveClosing(from: member, on: link, turn)
        case .closing(asleep: true): return receiveSleep(of: member, on: link, &turn)
        case .mailbox(let message): return receive(message, from: member, on: link, turn)
        case .punch(let message):
            guard members[member]!.link.isRelayed(link) else { return [] }
            return perform(members[member]!.punching.receive(message, now: turn.now), with: member)
        case .receipt(let receipt):
            let (actions, idleCount) = receive(receipt, from: member, turn)
            return actions + noteIdle(idleCount, beside: actions, of: member, on: link, turn)
        case .attachmentRequest(let id, let first, let count):
            return receiveRequest(id, first: first, count: count, from: member, on: link, turn)
        case .attachmentChunk(let chunk):
            guard members[member]!.link.link == link else { return drop() }
            return receive(chunk, from: member, over: link, turn)
        case .attachmentGone(let id): return receiveGone(id, from: member, turn)
        default: return drop()
        }
    }

    // MARK: Contents

    /// Answers all contents of a frame with one acknowledgement.
    private mutating func receive(
        _ contents: [AgedContent], from member: PublicKey, on link: LinkID, memoryAvailable: Int, _ turn: Turn
    ) -> [NodeAction] {
        guard contents.count <= Limits.contentsCount, members[member]!.isEstablished else {
            tally.dropped += contents.count
            return []
        }
        let heldBefore = heldByteCount
        var batch = ReceivedBatch(names, on: link, memoryAvailable: memoryAvailable, count: contents.count)
        var idleCount = 0
        for aged in contents {
            batch.memoryAvailable = memoryAvailable - (heldByteCount - heldBefore)
            let received = receive(aged, from: member, &batch, turn)
            if case .other(let actions) = received, actions.isIdle(on: link) { idleCount += 1 }
            batch.add(received, turn)
        }
        batch.finish(turn)
        return batch.actions + noteIdle(idleCount, beside: batch.actions, of: member, on: link, turn)
    }

    /// Each element without effect counts like a frame, so batching is no cheaper. The caller counts frames without
    /// effect.
    private mutating func noteIdle(
        _ count: Int, beside actions: [NodeAction], of member: PublicKey, on link: LinkID, _ turn: Turn
    ) -> [NodeAction] {
        guard count > 0, !actions.isIdle(on: link),
            let pause = members[member]?.idleFrames.note(elements: count, now: turn.now)
        else { return [] }
        return [.pauseReading(link, pause)]
    }

    /// - Returns: the result; its acknowledgement goes into `batch`.
    private mutating func receive(
        _ aged: AgedContent, from member: PublicKey, _ batch: inout ReceivedBatch, _ turn: Turn
    ) -> ReceivedContent {
        let (content, age, link) = (aged.content, aged.age, batch.link)
        let id = content.id
        // An id of another member would block that member's message. Contents of the same frame are in `batch` only,
        // not yet in the archive.
        guard id.belongs(to: member, in: conversation), batch.kept[id] == nil else { return .other(drop()) }
        if let named = content.agreement, named == agreement?.id { confirmAgreement(by: member) }
        if turn.isKnown(client, id) { return .other(receiveAgain(content, from: member, &batch, turn)) }
        // No two clocks are compared (Lifetime.md, "Contents"): the age is by the sender's clock, the rest by ours.
        let terms = content.agreement.flatMap { lifetimes.machine?.storable(under: $0, age: age, now: turn.now) }
        let retention = terms.flatMap {
            Retention.received(content.kind, under: $0, age: age, cap: cap ?? turn.defaultCap, now: turn.now)
        }
        // Without a known agreement: memory only, and no longer than the sender keeps it.
        var expiresAt =
            retention?.expiresAt ?? content.lifetime.milliseconds.map { turn.now + ($0 - min(max(age, 0), $0)) }
        if let expiresAt, expiresAt <= turn.now {
            guard !batch.isAgeDoubtful else { return .other(drop()) }
            return .other(answerExpired(id, of: member, &batch, turn))
        }
        var onReading = retention?.onReading
        if case .reaction(let reaction) = content.body {
            // A reaction expires with its message, and is never opened.
            expiresAt = end(of: reaction, expiresAt, batch, turn)
            onReading = nil
        }
        let message = Message(
            content: content, sender: member, state: .received, expiresAt: expiresAt, onReading: onReading)
        let keeping = Self.keeping(retention, turn)
        let isStored = if case .disk = keeping { true } else { false }
        // A content beyond the bound is not acknowledged, so its sender keeps it.
        let fits =
            isStored
            ? turn.hasRoom(client)
            : heldByteCount + message.byteCount <= Limits.memoryByteCount && message.byteCount <= batch.memoryAvailable
        guard fits else {
            tally.dropped += 1
            batch.refusedCount += 1
            return .other([])
        }
        if let attachment = content.attachment {
            let actions = receive(attachment, message, keeping, on: link, turn)
            let isKept = actions.contains { if case .keep = $0 { true } else { false } }
            if isKept, !isStored { heldByteCount += message.byteCount }
            return .other(actions)
        }
        if !isStored { heldByteCount += message.byteCount }
        switch keeping {
        case .memory: batch.said.held.append(id)
        case .disk: batch.said.stored.append(id)
        // Not acknowledged before it is on disk: the process may end before the unlock.
        case .untilUnlocked: break
        }
        return .new(message, keeping)
    }

    /// A duplicate, whose acknowledgement was lost, or an incomplete file.
    private mutating func receiveAgain(
        _ content: Content, from member: PublicKey, _ batch: inout ReceivedBatch, _ turn: Turn
    ) -> [NodeAction] {
        let id = content.id
        let known = turn.contents.message(client, id)
        if let known, known.sender != member {
            // The id is of another member's message. An acknowledgement would mark this content as delivered.
            return drop()
        }
        // The acknowledgement follows once it is on disk.
        if turn.contents.awaitsStorage(client, id) { return [] }
        // While locked the stored sender is unreadable. The content will come again.
        if known == nil, turn.isLocked { return [] }
        let isStored = turn.contents.isStored(client, id)
        guard content.attachment != nil, let known, let attachment = known.content.attachment else {
            batch.acknowledge(id, isStored: isStored)
            return []
        }
        switch known.state {
        case .receiving: return receiveAgain(known, attachment, isStored: isStored, on: batch.link, turn)
        case .failed:
            let isTooLarge = attachment.byteCount > turn.contents.attachmentByteCount
            return [.transmit(batch.link, .receipt(Receipt(isTooLarge ? .tooLarge : .damaged, [id])))]
        case .queued, .sent, .mailed, .delivered, .expiredUndelivered, .cancelled, .received, .read:
            batch.acknowledge(id, isStored: isStored)
            return []
        }
    }

    /// Acknowledges an expired content as `expired`, or as `held` if it was shown. One event reports it.
    private mutating func answerExpired(
        _ id: MessageID, of member: PublicKey, _ batch: inout ReceivedBatch, _ turn: Turn
    ) -> [NodeAction] {
        if turn.contents.wasShown(client, id) {
            batch.said.held.append(id)
            return []
        }
        if expiredOnArrival.count >= Limits.expiredOnArrivalCount { expiredOnArrival = [] }
        batch.said.expired.append(id)
        guard expiredOnArrival.insert(id).inserted else { return [] }
        // An expired content takes no room, so only this rate limits them.
        let pause = members[member]?.idleFrames.note(now: turn.now).map { NodeAction.pauseReading(batch.link, $0) }
        return [event(.messageExpired(id), turn)] + (pause.map { [$0] } ?? [])
    }

    // MARK: Our mailbox

    /// - Returns: `isTaken`: the slot may be deleted.
    mutating func receiveMailed(
        _ frame: Frame, from member: PublicKey, age: SlotAge, memoryAvailable: Int, _ turn: inout Turn
    ) -> (actions: [NodeAction], isTaken: Bool) {
        switch frame {
        case .contents(let contents):
            guard contents.count <= Limits.contentsCount else { return ([], true) }
            let heldBefore = heldByteCount
            var batch = ReceivedBatch(names, on: .none, memoryAvailable: memoryAvailable, count: contents.count)
            batch.isAgeDoubtful = age.isDoubtful
            for aged in contents {
                batch.memoryAvailable = memoryAvailable - (heldByteCount - heldBefore)
                let total = max(0, aged.age).addingReportingOverflow(max(0, age.dwell))
                let older = AgedContent(aged.content, age: max(total.overflow ? .max : total.partialValue, age.least))
                batch.add(receive(older, from: member, &batch, turn), turn)
            }
            // A doubtful age may shorten a lifetime. Without an acknowledgement the sender keeps the content.
            let said = age.isDoubtful ? Acknowledgement() : batch.said
            batch.said = Acknowledgement()
            batch.finish(turn)
            let actions = batch.actions.filter { !$0.concerns(.none) }
            return (actions + acknowledge(said, to: member, turn), batch.refusedCount == 0)
        case .acknowledgement(let said):
            return (receive(said, from: member, on: .none, &turn).filter { !$0.concerns(.none) }, true)
        case .profile(let description):
            let actions = receive(description, from: member, &turn)
            // A deferred profile is in memory only, so its slot stays until the profile is adopted.
            return (actions, members[member]?.laterDescription != description)
        case .explosion(let sealed):
            return (receiveExplosion(sealed, .link(.none, member), &turn).filter { !$0.concerns(.none) }, true)
        default:
            tally.dropped += 1
            return ([], true)
        }
    }

    /// Acknowledges over the link, or else through the member's mailbox.
    private mutating func acknowledge(_ said: Acknowledgement, to member: PublicKey, _ turn: Turn) -> [NodeAction] {
        guard !said.isEmpty else { return [] }
        if let link = members[member]?.establishedLink { return [.transmit(link, .acknowledgement(said))] }
        mailAcknowledgement(said, to: member)
        noteMail(for: member, turn)
        return []
    }

    /// Each message that was not awaited counts like a frame without effect, so a batch is no cheaper.
    private mutating func receive(_ said: Acknowledgement, from member: PublicKey, on link: LinkID, _ turn: inout Turn)
        -> [NodeAction]
    {
        guard said.count <= Limits.acknowledgementCount else { return drop() }
        for id in said.stored where lifetimes.unconfirmed.contains(id) { confirmAgreement(by: member) }
        let stored = settle(said.stored, by: member)
        let held = settle(said.held, by: member)
        var idleCount = said.stored.count + said.held.count - stored.count - held.count
        var result = delivered(stored, to: member, stored: true, turn)
        result += delivered(held, to: member, stored: false, turn)
        for id in said.expired {
            guard members[member]!.settle(id) else {
                tally.dropped += 1
                idleCount += 1
                continue
            }
            record.undelivered[member, default: 0] += 1
            result += missed([id], by: member, turn)
        }
        if !result.isEmpty { result += flush(member, &turn) }
        return result + noteIdle(idleCount, beside: result, of: member, on: link, turn)
    }

    private mutating func settle(_ messages: [MessageID], by member: PublicKey) -> [MessageID] {
        messages.filter { members[member]!.settle($0) }
    }

    /// Acknowledges contents now on disk. A sender without a link sends again, and is answered then.
    mutating func stored(_ contents: [StoredContent], _ turn: Turn) -> [NodeAction] {
        var result: [NodeAction] = []
        for sender in Set(contents.map(\.sender)).sorted() {
            if let link = members[sender]?.establishedLink {
                let ids = contents.lazy.filter { $0.sender == sender }.map(\.id)
                var said = Acknowledgement()
                for id in ids where !said.merge(Acknowledgement(stored: [id])) {
                    result.append(.transmit(link, .acknowledgement(said)))
                    said = Acknowledgement(stored: [id])
                }
                result.append(.transmit(link, .acknowledgement(said)))
            }
            result += flushReceipts(to: sender, turn)
        }
        return result + askForWord(now: turn.now)
    }

    /// Uncounts memory-only contents that the user has seen or that are on disk now.
    /// - Parameter byteCount: `nil` for all of it.
    package mutating func releaseMemory(byteCount: Int? = nil) {
        heldByteCount = byteCount.map { max(0, heldByteCount - $0) } ?? 0
    }

    private func end(of reaction: Reaction, _ expiresAt: Timestamp?, _ batch: ReceivedBatch, _ turn: Turn) -> Timestamp?
    {
        let known =
            if let kept = batch.kept[reaction.message] { kept } else {
                turn.contents.message(client, reaction.message)?.expiresAt
            }
        guard let expiresAt, let end = known else { return expiresAt }
        return min(expiresAt, end)
    }

    // MARK: Read receipts

    package func sendsReadReceipts(_ turn: Turn) -> Bool { record.sendsReadReceipts ?? turn.contents.sendsReadReceipts }

    /// - Parameter isOn: `nil` follows the node's default.
    package mutating func setReadReceipts(_ isOn: Bool?) -> [NodeAction] {
        record.sendsReadReceipts = isOn
        if isOn == false {
            for member in memberKeys { (members[member]!.readReceipts, members[member]!.saidReceiptCount) = ([], 0) }
        }
        return [.save(client)]
    }
}
