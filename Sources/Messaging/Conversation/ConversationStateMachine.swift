import Primitives

/// One conversation as one of its members holds it: its members' links and outboxes, its lifetime, and, at its creator,
/// its invites. It routes what happens to those machines and turns their answers into actions for this inbox.
package struct ConversationStateMachine: Sendable {
    /// The way to one other member.
    struct MemberState: Sendable {
        var link: LinkStateMachine
        var outbox = OutboxStateMachine()
        /// What we said on the link in use; `nil` while there is none.
        var sessionSent: SessionStart?
        /// Both have said where they stand on the link in use.
        var isEstablished = false
        /// What watchers were told last; a link that takes the place of another is not news.
        var isShownOnline = false
        /// The session has ended (restart, close): the next link starts with a reset.
        var hasEnded: Bool
        /// What it has asked for of our files.
        var serving = AttachmentSenderStateMachine()
        /// When what it has asked for counts as stalled, unless it takes some; `nil` once it does.
        var stallsAt: Timestamp?
        /// What we have read of it and not told it yet.
        var readReceipts: [MessageID] = []
        var profileBucket = TokenBucket(interval: Limits.profileInterval, burst: Limits.profileBurst)
        /// Frames of it that did not verify.
        var forgeries = TokenBucket(interval: Limits.forgeryInterval, burst: Limits.forgeryBurst)
        /// Frames of it that changed nothing, over whatever link: a new one does not begin anew.
        var idleFrames = IdleFrames.member
        /// It is not heard before this time.
        var shunnedUntil: Timestamp?
        var heard = HeardPlaces()
        var punching: PunchStateMachine

        func isShunned(now: Timestamp) -> Bool { shunnedUntil.map { now < $0 } ?? false }
    }

    /// An earlier end that came too soon after others, and when it is taken.
    struct DeferredNotice: Sendable {
        var notice: ExplodeNotice
        let until: Timestamp
    }

    package let client: ClientID
    package let key: IdentityKey
    /// The record but for lifetime and invites; ``savedRecord`` has all.
    package internal(set) var record: ConversationRecord
    var members: [PublicKey: MemberState] = [:]
    var lifetimeMachine: LifetimeStateMachine?
    var issuer: IssuerStateMachine?
    /// Messages of ours under an agreement that the proposer may have taken back before our accept reached it: an
    /// acknowledgement of one shows that it has not.
    var unconfirmed: Set<MessageID> = []
    /// Since when no member has been linked; `nil` while one is, or none was yet.
    var isolatedSince: Timestamp?
    /// Unread contents that are in memory only, in bytes.
    package internal(set) var heldByteCount = 0
    /// Messages of peers that were dropped: floods, forgeries, repeats.
    package internal(set) var droppedCount = 0
    /// Of those, frames whose signature did not hold.
    package internal(set) var forgedCount = 0
    /// The version of which watchers were told last that the creator has signed two states.
    var conflictTold: UInt64?
    /// Files on their way to us.
    var incoming: [MessageID: IncomingAttachment] = [:]
    /// Messages of ours that had expired when they came to some member, while others are still waited for.
    var missedBySome: Set<MessageID> = []
    /// Contents that had expired when they came, of which watchers were told.
    var expiredOnArrival: Set<MessageID> = []
    /// What we have said to have read since the node started.
    var receipted: Set<MessageID> = []
    /// What we may have to say while our key is wiped, signed before.
    var lockedWords: LockedWords?
    /// Members that have left the creator's conversation while its key was wiped.
    var leftWhileLocked: [PublicKey] = []
    /// Watchers and members know of the scheduled explosion.
    var isScheduleTold = true
    /// What the scheduled explosion was prepared for.
    var armed: Arming?
    /// It could not be prepared: the storage was locked.
    var isArmingOwed = false
    /// How often the schedule may be brought forward by others.
    var scheduleBucket = TokenBucket(interval: Limits.scheduleInterval, burst: Limits.scheduleBurst)
    /// The earliest of those that came too soon.
    var deferredNotice: DeferredNotice?
    /// From which our places at rendezvous nodes follow: the present one first, then those that some may still use.
    package internal(set) var relaySeeds: [RelaySeed] = []
    var relayGenerations: [UInt64] = []
    /// When ``advanceRelay(_:)`` has something to do.
    var relayDeadline: Timestamp?

    package init(client: ClientID, key: IdentityKey, record: ConversationRecord, isFresh: Bool, now: Timestamp) {
        self.client = client
        self.key = key
        self.record = record
        issuer = record.issuer.map(IssuerStateMachine.init)
        for member in record.current {
            members[member.key] = MemberState(
                link: LinkStateMachine(
                    own: key.publicKey,
                    remote: member.key,
                    isDialable: !member.endpoints.isEmpty,
                    now: now
                ),
                hasEnded: !isFresh,
                punching: PunchStateMachine(offers: key.publicKey < member.key)
            )
        }
        makeLifetimeMachine()
        noteRelay(now: now)
    }

    package var conversation: ConversationID { record.genesis.conversation }
    package var isCreator: Bool { record.genesis.creator == key.publicKey }
    /// The lifetime of new messages.
    package var lifetime: Lifetime { lifetimeMachine?.lifetime ?? .ephemeral }
    /// The proposal on the table, and whether it is ours.
    package var pendingProposal: (proposal: LifetimeProposal, isOurs: Bool)? { lifetimeMachine?.pending }
    /// The agreement in force; `nil`: ephemeral.
    package var agreement: Agreement? { lifetimeMachine?.inForce }
    /// The creator's invites; `nil` for others.
    package var invites: IssuerStateMachine.Record? { issuer?.record }
    /// Everyone but ourselves and those who have left.
    package var currentMembers: [Member] { record.members.filter { members[$0.key] != nil } }

    /// Whose tokens lead here: the members', at the creator those of removed ones, and in a removed one the creator's.
    package var reachableBy: [PublicKey] {
        record.isRemoved ? [record.genesis.creator] : currentMembers.map(\.key) + record.former
    }

    /// Whether the session with this member is established.
    package func isOnline(_ member: PublicKey) -> Bool { members[member]?.isEstablished ?? false }
    /// The link in use.
    package func link(to member: PublicKey) -> LinkID? { members[member]?.link.link }
    /// What this member has not acknowledged, in order.
    package func outbox(to member: PublicKey) -> [OutboxStateMachine.Entry] { members[member]?.outbox.all ?? [] }
    /// What this member has not acknowledged, by its name.
    package func outboxEntry(_ message: MessageID, to member: PublicKey) -> OutboxStateMachine.Entry? {
        members[member]?.outbox[message]
    }
    /// The session with every member goes on: none has ended by a restart or a close.
    package var sessionGoesOn: Bool { members.values.allSatisfy { !$0.hasEnded } }
    package var outboxCount: Int { members.values.reduce(0) { $0 + $1.outbox.count } }

    /// The record as it is to be saved.
    package var savedRecord: ConversationRecord {
        var saved = record
        saved.issuer = issuer?.record
        if let lifetimeMachine { saved.lifetime = lifetimeMachine.record }
        return saved
    }

    /// When ``advance(_:)`` has something to do; `nil` for never.
    package var nextDeadline: Timestamp? {
        var earliest = lifetimeMachine?.nextDeadline
        for deadline in [scheduleDeadline, relayDeadline] {
            if let deadline { earliest = min(earliest ?? deadline, deadline) }
        }
        for member in members.values {
            let stall = member.serving.isIdle ? nil : member.stallsAt
            for deadline in [member.link.nextDeadline, member.outbox.nextDeadline, member.punching.nextDeadline, stall]
            {
                if let deadline { earliest = min(earliest ?? deadline, deadline) }
            }
        }
        for file in incoming.values {
            for deadline in [file.machine.nextDeadline, file.expiresAt, file.stallsAt] {
                if let deadline { earliest = min(earliest ?? deadline, deadline) }
            }
        }
        return earliest
    }

    /// The members in a fixed order: the order of a dictionary must not reach an action.
    var memberKeys: [PublicKey] { members.keys.sorted() }

    func event(_ kind: Event.Kind, _ turn: Turn) -> NodeAction {
        .notify(Event(client: client, conversation: conversation, at: turn.now, kind: kind))
    }

    mutating func makeLifetimeMachine() {
        guard !members.isEmpty else {
            lifetimeMachine = nil
            return
        }
        lifetimeMachine = LifetimeStateMachine(
            conversation: conversation,
            own: key.publicKey,
            members: memberKeys,
            membership: record.group.membership,
            record: record.lifetime
        )
    }
}
