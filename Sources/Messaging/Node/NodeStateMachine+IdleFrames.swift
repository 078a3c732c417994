/// Frames that change nothing, of those who are no members.
extension NodeStateMachine {
    /// Counts a frame, if it is one of these, and if nobody else does.
    /// - Parameter actions: what it has come to.
    /// - Returns: how long its link is to be left unread; `nil` for not at all.
    mutating func haste(_ frame: Frame, _ actions: [NodeAction], on link: LinkID, now: Timestamp) -> Milliseconds? {
        guard actions.isIdle(on: link) else { return nil }
        // Its inbox has gone, or to sleep, and what was on its way is read to its end.
        guard let open = links[link] else { return idleFrames.note(now: now) }
        switch (inboxes[open.client], frame) {
        // The relay service counts what is small.
        case (.contact(let machine), .relayRequest(.stream)): if machine.relay.serves(link) { return nil }
        // What is not a member's business is not counted as a member's.
        case (.conversation, .joinRequest), (.conversation, .deletionReceipt): break
        // The conversation counts, over all links of that member.
        case (.conversation(let machine), _): if machine.members[open.remote] != nil { return nil }
        case (nil, _), (.unused, _), (.joining, _), (.contact, _): break
        }
        return [links[link]!.idleFrames.note(now: now), idleFrames.note(now: now)].compactMap { $0 }.max()
    }
}
