import Messaging
import Store

extension Node {
    /// `reactionCount` is an upper bound of the reactions shown.
    package struct ReadMessage {
        package var message: Message
        package var isStored: Bool
        package var reactionCount: Int
    }

    /// A page of messages in order of arrival.
    /// - Parameters:
    ///   - last: the maximum number; the newest are chosen.
    ///   - after: only messages after this one; the beginning of its id is enough.
    ///   - before: only messages before this one, the newest of them; the beginning of its id is enough.
    ///   - isUnread: only messages from the first unread one on.
    ///   - marks: marks them as read.
    ///   - take: called for each message; returns whether it fits on the page. The page ends before the first that does
    /// not fit, but has at least one message. With `last` or `before` the newest message comes first. The default
    /// accepts all and is for tests, since members can fill an inbox.
    package func read(
        _ conversation: String, last: Int?, after: String?, before: String? = nil, isUnread: Bool = false,
        marks: Bool = true, taking take: (ReadMessage, Conversation) -> Bool = { _, _ in true }
    ) throws(NodeError) -> (Conversation, [ReadMessage]) {
        try shell.sleep.wake(try shell.directory.resolve(conversation), .userInteraction)
        let machine = try shell.directory.conversation(conversation)
        let client = machine.client
        guard let inbox = inboxes[client] else { throw .unknownConversation(conversation) }
        func named(_ text: String) throws(NodeError) -> Messaging.MessageID {
            guard let id = try messageID(text, inbox) else { throw .unknownMessage(text) }
            return id
        }
        let (start, end) = (try after.map(named), try before.map(named))
        let now = services.now
        func shown(_ listed: MessageArchive.Listed) -> ReadMessage {
            ReadMessage(
                message: listed.message.opened(at: now) ?? listed.message, isStored: listed.isStored,
                reactionCount: listed.reactionCount)
        }
        let page: MessageArchive.Page?
        do throws(StoreError) {
            page = try inbox.archive.page(
                last: last, after: start, before: end, isUnread: isUnread, marks: marks, now: services.readClock().hide
            ) { take(shown($0), machine) }
        } catch { throw .store(error) }
        guard let page else { throw .unknownMessage(before ?? after ?? "") }
        if page.isAllRead {
            core.machine.releaseMemory(client)
        } else if page.freedByteCount > 0 {
            core.machine.releaseMemory(client, byteCount: page.freedByteCount)
        }
        if marks { opened(page.messages.map(\.message), machine, now: now) }
        return (machine, page.messages.map(shown))
    }

    /// The message meant by a user.
    /// - Parameter text: its id or the beginning of it. `@1` is the newest message, `@2` the one before. `~1` equals
    ///   `@1`, which zsh takes for a directory.
    func messageID(_ text: String, _ inbox: Inbox) throws(NodeError) -> Messaging.MessageID? {
        if let whole = Messaging.MessageID(hex: text) { return whole }
        guard !text.isEmpty else { return nil }
        if text.hasPrefix("@") || text.hasPrefix("~") {
            guard let count = Int(text.dropFirst()), count > 0 else { return nil }
            do throws(StoreError) { return try inbox.archive.id(fromEnd: count, now: services.readClock().hide) } catch
            { throw .store(error) }
        }
        let matches: [Messaging.MessageID]
        do throws(StoreError) {
            matches = try inbox.archive.ids(
                beginningWith: text.lowercased(), limit: ConversationDirectory.shownMatches,
                now: services.readClock().hide)
        } catch { throw .store(error) }
        if matches.count > 1 { throw .ambiguous(text, matches: matches.map(\.description)) }
        return matches.first
    }

    /// The current state of a message; `nil` if it is not readable.
    package func message(_ id: Messaging.MessageID, client: ClientID) -> ReadMessage? {
        if let machine = core.machine.conversation(client), shell.explosions.isOver(machine) { return nil }
        guard let inbox = inboxes[client] else { return nil }
        return inbox.archive.read(id, now: services.readClock().hide).map {
            ReadMessage(
                message: $0.message, isStored: $0.isStored,
                reactionCount: inbox.archive.reactionCount(at: id, now: services.now))
        }
    }

    /// Whether the inbox's stored messages become readable only at the unlock.
    package func isLockedAway(_ client: ClientID) -> Bool {
        store.isLocked && inboxes[client] != nil
            && !(core.machine.conversation(client).map(shell.explosions.isOver) ?? false)
    }

    package func markShown(_ id: Messaging.MessageID, client: ClientID) {
        let byteCount = inboxes[client]?.archive.markShown(id, now: services.readClock().hide) ?? 0
        if byteCount > 0 { core.machine.releaseMemory(client, byteCount: byteCount) }
        if let shown = message(id, client: client), let machine = core.machine.conversation(client) {
            opened([shown.message], machine, now: services.now)
        }
    }

    /// The messages were read, so they no longer expire early as unread ones do.
    private func opened(_ messages: [Message], _ machine: Conversation, now: Timestamp) {
        let actions = machine.markRead(messages, now: now)
        guard !actions.isEmpty else { return }
        core.perform(actions)
        core.schedule()
    }

    package var unreadInMemoryCount: Int { inboxes.all.reduce(0) { $0 + $1.archive.unreadInMemoryCount } }

    /// The number of unread messages, at most ``MessageArchive/unreadLimit``. Wakes no inbox.
    package func unreadCount(_ client: ClientID) -> Int {
        guard let inbox = inboxes[client] else { return 0 }
        guard core.machine.conversation(client) == nil else {
            return inbox.archive.unreadCount(now: services.readClock().hide)
        }
        // A sleeping inbox receives nothing, but its messages may expire.
        if inbox.notes.unreadCount == 0 { return 0 }
        let count = inbox.archive.unreadCount(now: services.readClock().hide)
        store.release(inbox.row)
        return count
    }

    package struct SavedAttachment {
        package var client: ClientID
        package var message: Messaging.MessageID
        package var attachment: Attachment
    }

    /// - Parameter text: the beginning of the message's id.
    package func attachment(_ text: String, in conversation: String) throws(NodeError) -> SavedAttachment {
        let (client, id) = try resolveMessage(text, in: conversation)
        guard let message = message(id, client: client)?.message, let attachment = message.content.attachment else {
            throw .notFound("message `\(text)` has no file", "`mayfly read C` shows the messages with a file")
        }
        switch message.state {
        case .receiving:
            let progress = progress(of: message, client: client) ?? (0, attachment.chunkCount)
            let (short, percent) = (
                id.description.prefix(12), progress.of == 0 ? 0 : progress.count * 100 / progress.of
            )
            throw .failed(
                "the file of message \(short) is still being received: \(percent) %",
                "wait for it: `mayfly watch --until messageState:message=\(short),state=received`")
        case .failed:
            // Our own file is complete even if its transfer failed.
            if message.sender != nil { throw .attachmentLost(id) }
        case .queued, .sent, .mailed, .delivered, .expiredUndelivered, .cancelled, .received, .read: break
        }
        return SavedAttachment(client: client, message: id, attachment: attachment)
    }

    /// Reads a file from chunk `first` on.
    /// - Returns: the bytes of at most `count` chunks; empty after the last.
    package func read(_ file: SavedAttachment, from first: Int, count: Int) throws(NodeError) -> [UInt8] {
        var result: [UInt8] = []
        let total = file.attachment.chunkCount
        guard first >= 0, first < total else { return [] }
        for index in first..<min(total, first + max(0, min(count, Limits.attachmentWindow))) {
            let chunk: AttachmentChunk?
            do throws(StoreError) {
                chunk = try inboxes[file.client]?.archive.chunk(index, of: file.message, now: services.readClock().hide)
            } catch { throw .store(error) }
            guard let plain = chunk?.plain(byteCount: file.attachment.chunkByteCount(index)) else {
                throw .attachmentLost(file.message)
            }
            result += plain
        }
        return result
    }

    package func outbox() throws(NodeError) -> [OutboxItem] { try shell.outbox.items() }

    /// Visits waiting messages by inbox and member; see ``Outbox/visit(of:after:_:)``.
    package func visitOutbox(of only: ClientID?, after place: OutboxPlace?, _ body: (OutboxItem, OutboxPlace) -> Bool)
        throws(NodeError)
    { try shell.outbox.visit(of: only, after: place, body) }

    /// - Parameter text: the beginning of its id.
    package func cancelMessage(_ text: String) throws(NodeError) -> OutboxItem {
        let item = try shell.outbox.item(text)
        try shell.sleep.wake(item.conversation.client, .userInteraction)
        _ = try core.request { turn throws(CommandError) in
            try core.machine.command(item.conversation.client, &turn) { machine, turn throws(CommandError) in
                try machine.cancel(item.entry.message, &turn)
            }
        }
        return item
    }

    /// Dials the message's conversation now. Throws the errors of ``cancelMessage(_:)``.
    package func retryMessage(_ text: String) throws(NodeError) -> OutboxItem {
        let item = try shell.outbox.item(text)
        try shell.sleep.wake(item.conversation.client, .userInteraction)
        core.turn { core.machine.step(item.conversation.client, &$0) { $0.retry(&$1) } }
        return item
    }
}
