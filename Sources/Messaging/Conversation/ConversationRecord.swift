import Cryptography

/// The durable state of one inbox. It is sealed under the inbox's row of the store and dies with that row.
package struct InboxRecord: Hashable, Sendable, Codable {
    package var client: ClientID
    /// Inboxes are listed in this order.
    package var createdAt: Timestamp
    package var role: Role

    package init(client: ClientID, createdAt: Timestamp, role: Role) {
        (self.client, self.createdAt, self.role) = (client, createdAt, role)
    }

    /// An inbox serves one purpose; an unused one takes on another once.
    package enum Role: Hashable, Sendable, Codable {
        /// Created in advance for the next conversation.
        case unused
        /// Receives introductions to this node: invitations and pings.
        case contact(ContactRecord)
        case joining(JoinRecord)
        case conversation(ConversationRecord)
    }
}

/// The durable state of a conversation at one member.
package struct ConversationRecord: Hashable, Sendable, Codable {
    package var genesis: Genesis
    package var group: GroupState
    package var own: Member
    /// Profiles of the others, including some former members, whose names the history shows.
    package var members: [Member]
    /// Leave notices of members that the creator's state still lists.
    package var departures: [Departure] = []
    /// At the creator: removed members, newest last. They are told when they connect, and of an explosion.
    package var former: [PublicKey] = []
    /// The creator has removed us: no message arrives any more, and kept ones stay until they expire.
    package var isRemoved = false
    /// The version of our profile that each member has acknowledged.
    package var told: [PublicKey: UInt64] = [:]
    /// At the creator: members that have not confirmed the newest state of the group. A restart does not end this.
    package var unheard: Set<PublicKey> = []
    /// How many of our messages to each member expired undelivered, and how many of its own each member reported.
    package var undelivered: [PublicKey: UInt64] = [:]
    package var missed: [PublicKey: UInt64] = [:]
    /// The creator's invites; `nil` for others.
    package var issuer: InviteBook?
    package var lifetime = LifetimeStateMachine.Record()
    /// Whether we send read receipts; `nil`: the node's default.
    package var sendsReadReceipts: Bool?
    /// Our reservations at rendezvous nodes.
    package var relay = RelayGenerations()
    /// The next slots in the members' mailboxes, and in ours.
    package var mailbox = MailboxRecord()
    package var schedule: ExplosionSchedule?

    package init(genesis: Genesis, group: GroupState, own: Member, members: [Member], issuer: InviteBook?) {
        (self.genesis, self.group, self.own, self.members, self.issuer) = (genesis, group, own, members, issuer)
    }

    package var name: String? { group.name }
    /// The other current members, as far as we know.
    package var current: [Member] {
        if isRemoved { return [] }
        let gone = Set(departures.map(\.member))
        return members.filter { group.members.contains($0.key) && !gone.contains($0.key) }
    }
}

/// Session state that a sleeping inbox keeps in memory. A restart ends the session, so it is not stored.
package final class ConversationSession: Sendable {
    /// The session with one member, if it has state to keep.
    struct Side: Hashable, Sendable {
        var hasEnded: Bool
        var lostAt: Timestamp?
        var readReceipts: [MessageID]
        var owesWord: Bool
        var runs: RunNumbers

        init?(_ member: Peer) {
            guard member.hasEnded || member.link.lostAt != nil || member.hasNews || member.runs.haveShownCopies else {
                return nil
            }
            (hasEnded, lostAt, readReceipts) = (member.hasEnded, member.link.lostAt, member.readReceipts)
            (owesWord, runs) = (member.owesWord, member.runs)
        }
    }

    let sides: [PublicKey: Side]
    /// Kept while a proposal is open, a renewal is due or a frame awaits its pong.
    let lifetimeMachine: LifetimeStateMachine?
    let deferredNotice: ConversationEnding.DeferredNotice?

    init(
        sides: [PublicKey: Side] = [:], lifetimeMachine: LifetimeStateMachine? = nil,
        deferredNotice: ConversationEnding.DeferredNotice? = nil
    ) { (self.sides, self.lifetimeMachine, self.deferredNotice) = (sides, lifetimeMachine, deferredNotice) }

    /// An ongoing session without other state.
    static let quiet = ConversationSession()
}
