import Cryptography

/// The core's state of one inbox. Owned by `InboxTable`; its open links refer to it.
package final class InboxEntry {
    enum Role {
        /// Entered when its keys are destroyed; final. Links may still refer to it for a while.
        case gone
        /// Pooled. May become `contact`, `joining` or `conversation`.
        case unused(IdentityKey)
        case contact(Running<ContactStateMachine>)
        /// May become a conversation, or `gone`.
        case joining(Running<JoiningStateMachine>)
        /// May become `sleeping` or `gone`.
        case conversation(Conversation)
        /// May become a conversation or `gone`.
        case sleeping(SleepingInbox)
    }

    package let client: ClientID
    /// The order of the inboxes in lists.
    var createdAt: Timestamp
    /// Changed by `InboxTable` only, which lists inboxes by role.
    var role = Role.gone
    /// Changed by ``InboxLifecycleStateMachine`` only.
    var activity: InboxActivity?
    var links: Set<LinkID> = []
    var watcherCount = 0
    /// Wakes in vain since the last delivery.
    var retries = 0
    /// It is in the line of inboxes to be woken to deliver.
    var isInLine = false

    /// See ``DeadlineQueue``.
    var queuedDeadline: Timestamp?
    /// Changed by `InboxTable` only, which counts and indexes them.
    var figures = InboxFigures()
    /// Its entry in the directory; `nil` if it is no conversation.
    var listing: InboxListing?

    package init(client: ClientID, createdAt: Timestamp) {
        self.client = client
        self.createdAt = createdAt
    }

    /// `nil` unless it is an awake conversation.
    var conversation: Conversation? { if case .conversation(let conversation) = role { conversation } else { nil } }

    var asleep: SleepingInbox? { if case .sleeping(let inbox) = role { inbox } else { nil } }

    var ownKey: PublicKey? {
        switch role {
        case .conversation(let conversation): conversation.key.publicKey
        case .sleeping(let inbox): inbox.summary.own
        case .gone, .unused, .contact, .joining: nil
        }
    }

    var creator: PublicKey? {
        switch role {
        case .conversation(let conversation): conversation.record.genesis.creator
        case .sleeping(let inbox): inbox.summary.creator
        case .gone, .unused, .contact, .joining: nil
        }
    }

    /// An explosion may be scheduled here. A sleeping inbox tells its next deadline only.
    var mayHaveSchedule: Bool { conversation?.record.schedule != nil || asleep?.summary.deadline != nil }

    var isSleeping: Bool { if case .sleeping = role { true } else { false } }
}

extension InboxEntry: Hashable {
    package static func == (left: InboxEntry, right: InboxEntry) -> Bool { left === right }
    package func hash(into hasher: inout Hasher) { hasher.combine(ObjectIdentifier(self)) }
}

extension Sequence where Element == InboxEntry {
    func inOrderOfCreation() -> [InboxEntry] { sorted { ($0.createdAt, $0.client) < ($1.createdAt, $1.client) } }

    func inOrderOfClient() -> [InboxEntry] { sorted { $0.client < $1.client } }
}

struct InboxFigures {
    var heldByteCount = 0
    var outboxCount = 0
    /// Sleep would lose contents of ours that are in memory only, or interrupt a file, ours or a member's.
    var isBusy = false
    var usesMailbox = false
    /// See ``InboxTable/withCopies``.
    var hasShownCopies = false
    /// Until when it has a box at our mailbox; `nil` for none.
    var boxUntil: Timestamp?
    /// The seeds of its reservations at rendezvous nodes, the current one first; empty for the contact inbox.
    var relaySeeds: [RelaySeed] = []
}

struct InboxListing: Equatable, Sendable {
    let conversation: ConversationID
    let name: String?
    /// The copy of a removed member. Present members' copies come after it.
    let isRemoved: Bool
}

struct InboxActivity {
    struct Stay {
        let reason: WakeReason
        /// The time of the wake or of the last request; zero once served, so that the inbox is the first to be put to
        /// sleep.
        var since: Timestamp
        /// Before this time the inbox is put to sleep only for a user or a token, and only at the hard limit.
        var until: Timestamp
    }

    /// `nil` while it sleeps.
    var stay: Stay?
    /// When a message was last sent or received; `nil`: never.
    var lastActivity: Timestamp?
    /// When a user last asked for something here.
    var touchedAt: Timestamp?
}

/// The machine of a contact inbox or a join. A class: a struct inside an enum case would be copied at each change.
final class Running<Machine> {
    var machine: Machine

    init(_ machine: Machine) { self.machine = machine }
}
