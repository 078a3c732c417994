import Crypto

/// Explosions: notices and receipts, over a link or without one.
extension NodeStateMachine {
    /// A sealed notice that came without a handshake.
    /// - Parameter isAnswer: to our own question; otherwise by a knock, whose answer is our receipt.
    /// - Returns: what to do, and the sealed receipt to answer with.
    package func receiveNotice(
        _ sealed: [UInt8],
        for client: ClientID,
        isAnswer: Bool = false,
        _ turn: inout Turn
    ) -> (actions: [NodeAction], answer: [UInt8]?) {
        let actions = withConversation(inboxes[client]) {
            $0.receiveExplosion(sealed, isAnswer ? .answer : .knock, &turn)
        }
        for case .explode(_, let record, _) in actions { return (settle(actions, &turn), record.receipt) }
        return (actions, nil)
    }

    /// A sealed receipt that came back for a knock.
    package func receiveReceipt(
        _ sealed: [UInt8],
        for conversation: ConversationID,
        _ turn: inout Turn
    ) -> [NodeAction] {
        guard let receipt = DeletionReceipt(opening: sealed, conversation: conversation) else { return [] }
        return confirm(receipt, turn)
    }

    func receive(_ receipt: DeletionReceipt, on link: LinkID, _ turn: inout Turn) -> [NodeAction] {
        guard explosions[receipt.conversation] == nil, let inbox = links[link]?.inbox, inbox.conversation != nil else {
            return confirm(receipt, turn) + [.close(link)]
        }
        return withConversation(inbox) { $0.receiveEarly(receipt, &turn) } + [.close(link)]
    }

    /// The creator's word to a late joiner, as the answer to our question.
    package func receive(
        _ statement: ExpiredStatement,
        for client: ClientID,
        _ turn: inout Turn
    ) -> [NodeAction] {
        guard let inbox = inboxes[client], case .joining(let running) = inbox.role else { return [] }
        let outcome = running.machine.receive(statement)
        inboxes.reindex(inbox)
        return finish(outcome, of: running.machine, in: inbox, &turn)
    }

    /// The explosions whose time has come, before anything else that time brings: the store destroys their keys at the
    /// same moment.
    package func explodeDue(_ turn: inout Turn) -> [NodeAction] {
        let due = inboxes.due(until: turn.now).filter { inbox in
            inbox.conversation?.machine.record.schedule.map { $0.expiresAt <= turn.now } ?? false
        }
        return due.inOrderOfClient().flatMap { advance($0, &turn) }
    }

    func confirm(_ receipt: DeletionReceipt, _ turn: Turn) -> [NodeAction] {
        guard explosions[receipt.conversation]?.machine.receive(receipt) == true else { return [] }
        let event = Event(
            client: explosions[receipt.conversation]?.client,
            conversation: receipt.conversation,
            at: turn.now,
            kind: .deletionReceipt(receipt.member)
        )
        return [.saveTombstone(receipt.conversation), .notify(event)]
    }

    /// The shell has derived the secrets by which late members and joiners knock.
    package func setKnocks(
        members: [PublicKey: [UInt8]],
        invites: [[UInt8]],
        for conversation: ConversationID
    ) {
        explosions[conversation]?.machine.setKnocks(members: members, invites: invites)
    }

    // MARK: The lock of the storage, with which the keys of all inboxes go

    /// Before the storage is locked and the keys of all inboxes are wiped.
    package func prepareForLock(_ turn: inout Turn) {
        _ = withConversations {
            $0.prepareForLock(&turn)
            return []
        }
    }

    /// After the keys are there again: what had to be signed is, and whoever has no link is dialled.
    package func unlocked(_ turn: inout Turn) -> [NodeAction] {
        let result = inboxes.awake.inOrderOfCreation().flatMap { inbox in
            settle(withConversation(inbox) { $0.unlocked(&turn) }, &turn)
        }
        return result + withConversations { $0.linksUnlocked(&turn) } + withContact(&turn) { $0.linksUnlocked(&$1) }
    }
}
