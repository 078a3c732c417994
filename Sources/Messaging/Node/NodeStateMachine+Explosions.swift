import Cryptography

extension NodeStateMachine {
    /// A sealed notice that came without a handshake.
    /// - Parameter isAnswer: the notice answers our question; otherwise it is a knock, to be answered with our receipt.
    /// - Returns: the sealed receipt to answer with.
    @discardableResult package func receiveNotice(
        _ sealed: [UInt8], for client: ClientID, isAnswer: Bool = false, _ turn: inout Turn
    ) -> [UInt8]? {
        guard let knocked = inboxes[client], let own = knocked.ownKey, let listing = knocked.listing else { return nil }
        // The latest copy knows the members to be notified.
        let latest = inboxes.directory.copies(of: listing.conversation).last { $0.conversation != nil }
        let mark = turn.mark
        step(latest, &turn) { $0.receiveExplosion(sealed, isAnswer ? .answer : .knock, &$1) }
        guard turn.actions[mark...].contains(where: \.isExplosion) else { return nil }
        return explosions[listing.conversation]?.record.answer(toNoticeFor: own, &turn.random)
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
        if let conversation = copy.conversation { return conversation.receipt(at: time, &turn) }
        guard let asleep = copy.asleep, let key = turn.node.sleeperKey(copy.client) else {
            return copy.asleep?.lockedReceipt
        }
        return DeletionReceipt(conversation: asleep.summary.conversation, destroyedAt: time, key: key, &turn.random)
    }

    package func receiveReceipt(_ sealed: [UInt8], for conversation: ConversationID, _ turn: inout Turn) {
        if let receipt = DeletionReceipt(opening: sealed, conversation: conversation) { confirm(receipt, &turn) }
    }

    func receive(_ receipt: DeletionReceipt, on link: LinkID, _ turn: inout Turn) {
        let open = links[link]
        if explosions[receipt.conversation] == nil, let inbox = open?.inbox, inbox.conversation != nil {
            step(inbox, &turn) { $0.receiveEarly(receipt, &$1) }
        } else {
            confirm(receipt, &turn)
        }
        // Receipts of earlier copies precede the receipt of the link's own copy, which closes the link.
        if open?.remote == receipt.member { turn.close(link) }
    }

    /// The creator's statement to a late joiner, which answers our question.
    package func receive(_ statement: ExpiredStatement, for client: ClientID, _ turn: inout Turn) {
        guard let inbox = inboxes[client], case .joining(let running) = inbox.role else { return }
        let outcome = running.machine.receive(statement)
        inboxes.reindex(inbox)
        finish(outcome, of: running.machine, in: inbox, &turn)
    }

    /// Runs due explosions before all other work: the store destroys their keys at the same moment.
    package func explodeDue(_ turn: inout Turn) {
        let due = inboxes.due(until: turn.now).filter { inbox in
            inbox.conversation?.record.schedule.map { $0.expiresAt <= turn.now } ?? false
        }
        for inbox in due.inOrderOfClient() { advance(inbox, &turn) }
    }

    private func confirm(_ receipt: DeletionReceipt, _ turn: inout Turn) {
        guard explosions[receipt.conversation]?.record.receive(receipt) == true else { return }
        turn.add(.saveTombstone(receipt.conversation))
        let client = explosions[receipt.conversation]?.client
        turn.tell(.deletionReceipt(receipt.member), client, receipt.conversation)
    }

    /// The shell has derived the secrets with which late members and joiners knock.
    package func set(_ knocks: ExplosionRecord.KnockSecrets, name: String?, for conversation: ConversationID) {
        explosions[conversation]?.record.set(knocks, name: name)
    }

    /// Call before the storage is locked and the keys are wiped.
    package func prepareForLock(_ turn: inout Turn) {
        stepAll(&turn) { $0.prepareForLock(&$1) }
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
    package func unlocked(_ turn: inout Turn) {
        for entry in inboxes.sleeping.filter(isOneOfSeveral).inOrderOfClient() {
            guard var inbox = entry.asleep else { continue }
            inbox.lockedReceipt = nil
            inboxes.set(entry, to: .sleeping(inbox))
        }
        stepAll(&turn) { $0.unlocked(&$1) }
        stepAll(&turn) { $0.linksUnlocked(&$1) }
        withContact(&turn) { $0.linksUnlocked(&$1) }
    }
}
