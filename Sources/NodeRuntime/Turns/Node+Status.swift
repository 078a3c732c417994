import Messaging
import Primitives
import Store

/// What waits to be delivered, and how the node is.
extension Node {
    // MARK: Outbox

    /// A message that one member has not acknowledged.
    package struct OutboxItem {
        package var conversation: ConversationStateMachine
        package var member: PublicKey
        package var entry: OutboxStateMachine.Entry
    }

    /// - Throws: ``NodeError/locked``.
    package func outbox() throws(NodeError) -> [OutboxItem] {
        try unlocked()
        var items: [OutboxItem] = []
        let asleep = core.sleepers.filter { $0.outboxCount > 0 }.sorted {
            ($0.createdAt, $0.client) < ($1.createdAt, $1.client)
        }
        for conversation in core.conversations + asleep.compactMap({ peek($0.client) }) {
            for member in conversation.currentMembers {
                items += conversation.outbox(to: member.key).map {
                    OutboxItem(conversation: conversation, member: member.key, entry: $0)
                }
            }
        }
        return items
    }

    private func outboxItem(_ text: String) throws(NodeError) -> OutboxItem {
        let matches = try outbox().filter { $0.entry.message.description.hasPrefix(text.lowercased()) }
        guard let first = matches.first, !text.isEmpty else { throw .unknownMessage(text) }
        guard Set(matches.map(\.entry.message)).count == 1 else {
            throw .ambiguous(text, matches: matches.map(\.entry.message.description))
        }
        return first
    }

    /// - Parameter text: the beginning of its id.
    /// - Throws: ``NodeError/unknownMessage(_:)``, ``NodeError/ambiguous(_:matches:)``.
    package func cancelMessage(_ text: String) throws(NodeError) -> OutboxItem {
        let item = try outboxItem(text)
        try wake(item.conversation.client, .userInteraction)
        _ = try request { turn throws(CommandError) in
            try core.command(item.conversation.client, &turn) { machine, turn throws(CommandError) in
                ((), try machine.cancel(item.entry.message, &turn))
            }
        }
        return item
    }

    /// Dials the conversation of a message now; throws as ``cancelMessage(_:)``.
    package func retryMessage(_ text: String) throws(NodeError) -> OutboxItem {
        let item = try outboxItem(text)
        try wake(item.conversation.client, .userInteraction)
        turn { core.retry(item.conversation.client, &$0) }
        return item
    }

    // MARK: The node

    /// How the node is.
    package struct Status {
        package var isLocked: Bool
        package var erasure: ErasurePromise
        package var protection: Protection
        /// Inboxes of conversations and joins.
        package var awake: Int
        package var sleeping: Int
        package var unused: Int
        package var links: Int
        /// Messages that are not acknowledged.
        package var outbox: Int
        /// When something that is kept is destroyed next.
        package var nextExpiry: Timestamp?
        /// What is wrong on the disk, in words.
        package var damage: [String]
        /// What the disk has refused: of late, or as long as it is full or read-only.
        package var storageTrouble: StoreError?
        package var isReadOnly: Bool
    }

    /// Works while the storage is locked.
    package func status() -> Status {
        storage.probe(store, after: .second, now: now)
        let deadlines = [
            store.nextDeadline.map { Timestamp(milliseconds: $0) },
            inboxes.unordered.lazy.compactMap(\.archive.nextDeadline).min(),
        ]
        return Status(
            isLocked: store.isLocked,
            erasure: store.erasurePromise,
            protection: store.protection,
            awake: core.awakeCount,
            sleeping: core.sleepingCount,
            unused: core.unused == nil ? 0 : 1,
            links: links.count,
            outbox: core.outboxCount,
            nextExpiry: deadlines.compactMap { $0 }.min(),
            damage: store.damage + skipped + unread.sorted { $0.key < $1.key }.map { "\($0.value.error)" },
            storageTrouble: storage.trouble?.error,
            isReadOnly: store.isReadOnly
        )
    }

    /// Messages of others that nobody has read and that end with the node's process.
    package var unreadInMemoryCount: Int {
        inboxes.unordered.reduce(0) { $0 + $1.archive.unreadInMemoryCount }
    }

    /// Destroys what is due, as the timer would.
    package func reapNow() { tick() }
}
