import Primitives

/// Messages out and in, and their acknowledgements.
extension ConversationStateMachine {
    // MARK: Sending

    /// Sends a text to every other member.
    /// - Returns: the message, and where it is kept.
    package mutating func send(
        _ text: String,
        _ turn: inout Turn
    ) throws(CommandError) -> (message: Message, actions: [NodeAction]) {
        try check(text)
        return try post(Draft(type: .text, fallback: "", payload: Array(text.utf8)), &turn)
    }

    /// Whether a text may be sent.
    package func check(_ text: String) throws(CommandError) {
        let byteCount = text.utf8.count
        guard byteCount > 0 else { throw .emptyText }
        guard byteCount <= Limits.textByteCount else {
            throw .textTooLong(byteCount: byteCount, limit: Limits.textByteCount)
        }
    }

    /// What is to be sent, before it has a place and a time.
    struct Draft {
        var type: ContentType
        var fallback: String
        var shouldPush = true
        var payload: [UInt8] = []
        var body = ContentBody.opaque
        /// When and under what a file was begun to be handed over; `nil` for now.
        var prepared: PreparedAttachment?
    }

    /// Keeps a content and puts it into every member's outbox.
    mutating func post(
        _ draft: Draft,
        _ turn: inout Turn
    ) throws(CommandError) -> (message: Message, actions: [NodeAction]) {
        guard !record.isRemoved else { throw .removed }
        guard !members.isEmpty else { throw .noOtherMember }
        let id = draft.prepared?.message ?? MessageID.make(by: key.publicKey, in: conversation, &turn.random)
        let sentAt = draft.prepared?.sentAt ?? turn.now
        var kept = placement(of: draft.prepared == nil ? .text : .attachment, turn)
        if let prepared = draft.prepared {
            kept.expiresAt = prepared.expiresAt
            kept.keeping = prepared.keeping
        }
        let expiresAt = kept.expiresAt
        var message = Message(
            content: Content(
                type: draft.type,
                id: id,
                sentAt: sentAt,
                lifetime: kept.lifetime,
                agreement: kept.agreement,
                fallback: draft.fallback,
                shouldPush: draft.shouldPush,
                payload: draft.payload,
                body: draft.body
            ),
            sender: nil,
            state: .queued,
            expiresAt: expiresAt
        )
        // For whom it is: whoever joins later does not get it.
        message.deliveries = memberKeys.map { Delivery(member: $0, state: .queued, at: sentAt) }
        let deadline = min(expiresAt ?? .latest, sentAt + Limits.outboxLifetime)
        guard members.values.allSatisfy({ $0.outbox.count < Limits.outboxCount }) else {
            throw .outboxFull(limit: Limits.outboxCount)
        }
        for member in memberKeys {
            _ = members[member]!.outbox.enqueue(
                id,
                sentAt: sentAt,
                deadline: deadline,
                unsentDeadline: unsentDeadline(of: message.content),
                isStored: kept.keeping != .memory
            )
        }
        noteUnconfirmed(message.content)
        var actions: [NodeAction] = [.keep(client, message, kept.keeping)]
        for member in memberKeys { actions += flush(member, &turn) }
        return (message, actions)
    }

    /// From when on a receiver that gets a content of ours for the first time finds it expired; `nil`: not before our copy
    /// ends.
    private func unsentDeadline(of content: Content) -> Timestamp? {
        let terms = content.agreement.flatMap { lifetimeMachine?.knownTerms(of: $0) }
        return terms?.unreadTime(of: content.kind).map { content.sentAt + $0 }
    }

    /// Takes up again what was not delivered when the node stopped.
    package mutating func restoreOutbox(_ message: Message) {
        noteUnconfirmed(message.content)
        // It may have been handed to a link before, so its receivers say whether they have shown it.
        let deadline = min(message.expiresAt ?? .latest, message.content.sentAt + Limits.outboxLifetime)
        let waiting = Set(message.deliveries.filter { $0.state == .queued }.map(\.member))
        for member in memberKeys where waiting.contains(member) {
            _ = members[member]!.outbox.enqueue(
                message.content.id,
                sentAt: message.content.sentAt,
                deadline: deadline,
                isStored: true
            )
        }
    }

    /// Takes back a message that is not delivered everywhere.
    /// - Throws: ``CommandError/unknownMessage``.
    package mutating func cancel(_ message: MessageID, _ turn: inout Turn) throws(CommandError) -> [NodeAction] {
        var found = false
        for member in memberKeys where members[member]!.outbox.cancel(message) {
            members[member]!.serving.remove(message)
            found = true
        }
        guard found else { throw .unknownMessage }
        missedBySome.remove(message)
        return [
            .setState(client, message, .cancelled),
            event(.messageState(message, .cancelled, stored: nil), turn),
        ]
    }

    /// Dials now instead of at the end of the wait.
    package mutating func retry(_ turn: inout Turn) -> [NodeAction] {
        for member in memberKeys { members[member]!.link.hurry(now: turn.now) }
        return advance(&turn)
    }

    mutating func flush(_ member: PublicKey, _ turn: inout Turn) -> [NodeAction] {
        guard members[member]?.isEstablished == true, let link = members[member]?.link.link else {
            // A member that sleeps, or that we left in peace, is dialled for this.
            if members[member]?.outbox.isEmpty == false { members[member]!.link.wanted(at: turn.now) }
            return []
        }
        let actions = members[member]!.outbox.flush(now: turn.now, random: &turn.random)
        return perform(actions, to: member, on: link, turn)
    }

    mutating func perform(
        _ actions: [OutboxStateMachine.Action],
        to member: PublicKey,
        on link: LinkID?,
        _ turn: Turn
    ) -> [NodeAction] {
        var result: [NodeAction] = []
        var leaving: [NodeAction.AgedMessage] = []
        for action in actions {
            switch action {
            case .transmit(let id, let age): leaving.append(NodeAction.AgedMessage(id: id, age: age))
            case .sent(let id):
                result += [.setState(client, id, .sent), event(.messageState(id, .sent, stored: nil), turn)]
            case .expired(let id):
                // The member will see that something is missing.
                record.undelivered[member, default: 0] += 1
                result.append(.save(client))
                guard !isAwaited(id) else { continue }
                missedBySome.remove(id)
                result += [
                    .setState(client, id, .expiredUndelivered),
                    event(.messageState(id, .expiredUndelivered, stored: nil), turn),
                ]
            }
        }
        if let link, !leaving.isEmpty { result.append(.transmitMessages(link, client, leaving)) }
        return result
    }

    /// Some member has not acknowledged it.
    private func isAwaited(_ message: MessageID) -> Bool { members.values.contains { $0.outbox[message] != nil } }

    // MARK: Receiving

    /// A frame from a member. `memoryAvailable`: what all inboxes may still hold in memory, in bytes.
    package mutating func receive(
        _ frame: Frame,
        from member: PublicKey,
        on link: LinkID,
        memoryAvailable: Int,
        _ turn: inout Turn
    ) -> [NodeAction] {
        guard let state = members[member] else { return [.close(link)] }
        var result: [NodeAction] = []
        // Otherwise it was still on its way when its link was closed.
        if !state.isShunned(now: turn.now) {
            members[member]!.link.heard(link, now: turn.now)
            let before = forgedCount
            result = answer(frame, from: member, on: link, memoryAvailable: memoryAvailable, &turn)
            if forgedCount > before { result += noteForgery(by: member, on: link, turn) }
        }
        if result.isIdle(on: link), let wait = members[member]?.idleFrames.note(now: turn.now) {
            result.append(.pauseReading(link, wait))
        }
        return result
    }

    /// A frame that changes nothing and costs as much as many others do.
    mutating func noteCostlyFrame(of member: PublicKey, now: Timestamp) {
        for _ in 0..<Limits.costlyFrame { _ = members[member]?.idleFrames.note(now: now) }
    }

    private mutating func answer(
        _ frame: Frame,
        from member: PublicKey,
        on link: LinkID,
        memoryAvailable: Int,
        _ turn: inout Turn
    ) -> [NodeAction] {
        switch frame {
        case .session(let start): return receive(start, from: member, on: link, &turn)
        case .contents(let contents):
            return receive(contents, from: member, on: link, memoryAvailable: memoryAvailable, turn)
        case .acknowledgement(let said): return receive(said, from: member, on: link, &turn)
        case .lifetime(let message):
            // What both said at the start of the link in use already counts with what came before by another link.
            guard members[member]!.isEstablished, members[member]!.link.link == link else {
                droppedCount += 1
                return []
            }
            return receive(message, from: member, &turn)
        case .explosion(let sealed): return receiveExplosion(sealed, .link(link, member), &turn)
        case .memberLeft(let departure): return receive(departure, from: member, &turn)
        case .group(let update): return receive(update, from: member, &turn)
        case .profile(let description):
            return receive(description, from: member, &turn) + confirm(description, from: member, on: link, turn)
        case .joinCancelled: return receiveJoinCancelled(from: member, &turn)
        case .ping(let nonce): return [.transmit(link, .pong(nonce))]
        case .pong(let nonce):
            guard nonce == record.own.version else { return [] }
            record.told[member] = nonce
            return pruneRelay(turn)
        case .unknown: return []
        case .closing(asleep: false): return receiveClosing(from: member, on: link, turn)
        case .closing(asleep: true): return receiveSleep(of: member, on: link, &turn)
        case .joinRequest, .welcome, .joinError, .deletionReceipt, .invitation, .relayRequest, .relayAnswer:
            droppedCount += 1
            return []
        case .punch(let message):
            guard members[member]!.link.isRelayed(link) else { return [] }
            return perform(members[member]!.punching.receive(message, now: turn.now), with: member, turn)
        case .receipt(let receipt): return receiveReceipt(receipt, from: member, turn)
        case .attachmentRequest(let id, let first, let count):
            return receiveRequest(id, first: first, count: count, from: member, on: link, turn)
        case .attachmentChunk(let chunk): return receiveChunk(chunk, from: member, on: link, turn)
        case .attachmentGone(let id): return receiveGone(id, from: member, turn)
        }
    }

    /// What one frame brings is answered by one acknowledgement.
    private mutating func receive(
        _ contents: [AgedContent],
        from member: PublicKey,
        on link: LinkID,
        memoryAvailable: Int,
        _ turn: Turn
    ) -> [NodeAction] {
        guard contents.count <= Limits.contentsCount, members[member]!.isEstablished else {
            droppedCount += contents.count
            return noteIdle(contents.count - 1, of: member, on: link, turn)
        }
        let heldBefore = heldByteCount
        var batch = ReceivedBatch(link: link, memoryAvailable: memoryAvailable)
        var result: [NodeAction] = []
        var idleCount = 0
        for aged in contents {
            batch.memoryAvailable = memoryAvailable - (heldByteCount - heldBefore)
            let actions = receive(aged, from: member, &batch, turn)
            if actions.isIdle(on: link) { idleCount += 1 }
            if actions.contains(where: { if case .keep = $0 { true } else { false } }) {
                batch.kept.append(aged.content.id)
            }
            result += actions
        }
        // The caller counts a frame without any effect once.
        if result.isIdle(on: link) { idleCount -= 1 }
        if !batch.said.isEmpty { result.append(.transmit(link, .acknowledgement(batch.said))) }
        return result + noteIdle(idleCount, of: member, on: link, turn)
    }

    /// Parts of a frame that change nothing count like frames of their own: to put many into one makes none of them
    /// cheaper for its sender.
    private mutating func noteIdle(
        _ count: Int,
        of member: PublicKey,
        on link: LinkID,
        _ turn: Turn
    ) -> [NodeAction] {
        var pause: Milliseconds?
        for _ in 0..<max(0, count) { pause = members[member]?.idleFrames.note(now: turn.now) ?? pause }
        return pause.map { [.pauseReading(link, $0)] } ?? []
    }

    /// - Returns: what it comes to, without its acknowledgement, which goes into `batch`.
    private mutating func receive(
        _ aged: AgedContent,
        from member: PublicKey,
        _ batch: inout ReceivedBatch,
        _ turn: Turn
    ) -> [NodeAction] {
        let (content, age, link) = (aged.content, aged.age, batch.link)
        let id = content.id
        // Another member's name on it would keep that member's message out. The archive does not know yet what came
        // before it in the same frame.
        guard id.belongs(to: member, in: conversation), !batch.kept.contains(id) else {
            droppedCount += 1
            return []
        }
        if let named = content.agreement, named == agreement?.id { confirmAgreement(by: member) }
        if turn.isKnown(client, id) { return receiveAgain(content, from: member, &batch, turn) }
        // Section 6, point 7: no two clocks are compared; the age counts by the sender's clock, the rest by ours.
        let terms = content.agreement.flatMap { lifetimeMachine?.storable(under: $0, age: age, now: turn.now) }
        let retention = terms.flatMap {
            Retention.received(content.kind, under: $0, age: age, cap: capNow(turn), now: turn.now)
        }
        // Without an agreement that we hold: in memory, and no longer than its sender keeps it.
        var expiresAt =
            retention?.expiresAt
            ?? content.lifetime.milliseconds.map { turn.now + ($0 - min(max(age, 0), $0)) }
        if let expiresAt, expiresAt <= turn.now { return answerExpired(id, of: member, &batch, turn) }
        var onReading = retention?.onReading
        if case .reaction(let reaction) = content.body {
            // It goes with what it is at, and nobody opens it.
            expiresAt = end(of: reaction, expiresAt, batch, turn)
            onReading = nil
        }
        let message = Message(
            content: content,
            sender: member,
            state: .received,
            expiresAt: expiresAt,
            onReading: onReading
        )
        let keeping = keeping(retention, turn)
        let isStored = if case .disk = keeping { true } else { false }
        // Beyond the bound nothing is acknowledged, so the sender keeps it.
        let fits =
            isStored
            ? turn.hasRoom(client)
            : heldByteCount + message.byteCount <= Limits.memoryByteCount && message.byteCount <= batch.memoryAvailable
        guard fits else {
            droppedCount += 1
            return []
        }
        if let attachment = content.attachment {
            let actions = receiveAttachment(attachment, message, keeping, on: link, turn)
            let isKept = actions.contains { if case .keep = $0 { true } else { false } }
            if isKept, !isStored { heldByteCount += message.byteCount }
            return actions
        }
        if !isStored { heldByteCount += message.byteCount }
        if let expiresAt { batch.ends[id] = expiresAt }
        switch keeping {
        case .memory: batch.said.held.append(id)
        case .disk: batch.said.stored.append(id)
        // A process may end before the unlock: its sender keeps it until it is on the disk.
        case .untilUnlocked: break
        }
        return [.keep(client, message, keeping), event(.message(id), turn)]
    }

    /// A content that is past its time: its sender is told that it was not shown, unless it was. Watchers are told once.
    private mutating func answerExpired(
        _ id: MessageID,
        of member: PublicKey,
        _ batch: inout ReceivedBatch,
        _ turn: Turn
    ) -> [NodeAction] {
        if turn.contents.wasShown(client, id) {
            batch.said.held.append(id)
            return []
        }
        if expiredOnArrival.count >= Limits.expiredOnArrivalCount { expiredOnArrival = [] }
        batch.said.expired.append(id)
        guard expiredOnArrival.insert(id).inserted else { return [] }
        // It takes no room, so nothing else limits how many come.
        let pause = members[member]?.idleFrames.note(now: turn.now).map { NodeAction.pauseReading(batch.link, $0) }
        return [event(.messageExpired(id), turn)] + (pause.map { [$0] } ?? [])
    }

    /// What a member says of many messages of ours. Each that is no longer waited for counts as a frame that changes
    /// nothing, so a batch of them is no cheaper for its sender than single ones.
    private mutating func receive(
        _ said: Acknowledgement,
        from member: PublicKey,
        on link: LinkID,
        _ turn: inout Turn
    ) -> [NodeAction] {
        guard said.count <= Limits.acknowledgementCount else {
            droppedCount += 1
            return []
        }
        var result: [NodeAction] = []
        var idleCount = 0
        for id in said.stored {
            if unconfirmed.contains(id) { confirmAgreement(by: member) }
            let actions = acknowledged(id, by: member, stored: true, turn)
            if actions.isEmpty { idleCount += 1 } else { result += actions }
        }
        for id in said.held {
            let actions = acknowledged(id, by: member, stored: false, turn)
            if actions.isEmpty { idleCount += 1 } else { result += actions }
        }
        for id in said.expired {
            let actions = missed(id, by: member, turn)
            if actions.isEmpty { idleCount += 1 } else { result += actions }
        }
        // The caller counts a frame without any effect once.
        if result.isEmpty { idleCount -= 1 } else { result += flush(member, &turn) }
        return result + noteIdle(idleCount, of: member, on: link, turn)
    }

    private mutating func acknowledged(
        _ id: MessageID,
        by member: PublicKey,
        stored: Bool,
        _ turn: Turn
    ) -> [NodeAction] {
        guard members[member]!.outbox.acknowledge(id) else { return [] }
        members[member]!.serving.remove(id)
        return delivered(id, to: member, stored: stored, turn)
    }

    /// Contents that waited in memory are on the disk now: their senders need not keep them any more. One without a link
    /// sends again, and is answered then.
    mutating func stored(_ contents: [StoredContent], _ turn: Turn) -> [NodeAction] {
        var result: [NodeAction] = []
        for sender in Set(contents.map(\.sender)).sorted() {
            if members[sender]?.isEstablished == true, let link = link(to: sender) {
                let ids = contents.lazy.filter { $0.sender == sender }.map(\.id)
                var said = Acknowledgement()
                for id in ids where !said.merge(Acknowledgement(stored: [id])) {
                    result.append(.transmit(link, .acknowledgement(said)))
                    said = Acknowledgement(stored: [id])
                }
                result.append(.transmit(link, .acknowledgement(said)))
            }
            result += flushReadReceipts(to: sender, turn)
        }
        return result
    }

    /// The user has seen what is in memory, or it is on the disk now: it no longer counts against the bound.
    /// - Parameter byteCount: `nil` for all of it.
    package mutating func releaseMemory(byteCount: Int? = nil) {
        heldByteCount = byteCount.map { max(0, heldByteCount - $0) } ?? 0
    }
}

/// What the contents of one frame have come to so far.
struct ReceivedBatch {
    let link: LinkID
    /// What all inboxes may still hold in memory, in bytes.
    var memoryAvailable: Int
    /// The answer to all of them.
    var said = Acknowledgement()
    /// Those that the archive is told of behind this frame.
    var kept: [MessageID] = []
    /// When they end.
    var ends: [MessageID: Timestamp] = [:]

    init(link: LinkID, memoryAvailable: Int) {
        self.link = link
        self.memoryAvailable = memoryAvailable
    }

    mutating func acknowledge(_ message: MessageID, isStored: Bool) {
        if isStored { said.stored.append(message) } else { said.held.append(message) }
    }
}

/// A content of a member that waited in memory and is on the disk now.
package struct StoredContent: Hashable, Sendable {
    package let id: MessageID
    package let sender: PublicKey

    package init(id: MessageID, sender: PublicKey) {
        self.id = id
        self.sender = sender
    }
}
