/// Frames that change nothing, of those who are no members.
extension NodeStateMachine {
    /// Counts a frame, if it is one of these, and if nobody else does.
    /// - Parameter actions: what it has come to.
    /// - Returns: whether its link is to be left unread for a moment.
    mutating func isTooFast(_ frame: Frame, _ actions: [NodeAction], on link: LinkID, now: Timestamp) -> Bool {
        guard let open = links[link], actions.isIdle(on: link) else { return false }
        switch (inboxes[open.client], frame) {
        // The relay service counts what is small.
        case (.contact(let machine), .relayRequest(.stream)): if machine.relay.serves(link) { return false }
        // What is not a member's business is not counted as a member's.
        case (.conversation, .joinRequest), (.conversation, .deletionReceipt): break
        // The conversation counts, over all links of that member.
        case (.conversation(let machine), _): if machine.members[open.remote] != nil { return false }
        case (nil, _), (.unused, _), (.joining, _), (.contact, _): break
        }
        return links[link]!.idleFrames.note(now: now)
    }
}
