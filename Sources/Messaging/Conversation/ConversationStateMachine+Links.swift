import Crypto

/// Links, sessions, time and sleep.
extension ConversationStateMachine {
    // MARK: Links

    /// A handshake with a member has ended.
    package mutating func linkOpened(
        _ link: LinkID, to member: PublicKey, weDialled: Bool, isRelayed: Bool = false, _ turn: inout Turn
    ) -> [NodeAction] {
        guard members[member] != nil else { return [.close(link)] }
        guard !isShunned(member, now: turn.now) else {
            if weDialled { members[member]!.link.dialFailed(now: turn.now, random: &turn.random) }
            return [.close(link)]
        }
        let dialer = weDialled ? key.publicKey : member
        let lostAt = members[member]!.link.lostAt
        let wasEstablished = members[member]!.isEstablished
        let actions = members[member]!.link.opened(link, dialer: dialer, isRelayed: isRelayed, now: turn.now)
        var result: [NodeAction] = []
        for action in actions {
            switch action {
            case .use(let link):
                members[member]!.punching.linkChanged()
                if wasEstablished {
                    // It takes the place of another: what was in flight goes again, once both have said where they stand.
                    members[member]!.linkLost()
                    files.linkLost(to: member)
                }
                let wasAway = !wasEstablished && lifetimes.endsSession(lostAt: lostAt, &members, turn)
                result += startSession(with: member, on: link, wasAway: wasAway, &turn)
            // The transport ends our side behind what was sent and still hands over what comes; and it does not wait for
            // ever for a peer that keeps its side open.
            case .retire(let link): result += [.transmit(link, .closing(asleep: false)), .close(link)]
            case .dial, .ping, .drop, .upgrade: preconditionFailure("an opened link is used or retired, not \(action)")
            }
        }
        return result
    }

    private mutating func startSession(with member: PublicKey, on link: LinkID, wasAway: Bool, _ turn: inout Turn)
        -> [NodeAction]
    {
        guard let state = members[member] else { return [] }
        let moved = endpointsChanged(&turn)
        // What has come to its end meanwhile is a gap that is told now.
        let overdue = members[member]!.outbox.advance(now: turn.now, isLinked: false, random: &turn.random)
        let ended = perform(overdue, to: member, on: nil, turn)
        let reset = state.hasEnded || wasAway
        var start =
            lifetimes.machine?.sessionStart(reset: reset, policy: lifetimes.policy(record, turn))
            ?? SessionStart(reset: reset, inForce: nil, head: nil, renewable: nil)
        start.member = record.own
        start.groupDigest = groupDigest
        start.undelivered = record.undelivered[member] ?? 0
        if run == 0 { run = turn.random.next() }
        start.run = run
        start.copies = state.runs.areCopied(now: turn.now)
        members[member]!.sessionSent = start
        return moved + ended + [.transmit(link, .session(start))]
    }

    mutating func receive(_ start: SessionStart, from member: PublicKey, on link: LinkID, _ turn: inout Turn)
        -> [NodeAction]
    {
        guard members[member]!.link.link == link, let sent = members[member]!.sessionSent else { return [] }
        var result = start.member.map { receive($0, from: member, &turn) } ?? []
        result += noteMissed(start.undelivered, of: member, turn)
        result += noteRun(start, of: member, &turn)
        if start.groupDigest != groupDigest { result.append(.transmit(link, .group(wholeGroup))) }
        if let description = start.member { result += confirm(description, from: member, on: link, turn) }
        members[member]!.sessionSent = nil
        members[member]!.isEstablished = true
        members[member]!.link.sessionEstablished()
        let hasRestarted = members[member]!.hasEnded
        lifetimes.noteSession(with: member, saidReset: sent.reset, &members)
        let isNews = !members[member]!.isShownOnline
        members[member]!.isShownOnline = true
        members[member]!.movesUntil = nil
        if isNews { result.append(event(.peerOnline(member), turn)) }
        if let actions = lifetimes.machine?.sessionEstablished(
            with: member, sent: sent, received: start, hasRestarted: hasRestarted, now: turn.now, key: key,
            random: &turn.random)
        {
            result += perform(actions, &turn)
        }
        result += ending.showSchedule(on: link, record, &turn)
        let said = mail.linked(member)
        if !said.isEmpty { result.append(.transmit(link, .acknowledgement(said))) }
        result += mail.askForSlices(mailContext, now: turn.now)
        result += flush(member, &turn)
        result += deliveries.flush(to: member, of: &members, turn)
        result += askForWord(now: turn.now)
        return result + files.resume(of: member, on: link, in: members, turn)
    }

    /// What a member gave up was for us: the gap is shown.
    private mutating func noteMissed(_ count: UInt64, of member: PublicKey, _ turn: Turn) -> [NodeAction] {
        let known = record.missed[member] ?? 0
        guard count > known else { return [] }
        record.missed[member] = count
        return [.save(client), event(.messagesMissed(member, count: count - known), turn)]
    }

    /// Two copies of one home take each other's links, many times a second. While that lasts both sides dial slowly.
    private mutating func noteRun(_ start: SessionStart, of member: PublicKey, _ turn: inout Turn) -> [NodeAction] {
        var result: [NodeAction] = []
        if members[member]!.runs.note(start.run, now: turn.now) {
            result.append(event(.twoCopies(member, ours: false), turn))
        }
        if start.copies, members[member]!.runs.noteReport(now: turn.now) {
            result.append(event(.twoCopies(member, ours: true), turn))
        }
        let runs = members[member]!.runs
        if runs.areCopied(now: turn.now) || runs.reportsCopies(now: turn.now) {
            let wait = Limits.redialCopies + Milliseconds(turn.random.next(upperBound: UInt64(Limits.redialCopies / 2)))
            members[member]!.link.dialSlowly(wait, until: turn.now + Limits.copiesLifetime)
        }
        return result
    }

    /// Two copies of this member's home run at once.
    package func isCopied(_ member: PublicKey, now: Timestamp) -> Bool {
        members[member]?.runs.areCopied(now: now) ?? false
    }

    /// This member reports that two copies of our home run at once.
    package func reportsCopies(_ member: PublicKey, now: Timestamp) -> Bool {
        members[member]?.runs.reportsCopies(now: now) ?? false
    }

    /// A member was copied, or has reported copies of us, at some time.
    var hasShownCopies: Bool { members.values.contains(where: \.runs.haveShownCopies) }

    /// The member has retired this link, for it has another one, which may not have opened here yet.
    mutating func receiveClosing(from member: PublicKey, on link: LinkID, _ turn: Turn) -> [NodeAction] {
        guard members[member]!.link.closed(link, now: turn.now) else { return [.close(link)] }
        let isShown = members[member]!.isShownOnline
        members[member]!.isShownOnline = false
        let result = [.close(link)] + linkLost(to: member, turn)
        if isShown {
            members[member]!.isShownOnline = true
            members[member]!.movesUntil = turn.now + Limits.pingPatience
        }
        return result
    }

    /// Shows the member as away, since no link has followed the retired one.
    private mutating func endMove(of member: PublicKey, _ turn: Turn) -> [NodeAction] {
        guard members[member]!.movesUntil != nil else { return [] }
        members[member]!.movesUntil = nil
        members[member]!.isShownOnline = false
        return [event(.peerOffline(member), turn)]
    }

    /// The transport has lost a link, or the peer has closed it.
    package mutating func linkClosed(_ link: LinkID, to member: PublicKey, _ turn: Turn) -> [NodeAction] {
        guard members[member] != nil, members[member]!.link.closed(link, now: turn.now) else { return [] }
        return linkLost(to: member, turn)
    }

    mutating func linkLost(to member: PublicKey, _ turn: Turn) -> [NodeAction] {
        members[member]!.linkLost()
        files.linkLost(to: member)
        members[member]!.sessionSent = nil
        lifetimes.noteLinkLost(members, turn)
        let wasShownOnline = members[member]!.isShownOnline
        members[member]!.isShownOnline = false
        return wasShownOnline ? [event(.peerOffline(member), turn)] : []
    }

    /// - Parameter isUnknownThere: the remote node answered and closed: it does not know our token, or over UDP, where
    ///   such a node is silent, nobody answered.
    package mutating func dialFailed(to member: PublicKey, isUnknownThere: Bool, _ turn: inout Turn) -> [NodeAction] {
        guard members[member] != nil else { return [] }
        members[member]!.link.dialFailed(now: turn.now, random: &turn.random)
        guard isUnknownThere, let endpoints = record.members.first(where: { $0.key == member })?.endpoints else {
            return []
        }
        // It may have exploded while we were away: its tombstone answers a knock.
        return [.knock(.ask(client, member, endpoints))]
    }

    // MARK: Forgeries

    /// A frame did not verify. Nobody honest sends one, and each costs a signature check: after a few the link is closed,
    /// and the member is not heard for a while.
    mutating func noteForgery(by member: PublicKey, on link: LinkID, _ turn: Turn) -> [NodeAction] {
        guard members[member]?.forgeries.take(now: turn.now) != nil else { return [] }
        let end = turn.now + Limits.forgeryPause
        members[member]!.shunnedUntil = end
        let result = linkClosed(link, to: member, turn)
        members[member]!.link.wait(until: end)
        return [.close(link)] + result
    }

    /// Whether links with this member are refused now: see ``Limits/forgeryPause``.
    package func isShunned(_ member: PublicKey, now: Timestamp) -> Bool {
        members[member]?.isShunned(now: now) ?? false
    }

    // MARK: Time

    /// Dials, pings, sends again and ends what is due.
    package mutating func advance(_ turn: inout Turn) -> [NodeAction] {
        let schedule = ending.advance(&record, endingContext, &turn)
        var result = schedule.actions
        if schedule.hasEnded { return result }
        // Not worth a write of its own: what is over is so after a restart, too.
        result += forgetInvites(after: Limits.joinLifetime, turn)
        result += advanceRelay(&turn)
        result += lifetimes.showEndIfDue(record, &turn)
        if let actions = lifetimes.machine?.expire(now: turn.now) { result += perform(actions, &turn) }
        let policy = lifetimes.policy(record, turn)
        if let actions = lifetimes.machine?.renewIfDue(policy: policy, now: turn.now, key: key, random: &turn.random) {
            result += perform(actions, &turn)
        }
        for member in memberKeys {
            if let end = members[member]!.movesUntil, end <= turn.now { result += endMove(of: member, turn) }
            for action in members[member]!.link.advance(now: turn.now) {
                switch action {
                case .dial: result.append(dial(member, turn))
                case .upgrade:
                    result.append(dial(member, isUpgrade: true, turn))
                    let punching = members[member]!.punching.start(now: turn.now, random: &turn.random)
                    result += perform(punching, with: member)
                case .ping(let link): result.append(.transmit(link, .ping(turn.random.next())))
                case .drop(let link):
                    result += linkLost(to: member, turn)
                    result.append(.close(link))
                case .use, .retire: preconditionFailure("time opens no link: \(action)")
                }
            }
            result += perform(members[member]!.punching.advance(now: turn.now), with: member)
            let isLinked = members[member]!.isEstablished && members[member]!.link.link != nil
            let actions = members[member]!.outbox.advance(now: turn.now, isLinked: isLinked, random: &turn.random)
            result += perform(actions, to: member, on: members[member]!.link.link, turn)
        }
        result += advanceDescriptions(&turn)
        return result + advanceMail(&turn) + advanceFiles(turn)
    }

    private func dial(_ member: PublicKey, isUpgrade: Bool = false, _ turn: Turn) -> NodeAction {
        let known = record.members.first { $0.key == member }?.endpoints ?? []
        var endpoints = members[member]?.heard.endpoints(now: turn.now, before: known) ?? known
        if isUpgrade { endpoints.removeAll { $0.relay != nil } }
        var dial = NodeAction.Dial(remote: member, endpoints: endpoints, route: .member, isUpgrade: isUpgrade)
        dial.isUrgent = members[member].map { $0.hasNews || $0.link.isHurried } ?? false
        return .dial(client, dial)
    }

    // MARK: Ways through NATs

    /// The shell has found out where we may be seen.
    package mutating func gathered(_ endpoints: [Endpoint], for member: PublicKey, _ turn: Turn) -> [NodeAction] {
        guard members[member] != nil else { return [] }
        return perform(members[member]!.punching.gathered(endpoints, now: turn.now), with: member)
    }

    func perform(_ actions: [PunchStateMachine.Action], with member: PublicKey) -> [NodeAction] {
        var result: [NodeAction] = []
        let link = link(to: member)
        for action in actions {
            switch action {
            case .gather: result.append(.gatherCandidates(client, member))
            case .say(let message): if let link { result.append(.transmit(link, .punch(message))) }
            case .dial(let nonce, let endpoints):
                let dial = NodeAction.Dial(remote: member, endpoints: endpoints, route: .member, isUpgrade: true)
                result.append(.dialPunching(client, dial, nonce))
            case .punch(let nonce, let endpoints): result.append(.punch(nonce, endpoints))
            }
        }
        return result
    }

    // MARK: On this network

    /// A member has said on this network where it is: it is dialled there first from now on.
    package mutating func found(_ member: PublicKey, at endpoint: Endpoint, _ turn: inout Turn) -> [NodeAction] {
        guard members[member] != nil, !isShunned(member, now: turn.now) else { return [] }
        members[member]!.heard.note(endpoint, now: turn.now)
        return members[member]!.link.found(now: turn.now).map { action in
            switch action {
            case .dial: .dial(client, NodeAction.Dial(remote: member, endpoints: [endpoint], route: .member))
            case .ping(let link): .transmit(link, .ping(turn.random.next()))
            case .use, .retire, .drop, .upgrade: preconditionFailure("who was found is dialled or asked, not \(action)")
            }
        }
    }

    /// Where a member was heard on this network of late, the newest first.
    package func heardEndpoints(of member: PublicKey, now: Timestamp) -> [Endpoint] {
        members[member]?.heard.endpoints(now: now) ?? []
    }

    /// The machine's addresses have changed: who is still there?
    package mutating func addressesChanged(_ dials: inout ChangeDials?, _ turn: inout Turn) -> [NodeAction] {
        var result: [NodeAction] = []
        for member in memberKeys { result += ask(members[member]!.link.addressesChanged(now: turn.now, &dials), &turn) }
        return result
    }

    /// The storage is open again.
    package mutating func linksUnlocked(_ turn: inout Turn) -> [NodeAction] {
        var result: [NodeAction] = []
        for member in memberKeys { result += ask(members[member]!.link.unlocked(now: turn.now), &turn) }
        return result
    }

    private func ask(_ actions: [LinkStateMachine.Action], _ turn: inout Turn) -> [NodeAction] {
        actions.compactMap { action in
            guard case .ping(let link) = action else { return nil }
            return .transmit(link, .ping(turn.random.next()))
        }
    }

    /// Members to which there is no link, or one that does not answer, though one is wanted.
    package func missedMembers(now: Timestamp) -> [PublicKey] {
        memberKeys.filter { members[$0]!.link.isMissed(now: now) && !members[$0]!.isShunned(now: now) }
    }

    // MARK: Leaving and closing

    /// Forgets what is in memory and ends the session: the next link starts with nothing agreed.
    package mutating func close(_ turn: Turn) -> [NodeAction] {
        releaseMemory()
        var ended: Set<MessageID> = []
        for member in memberKeys { ended.formUnion(members[member]!.outbox.removeAll(onlyInMemory: true)) }
        var result = deliveries.cancelled(ended.sorted(), turn) + [.forgetMemory(client)]
        files.forgetMemory()
        for member in memberKeys {
            members[member]!.hasEnded = true
            if let link = members[member]!.link.link {
                result.append(.close(link))
                result += linkClosed(link, to: member, turn)
            }
        }
        return result
    }

    // MARK: Sleep (Inbox.md): a decision about this node's memory, not about the session. Links are closed with a word
    // that says so, and neither side counts the time.

    /// A conversation that wakes.
    /// - Parameters:
    ///   - session: `nil` when it has ended since, by a restart.
    ///   - dials: it dials its members at once; otherwise those for whom there is something, and the others a little later.
    package init(
        client: ClientID, key: IdentityKey, record: ConversationRecord, session: ConversationSession?,
        undelivered: [Message], dials: Bool, now: Timestamp
    ) {
        self.init(client: client, key: key, record: record, isFresh: session != nil, now: now)
        for message in undelivered { restoreOutbox(message) }
        for member in memberKeys {
            if let side = session?.sides[member] {
                members[member]!.hasEnded = side.hasEnded
                members[member]!.link.remember(lostAt: side.lostAt)
                members[member]!.readReceipts = side.readReceipts
                members[member]!.owesWord = side.owesWord
                members[member]!.runs = side.runs
                if side.runs.areCopied(now: now) || side.runs.reportsCopies(now: now) {
                    members[member]!.link.dialSlowly(Limits.redialCopies, until: now + Limits.copiesLifetime)
                }
                deliveries.remember(receipted: side.readReceipts)
            }
            guard !dials else { continue }
            members[member]!.link.rest()
            // Whoever woke us is dialling; should nothing come of it, two that are awake find each other all the same.
            let pause = Limits.inboxStayForToken + (key.publicKey < member ? 0 : Limits.redialYield)
            let isDue = hasNews(for: member)
            members[member]!.link.wanted(at: isDue ? now : now + pause)
        }
        guard let session else { return }
        if let machine = session.lifetimeMachine { lifetimes.machine = machine }
        (lifetimes.unconfirmed, ending.deferredNotice) = (session.unconfirmed, session.deferredNotice)
    }

    /// Says to the members that nothing is wrong, and closes the links; nothing is due afterwards but what the
    /// conversation itself has to do.
    mutating func prepareToSleep(_ turn: inout Turn) -> [NodeAction] {
        var result = lifetimes.showEnd(record, &turn)
        for member in memberKeys {
            let open = link(to: member)
            members[member]?.rest()
            // In steps of their own: Swift 6.3.1 fails to compile it otherwise with optimisation (CopyPropagation).
            guard let open else {
                result += endMove(of: member, turn)
                continue
            }
            result += linkLost(to: member, turn)
            result.append(.transmit(open, .closing(asleep: true)))
            result.append(.close(open))
        }
        return result
    }

    /// What has to be remembered while it sleeps.
    var session: ConversationSession {
        let sides = members.compactMapValues(ConversationSession.Side.init)
        // With a word that was not heard: it is answered again as it was.
        let isQuiet =
            pendingProposal == nil && lifetimes.machine?.renewsAt == nil && !sides.values.contains(where: \.owesWord)
        let machine = isQuiet ? nil : lifetimes.machine
        if sides.isEmpty, machine == nil, lifetimes.unconfirmed.isEmpty, ending.deferredNotice == nil { return .quiet }
        return ConversationSession(
            sides: sides, lifetimeMachine: machine, unconfirmed: lifetimes.unconfirmed,
            deferredNotice: ending.deferredNotice)
    }

    /// Every member has heard where we are now. Until then it is we who must dial.
    var isFound: Bool { memberKeys.allSatisfy { record.told[$0] == record.own.version } }

    /// A file is under way over a link. One of which nothing moves does not count: a member that names a file and sends
    /// nothing, or asks for chunks and takes none, keeps no inbox awake.
    package var isTransferring: Bool { files.isMoving(of: members) || members.values.contains(where: \.isTaking) }

    /// Messages of ours that are in memory only and not delivered: they must not be lost to sleep.
    var holdsUndelivered: Bool { members.values.contains { $0.outbox.holdsMemoryOnly } }

    /// A member has gone to sleep: its link is not lost, and it is dialled when there is something for it.
    mutating func receiveSleep(of member: PublicKey, on link: LinkID, _ turn: inout Turn) -> [NodeAction] {
        guard members[member] != nil, members[member]!.link.closedAsleep(link, now: turn.now) else {
            return [.close(link)]
        }
        let result = [.close(link)] + linkLost(to: member, turn)
        if hasNews(for: member) {
            let wait = Limits.redialFirst + Milliseconds(turn.random.next(upperBound: UInt64(Milliseconds.second)))
            members[member]!.link.wanted(at: turn.now + wait)
        }
        return result
    }

    /// The user wants to talk: members without a link are dialled.
    package mutating func reach(_ turn: inout Turn) -> [NodeAction] {
        hurry(now: turn.now)
        return advance(&turn)
    }

    mutating func hurry(now: Timestamp) {
        for member in memberKeys where members[member]!.link.link == nil { members[member]!.link.hurry(now: now) }
    }

    /// Every member has a link, or there is none.
    package var isReached: Bool { members.values.allSatisfy(\.isEstablished) }

    /// A member for which there is something has a link, or is being dialled.
    func isDelivering(now: Timestamp) -> Bool { members.contains { hasNews(for: $0) && $1.link.isReaching(now: now) } }

    /// A member is being dialled, or says where it stands: worth waiting for.
    package func isReaching(now: Timestamp) -> Bool {
        members.values.contains { !$0.isEstablished && $0.link.isReaching(now: now) }
    }
}
