import Crypto

/// What a node knows of a conversation without waking its inbox: enough for lists, for finding it by name, for the
/// moment it has to be woken. Everything else is in its state log.
package struct InboxSummary: Hashable, Sendable {
    /// Another member, as lists show it.
    package struct Peer: Hashable, Sendable {
        package var key: PublicKey
        package var profile: String?

        package init(key: PublicKey, profile: String?) {
            self.key = key
            self.profile = profile
        }
    }

    package var client: ClientID
    /// The order of the inboxes in lists.
    package var createdAt: Timestamp
    /// Our own key in the conversation.
    package var own: PublicKey
    package var conversation: ConversationID
    /// Whom its genesis names.
    package var creator: PublicKey
    package var name: String?
    /// Everyone but ourselves and those who have left.
    package var members: [Peer]
    /// Of new messages.
    package var lifetime: Lifetime
    /// It admits nobody.
    package var isLocked: Bool
    /// The creator has removed us.
    package var isRemoved: Bool
    /// Messages that are not acknowledged.
    package var outboxCount: Int
    /// Of the endpoints that the members know of us: see ``mark(_:)``.
    package var endpointMark: UInt64
    /// See ``ConversationStateMachine/relaySeeds``; never empty.
    package var relaySeeds: [RelaySeed]
    /// All members have agreed to a mailbox.
    package var usesMailbox: Bool
    /// See ``ConversationStateMachine/boxUntil``.
    package var boxUntil: Timestamp?
    /// When a message last came or went; `nil`: never.
    package var lastActivity: Timestamp?
    /// When the conversation has something to do by itself, links and deliveries left out; `nil` for never.
    package var deadline: Timestamp?

    package init(
        client: ClientID, createdAt: Timestamp, own: PublicKey, conversation: ConversationID, creator: PublicKey,
        name: String?, members: [Peer], lifetime: Lifetime, isLocked: Bool, isRemoved: Bool, outboxCount: Int,
        endpointMark: UInt64, relaySeeds: [RelaySeed], usesMailbox: Bool = false, boxUntil: Timestamp? = nil,
        lastActivity: Timestamp?, deadline: Timestamp?
    ) {
        self.client = client
        self.createdAt = createdAt
        self.own = own
        self.conversation = conversation
        self.creator = creator
        self.name = name
        self.members = members
        self.lifetime = lifetime
        self.isLocked = isLocked
        self.isRemoved = isRemoved
        self.outboxCount = outboxCount
        self.endpointMark = endpointMark
        self.relaySeeds = relaySeeds
        self.usesMailbox = usesMailbox
        self.boxUntil = boxUntil
        self.lastActivity = lastActivity
        self.deadline = deadline
    }

    package var isCreator: Bool { creator == own }

    /// Tells lists of endpoints apart.
    package static func mark(_ endpoints: [String]) -> UInt64 {
        SHA256.hash(Array(endpoints.joined(separator: "\n").utf8)).prefix(8).reduce(0) { $0 << 8 | UInt64($1) }
    }

    /// Whether its members know this inbox at other endpoints than these, or do not know that they do.
    func isElsewhere(_ turn: Turn) -> Bool {
        guard !isRemoved, let seed = relaySeeds.first else { return false }
        return endpointMark != Self.mark(turn.endpointTexts(of: seed, usesMailbox: usesMailbox))
    }

    /// Of a conversation whose links are closed.
    package init(_ machine: ConversationStateMachine, createdAt: Timestamp, lastActivity: Timestamp?) {
        self.init(
            client: machine.client, createdAt: createdAt, own: machine.key.publicKey,
            conversation: machine.conversation, creator: machine.record.genesis.creator, name: machine.record.name,
            members: machine.currentMembers.map { Peer(key: $0.key, profile: $0.profile) }, lifetime: machine.lifetime,
            isLocked: machine.record.group.isLocked, isRemoved: machine.record.isRemoved,
            outboxCount: machine.outboxCount,
            endpointMark: machine.isFound ? Self.mark(machine.record.own.endpointTexts) : 0,
            relaySeeds: machine.relaySeeds, usesMailbox: machine.usesMailbox, boxUntil: machine.boxUntil,
            lastActivity: lastActivity, deadline: machine.nextDeadline)
    }
}

/// An inbox that sleeps: its summary, and what would be lost if it were not remembered until it wakes.
struct SleepingInbox: Sendable {
    var summary: InboxSummary
    /// `nil`: the session has ended, because the node has been started since.
    var session: ConversationSession?
    /// When it goes into the line of those that are woken to deliver; `nil`: it has nothing for its members.
    var retryAt: Timestamp?
    /// Its members do not know yet where we are now.
    var hasMoved = false
    /// Signed before the storage was locked: the conversation may end with another copy meanwhile.
    var lockedReceipt: DeletionReceipt?

    /// When it is to be woken.
    var wakeAt: Timestamp? {
        guard let deadline = summary.deadline else { return retryAt }
        return retryAt.map { min($0, deadline) } ?? deadline
    }
}
