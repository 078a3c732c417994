import Primitives

/// Explosions: notices and receipts, over a link or without one.
extension NodeStateMachine {
    /// A sealed notice that came without a handshake, or as the answer to our own question.
    /// - Returns: what to do, and the sealed receipt to answer with.
    package mutating func receiveNotice(
        _ sealed: [UInt8],
        for client: ClientID,
        _ turn: inout Turn
    ) -> (actions: [NodeAction], answer: [UInt8]?) {
        guard case .conversation? = inboxes[client], case .conversation(var machine)? = take(client) else {
            return ([], nil)
        }
        let actions = machine.receiveExplosion(sealed, on: nil, &turn)
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
        confirm(receipt, turn) + [.close(link)]
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

    /// The shell has derived the tokens by which late members knock.
    package mutating func setKnockTokens(_ tokens: [[UInt8]], for conversation: ConversationID) {
        explosions[conversation]?.machine.setKnockTokens(tokens)
    }
}
