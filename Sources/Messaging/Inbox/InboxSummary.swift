import Cryptography

/// A conversation's metadata for lists, name search and deadlines, without waking its inbox. The rest is in its state
/// log.
package struct InboxSummary: Hashable, Sendable {
    package struct Peer: Hashable, Sendable {
        package var key: PublicKey
        package var profile: String?

        package init(key: PublicKey, profile: String?) {
            self.key = key
            self.profile = profile
        }
    }

    package var client: ClientID
    package var createdAt: Timestamp
    package var own: PublicKey
    package var conversation: ConversationID
    package var creator: PublicKey
    package var name: String?
    /// All present members but ourselves.
    package var members: [Peer]
    package var lifetime: Lifetime
    /// It admits no joiner.
    package var isLocked: Bool
    package var isRemoved: Bool
    package var outboxCount: Int
    /// See ``Conversation/hasNews``.
    package var hasNews: Bool
    /// Digest of our endpoints that the members know: see ``mark(_:)``.
    package var endpointMark: UInt64
    /// See ``Conversation/relaySeeds``; never empty.
    package var relaySeeds: [RelaySeed]
    package var usesMailbox: Bool
    package var boxUntil: Timestamp?
    /// When a message was last sent or received; `nil`: never.
    package var lastActivity: Timestamp?
    /// The conversation's own next deadline, without links and deliveries; `nil` for never.
    package var deadline: Timestamp?

    package init(
        client: ClientID, createdAt: Timestamp, own: PublicKey, conversation: ConversationID, creator: PublicKey,
        name: String?, members: [Peer], lifetime: Lifetime, isLocked: Bool, isRemoved: Bool, outboxCount: Int,
        hasNews: Bool = false, endpointMark: UInt64, relaySeeds: [RelaySeed], usesMailbox: Bool = false,
        boxUntil: Timestamp? = nil, lastActivity: Timestamp?, deadline: Timestamp?
    ) {
        (self.client, self.createdAt, self.own, self.conversation) = (client, createdAt, own, conversation)
        (self.creator, self.name, self.members, self.lifetime) = (creator, name, members, lifetime)
        (self.isLocked, self.isRemoved, self.outboxCount, self.hasNews) = (isLocked, isRemoved, outboxCount, hasNews)
        (self.endpointMark, self.relaySeeds, self.usesMailbox) = (endpointMark, relaySeeds, usesMailbox)
        (self.boxUntil, self.lastActivity, self.deadline) = (boxUntil, lastActivity, deadline)
    }

    package var isCreator: Bool { creator == own }

    package static func mark(_ endpoints: [String]) -> UInt64 {
        SHA256.hash(Array(endpoints.joined(separator: "\n").utf8)).prefix(8).reduce(0) { $0 << 8 | UInt64($1) }
    }

    func isElsewhere(_ turn: Turn) -> Bool {
        guard !isRemoved, let seed = relaySeeds.first else { return false }
        return endpointMark != Self.mark(turn.endpointTexts(of: seed, usesMailbox: usesMailbox))
    }

    package init(_ conversation: Conversation, createdAt: Timestamp, lastActivity: Timestamp?) {
        self.init(
            client: conversation.client, createdAt: createdAt, own: conversation.key.publicKey,
            conversation: conversation.conversation, creator: conversation.record.genesis.creator,
            name: conversation.record.name,
            members: conversation.currentMembers.map { Peer(key: $0.key, profile: $0.profile) },
            lifetime: conversation.lifetime, isLocked: conversation.record.group.isLocked,
            isRemoved: conversation.record.isRemoved, outboxCount: conversation.outboxCount,
            hasNews: conversation.hasNews,
            endpointMark: conversation.isFound ? Self.mark(conversation.record.own.endpointTexts) : 0,
            relaySeeds: conversation.relaySeeds, usesMailbox: conversation.usesMailbox, boxUntil: conversation.boxUntil,
            lastActivity: lastActivity, deadline: conversation.nextDeadline)
    }
}

/// A sleeping inbox: its summary, and volatile state that is kept until it wakes.
struct SleepingInbox: Sendable {
    var summary: InboxSummary
    /// `nil`: the session ended with a restart of the node.
    var session: ConversationSession?
    /// When it enters the delivery line; `nil`: nothing to deliver.
    var retryAt: Timestamp?
    /// Its members do not know our present endpoints.
    var hasMoved = false
    /// Signed before the lock, because an explosion may end another copy of the conversation during the lock.
    var lockedReceipt: DeletionReceipt?

    var wakeAt: Timestamp? { earliest(summary.deadline, retryAt) }
}
