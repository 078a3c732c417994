import Crypto

/// One conversation at one member: its links, outboxes, lifetime, and at the creator its invites.
package struct ConversationStateMachine: Sendable {
    let names: ConversationNames
    package let key: IdentityKey
    /// Stale in the lifetime; ``savedRecord`` is complete.
    package internal(set) var record: ConversationRecord
    var members: [PublicKey: ConversationMember] = [:]
    var lifetimes = ConversationAgreement()
    /// Messages with a read receipt sent or queued since the node started.
    var receipted: Set<MessageID> = []
    var files: [MessageID: IncomingFile] = [:]
    var ending = ConversationEnding()
    var places = RelayPlaces()
    var mail = ConversationMailbox()
    var tally = FrameTally()
    /// Memory-only contents that the user has not seen, in bytes.
    package internal(set) var heldByteCount = 0
    /// Contents that were expired on arrival and have been reported.
    var expiredOnArrival: Set<MessageID> = []
    /// The last version reported with two states signed by the creator.
    var conflictTold: UInt64?
    /// See ``SessionStart/run``; 0 before the first session.
    var run: UInt64 = 0
    private var wordPingCount: UInt64 = 0
    /// Members that left the creator's conversation while its key was wiped.
    var leftWhileLocked: [PublicKey] = []

    package init(client: ClientID, key: IdentityKey, record: ConversationRecord, isFresh: Bool, now: Timestamp) {
        names = ConversationNames(client: client, conversation: record.genesis.conversation)
        self.key = key
        self.record = record
        for member in record.current {
            members[member.key] = ConversationMember(member, own: key.publicKey, hasEnded: !isFresh, now: now)
        }
        beginLifetimes()
        places.note(record.relay, record.issuer, key: key, now: now)
    }

    package var client: ClientID { names.client }
    package var conversation: ConversationID { names.conversation }
    package var droppedCount: Int { tally.dropped }
    package var forgedCount: Int { tally.forged }
    /// Seeds of our reservations at rendezvous nodes: the current one first, then earlier ones still in use.
    package var relaySeeds: [RelaySeed] { places.seeds }
    package var isCreator: Bool { record.genesis.creator == key.publicKey }
    package var lifetime: Lifetime { lifetimes.machine?.lifetime ?? .ephemeral }
    package var pendingProposal: (proposal: LifetimeProposal, isOurs: Bool)? { lifetimes.machine?.pending }
    /// The agreement in force; `nil`: ephemeral.
    package var agreement: Agreement? { lifetimes.machine?.inForce }
    package var invites: InviteBook? { record.issuer }
    package var currentMembers: [Member] { record.members.filter { members[$0.key] != nil } }

    /// Keys with accepted routing tokens: members, at the creator also removed ones; after our removal the creator.
    package var reachableBy: [PublicKey] {
        record.isRemoved ? [record.genesis.creator] : currentMembers.map(\.key) + record.former
    }

    package func isOnline(_ member: PublicKey) -> Bool { members[member]?.isEstablished ?? false }
    /// Whether the last event said `peerOnline`, even while one link replaces another.
    package func isShownOnline(_ member: PublicKey) -> Bool { members[member]?.isShownOnline ?? false }
    package func link(to member: PublicKey) -> LinkID? { members[member]?.link.link }
    package func outbox(to member: PublicKey) -> [OutboxStateMachine.Entry] { members[member]?.outbox.all ?? [] }
    package func outboxEntry(_ message: MessageID, to member: PublicKey) -> OutboxStateMachine.Entry? {
        members[member]?.outbox[message]
    }
    /// No session has ended by a restart or a close.
    package var sessionGoesOn: Bool { members.values.allSatisfy { !$0.hasEnded } }
    package var outboxCount: Int { members.values.reduce(0) { $0 + $1.outbox.count } }

    package var savedRecord: ConversationRecord {
        var saved = record
        if let machine = lifetimes.machine { saved.lifetime = machine.record }
        return saved
    }

    package var nextDeadline: Timestamp? { nextDeadline(touching: nil) }

    /// - Parameter changed: considers only this member; `nil`: all members.
    func nextDeadline(touching changed: PublicKey?) -> Timestamp? {
        let own = earliest(
            lifetimes.machine?.nextDeadline, lifetimes.heldEnd?.until, endingDeadline, places.deadline, filesDeadline,
            usesMailbox ? mailDeadline : nil)
        if let changed { return earliest(own, members[changed]?.nextDeadline) }
        return members.values.reduce(own) { earliest($0, $1.nextDeadline) }
    }

    /// There is news for a member: messages, unconfirmed frames, a scheduled explosion, or our endpoints.
    var hasNews: Bool { members.keys.contains(where: hasNews) }

    func hasNews(for member: PublicKey) -> Bool {
        members[member]!.hasNews || owesSchedule(member) || record.told[member] != record.own.version
    }

    /// We scheduled an explosion, and this member has not confirmed it.
    private func owesSchedule(_ member: PublicKey) -> Bool {
        isCreator && record.schedule.map { !$0.confirmed.contains(member) } ?? false
    }

    /// Sends a ping behind frames that no acknowledgement answers: frames arrive in order, so the pong confirms them.
    /// Without a link it requests one.
    mutating func askForWord(now: Timestamp) -> [NodeAction] {
        var result: [NodeAction] = []
        for member in memberKeys
        where members[member]!.wordPing == nil && (members[member]!.hasNews || owesSchedule(member)) {
            guard let link = members[member]!.establishedLink else {
                members[member]!.link.wanted(at: now)
                continue
            }
            guard members[member]!.owesWord else { continue }
            // Above every profile version, so a pong tells which of the two it answers.
            wordPingCount += 1
            let ping = 1 << 63 | wordPingCount
            members[member]!.wordPing = ping
            result.append(.transmit(link, .ping(ping)))
        }
        return result
    }

    /// Sorted, since the order of a dictionary must not reach an action.
    var memberKeys: [PublicKey] { members.keys.sorted() }

    func event(_ kind: Event.Kind, _ turn: Turn) -> NodeAction { names.event(kind, turn) }

    // MARK: Lifetime agreements (Lifetime.md)

    /// - Throws: ``CommandError/noOtherMember``, ``CommandError/notConnected``, ``CommandError/lifetime(_:)``.
    package mutating func propose(_ terms: LifetimeTerms, _ turn: inout Turn) throws(CommandError) -> [NodeAction] {
        // An agreement needs every member's signature.
        guard memberKeys.allSatisfy(isOnline) else { throw .notConnected }
        return try negotiate(&turn) { [key] machine, turn throws(LifetimeStateMachine.Refusal) in
            try machine.propose(terms, now: turn.now, key: key, random: &turn.random)
        }
    }

    /// Throws as ``propose(_:_:)``.
    /// - Parameter seen: the proposal that the user saw; `nil`: any open one.
    package mutating func accept(only seen: ProposalID? = nil, _ turn: inout Turn) throws(CommandError) -> [NodeAction]
    {
        try checkProposer()
        return try negotiate(&turn) { [key] machine, turn throws(LifetimeStateMachine.Refusal) in
            try machine.accept(only: seen, now: turn.now, key: key, random: &turn.random)
        }
    }

    package mutating func reject(_ turn: inout Turn) throws(CommandError) -> [NodeAction] {
        try checkProposer()
        return try negotiate(&turn) { machine, _ throws(LifetimeStateMachine.Refusal) in try machine.reject() }
    }

    package mutating func withdraw(_ turn: inout Turn) throws(CommandError) -> [NodeAction] {
        // With more members, an absent one learns it on its next link.
        if members.count == 1 { guard memberKeys.allSatisfy(isOnline) else { throw .notConnected } }
        return try negotiate(&turn) { machine, _ throws(LifetimeStateMachine.Refusal) in try machine.withdraw() }
    }

    package mutating func setPolicy(_ policy: LifetimePolicy?) -> [NodeAction] {
        record.lifetime.policy = policy
        _ = lifetimes.machine?.setPolicy(policy)
        return [.save(client)]
    }

    /// Applies to messages sent and received from now on. `nil` follows the node's default.
    package mutating func setCap(_ cap: LifetimeCap?) -> [NodeAction] {
        record.lifetime.cap = cap
        lifetimes.machine?.record.cap = cap
        return [.save(client)]
    }

    private mutating func negotiate(
        _ turn: inout Turn,
        _ step: (inout LifetimeStateMachine, inout Turn) throws(LifetimeStateMachine.Refusal) -> [LifetimeStateMachine
            .Action]
    ) throws(CommandError) -> [NodeAction] {
        guard var machine = lifetimes.machine else { throw .noOtherMember }
        let actions: [LifetimeStateMachine.Action]
        do throws(LifetimeStateMachine.Refusal) { actions = try step(&machine, &turn) } catch { throw .lifetime(error) }
        lifetimes.machine = machine
        return perform(actions, &turn)
    }

    /// An answer needs a link to the proposer.
    private func checkProposer() throws(CommandError) {
        guard !members.isEmpty else { throw .noOtherMember }
        guard let pending = pendingProposal, !pending.isOurs else {
            guard memberKeys.contains(where: isOnline) else { throw .notConnected }
            return
        }
        guard isOnline(pending.proposal.proposer) else { throw .notConnected }
    }

    mutating func receive(_ message: LifetimeMessage, from member: PublicKey, _ turn: inout Turn) -> [NodeAction] {
        let policy = policy(turn)
        guard
            let actions = lifetimes.machine?.receive(
                message, from: member, policy: policy, now: turn.now, key: key, random: &turn.random)
        else { return [] }
        return perform(actions, &turn)
    }

    /// The newest agreement while its session lasts; in force when all have signed. A welcome shows it to the joiner.
    package var standing: Agreement? { lifetimes.machine?.standing }
    /// Members that have not answered the open proposal.
    package var unanswered: [PublicKey] { lifetimes.machine?.unanswered ?? [] }
    /// All agreements that are kept whole, oldest first.
    package var agreements: [Agreement] {
        let saved = lifetimes.machine?.record ?? record.lifetime
        return saved.earlier + [saved.head].compactMap(\.self)
    }

    /// Entering is consent to the agreement in the welcome.
    mutating func enter(under agreement: Agreement?, _ turn: inout Turn) -> [NodeAction] {
        guard let agreement,
            let actions = lifetimes.machine?.joined(under: agreement, now: turn.now, key: key, random: &turn.random)
        else { return [] }
        return perform(actions, &turn)
    }

    /// Reading extends a message to its full lifetime, or starts its read timer.
    package func markRead(_ messages: [Message], now: Timestamp) -> [NodeAction] {
        messages.compactMap { message in
            message.opened(at: now)?.expiresAt.map { .reschedule(client, message.content.id, expiresAt: $0) }
        }
    }
}

// MARK: - Invites and admissions

extension ConversationStateMachine {
    // MARK: Invites

    /// The shell encodes and signs the invite.
    package mutating func invite(lifetime: Milliseconds, singleUse: Bool, _ turn: inout Turn) throws(CommandError) -> (
        invite: Invite, actions: [NodeAction]
    ) {
        guard let issuer = record.issuer else { throw .notCreator }
        guard !issuer.isLocked else { throw .conversationLocked }
        let invite = Invite(
            tag: issuer.tag,
            conversationToken: ConversationToken.seal(conversation, key: key.secret, nonce: turn.random.bytes(12)),
            creator: InboxID(key.publicKey), joinSecret: turn.random.bytes(32),
            endpoints: turn.endpoints(of: relaySeed, atMost: Limits.inviteEndpointCount), name: record.name,
            description: nil, lifetime: self.lifetime, conversationExpiresAt: record.schedule?.expiresAt,
            expiresAt: min(
                turn.now + min(max(lifetime, .second), Limits.inviteMaximumLifetime),
                record.schedule?.expiresAt ?? .latest), singleUse: singleUse)
        let issued = InviteBook.IssuedInvite(
            id: invite.id, tag: invite.tag, expiresAt: invite.expiresAt, singleUse: singleUse,
            relayGeneration: record.relay.current)
        let over = forgetInvites(turn)
        guard record.issuer!.issue(issued) else { throw .tooManyInvites(limit: Limits.inviteCount) }
        return (invite, over + [.save(client), .register(client, .invite(invite.id))])
    }

    mutating func forgetInvites(after grace: Milliseconds = 0, _ turn: Turn) -> [NodeAction] {
        (record.issuer?.prune(now: turn.now, grace: grace) ?? []).map { .unregister(client, .invite($0)) }
    }

    /// The invite's route stays until it expires, so that its holders are told.
    package mutating func revoke(_ invite: InviteID) throws(CommandError) -> [NodeAction] {
        guard record.issuer != nil else { throw .notCreator }
        guard record.issuer!.revoke(invite) else { throw .unknownInvite }
        return [.save(client)]
    }

    /// Rotates the tag: every invite made so far is void.
    package mutating func revokeAll(_ turn: inout Turn) throws(CommandError) -> [NodeAction] {
        guard record.issuer != nil else { throw .notCreator }
        record.issuer!.tag = InviteTag.random(&turn.random)
        return [.save(client)]
    }

    // MARK: Admission

    /// The issued invite whose secret the request shows.
    func issued(_ request: JoinRequest) -> InviteID? {
        let id = InviteID(unchecked: SHA256.hash(request.joinSecret))
        return record.issuer?.invites.contains { $0.id == id } == true ? id : nil
    }

    /// Handles a join request on a link that was dialled with an invite's token.
    package mutating func receiveJoinRequest(
        _ request: JoinRequest, verified: VerifiedInvite?, from joiner: PublicKey, on link: LinkID,
        isRelayed: Bool = false, _ turn: inout Turn
    ) -> [NodeAction] {
        // An admission is durable before the welcome. A locked node cannot save it, so the joiner asks again.
        guard record.issuer != nil, !turn.isLocked else { return [.close(link)] }
        let ours = verified.flatMap { $0.creatorKey == key.publicKey ? $0 : nil }
        let opensToken =
            ours.map { ConversationToken.open($0.invite.conversationToken, key: key.secret) == conversation } ?? false
        guard request.member.key == joiner, request.member.isValid else { return [.close(link)] }
        let answer = record.issuer!.decide(
            request, verified: ours, opensToken: opensToken, joiner: joiner, isMember: members[joiner] != nil,
            memberCount: members.count + 1, now: turn.now)
        switch answer {
        case .silence: return [.close(link)]
        case .refuse(let type):
            guard let tag = verified?.invite.tag else { return [.close(link)] }
            let error = JoinError(errorType: type, inviteTag: tag, timestamp: turn.now)
            return [.transmit(link, .joinError(error)), .close(link)]
        case .welcomeAgain: return welcome(joiner, on: link, isRelayed: isRelayed, tag: ours!.invite.tag, &turn)
        case .admit:
            record.issuer!.recordAdmission(of: joiner, by: ours!.invite.id)
            let newcomer = request.member
            // The joiner may be a former member.
            record.members.removeAll { $0.key == joiner }
            record.members.append(newcomer)
            let told = changeGroup(&turn, adding: newcomer) { state in
                state.members.append(joiner)
                state.membership += 1
            }
            return [event(.joinRequested(joiner), turn)] + enter(newcomer, turn) + told + lifetimeMembersChanged(&turn)
                + welcome(joiner, on: link, isRelayed: isRelayed, tag: ours!.invite.tag, &turn)
        }
    }

    private mutating func welcome(
        _ joiner: PublicKey, on link: LinkID, isRelayed: Bool, tag: InviteTag, _ turn: inout Turn
    ) -> [NodeAction] {
        let welcome = Welcome(
            tag: tag, genesis: record.genesis, group: record.group,
            members: [record.own] + currentMembers.filter { $0.key != joiner },
            expiresAt: record.schedule?.notice.expiresAt, notice: record.schedule?.notice.sealed(&turn.random),
            agreement: standing?.keeping(memberKeys + [key.publicKey]))
        // The link of the join becomes the member's first link.
        return [.transmit(link, .welcome(welcome))]
            + linkOpened(link, to: joiner, weDialled: false, isRelayed: isRelayed, &turn)
    }
}
