import Primitives

/// What survives a restart of one inbox. Sealed under the inbox's row, dies with it.
package struct InboxRecord: Hashable, Sendable, Codable {
    package var client: ClientID
    package var createdAt: Timestamp
    package var role: Role

    package init(client: ClientID, createdAt: Timestamp, role: Role) {
        self.client = client
        self.createdAt = createdAt
        self.role = role
    }

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
    package var signed: SignedInvite
    package var creator: PublicKey
    package var profile: String?
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

package struct ConversationRecord: Hashable, Sendable, Codable {
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
    package var lifetime = LifetimeStateMachine.Record()

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
