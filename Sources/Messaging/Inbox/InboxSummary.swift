import Primitives

/// What a node knows of a conversation without waking its inbox: enough for lists, for finding it by name, for the
/// moment it has to be woken. Everything else is in its state log.
package struct InboxSummary: Hashable, Sendable {
    package var client: ClientID
    /// The order of the inboxes in lists.
    package var createdAt: Timestamp
    /// Our own key in the conversation.
    package var own: PublicKey
    package var conversation: ConversationID
    package var isCreator: Bool
    package var name: String?
    /// Everyone but ourselves and those who have left; without their endpoints.
    package var members: [Member]
    /// Of new messages.
    package var lifetime: Lifetime
    /// It admits nobody.
    package var isLocked: Bool
    /// Messages that are not acknowledged.
    package var outboxCount: Int
    /// When a message last came or went; `nil`: never.
    package var lastActivity: Timestamp?
    /// When the conversation has something to do by itself, links and deliveries left out; `nil` for never.
    package var deadline: Timestamp?

    package init(
        client: ClientID,
        createdAt: Timestamp,
        own: PublicKey,
        conversation: ConversationID,
        isCreator: Bool,
        name: String?,
        members: [Member],
        lifetime: Lifetime,
        isLocked: Bool,
        outboxCount: Int,
        lastActivity: Timestamp?,
        deadline: Timestamp?
    ) {
        self.client = client
        self.createdAt = createdAt
        self.own = own
        self.conversation = conversation
        self.isCreator = isCreator
        self.name = name
        self.members = members
        self.lifetime = lifetime
        self.isLocked = isLocked
        self.outboxCount = outboxCount
        self.lastActivity = lastActivity
        self.deadline = deadline
    }

    /// Of a conversation whose links are closed.
    package init(_ machine: ConversationStateMachine, createdAt: Timestamp, lastActivity: Timestamp?) {
        self.init(
            client: machine.client,
            createdAt: createdAt,
            own: machine.key.publicKey,
            conversation: machine.conversation,
            isCreator: machine.isCreator,
            name: machine.record.name,
            members: machine.currentMembers.map { Member(key: $0.key, profile: $0.profile, endpoints: []) },
            lifetime: machine.lifetime,
            isLocked: machine.invites?.isLocked ?? false,
            outboxCount: machine.outboxCount,
            lastActivity: lastActivity,
            deadline: machine.nextDeadline
        )
    }
}

/// An inbox that sleeps: its summary, and what would be lost if it were not remembered until it wakes.
struct SleepingInbox: Sendable {
    var summary: InboxSummary
    /// `nil`: the session has ended, because the node has been started since.
    var session: ConversationSession?
    /// When its outbox is tried again, and how often that was in vain.
    var retryAt: Timestamp?
    var retries = 0

    /// When it is to be woken.
    var wakeAt: Timestamp? {
        guard let deadline = summary.deadline else { return retryAt }
        return retryAt.map { min($0, deadline) } ?? deadline
    }
}
