import Crypto

extension NodeStateMachine {
    /// A sealed notice that came without a handshake.
    /// - Parameter isAnswer: the notice answers our question; otherwise it is a knock, to be answered with our receipt.
    /// - Returns: the actions, and the sealed receipt to answer with.
    package func receiveNotice(_ sealed: [UInt8], for client: ClientID, isAnswer: Bool = false, _ turn: inout Turn) -> (
        actions: [NodeAction], answer: [UInt8]?
    ) {
        guard let knocked = inboxes[client], let own = knocked.ownKey, let listing = knocked.listing else {
            return ([], nil)
        }
        // The latest copy knows the members to be notified.
        let latest = inboxes.directory.copies(of: listing.conversation).last { $0.conversation != nil }
        let actions = withConversation(latest) { $0.receiveExplosion(sealed, isAnswer ? .answer : .knock, &turn) }
        for case .explode in actions {
            let settled = settle(actions, &turn)
            return (settled, explosions[listing.conversation]?.record.answer(toNoticeFor: own, &turn.random))
        }
        return (settle(actions, &turn), nil)
    }

    /// A member that was removed and has joined again has several copies, known to the creator by different keys. All
    /// are destroyed together, and each key signs a receipt.
    /// - Returns: the copies, including those that the creator has forgotten.
    @discardableResult func addEarlierCopies(
        to record: inout ExplosionRecord, than client: ClientID, _ turn: inout Turn
    ) -> [InboxEntry] {
        let copies = inboxes.directory.copies(of: record.conversation).filter { $0.client != client }
        guard !copies.isEmpty else { return [] }
        // A tombstone must fit into one page.
        let limit =
            record.members.count <= Limits.memberCount - Limits.departedCount
            ? Limits.departedCount : Limits.departedCount / 2
        let remembered = copies.inOrderOfCreation().suffix(limit)
        record.earlierCopies = remembered.compactMap { copy in
            receipt(of: copy, at: record.explodedAt, &turn).map { .init(receipt: $0, client: copy.client) }
        }
        return copies
    }

    private func receipt(of copy: InboxEntry, at time: Timestamp, _ turn: inout Turn) -> DeletionReceipt? {
        if let running = copy.conversation { return running.machine.receipt(at: time, &turn) }
        guard let asleep = copy.asleep, let key = turn.sleeperKey(copy.client) else {
            return copy.asleep?.lockedReceipt
        }
        return DeletionReceipt(conversation: asleep.summary.conversation, destroyedAt: time, key: key, &turn.random)
    }

    package func receiveReceipt(_ sealed: [UInt8], for conversation: ConversationID, _ turn: inout Turn) -> [NodeAction]
    {
        guard let receipt = DeletionReceipt(opening: sealed, conversation: conversation) else { return [] }
        return confirm(receipt, turn)
    }

    func receive(_ receipt: DeletionReceipt, on link: LinkID, _ turn: inout Turn) -> [NodeAction] {
        // Receipts of earlier copies precede the receipt of the link's own copy, which closes the link.
        let end: [NodeAction] = links[link]?.remote == receipt.member ? [.close(link)] : []
        guard explosions[receipt.conversation] == nil, let inbox = links[link]?.inbox, inbox.conversation != nil else {
            return confirm(receipt, turn) + end
        }
        return withConversation(inbox) { $0.receiveEarly(receipt, &turn) } + end
    }

    /// The creator's statement to a late joiner, which answers our question.
    package func receive(_ statement: ExpiredStatement, for client: ClientID, _ turn: inout Turn) -> [NodeAction] {
        guard let inbox = inboxes[client], case .joining(let running) = inbox.role else { return [] }
        let outcome = running.machine.receive(statement)
        inboxes.reindex(inbox)
        return finish(outcome, of: running.machine, in: inbox, &turn)
    }

    /// Runs due explosions before all other work: the store destroys their keys at the same moment.
    package func explodeDue(_ turn: inout Turn) -> [NodeAction] {
        let due = inboxes.due(until: turn.now).filter { inbox in
            inbox.conversation?.machine.record.schedule.map { $0.expiresAt <= turn.now } ?? false
        }
        return due.inOrderOfClient().flatMap { advance($0, &turn) }
    }

    func confirm(_ receipt: DeletionReceipt, _ turn: Turn) -> [NodeAction] {
        guard explosions[receipt.conversation]?.record.receive(receipt) == true else { return [] }
        let event = Event(
            client: explosions[receipt.conversation]?.client, conversation: receipt.conversation, at: turn.now,
            kind: .deletionReceipt(receipt.member))
        return [.saveTombstone(receipt.conversation), .notify(event)]
    }

    /// The shell has derived the secrets with which late members and joiners knock.
    package func set(_ knocks: ExplosionRecord.KnockSecrets, name: String?, for conversation: ConversationID) {
        explosions[conversation]?.record.set(knocks, name: name)
    }

    // MARK: The lock of the storage, which wipes the keys of all inboxes

    /// Call before the storage is locked and the keys are wiped.
    package func prepareForLock(_ turn: inout Turn) {
        _ = withConversations {
            $0.prepareForLock(&turn)
            return []
        }
        for entry in inboxes.sleeping.filter(isOneOfSeveral).inOrderOfClient() {
            guard var inbox = entry.asleep else { continue }
            inbox.lockedReceipt = receipt(of: entry, at: turn.now, &turn)
            inboxes.set(entry, to: .sleeping(inbox))
        }
    }

    private func isOneOfSeveral(_ entry: InboxEntry) -> Bool {
        entry.listing.map { inboxes.directory.copies(of: $0.conversation).count > 1 } ?? false
    }

    /// Call when the keys are there again: signs what is pending and dials members without a link.
    package func unlocked(_ turn: inout Turn) -> [NodeAction] {
        for entry in inboxes.sleeping.filter(isOneOfSeveral).inOrderOfClient() {
            guard var inbox = entry.asleep else { continue }
            inbox.lockedReceipt = nil
            inboxes.set(entry, to: .sleeping(inbox))
        }
        let result = inboxes.awake.inOrderOfCreation().flatMap { inbox in
            settle(withConversation(inbox) { $0.unlocked(&turn) }, &turn)
        }
        return result + withConversations { $0.linksUnlocked(&turn) } + withContact(&turn) { $0.linksUnlocked(&$1) }
    }
}
