import Primitives

/// What a sleeping inbox remembers of its session: in memory only, because a restart ends the session anyway. Most have
/// nothing to remember but that it goes on.
package final class ConversationSession: Sendable {
    /// How it stands with one member, where that is worth a word.
    struct Side: Hashable, Sendable {
        var hasEnded: Bool
        var lostAt: Timestamp?
        /// What it has not been told yet.
        var readReceipts: [MessageID]

        init?(_ member: ConversationStateMachine.MemberState) {
            guard member.hasEnded || member.link.lostAt != nil || !member.readReceipts.isEmpty else { return nil }
            (hasEnded, lostAt, readReceipts) = (member.hasEnded, member.link.lostAt, member.readReceipts)
        }
    }

    let sides: [PublicKey: Side]
    /// With an open proposal, or a renewal that is due later.
    let lifetimeMachine: LifetimeStateMachine?
    /// Of ``ConversationStateMachine/unconfirmed``.
    let unconfirmed: Set<MessageID>
    /// A change of the scheduled end that waits its turn.
    let deferredNotice: ConversationStateMachine.DeferredNotice?

    init(
        sides: [PublicKey: Side] = [:],
        lifetimeMachine: LifetimeStateMachine? = nil,
        unconfirmed: Set<MessageID> = [],
        deferredNotice: ConversationStateMachine.DeferredNotice? = nil
    ) {
        self.sides = sides
        self.lifetimeMachine = lifetimeMachine
        self.unconfirmed = unconfirmed
        self.deferredNotice = deferredNotice
    }

    /// A session that goes on and of which there is nothing else to remember.
    static let quiet = ConversationSession()
}

/// Sleep (section 10): a decision about this node's memory, not about the session. Links are closed with a word that says
/// so, and neither side counts the time.
extension ConversationStateMachine {
    /// A conversation that wakes.
    /// - Parameters:
    ///   - session: `nil` when it has ended since, by a restart.
    ///   - dials: it dials its members at once; otherwise those for whom something waits, and the others a little later.
    package init(
        client: ClientID,
        key: IdentityKey,
        record: ConversationRecord,
        session: ConversationSession?,
        undelivered: [Message],
        dials: Bool,
        now: Timestamp
    ) {
        self.init(client: client, key: key, record: record, isFresh: session != nil, now: now)
        for message in undelivered { restoreOutbox(message) }
        for member in memberKeys {
            if let side = session?.sides[member] {
                members[member]!.hasEnded = side.hasEnded
                members[member]!.link.remember(lostAt: side.lostAt)
                members[member]!.readReceipts = side.readReceipts
                receipted.formUnion(side.readReceipts)
            }
            guard !dials else { continue }
            members[member]!.link.rest()
            // Whoever woke us is dialling; should nothing come of it, two that are awake find each other all the same.
            let pause = Limits.inboxStayForToken + (key.publicKey < member ? 0 : Limits.redialYield)
            members[member]!.link.wanted(at: members[member]!.outbox.isEmpty ? now + pause : now)
        }
        if let machine = session?.lifetimeMachine { lifetimeMachine = machine }
        if let session { (unconfirmed, deferredNotice) = (session.unconfirmed, session.deferredNotice) }
    }

    /// Says to the members that nothing is wrong, and closes the links; nothing is due afterwards but what the
    /// conversation itself has to do.
    mutating func prepareToSleep(_ turn: Turn) -> [NodeAction] {
        var result: [NodeAction] = []
        for member in memberKeys {
            let open = link(to: member)
            rest(member)
            // In steps of their own: Swift 6.3.1 fails to compile it otherwise with optimisation (CopyPropagation).
            guard let open else { continue }
            result += linkLost(to: member, turn)
            result.append(.transmit(open, .closing(asleep: true)))
            result.append(.close(open))
        }
        return result
    }

    private mutating func rest(_ member: PublicKey) {
        members[member]?.link.rest()
        members[member]?.outbox.rest()
    }

    /// What has to be remembered while it sleeps.
    var session: ConversationSession {
        let sides = members.compactMapValues(ConversationSession.Side.init)
        let machine = pendingProposal == nil && lifetimeMachine?.renewsAt == nil ? nil : lifetimeMachine
        if sides.isEmpty, machine == nil, unconfirmed.isEmpty, deferredNotice == nil { return .quiet }
        return ConversationSession(
            sides: sides,
            lifetimeMachine: machine,
            unconfirmed: unconfirmed,
            deferredNotice: deferredNotice
        )
    }

    /// Every member has heard where we are now. Until then it is we who must dial.
    var isFound: Bool { memberKeys.allSatisfy { record.told[$0] == record.own.version } }

    /// A file is under way over a link. One of which nothing moves does not count: a member that names a file and sends
    /// nothing, or asks for chunks and takes none, keeps no inbox awake.
    package var isTransferring: Bool {
        incoming.values.contains { members[$0.sender]?.isEstablished == true && $0.stallsAt != nil }
            || members.values.contains { $0.isEstablished && !$0.serving.isIdle && $0.stallsAt != nil }
    }

    /// Messages of ours that are in memory only and not delivered: they must not be lost to sleep.
    var holdsUndelivered: Bool { members.values.contains { $0.outbox.holdsMemoryOnly } }

    /// A member has gone to sleep: its link is not lost, and it is dialled when there is something for it.
    mutating func receiveSleep(of member: PublicKey, on link: LinkID, _ turn: inout Turn) -> [NodeAction] {
        guard members[member] != nil, members[member]!.link.closedAsleep(link, now: turn.now) else {
            return [.close(link)]
        }
        let result = [.close(link)] + linkLost(to: member, turn)
        if !members[member]!.outbox.isEmpty {
            let wait = Limits.redialFirst + Milliseconds(turn.random.next(upperBound: UInt64(Milliseconds.second)))
            members[member]!.link.wanted(at: turn.now + wait)
        }
        return result
    }

    /// The user wants to talk: members without a link are dialled.
    package mutating func reach(_ turn: inout Turn) -> [NodeAction] {
        for member in memberKeys where members[member]!.link.link == nil { members[member]!.link.hurry(now: turn.now) }
        return advance(&turn)
    }

    /// Every member has a link, or there is none.
    package var isReached: Bool { members.values.allSatisfy(\.isEstablished) }

    /// A member is being dialled, or says where it stands: worth waiting for.
    package func isReaching(now: Timestamp) -> Bool {
        members.values.contains { !$0.isEstablished && $0.link.isReaching(now: now) }
    }
}
