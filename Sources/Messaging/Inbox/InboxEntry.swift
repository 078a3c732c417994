import Crypto

/// A machine of an awake inbox, changed where it is: a struct inside an enum case would be copied for every change.
final class Running<Machine> {
    var machine: Machine

    init(_ machine: Machine) { self.machine = machine }
}

/// One inbox of this node: everything that the core keeps of it. Owned by `InboxTable`; its open links refer to it.
package final class InboxEntry {
    /// What the inbox is used for.
    enum Role {
        /// Entered when its keys are destroyed; final. Links may refer to it a little longer.
        case gone
        /// Made ahead of time. May become each of the following three.
        case unused(IdentityKey)
        case contact(Running<ContactStateMachine>)
        /// May become a conversation, or `gone`.
        case joining(Running<JoiningStateMachine>)
        /// May become `sleeping` or `gone`.
        case conversation(Running<ConversationStateMachine>)
        /// May become a conversation or `gone`.
        case sleeping(SleepingInbox)

        /// A role whose machine is changed apart from this one's.
        var copy: Role {
            switch self {
            case .contact(let running): .contact(Running(running.machine))
            case .joining(let running): .joining(Running(running.machine))
            case .conversation(let running): .conversation(Running(running.machine))
            case .gone, .unused, .sleeping: self
            }
        }
    }

    package let client: ClientID
    /// The order of the inboxes in lists.
    var createdAt: Timestamp
    /// Changed by `InboxTable` only, which lists inboxes by role.
    var role = Role.gone
    /// Changed by ``InboxLifecycleStateMachine`` only.
    var activity: InboxActivity?
    /// The open links to it.
    var links: Set<LinkID> = []
    /// How many watchers have its conversation open.
    var watcherCount = 0
    /// How often it was awake in vain since it last delivered something.
    var retries = 0
    /// It is in the line of inboxes that are to be woken to deliver.
    var isInLine = false

    // MARK: Its place in the indices of the table

    /// See ``DeadlineQueue``.
    var queuedDeadline: Timestamp?
    /// Unread bytes in memory.
    var heldByteCount = 0
    /// Messages that are not acknowledged.
    var outboxCount = 0
    /// All members have agreed to a mailbox.
    var usesMailbox = false
    /// See ``InboxTable/withCopies``.
    var hasShownCopies = false
    /// From which its places at rendezvous nodes follow, the present one first; empty for the contact inbox.
    var relaySeeds: [RelaySeed] = []
    /// Until when it has a box at our mailbox; `nil`: it has none.
    var boxUntil: Timestamp?
    /// How the directory lists it; `nil` for what is no conversation.
    var listing: InboxListing?

    package init(client: ClientID, createdAt: Timestamp) {
        self.client = client
        self.createdAt = createdAt
    }

    /// `nil` unless it is an awake conversation.
    var conversation: Running<ConversationStateMachine>? {
        if case .conversation(let running) = role { running } else { nil }
    }

    /// `nil` unless it sleeps.
    var asleep: SleepingInbox? { if case .sleeping(let inbox) = role { inbox } else { nil } }

    /// Our own key in the conversation; `nil` for what is none.
    var ownKey: PublicKey? {
        switch role {
        case .conversation(let running): running.machine.key.publicKey
        case .sleeping(let inbox): inbox.summary.own
        case .gone, .unused, .contact, .joining: nil
        }
    }

    /// Who has made the conversation; `nil` for what is none.
    var creator: PublicKey? {
        switch role {
        case .conversation(let running): running.machine.record.genesis.creator
        case .sleeping(let inbox): inbox.summary.creator
        case .gone, .unused, .contact, .joining: nil
        }
    }

    var isSleeping: Bool { if case .sleeping = role { true } else { false } }
}

extension InboxEntry: Hashable {
    package static func == (left: InboxEntry, right: InboxEntry) -> Bool { left === right }
    package func hash(into hasher: inout Hasher) { hasher.combine(ObjectIdentifier(self)) }
}

extension Sequence where Element == InboxEntry {
    /// In the order in which they were made.
    func inOrderOfCreation() -> [InboxEntry] { sorted { ($0.createdAt, $0.client) < ($1.createdAt, $1.client) } }

    /// In the order of their names.
    func inOrderOfClient() -> [InboxEntry] { sorted { $0.client < $1.client } }
}

/// How ``InboxDirectory`` lists one conversation.
struct InboxListing: Equatable, Sendable {
    let conversation: ConversationID
    let name: String?
    /// It is the copy of a member that was removed; one of a member comes before it.
    let isRemoved: Bool
}

/// What the lifecycle knows of one inbox.
struct InboxActivity {
    enum State {
        /// Entered at start and when it was put to sleep. May go to `awake`, and be removed.
        case sleeping
        /// Entered when woken. May go to `sleeping`, and be removed.
        /// `since`: woken, or last asked for something; it has begun to serve then. `stayUntil`: until then it gives way
        /// only to a user or a token, and only at the hard limit.
        case awake(WakeReason, since: Timestamp, stayUntil: Timestamp)
    }

    var state: State
    /// When a message last came or went here; `nil`: never.
    var lastActivity: Timestamp?
    /// When a user last asked for something here.
    var touchedAt: Timestamp?
}
