import Messaging
import NIOCore
import Primitives
import Store
import Wire

/// Replies, reactions, foreign types and files, as the user asks for them.
extension Node {
    package typealias Sent = (client: ClientID, EventLoopFuture<Messaging.MessageID>)

    /// Sends what `body` makes. What the disk refuses is taken back: see ``takeBack(_:_:_:)``.
    func sending(
        _ conversation: String,
        _ body: (inout ConversationStateMachine, inout Turn) throws(CommandError) -> (
            message: Message, actions: [NodeAction]
        )
    ) throws(NodeError) -> Sent {
        let client = try resolve(conversation)
        try wake(client, .userInteraction)
        return try sending(client, body)
    }

    func sending(
        _ client: ClientID,
        _ body: (inout ConversationStateMachine, inout Turn) throws(CommandError) -> (
            message: Message, actions: [NodeAction]
        )
    ) throws(NodeError) -> Sent {
        var made: Messaging.MessageID?
        do throws(NodeError) {
            let id = try request { turn throws(CommandError) in
                try core.command(client, &turn) { machine, turn throws(CommandError) in
                    let (message, actions) = try body(&machine, &turn)
                    made = message.content.id
                    return (message.content.id, actions)
                }
            }
            return (
                client,
                whenDurable(client).map { id }.flatMapError { error in
                    self.assumeIsolated { $0.takeBack(id, client, error) }
                }
            )
        } catch {
            guard case .store = error, let made else { throw error }
            return (client, takeBack(made, client, error))
        }
    }

    /// A message that could not be made durable: part of it may be on the disk all the same, and would be sent when there
    /// is room again, although its user was told that it failed. It is overwritten where it is, which needs no room.
    /// - Returns: a future that fails with `error` when nothing of the message is left; with the message's id when even
    ///   that failed: then it is queued.
    private func takeBack(
        _ id: Messaging.MessageID,
        _ client: ClientID,
        _ error: any Error
    ) -> EventLoopFuture<Messaging.MessageID> {
        let promise = loop.makePromise(of: Messaging.MessageID.self)
        // Behind the inbox's return to what is durable.
        loop.assumeIsolated().execute {
            self.assumeIsolated { node in
                guard let inbox = node.inboxes[client], inbox.archive.contains(id) else { return promise.fail(error) }
                do throws(StoreError) { try inbox.archive.erase([id]) } catch {
                    return promise.succeed(id)
                }
                node.turn { turn in
                    // Only its names: what is left of it must not be written anew.
                    _ = try? node.core.command(client, &turn) { machine, turn throws(CommandError) in
                        _ = try machine.cancel(id, &turn)
                        return ((), [])
                    }
                    return []
                }
                node.changed(client)
                node.whenCommitted().whenComplete { _ in
                    self.assumeIsolated { node in
                        let isLeft = node.inboxes[client]?.archive.contains(id) ?? false
                        if isLeft { promise.succeed(id) } else { promise.fail(error) }
                    }
                }
            }
        }
        return promise.futureResult
    }

    /// The message that a user means.
    /// - Parameter text: its id or the beginning of it.
    /// - Throws: ``NodeError/unknownMessage(_:)``, ``NodeError/ambiguous(_:matches:)``.
    package func resolveMessage(_ text: String, in conversation: String) throws(NodeError)
        -> (client: ClientID, id: Messaging.MessageID)
    {
        let machine = try self.conversation(conversation)
        guard let inbox = inboxes[machine.client], !text.isEmpty,
            let id = try messageID(text, inbox), message(id, client: machine.client) != nil
        else { throw .unknownMessage(text) }
        return (machine.client, id)
    }

    /// Answers a message.
    /// - Parameter replyTo: the beginning of its id.
    package func reply(_ conversation: String, text: String, to replyTo: String) throws(NodeError) -> Sent {
        let (_, target) = try resolveMessage(replyTo, in: conversation)
        return try sending(conversation) { machine, turn throws(CommandError) in
            try machine.reply(text, to: target, &turn)
        }
    }

    /// Puts a sign at a message, or takes it back.
    package func react(
        _ conversation: String,
        to message: String,
        emoji: String,
        isRemoved: Bool
    ) throws(NodeError) -> Sent {
        let (_, target) = try resolveMessage(message, in: conversation)
        return try sending(conversation) { machine, turn throws(CommandError) in
            try machine.react(emoji, to: target, isRemoved: isRemoved, &turn)
        }
    }

    /// Sends a content of any type of another authority.
    package func send(
        _ conversation: String,
        type: ContentType,
        payload: [UInt8],
        fallback: String
    ) throws(NodeError) -> Sent {
        try sending(conversation) { machine, turn throws(CommandError) in
            try machine.send(type, payload: payload, fallback: fallback, &turn)
        }
    }

    // MARK: What is shown at a message

    /// Who stands by which sign; `nil` for ourselves.
    package func reactions(to message: Messaging.MessageID, client: ClientID) -> [(sender: PublicKey?, emoji: String)] {
        inboxes[client]?.archive.reactions(to: message, clock: readClock()) ?? []
    }

    /// How many chunks of a file are here.
    package func progress(of message: Message, client: ClientID) -> (count: Int, of: Int)? {
        guard let attachment = message.content.attachment else { return nil }
        let total = attachment.chunkCount
        switch message.state {
        case .receiving:
            if let known = core.conversation(client)?.progress(of: message.content.id) { return known }
            // Not asked for since the start of the node.
            let count = (0..<total).count {
                inboxes[client]?.archive.hasChunk($0, of: message.content.id) ?? false
            }
            return (count, total)
        case .failed: return (0, total)
        case .queued, .sent, .delivered, .expiredUndelivered, .cancelled, .received, .read: return (total, total)
        }
    }

    // MARK: Read receipts

    /// The user has seen these.
    package func markRead(_ messages: [ReadMessage], client: ClientID) {
        guard let machine = core.conversation(client),
            machine.record.sendsReadReceipts ?? configuration.readReceipts ?? false
        else { return }
        let seen = messages.compactMap { read in
            read.message.sender.map { (id: read.message.content.id, sender: $0) }
        }
        guard !seen.isEmpty else { return }
        turn { core.markRead(seen, client: client, &$0) }
    }

    /// Whether others are told what we have read.
    package func sendsReadReceipts(_ conversation: String) throws(NodeError) -> Bool {
        try self.conversation(conversation).record.sendsReadReceipts ?? sendsReadReceiptsByDefault
    }

    package var sendsReadReceiptsByDefault: Bool { configuration.readReceipts ?? false }

    package func setReadReceipts(_ conversation: String, _ isOn: Bool) throws(NodeError) {
        _ = try command(conversation) { machine, _ in ((), machine.setReadReceipts(isOn)) }
    }

    /// For conversations that have no setting of their own; saved in `config.json`.
    package func setDefaultReadReceipts(_ isOn: Bool) throws(NodeError) {
        try configure { $0.readReceipts = isOn }
    }
}
