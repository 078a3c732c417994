import Primitives

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
    package var name: String?
    /// One's own name in this conversation.
    package var profile: String?
    /// Version of the member list.
    package var membership: UInt64
    /// Everyone but ourselves.
    package var members: [Member]
    /// Members that have left; their copy is gone.
    package var left: [PublicKey] = []
    /// The creator's invites; `nil` for others.
    package var issuer: IssuerStateMachine.Record?
    /// Agreements and policy (section 6).
    package var lifetime = LifetimeStateMachine.Record()
    /// Whether others are told what we have read; `nil` follows the node's default.
    package var sendsReadReceipts: Bool?

    package init(
        genesis: Genesis,
        name: String?,
        profile: String?,
        membership: UInt64,
        members: [Member],
        issuer: IssuerStateMachine.Record?
    ) {
        self.genesis = genesis
        self.name = name
        self.profile = profile
        self.membership = membership
        self.members = members
        self.issuer = issuer
    }
}
