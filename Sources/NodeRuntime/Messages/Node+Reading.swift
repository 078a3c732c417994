import Messaging
import Store

/// Messages as their users see them.
extension Node {
    /// A message, whether it is on the disk, and at most how many reactions are shown at it.
    package struct ReadMessage {
        package var message: Message
        package var isStored: Bool
        package var reactionCount: Int
    }

    /// A page of messages in the order of their arrival; marks those of it that are in memory as read.
    /// - Parameters:
    ///   - last: at most so many, the newest.
    ///   - after: only those after this message; the beginning of its id is enough.
    ///   - take: given each message in turn; it says whether there is room for it on the page, which ends before the first
    ///     for which there is none. A page has at least one. By default there is room for all: others can fill an inbox, so
    ///     that is for tests.
    package func read(
        _ conversation: String,
        last: Int?,
        after: String?,
        taking take: (ReadMessage, ConversationStateMachine) -> Bool = { _, _ in true }
    ) throws(NodeError) -> (ConversationStateMachine, [ReadMessage]) {
        try wake(try resolve(conversation), .userInteraction)
        let machine = try self.conversation(conversation)
        let client = machine.client
        guard let inbox = inboxes[client] else { throw .unknownConversation(conversation) }
        var start: Messaging.MessageID?
        if let after {
            guard let id = try messageID(after, inbox) else { throw .unknownMessage(after) }
            start = id
        }
        let now = now
        func shown(_ listed: MessageArchive.Listed) -> ReadMessage {
            ReadMessage(
                message: listed.message.opened(at: now) ?? listed.message,
                isStored: listed.isStored,
                reactionCount: listed.reactionCount
            )
        }
        let page: MessageArchive.Page?
        do throws(StoreError) {
            page = try inbox.archive.page(
                last: last,
                after: start,
                now: readClock().hide
            ) {
                take(shown($0), machine)
            }
        } catch {
            throw .store(error)
        }
        guard let page else { throw .unknownMessage(after ?? "") }
        if page.isAllRead {
            core.releaseMemory(client)
        } else if page.freedByteCount > 0 {
            core.releaseMemory(client, byteCount: page.freedByteCount)
        }
        opened(page.messages.map(\.message), machine, now: now)
        return (machine, page.messages.map(shown))
    }

    /// The message of an inbox that a user means.
    /// - Parameter text: its id or the beginning of it.
    /// - Throws: ``NodeError/ambiguous(_:matches:)``.
    func messageID(_ text: String, _ inbox: Inbox) throws(NodeError)
        -> Messaging.MessageID?
    {
        if let whole = Messaging.MessageID(hex: text) { return whole }
        guard !text.isEmpty else { return nil }
        let matches: [Messaging.MessageID]
        do throws(StoreError) {
            matches = try inbox.archive.ids(
                beginningWith: text.lowercased(),
                limit: Self.shownMatches,
                now: readClock().hide
            )
        } catch {
            throw .store(error)
        }
        if matches.count > 1 { throw .ambiguous(text, matches: matches.map(\.description)) }
        return matches.first
    }

    /// A message as it is now; `nil` when it cannot be read any more.
    package func message(_ id: Messaging.MessageID, client: ClientID) -> ReadMessage? {
        if let machine = core.conversation(client), isOver(machine) { return nil }
        guard let inbox = inboxes[client] else { return nil }
        return inbox.archive.read(id, now: readClock().hide).map {
            ReadMessage(
                message: $0.message,
                isStored: $0.isStored,
                reactionCount: inbox.archive.reactionCount(at: id, now: now)
            )
        }
    }

    /// Whether what an inbox has on the disk cannot be read now, and will be again after the unlock.
    package func isLockedAway(_ client: ClientID) -> Bool {
        store.isLocked && inboxes[client] != nil && !(core.conversation(client).map(isOver) ?? false)
    }

    /// A watcher has shown this message.
    package func markShown(_ id: Messaging.MessageID, client: ClientID) {
        let byteCount = inboxes[client]?.archive.markShown(id) ?? 0
        if byteCount > 0 { core.releaseMemory(client, byteCount: byteCount) }
        if let shown = message(id, client: client), let machine = core.conversation(client) {
            opened([shown.message], machine, now: now)
        }
    }

    /// Messages that somebody has read: unopened ones need not go early any more.
    private func opened(_ messages: [Message], _ machine: ConversationStateMachine, now: Timestamp) {
        let actions = machine.markRead(messages, now: now)
        guard !actions.isEmpty else { return }
        perform(actions)
        schedule()
    }
}
