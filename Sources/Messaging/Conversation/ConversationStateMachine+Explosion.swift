import Primitives

/// The end of the conversation (section 7).
extension ConversationStateMachine {
    /// Ends the conversation for everyone: keys first, then the others are told over the links still open.
    package func explode(_ turn: inout Turn) throws(CommandError) -> [NodeAction] {
        guard isCreator else { throw .notCreator }
        // Those who were removed keep their copy until they are told.
        let told = currentMembers + record.members.filter { record.former.contains($0.key) }
        let notice = ExplodeNotice(genesis: record.genesis, expiresAt: turn.now, key: key, &turn.random)
        let sealed = notice.sealed(&turn.random)
        let tombstone = ExplodeStateMachine.Record(
            conversation: conversation,
            role: .creator,
            explodedAt: turn.now,
            keepUntil: turn.now + Limits.tombstoneLifetime,
            notice: sealed,
            receipt: nil,
            members: told.map(\.key)
        )
        return [.explode(client, tombstone, fanOut: told)]
            + memberKeys.compactMap { link(to: $0) }.map { .transmit($0, .explosion(sealed)) }
            + [event(.exploded, turn)]
    }

    /// The creator's word, over a link or by a knock. Anything else changes nothing.
    package mutating func receiveExplosion(_ sealed: [UInt8], on link: LinkID?, _ turn: inout Turn) -> [NodeAction] {
        guard let notice = ExplodeNotice(opening: sealed, conversation: conversation),
            notice.isValid(for: record.genesis), !isCreator
        else { return link.map { [.close($0)] } ?? [] }
        let receipt = DeletionReceipt(conversation: conversation, destroyedAt: turn.now, key: key, &turn.random)
        let tombstone = ExplodeStateMachine.Record(
            conversation: conversation,
            role: .member,
            explodedAt: turn.now,
            keepUntil: turn.now + Limits.tombstoneLifetime,
            notice: sealed,
            receipt: receipt.sealed(&turn.random),
            members: currentMembers.map(\.key)
        )
        var result: [NodeAction] = [.explode(client, tombstone, fanOut: [])]
        if let link { result.append(.transmit(link, .deletionReceipt(receipt))) }
        result.append(event(.exploded, turn))
        return result
    }
}
