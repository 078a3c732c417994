import Cryptography
import Messaging
import NIOCore
import Store

/// User requests for replies, reactions, foreign types and files.
extension Node {
    /// A message that was made; only its fixed properties.
    package struct Sent: Sendable {
        package let client: ClientID
        package let message: Messaging.MessageID
        /// Durable, or only in memory.
        package let isStored: Bool
        package let expiresAt: Timestamp?

        /// - Parameter end: the conversation's end, at which the message expires at the latest.
        fileprivate init(_ made: Message, _ client: ClientID, isStored: Bool, endingAt end: Timestamp?) {
            self.client = client
            message = made.content.id
            self.isStored = isStored
            expiresAt = end.map { min($0, made.expiresAt ?? .latest) } ?? made.expiresAt
        }
    }

    /// Called on the loop once all messages of a request are durable, or in memory according to their lifetime.
    /// `refused`: messages that the disk refused, and that were removed.
    package typealias WhenDurable = @Sendable (_ refused: [Messaging.MessageID: any Error]) -> Void

    /// Sends several texts in one turn, each as its own message.
    /// - Returns: the result of each, in order.
    package func send(_ conversation: String, texts: [String], whenDurable: @escaping WhenDurable) throws(NodeError)
        -> [Result<Sent, NodeError>]
    {
        try sending(shell.directory.resolve(conversation), whenDurable) { machine, turn throws(CommandError) in
            machine.send(texts, &turn)
        }
    }

    /// Sends the message of `body`.
    private func sending(
        _ client: ClientID, _ whenDurable: @escaping WhenDurable,
        one body: (Conversation, inout Turn) throws(CommandError) -> Message
    ) throws(NodeError) -> Sent {
        let sent = try sending(client, whenDurable) { machine, turn throws(CommandError) in
            [.success(try body(machine, &turn))]
        }
        return try sent[0].get()
    }

    /// Sends the messages of `body`. Takes back refused ones: see ``takeBack(_:_:_:_:)``.
    private func sending(
        _ client: ClientID, _ whenDurable: @escaping WhenDurable,
        _ body: (Conversation, inout Turn) throws(CommandError) -> [Result<Message, CommandError>]
    ) throws(NodeError) -> [Result<Sent, NodeError>] {
        try shell.sleep.wake(client, .userInteraction)
        var made: [Result<Sent, NodeError>] = []
        do throws(NodeError) {
            try core.request { turn throws(CommandError) in
                try core.machine.command(client, &turn) { machine, turn throws(CommandError) in
                    let messages = try body(machine, &turn)
                    let isStored = turn.actions.contains { if case .keep(_, _, .disk) = $0 { true } else { false } }
                    let end = machine.record.schedule?.expiresAt
                    made = messages.map { message in
                        message.map { Sent($0, client, isStored: isStored, endingAt: end) }.mapError { .command($0) }
                    }
                }
            }
        } catch {
            let ids = made.compactMap { try? $0.get().message }
            guard case .store = error, !ids.isEmpty else { throw error }
            takeBack(ids, client, error, whenDurable)
            return made
        }
        let ids = made.compactMap { try? $0.get().message }
        guard !ids.isEmpty else { return made }
        services.counters.made(count: ids.count)
        shell.commits.sendWhenDurable(
            .run { [unowned self] isDurable in
                assumeIsolated { node in
                    if isDurable { return whenDurable([:]) }
                    node.takeBack(ids, client, node.storage.refusal.map(NodeError.store) ?? .stopping, whenDurable)
                }
            }, for: client)
        return made
    }

    /// Takes back messages that could not be made durable. Parts may be on the disk, and would be sent later although
    /// the user was told of a failure. They are overwritten in place, which needs no room. A message that cannot be
    /// overwritten stays queued and is not reported as refused.
    private func takeBack(
        _ ids: [Messaging.MessageID], _ client: ClientID, _ error: NodeError, _ whenDurable: @escaping WhenDurable
    ) {
        // After the reload of the inbox.
        loop.assumeIsolated().execute {
            self.assumeIsolated { node in
                var refused: [Messaging.MessageID: any Error] = [:]
                var erased: [Messaging.MessageID] = []
                for id in ids {
                    guard let inbox = node.inboxes[client], inbox.archive.contains(id) else {
                        refused[id] = error
                        continue
                    }
                    do throws(StoreError) { try inbox.archive.erase([id]) } catch { continue }
                    erased.append(id)
                    node.core.turn { turn in
                        // By id only: the remaining record must not be written again.
                        _ = turn.apart { turn in
                            try? node.core.machine.command(client, &turn) { machine, turn throws(CommandError) in
                                try machine.cancel(id, &turn)
                            }
                        }
                    }
                }
                guard !erased.isEmpty else { return whenDurable(refused) }
                node.shell.writer.changed(client)
                node.whenCommitted().assumeIsolated().whenComplete { [erased, refused] _ in
                    self.assumeIsolated { node in
                        var refused = refused
                        for id in erased where !(node.inboxes[client]?.archive.contains(id) ?? false) {
                            refused[id] = error
                        }
                        whenDurable(refused)
                    }
                }
            }
        }
    }

    /// The message meant by a user.
    /// - Parameter text: its id or the beginning of it.
    package func resolveMessage(_ text: String, in conversation: String) throws(NodeError) -> (
        client: ClientID, id: Messaging.MessageID
    ) {
        let machine = try shell.directory.conversation(conversation)
        guard let inbox = inboxes[machine.client], !text.isEmpty, let id = try messageID(text, inbox),
            message(id, client: machine.client) != nil
        else { throw .unknownMessage(text) }
        return (machine.client, id)
    }

    package func reply(_ conversation: String, text: String, to replyTo: String, whenDurable: @escaping WhenDurable)
        throws(NodeError) -> Sent
    {
        let (client, target) = try resolveMessage(replyTo, in: conversation)
        return try sending(client, whenDurable) { machine, turn throws(CommandError) in
            try machine.reply(text, to: target, &turn)
        }
    }

    package func react(
        _ conversation: String, to message: String, emoji: String, isRemoved: Bool, whenDurable: @escaping WhenDurable
    ) throws(NodeError) -> Sent {
        let (client, target) = try resolveMessage(message, in: conversation)
        return try sending(client, whenDurable) { machine, turn throws(CommandError) in
            try machine.react(emoji, to: target, isRemoved: isRemoved, &turn)
        }
    }

    /// Sends a content of another authority's type.
    package func send(
        _ conversation: String, type: ContentType, payload: [UInt8], fallback: String,
        whenDurable: @escaping WhenDurable
    ) throws(NodeError) -> Sent {
        try sending(shell.directory.resolve(conversation), whenDurable) { machine, turn throws(CommandError) in
            try machine.send(type, payload: payload, fallback: fallback, &turn)
        }
    }

    package func reactions(to message: Messaging.MessageID, client: ClientID) -> [(sender: PublicKey?, emoji: String)] {
        inboxes[client]?.archive.reactions(to: message, clock: services.readClock()) ?? []
    }

    package func progress(of message: Message, client: ClientID) -> (count: Int, of: Int)? {
        guard let attachment = message.content.attachment else { return nil }
        let total = attachment.chunkCount
        switch message.state {
        case .receiving:
            if let known = core.machine.conversation(client)?.progress(of: message.content.id) { return known }
            // Not requested since the start of the node.
            let count = (0..<total).count { inboxes[client]?.archive.hasChunk($0, of: message.content.id) ?? false }
            return (count, total)
        case .failed: return (0, total)
        case .queued, .sent, .mailed, .delivered, .expiredUndelivered, .cancelled, .received, .read:
            return (total, total)
        }
    }

    package func markRead(_ messages: [ReadMessage], client: ClientID) {
        guard let machine = core.machine.conversation(client),
            machine.record.sendsReadReceipts ?? services.sendsReadReceipts
        else { return }
        let seen = messages.compactMap { read in read.message.sender.map { (id: read.message.content.id, sender: $0) } }
        guard !seen.isEmpty else { return }
        core.turn { core.machine.step(client, &$0) { $0.markRead(seen, &$1) } }
    }

    package var sendsReadReceiptsByDefault: Bool { services.sendsReadReceipts }

    /// The default for conversations without a setting; saved in `config.json`.
    package func setDefaultReadReceipts(_ isOn: Bool) throws(NodeError) {
        try services.configure { $0.readReceipts = isOn }
    }

    /// Starts an upload.
    /// - Parameters:
    ///   - byteCount: the size as far as known; a size above the limit is refused at once.
    ///   - replyTo: the beginning of a message's id.
    package func beginUpload(_ conversation: String, name: String, byteCount: Int64?, text: String, replyTo: String?)
        throws(NodeError) -> UploadID
    {
        guard shell.uploads.count < Limits.uploadCount else {
            throw .failed("\(Limits.uploadCount) uploads are in progress already", "try again when one has ended")
        }
        let target: Messaging.MessageID? =
            if let replyTo { try resolveMessage(replyTo, in: conversation).id } else { nil }
        let byteCount = byteCount ?? 0
        let (client, prepared) = try shell.directory.command(conversation) { machine, turn throws(CommandError) in
            if !text.isEmpty { try machine.check(text) }
            return try machine.prepareAttachment(byteCount: byteCount, &turn)
        }
        return try shell.uploads.begin(
            prepared, client: client, name: name, byteCount: byteCount, text: text, replyTo: target)
    }

    package func append(_ piece: ByteBuffer, to id: UploadID) throws(NodeError) -> EventLoopFuture<Int64> {
        try shell.uploads.append(piece, to: id)
    }

    /// Sends a completely uploaded file.
    /// - Returns: its message; `whenDurable` is called as for other messages.
    package func commitUpload(_ id: UploadID, whenDurable: @escaping WhenDurable = { _ in }) throws(NodeError) -> Sent {
        try shell.uploads.commit(id) { client, attachment, prepared throws(NodeError) in
            try sending(client, whenDurable) { machine, turn throws(CommandError) in
                try machine.send(attachment, prepared, &turn)
            }
        }
    }

    package func client(of upload: UploadID) -> ClientID? { shell.uploads.client(of: upload) }

    package func whenUploadEnds(_ id: UploadID, _ body: @escaping () -> Void) { shell.uploads.whenEnded(id, body) }

    package func cancelUpload(_ id: UploadID) { shell.uploads.cancel(id) }
}

/// A message that one member has not acknowledged.
package struct OutboxItem {
    package var conversation: Conversation
    package var member: PublicKey
    package var entry: OutboxStateMachine.Entry
}

/// A cursor into the outbox's order. The order is stable when entries, conversations or members change, and when
/// inboxes sleep. The text form is for clients that page.
package struct OutboxPlace: Hashable, Sendable, CustomStringConvertible {
    let client: ClientID
    let member: InboxID
    let sentAt: Timestamp
    let message: Messaging.MessageID
}

extension OutboxPlace {
    package var description: String { "\(client).\(member).\(sentAt.milliseconds).\(message)" }

    /// `nil` unless `text` is a cursor's description.
    package init?(_ text: String) {
        let parts = text.split(separator: ".", omittingEmptySubsequences: false)
        guard parts.count == 4, let client = ClientID(hex: parts[0]), let member = InboxID(hex: parts[1]),
            let sentAt = Milliseconds(parts[2]), let message = Messaging.MessageID(hex: parts[3])
        else { return nil }
        self.init(client: client, member: member, sentAt: Timestamp(milliseconds: sentAt), message: message)
    }
}

/// The outbox over all inboxes, read in parts: it may have a hundred thousand messages per member.
final class Outbox: Part {
    func items() throws(NodeError) -> [OutboxItem] {
        try shell.directory.checkUnlocked()
        var items: [OutboxItem] = []
        let asleep = core.machine.sleepers.filter { $0.outboxCount > 0 }.sorted {
            ($0.createdAt, $0.client) < ($1.createdAt, $1.client)
        }
        for conversation in core.machine.conversations + asleep.compactMap({ shell.sleep.peek($0.client) }) {
            for member in conversation.currentMembers {
                items += conversation.outbox(to: member.key).map {
                    OutboxItem(conversation: conversation, member: member.key, entry: $0)
                }
            }
        }
        return items
    }

    /// - Parameter text: the beginning of a message's id.
    func item(_ text: String) throws(NodeError) -> OutboxItem {
        let prefix = text.lowercased()
        let whole = MessageID(hex: prefix)
        let matches = try items().filter { item in
            whole.map { $0 == item.entry.message } ?? item.entry.message.description.hasPrefix(prefix)
        }
        guard let first = matches.first, !text.isEmpty else { throw .unknownMessage(text) }
        guard Set(matches.map(\.entry.message)).count == 1 else {
            throw .ambiguous(text, matches: matches.map(\.entry.message.description))
        }
        return first
    }

    /// Visits waiting messages by inbox and member, in sending order. Wakes no inbox.
    /// - Parameters:
    ///   - only: limits the visit to this inbox.
    ///   - place: start after this cursor.
    ///   - body: called for each entry with its cursor; returns whether to continue.
    /// - Throws: ``NodeError/locked``.
    func visit(of only: ClientID?, after place: OutboxPlace?, _ body: (OutboxItem, OutboxPlace) -> Bool)
        throws(NodeError)
    {
        try shell.directory.checkUnlocked()
        let asleep = core.machine.sleepers.filter { $0.outboxCount > 0 }.map(\.client)
        let clients = (core.machine.conversations.map(\.client) + asleep).sorted()
        for client in clients where (only ?? client) == client && client >= place?.client ?? client {
            guard let conversation = shell.sleep.peek(client) else { continue }
            let reached = place.flatMap { $0.client == client ? $0 : nil }
            let members = conversation.currentMembers.map { (key: $0.key, id: InboxID($0.key)) }
            for member in members.sorted(by: { $0.id < $1.id }) where member.id >= reached?.member ?? member.id {
                let last = reached.flatMap { $0.member == member.id ? $0 : nil }
                let entries = conversation.outbox(to: member.key).sorted { Self.order($0) < Self.order($1) }
                for entry in entries where last.map({ Self.order(entry) > ($0.sentAt, $0.message) }) ?? true {
                    let item = OutboxItem(conversation: conversation, member: member.key, entry: entry)
                    let place = OutboxPlace(
                        client: client, member: member.id, sentAt: entry.sentAt, message: entry.message)
                    guard body(item, place) else { return }
                }
            }
        }
    }

    private static func order(_ entry: OutboxStateMachine.Entry) -> (Timestamp, Messaging.MessageID) {
        (entry.sentAt, entry.message)
    }
}
