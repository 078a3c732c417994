import Crypto

/// What survives a restart of one inbox. Sealed under the inbox's row, dies with it.
package struct InboxRecord: Hashable, Sendable, Codable {
    package var client: ClientID
    /// The order of the inboxes in lists.
    package var createdAt: Timestamp
    /// What the inbox is used for.
    package var role: Role

    package init(client: ClientID, createdAt: Timestamp, role: Role) {
        self.client = client
        self.createdAt = createdAt
        self.role = role
    }

    /// An inbox serves one purpose; an unused one takes on another once.
    package enum Role: Hashable, Sendable, Codable {
        /// Made ahead of time, for the next conversation.
        case unused
        /// By which this node can be introduced.
        case contact(ContactRecord)
        case joining(JoinRecord)
        case conversation(ConversationRecord)
    }
}

/// A join on its way.
package struct JoinRecord: Hashable, Sendable, Codable {
    package var invite: Invite
    /// What the join request carries.
    package var signed: SignedInvite
    /// Recovered from the invite's signature.
    package var creator: PublicKey
    /// Our own name in the conversation to be.
    package var profile: String?
    /// The join is given up ``Limits/joinLifetime`` later.
    package var startedAt: Timestamp
    package var state: JoinerStateMachine.State

    package init(_ verified: VerifiedInvite, profile: String?, startedAt: Timestamp) {
        invite = verified.invite
        signed = verified.signed
        creator = verified.creatorKey
        self.profile = profile
        self.startedAt = startedAt
        state = .joining
    }
}

/// A conversation as one member holds it.
package struct ConversationRecord: Hashable, Sendable, Codable {
    /// Who made it and may explode it.
    package var genesis: Genesis
    /// The newest that we know of.
    package var group: GroupState
    /// How we describe ourselves.
    package var own: Member
    /// How the others describe themselves; some that are gone too, for the names in the history.
    package var members: [Member]
    /// Members that have left, until the creator's state says so.
    package var departures: [Departure] = []
    /// At the creator: members that it has removed, the newest last. They are told when they come, and of an explosion.
    package var former: [PublicKey] = []
    /// The creator has removed us: nothing more comes, what is here stays until its time.
    package var isRemoved = false
    /// Which of our own descriptions each member has heard, by its version.
    package var told: [PublicKey: UInt64] = [:]
    /// Messages to a member that were given up undelivered; and what each has told us of its own.
    package var undelivered: [PublicKey: UInt64] = [:]
    package var missed: [PublicKey: UInt64] = [:]
    /// The creator's invites; `nil` for others.
    package var issuer: IssuerStateMachine.Record?
    /// Agreements and policy (Lifetime.md).
    package var lifetime = LifetimeStateMachine.Record()
    /// Whether others are told what we have read; `nil` follows the node's default.
    package var sendsReadReceipts: Bool?
    /// Our places at rendezvous nodes.
    package var relay = RelayGenerations()
    /// Which slots come next in the boxes of the members, and in ours.
    package var mailbox = MailboxRecord()
    /// A scheduled explosion (Explode.md).
    package var schedule: ExplosionSchedule?

    package init(
        genesis: Genesis, group: GroupState, own: Member, members: [Member], issuer: IssuerStateMachine.Record?
    ) {
        self.genesis = genesis
        self.group = group
        self.own = own
        self.members = members
        self.issuer = issuer
    }

    package var name: String? { group.name }
    /// The others that are in the conversation, as far as we know.
    package var current: [Member] {
        if isRemoved { return [] }
        let gone = Set(departures.map(\.member))
        return members.filter { group.members.contains($0.key) && !gone.contains($0.key) }
    }
}
