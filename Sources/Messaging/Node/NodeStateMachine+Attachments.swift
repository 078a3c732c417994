import Primitives

/// Files: what the shell tells the core about them.
extension NodeStateMachine {
    /// A link with chunks to send takes more.
    /// - Returns: nothing when no chunk waits for it.
    package mutating func chunksMayGo(on link: LinkID, _ turn: inout Turn) -> [NodeAction] {
        guard let open = links[link] else { return [] }
        return withConversation(open.client) { $0.chunksMayGo(to: open.remote, on: link, turn) }
    }

    /// The answer to ``NodeAction/verifyAttachment(_:_:)``.
    package mutating func attachmentVerified(
        _ message: MessageID,
        client: ClientID,
        isRight: Bool,
        _ turn: inout Turn
    ) -> [NodeAction] {
        withConversation(client) { $0.attachmentVerified(message, isRight, turn) }
    }

    /// The user has seen these messages.
    package mutating func markRead(
        _ seen: [(id: MessageID, sender: PublicKey)],
        client: ClientID,
        _ turn: inout Turn
    ) -> [NodeAction] {
        withConversation(client) { $0.markRead(seen, turn) }
    }

    /// Contents that waited in memory are on the disk now.
    package mutating func stored(_ contents: [StoredContent], client: ClientID, _ turn: inout Turn) -> [NodeAction] {
        withConversation(client) { $0.stored(contents, turn) }
    }

    private mutating func withConversation(
        _ client: ClientID,
        _ body: (inout ConversationStateMachine) -> [NodeAction]
    ) -> [NodeAction] {
        guard case .conversation? = inboxes[client], case .conversation(var machine)? = take(client) else { return [] }
        defer { inboxes[client] = .conversation(machine) }
        return body(&machine)
    }
}
