import Primitives

/// Invites and admissions.
extension ConversationStateMachine {
    // MARK: Invites

    /// Makes an invite. The shell encodes and signs it.
    package mutating func invite(
        lifetime: Milliseconds,
        singleUse: Bool,
        _ turn: inout Turn
    ) throws(CommandError) -> (invite: Invite, actions: [NodeAction]) {
        guard issuer != nil else { throw .notCreator }
        guard !issuer!.record.isLocked else { throw .conversationLocked }
        let invite = Invite(
            tag: issuer!.record.tag,
            conversationToken: ConversationToken.seal(
                conversation,
                key: key.secret,
                nonce: turn.random.bytes(12)
            ),
            creator: InboxID(key.publicKey),
            joinSecret: turn.random.bytes(32),
            endpoints: turn.endpoints(of: relaySeed),
            name: record.name,
            description: nil,
            lifetime: self.lifetime,
            conversationExpiresAt: record.schedule?.expiresAt,
            expiresAt: min(
                turn.now + min(max(lifetime, .second), Limits.inviteMaximumLifetime),
                record.schedule?.expiresAt ?? .latest
            ),
            singleUse: singleUse
        )
        let issued = IssuerStateMachine.IssuedInvite(
            id: invite.id,
            tag: invite.tag,
            expiresAt: invite.expiresAt,
            singleUse: singleUse,
            relayGeneration: record.relay.current
        )
        let over = forgetInvites(turn)
        guard issuer!.issue(issued) else { throw .tooManyInvites(limit: Limits.inviteCount) }
        return (invite, over + [.save(client), .register(client, .invite(invite.id))])
    }

    /// - Parameter grace: see ``IssuerStateMachine/prune(now:grace:)``.
    mutating func forgetInvites(after grace: Milliseconds = 0, _ turn: Turn) -> [NodeAction] {
        (issuer?.prune(now: turn.now, grace: grace) ?? []).map { .unregister(client, .invite($0)) }
    }

    /// Voids one invite. Its route stays until it expires, so that its holders are told.
    package mutating func revoke(_ invite: InviteID) throws(CommandError) -> [NodeAction] {
        guard issuer != nil else { throw .notCreator }
        guard issuer!.revoke(invite) else { throw .unknownInvite }
        return [.save(client)]
    }

    /// Rotates the tag: every invite made so far is void.
    package mutating func revokeAll(_ turn: inout Turn) throws(CommandError) -> [NodeAction] {
        guard issuer != nil else { throw .notCreator }
        issuer!.rotate(to: InviteTag.random(&turn.random))
        return [.save(client)]
    }

    // MARK: Admission

    /// The invite on our list whose secret the request shows.
    func issued(_ request: JoinRequest) -> InviteID? {
        let id = InviteID(unchecked: SHA256.hash(request.joinSecret))
        return issuer?.record.invites.contains { $0.id == id } == true ? id : nil
    }

    /// A join request over a link that came by an invite's token.
    package mutating func receiveJoinRequest(
        _ request: JoinRequest,
        verified: VerifiedInvite?,
        from joiner: PublicKey,
        on link: LinkID,
        isRelayed: Bool = false,
        _ turn: inout Turn
    ) -> [NodeAction] {
        // An admission is durable before the welcome leaves; a locked node cannot make it so, and the joiner asks again.
        guard issuer != nil, !turn.isLocked else { return [.close(link)] }
        let ours = verified.flatMap { $0.creatorKey == key.publicKey ? $0 : nil }
        let opensToken =
            ours.map { ConversationToken.open($0.invite.conversationToken, key: key.secret) == conversation } ?? false
        guard request.member.key == joiner, request.member.isValid else { return [.close(link)] }
        let answer = issuer!.decide(
            request,
            verified: ours,
            opensToken: opensToken,
            joiner: joiner,
            isMember: members[joiner] != nil,
            memberCount: members.count + 1,
            now: turn.now
        )
        switch answer {
        case .silence: return [.close(link)]
        case .refuse(let type):
            guard let tag = verified?.invite.tag else { return [.close(link)] }
            let error = JoinError(errorType: type, inviteTag: tag, timestamp: turn.now)
            return [.transmit(link, .joinError(error)), .close(link)]
        case .welcomeAgain:
            return welcome(joiner, on: link, isRelayed: isRelayed, tag: ours!.invite.tag, &turn)
        case .admit:
            issuer!.recordAdmission(of: joiner, by: ours!.invite.id)
            let newcomer = request.member
            // It may have been here before, and left.
            record.members.removeAll { $0.key == joiner }
            record.members.append(newcomer)
            let told = changeGroup(&turn, adding: newcomer) { state in
                state.members.append(joiner)
                state.membership += 1
            }
            return [event(.joinRequested(joiner), turn)] + enter(newcomer, turn) + told
                + lifetimeMembersChanged(&turn)
                + welcome(joiner, on: link, isRelayed: isRelayed, tag: ours!.invite.tag, &turn)
        }
    }

    private mutating func welcome(
        _ joiner: PublicKey,
        on link: LinkID,
        isRelayed: Bool,
        tag: InviteTag,
        _ turn: inout Turn
    ) -> [NodeAction] {
        let welcome = Welcome(
            tag: tag,
            genesis: record.genesis,
            group: record.group,
            members: [record.own] + currentMembers.filter { $0.key != joiner },
            expiresAt: record.schedule?.notice.expiresAt,
            notice: record.schedule?.notice.sealed(&turn.random),
            agreement: standingAgreement?.keeping(memberKeys + [key.publicKey])
        )
        // The link of the join is the first link of the member.
        return [.transmit(link, .welcome(welcome))]
            + linkOpened(link, to: joiner, weDialled: false, isRelayed: isRelayed, &turn)
    }
}
