import Primitives

/// Explosions: notices and receipts, over a link or without one.
extension NodeStateMachine {
    /// A sealed notice that came without a handshake.
    /// - Parameter isAnswer: to our own question; otherwise by a knock, whose answer is our receipt.
    /// - Returns: what to do, and the sealed receipt to answer with.
    package mutating func receiveNotice(
        _ sealed: [UInt8],
        for client: ClientID,
        isAnswer: Bool = false,
        _ turn: inout Turn
    ) -> (actions: [NodeAction], answer: [UInt8]?) {
        guard case .conversation? = inboxes[client], case .conversation(var machine)? = take(client) else {
            return ([], nil)
        }
        let actions = machine.receiveExplosion(sealed, isAnswer ? .answer : .knock, &turn)
        inboxes[client] = .conversation(machine)
        for case .explode(_, let record, _) in actions { return (settle(actions, &turn), record.receipt) }
        return (actions, nil)
    }

    /// A sealed receipt that came back for a knock.
    package mutating func receiveReceipt(
        _ sealed: [UInt8],
        for conversation: ConversationID,
        _ turn: inout Turn
    ) -> [NodeAction] {
        guard let receipt = DeletionReceipt(opening: sealed, conversation: conversation) else { return [] }
        return confirm(receipt, turn)
    }

    mutating func receive(_ receipt: DeletionReceipt, on link: LinkID, _ turn: inout Turn) -> [NodeAction] {
        guard explosions[receipt.conversation] == nil, let client = links[link]?.client,
            case .conversation? = inboxes[client], case .conversation(var machine)? = take(client)
        else { return confirm(receipt, turn) + [.close(link)] }
        let actions = machine.receiveEarly(receipt, &turn)
        inboxes[client] = .conversation(machine)
        return actions + [.close(link)]
    }

    /// The creator's word to a late joiner, as the answer to our question.
    package mutating func receive(
        _ statement: ExpiredStatement,
        for client: ClientID,
        _ turn: inout Turn
    ) -> [NodeAction] {
        guard case .joining? = inboxes[client], case .joining(var machine)? = take(client) else { return [] }
        let outcome = machine.receive(statement)
        inboxes[client] = .joining(machine)
        return finish(outcome, client: client, key: machine.key, tag: machine.record.invite.tag, &turn)
    }

    /// The explosions whose time has come, before anything else that time brings: the store destroys their keys at the
    /// same moment.
    package mutating func explodeDue(_ turn: inout Turn) -> [NodeAction] {
        var result: [NodeAction] = []
        let due = inboxes.keys.filter { client in
            guard case .conversation(let machine)? = inboxes[client] else { return false }
            return machine.record.schedule.map { $0.expiresAt <= turn.now } ?? false
        }
        for client in due.sorted() { result += advance(client, &turn) }
        return result
    }

    mutating func confirm(_ receipt: DeletionReceipt, _ turn: Turn) -> [NodeAction] {
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
    package mutating func setKnocks(
        members: [PublicKey: [UInt8]],
        invites: [[UInt8]],
        for conversation: ConversationID
    ) {
        explosions[conversation]?.machine.setKnocks(members: members, invites: invites)
    }
}
