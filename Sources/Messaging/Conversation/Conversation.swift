import Cryptography

/// One conversation at one member: its peers, lifetime, and at the creator its invites. Effects go into the turn.
package final class Conversation {
    package let client: ClientID
    package let conversation: ConversationID
    package let key: IdentityKey
    package internal(set) var record: ConversationRecord
    /// The other members, ordered by their keys: a dictionary's order must not reach an action.
    var peers: [Peer] = []
    /// The record follows each change.
    var lifetimes = ConversationAgreement() {
        didSet { if let machine = lifetimes.machine { record.lifetime = machine.record } }
    }
    /// Messages with a read receipt sent or queued since the node started.
    var receipted: Set<MessageID> = []
    var files: [MessageID: IncomingFile] = [:]
    var ending = ConversationEnding()
    var places = RelayPlaces()
    /// The agreement on a mailbox that our profile follows.
    var mailAgreement: AgreementID?
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
    var memberMessages = TokenBucket(Limits.memberMessageRate)
    /// Members that left the creator's conversation while its key was wiped.
    var leftWhileLocked: [PublicKey] = []

    package init(client: ClientID, key: IdentityKey, record: ConversationRecord, isFresh: Bool, now: Timestamp) {
        self.client = client
        conversation = record.genesis.conversation
        self.key = key
        self.record = record
        for member in record.current {
            let peer = Peer(member, own: key.publicKey, hasEnded: !isFresh, now: now)
            peer.owesWord = record.unheard.contains(member.key)
            insert(peer)
        }
        beginLifetimes()
        places.note(record.relay, record.issuer, key: key, now: now)
    }

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
    package var currentMembers: [Member] { record.members.filter { peer($0.key) != nil } }

    /// Keys with accepted routing tokens: members, at the creator also removed ones; after our removal the creator.
    package var reachableBy: [PublicKey] {
        record.isRemoved ? [record.genesis.creator] : currentMembers.map(\.key) + record.former
    }

    package func isOnline(_ member: PublicKey) -> Bool { peer(member)?.isEstablished ?? false }
    /// Whether the last event said `peerOnline`, even while one link replaces another.
    package func isShownOnline(_ member: PublicKey) -> Bool { peer(member)?.isShownOnline ?? false }
    package func link(to member: PublicKey) -> LinkID? { peer(member)?.link.link }
    package func outbox(to member: PublicKey) -> [OutboxStateMachine.Entry] { peer(member)?.outbox.all ?? [] }
    package func outboxEntry(_ message: MessageID, to member: PublicKey) -> OutboxStateMachine.Entry? {
        peer(member)?.outbox[message]
    }
    /// No session has ended by a restart or a close.
    package var sessionGoesOn: Bool { peers.allSatisfy { !$0.hasEnded } }
    package var outboxCount: Int { peers.reduce(0) { $0 + $1.outbox.count } }

    func peer(_ key: PublicKey) -> Peer? { peers.first { $0.key == key } }

    func isPresent(_ peer: Peer) -> Bool { peers.contains { $0 === peer } }

    /// Takes the place of an earlier peer with the same key.
    func insert(_ peer: Peer) {
        peers.removeAll { $0.key == peer.key }
        peers.insert(peer, at: peers.firstIndex { peer.key < $0.key } ?? peers.endIndex)
    }

    func profile(of member: PublicKey) -> Member? { record.members.first { $0.key == member } }

    package var nextDeadline: Timestamp? { nextDeadline(touching: nil) }

    /// - Parameter changed: considers only this member; `nil`: all members.
    func nextDeadline(touching changed: PublicKey?) -> Timestamp? {
        let own = earliest(
            lifetimes.machine?.nextDeadline, lifetimes.heldEnd?.until, endingDeadline, places.deadline, filesDeadline,
            usesMailbox ? mailDeadline : nil)
        if let changed { return earliest(own, peer(changed)?.nextDeadline) }
        return peers.reduce(own) { earliest($0, $1.nextDeadline) }
    }

    /// There is news for a member: messages, unconfirmed frames, a scheduled explosion, or our endpoints.
    var hasNews: Bool { peers.contains { hasNews(for: $0) } }

    func hasNews(for peer: Peer) -> Bool {
        peer.hasNews || owesSchedule(peer) || record.told[peer.key] != record.own.version
    }

    /// We scheduled an explosion, and this member has not confirmed it.
    private func owesSchedule(_ peer: Peer) -> Bool {
        isCreator && record.schedule.map { !$0.confirmed.contains(peer.key) } ?? false
    }

    /// Sends a ping behind frames that no acknowledgement answers: frames arrive in order, so the pong confirms them.
    /// Without a link it requests one.
    func askForWord(_ turn: inout Turn) {
        for peer in peers where peer.wordPing == nil && (peer.hasNews || owesSchedule(peer)) {
            guard let link = peer.establishedLink else {
                peer.link.wanted(at: turn.now)
                continue
            }
            guard peer.owesWord else { continue }
            // Above every profile version, so a pong tells which of the two it answers.
            wordPingCount += 1
            let ping = 1 << 63 | wordPingCount
            peer.wordPing = ping
            turn.send(.ping(ping), on: link)
        }
    }

    func tell(_ kind: Event.Kind, _ turn: inout Turn) { turn.tell(kind, client, conversation) }

    /// The same of several messages.
    func tell(_ happening: MessageEvents.Happening, _ messages: [MessageID], _ turn: inout Turn) {
        turn.add(
            .notifyMessages(
                MessageEvents(
                    client: client, conversation: conversation, at: turn.now, messages: messages, happening: happening))
        )
    }
}

extension Conversation {
    /// The shell encodes and signs the invite.
    package func invite(lifetime: Milliseconds, singleUse: Bool, _ turn: inout Turn) throws(CommandError) -> Invite {
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
        forgetInvites(&turn)
        guard record.issuer!.issue(issued) else { throw .tooManyInvites }
        turn.save(client)
        turn.add(.register(client, .invite(invite.id)))
        return invite
    }

    /// Throws as ``invite(lifetime:singleUse:_:)``, and makes none.
    package func checkInvite(now: Timestamp) throws(CommandError) {
        guard var issuer = record.issuer else { throw .notCreator }
        guard !issuer.isLocked else { throw .conversationLocked }
        _ = issuer.prune(now: now)
        guard issuer.invites.count < Limits.inviteCount else { throw .tooManyInvites }
    }

    func forgetInvites(after grace: Milliseconds = 0, _ turn: inout Turn) {
        for invite in record.issuer?.prune(now: turn.now, grace: grace) ?? [] {
            turn.add(.unregister(client, .invite(invite)))
        }
    }

    /// The invite's route stays until it expires, so that its holders are told.
    package func revoke(_ invite: InviteID, _ turn: inout Turn) throws(CommandError) {
        guard record.issuer != nil else { throw .notCreator }
        guard record.issuer!.revoke(invite) else { throw .unknownInvite }
        turn.save(client)
    }

    /// Rotates the tag: every invite made so far is void.
    package func revokeAll(_ turn: inout Turn) throws(CommandError) {
        guard record.issuer != nil else { throw .notCreator }
        record.issuer!.tag = InviteTag.random(&turn.random)
        turn.save(client)
    }

    /// The issued invite whose secret the request shows.
    func issued(_ request: JoinRequest) -> InviteID? {
        let id = InviteID(unchecked: SHA256.hash(request.joinSecret))
        return record.issuer?.invites.contains { $0.id == id } == true ? id : nil
    }

    /// Handles a join request on a link that was dialled with an invite's token.
    package func receiveJoinRequest(
        _ request: JoinRequest, verified: VerifiedInvite?, from joiner: PublicKey, on link: LinkID,
        isRelayed: Bool = false, _ turn: inout Turn
    ) {
        // An admission is durable before the welcome. A locked node cannot save it, so the joiner asks again.
        guard record.issuer != nil, !turn.isLocked else { return turn.close(link) }
        let ours = verified.flatMap { $0.creatorKey == key.publicKey ? $0 : nil }
        let opensToken =
            ours.map { ConversationToken.open($0.invite.conversationToken, key: key.secret) == conversation } ?? false
        guard request.member.key == joiner, request.member.isValid else { return turn.close(link) }
        let answer = record.issuer!.decide(
            request, verified: ours, opensToken: opensToken, joiner: joiner, isMember: peer(joiner) != nil,
            memberCount: peers.count + 1, now: turn.now)
        switch answer {
        case .silence: turn.close(link)
        case .refuse(let type):
            if let tag = verified?.invite.tag {
                turn.send(.joinError(JoinError(errorType: type, inviteTag: tag, timestamp: turn.now)), on: link)
            }
            turn.close(link)
        case .welcomeAgain: welcome(joiner, on: link, isRelayed: isRelayed, tag: ours!.invite.tag, &turn)
        case .admit:
            record.issuer!.recordAdmission(of: joiner, by: ours!.invite.id)
            let newcomer = request.member
            // The joiner may be a former member.
            record.members.removeAll { $0.key == joiner }
            record.members.append(newcomer)
            tell(.joinRequested(joiner), &turn)
            enter(newcomer, &turn)
            changeGroup(&turn, adding: newcomer) { state in
                state.members.append(joiner)
                state.membership += 1
            }
            lifetimeMembersChanged(&turn)
            welcome(joiner, on: link, isRelayed: isRelayed, tag: ours!.invite.tag, &turn)
        }
    }

    private func welcome(_ joiner: PublicKey, on link: LinkID, isRelayed: Bool, tag: InviteTag, _ turn: inout Turn) {
        let welcome = Welcome(
            tag: tag, genesis: record.genesis, group: record.group,
            members: [record.own] + currentMembers.filter { $0.key != joiner },
            expiresAt: record.schedule?.notice.expiresAt, notice: record.schedule?.notice.sealed(&turn.random),
            agreement: standing?.keeping(peers.map(\.key) + [key.publicKey]))
        // The link of the join becomes the member's first link.
        turn.send(.welcome(welcome), on: link)
        linkOpened(link, to: joiner, weDialled: false, isRelayed: isRelayed, &turn)
    }
}
