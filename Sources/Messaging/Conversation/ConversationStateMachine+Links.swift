import Crypto

extension ConversationStateMachine {
    // MARK: Links

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
                    // A link replaces another: frames in flight are sent again after the session exchange.
                    members[member]!.linkLost()
                    pauseFiles(of: member)
                }
                let wasAway = !wasEstablished && endsSession(lostAt: lostAt, turn)
                result += startSession(with: member, on: link, wasAway: wasAway, &turn)
            // `close` sends what is queued, still delivers incoming frames, and bounds the wait for the peer's close.
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
        // Messages that expired meanwhile are part of the count that this session start reports.
        let overdue = members[member]!.outbox.advance(now: turn.now, isLinked: false, random: &turn.random)
        let ended = perform(overdue, to: member, on: nil, turn)
        let reset = state.hasEnded || wasAway
        var start =
            lifetimes.machine?.sessionStart(reset: reset, policy: policy(turn))
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
        noteSession(with: member, saidReset: sent.reset)
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
        result += showSchedule(on: link, &turn)
        let said = stopMail(to: member)
        if !said.isEmpty { result.append(.transmit(link, .acknowledgement(said))) }
        result += askForSlices(now: turn.now)
        result += flush(member, &turn)
        result += flushReceipts(to: member, turn)
        result += askForWord(now: turn.now)
        return result + resume(of: member, on: link, turn)
    }

    /// Shows the gap of messages to us that the member gave up.
    private mutating func noteMissed(_ count: UInt64, of member: PublicKey, _ turn: Turn) -> [NodeAction] {
        let known = record.missed[member] ?? 0
        guard count > known else { return [] }
        record.missed[member] = count
        return [.save(client), event(.messagesMissed(member, count: count - known), turn)]
    }

    /// Two copies of one home supersede each other's links many times a second, so both sides then dial slowly.
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

    package func isCopied(_ member: PublicKey, now: Timestamp) -> Bool {
        members[member]?.runs.areCopied(now: now) ?? false
    }

    package func reportsCopies(_ member: PublicKey, now: Timestamp) -> Bool {
        members[member]?.runs.reportsCopies(now: now) ?? false
    }

    var hasShownCopies: Bool { members.values.contains(where: \.runs.haveShownCopies) }

    /// The member closed this link for a newer one, which may not have opened here yet.
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

    /// Reports the member offline: no link has replaced the closed one.
    private mutating func endMove(of member: PublicKey, _ turn: Turn) -> [NodeAction] {
        guard members[member]!.movesUntil != nil else { return [] }
        members[member]!.movesUntil = nil
        members[member]!.isShownOnline = false
        return [event(.peerOffline(member), turn)]
    }

    package mutating func linkClosed(_ link: LinkID, to member: PublicKey, _ turn: Turn) -> [NodeAction] {
        guard members[member] != nil, members[member]!.link.closed(link, now: turn.now) else { return [] }
        return linkLost(to: member, turn)
    }

    mutating func linkLost(to member: PublicKey, _ turn: Turn) -> [NodeAction] {
        members[member]!.linkLost()
        pauseFiles(of: member)
        members[member]!.sessionSent = nil
        noteLinkLost(turn)
        let wasShownOnline = members[member]!.isShownOnline
        members[member]!.isShownOnline = false
        return wasShownOnline ? [event(.peerOffline(member), turn)] : []
    }

    /// - Parameter isUnknownThere: the remote node closed since it does not know our token. Over UDP such a node is
    ///   silent, so there it also means no answer.
    package mutating func dialFailed(to member: PublicKey, isUnknownThere: Bool, _ turn: inout Turn) -> [NodeAction] {
        guard members[member] != nil else { return [] }
        members[member]!.link.dialFailed(now: turn.now, random: &turn.random)
        guard isUnknownThere, let endpoints = record.members.first(where: { $0.key == member })?.endpoints else {
            return []
        }
        // The conversation may have exploded while we were away: the member's tombstone answers a knock.
        return [.knock(.ask(client, member, endpoints))]
    }

    // MARK: Forgeries

    /// Honest members forge nothing. After a few invalid signatures the member is refused for ``Limits/forgeryPause``.
    mutating func noteForgery(by member: PublicKey, on link: LinkID, _ turn: Turn) -> [NodeAction] {
        guard members[member]?.forgeries.take(now: turn.now) != nil else { return [] }
        let end = turn.now + Limits.forgeryPause
        members[member]!.shunnedUntil = end
        let result = linkClosed(link, to: member, turn)
        members[member]!.link.wait(until: end)
        return [.close(link)] + result
    }

    package func isShunned(_ member: PublicKey, now: Timestamp) -> Bool {
        members[member]?.isShunned(now: now) ?? false
    }

    // MARK: Time

    package mutating func advance(_ turn: inout Turn) -> [NodeAction] {
        let schedule = advanceEnding(&turn)
        var result = schedule.actions
        if schedule.hasEnded { return result }
        // Not saved at once: an expired invite is still expired after a restart.
        result += forgetInvites(after: Limits.joinLifetime, turn)
        result += advanceRelay(&turn)
        result += showEndIfDue(&turn)
        if let actions = lifetimes.machine?.expire(now: turn.now) { result += perform(actions, &turn) }
        let policy = policy(turn)
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
        return result + advanceMail(turn) + advanceFiles(turn)
    }

    private func dial(_ member: PublicKey, isUpgrade: Bool = false, _ turn: Turn) -> NodeAction {
        let known = record.members.first { $0.key == member }?.endpoints ?? []
        var endpoints = members[member]?.heard.endpoints(now: turn.now, before: known) ?? known
        if isUpgrade { endpoints.removeAll { $0.relay != nil } }
        var dial = NodeAction.Dial(remote: member, endpoints: endpoints, route: .member, isUpgrade: isUpgrade)
        dial.isUrgent = members[member].map { $0.hasNews || $0.link.isHurried } ?? false
        return .dial(client, dial)
    }

    // MARK: NAT traversal

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

    // MARK: The local network

    /// A member announced its endpoint on the local network: dials try it first from now on.
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

    /// The machine's addresses changed: a ping checks each link.
    package mutating func addressesChanged(_ dials: inout ChangeDials?, _ turn: inout Turn) -> [NodeAction] {
        var result: [NodeAction] = []
        for member in memberKeys { result += ask(members[member]!.link.addressesChanged(now: turn.now, &dials), &turn) }
        return result
    }

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

    /// Members to look for on the local network: a link is wanted, and there is none, a silent or a relayed one.
    package func missedMembers(now: Timestamp) -> [PublicKey] {
        memberKeys.filter { members[$0]!.link.isMissed(now: now) && !members[$0]!.isShunned(now: now) }
    }

    // MARK: Leaving and closing

    /// Forgets memory-only contents and ends the session: the next link starts without an agreement.
    package mutating func close(_ turn: Turn) -> [NodeAction] {
        releaseMemory()
        var ended: Set<MessageID> = []
        for member in memberKeys { ended.formUnion(members[member]!.outbox.removeAll(onlyInMemory: true)) }
        var result = cancelled(ended.sorted(), turn) + [.forgetMemory(client)]
        files = files.filter { $0.value.keeping != .memory }
        for member in memberKeys {
            members[member]!.hasEnded = true
            if let link = members[member]!.link.link {
                result.append(.close(link))
                result += linkClosed(link, to: member, turn)
            }
        }
        return result
    }

    // MARK: Sleep (Delivery.md, "Sleep")
    // Sleep saves memory and ends no session: links close as asleep, and the grace does not run.

    /// Wakes a sleeping conversation.
    /// - Parameters:
    ///   - session: `nil` when a restart has ended it.
    ///   - dials: dials all members at once; otherwise those with news, and the others a little later.
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
                receipted.formUnion(side.readReceipts)
            }
            guard !dials else { continue }
            members[member]!.link.rest()
            // The peer whose token woke us is dialling. If its dial fails, two awake inboxes still find each other.
            let pause = Limits.inboxStayForToken + (key.publicKey < member ? 0 : Limits.redialYield)
            let isDue = hasNews(for: member)
            members[member]!.link.wanted(at: isDue ? now : now + pause)
        }
        guard let session else { return }
        if let machine = session.lifetimeMachine { lifetimes.machine = machine }
        (lifetimes.unconfirmed, ending.deferredNotice) = (session.unconfirmed, session.deferredNotice)
    }

    /// Closes the links as asleep, which counts as no loss. Only the conversation's own deadlines remain.
    mutating func prepareToSleep(_ turn: inout Turn) -> [NodeAction] {
        var result = showEnd(&turn)
        for member in memberKeys {
            let open = link(to: member)
            members[member]?.rest()
            // Separate statements: otherwise Swift 6.3.1 fails with optimisation (CopyPropagation).
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

    var session: ConversationSession {
        let sides = members.compactMapValues(ConversationSession.Side.init)
        // An unconfirmed frame keeps the machine, so that a repeated message gets the same answer.
        let isQuiet =
            pendingProposal == nil && lifetimes.machine?.renewsAt == nil && !sides.values.contains(where: \.owesWord)
        let machine = isQuiet ? nil : lifetimes.machine
        if sides.isEmpty, machine == nil, lifetimes.unconfirmed.isEmpty, ending.deferredNotice == nil { return .quiet }
        return ConversationSession(
            sides: sides, lifetimeMachine: machine, unconfirmed: lifetimes.unconfirmed,
            deferredNotice: ending.deferredNotice)
    }

    /// Every member has acknowledged our endpoints. Until then we must dial.
    var isFound: Bool { memberKeys.allSatisfy { record.told[$0] == record.own.version } }

    /// A file is under way on a link. A stalled one, without a moving chunk, keeps no inbox awake.
    package var isTransferring: Bool { isFileMoving || members.values.contains(where: \.isTaking) }

    /// Sleep would lose messages of ours that are in memory only and undelivered.
    var holdsUndelivered: Bool { members.values.contains { $0.outbox.holdsMemoryOnly } }

    /// A member went to sleep: no loss. It is dialled when there is news for it.
    mutating func receiveSleep(of member: PublicKey, on link: LinkID, _ turn: inout Turn) -> [NodeAction] {
        guard members[member] != nil, members[member]!.link.closedAsleep(link, now: turn.now) else {
            return [.close(link)]
        }
        let result = [.close(link)] + linkLost(to: member, turn)
        if hasNews(for: member) {
            let wait = Limits.redial.first + Milliseconds(turn.random.next(upperBound: UInt64(Milliseconds.second)))
            members[member]!.link.wanted(at: turn.now + wait)
        }
        return result
    }

    /// Dials members without a link, for a user who wants to talk.
    package mutating func reach(_ turn: inout Turn) -> [NodeAction] {
        hurry(now: turn.now)
        return advance(&turn)
    }

    mutating func hurry(now: Timestamp) {
        for member in memberKeys where members[member]!.link.link == nil { members[member]!.link.hurry(now: now) }
    }

    /// Every other member, if any, has an established link.
    package var isReached: Bool { members.values.allSatisfy(\.isEstablished) }

    func isDelivering(now: Timestamp) -> Bool { members.contains { hasNews(for: $0) && $1.link.isReaching(now: now) } }

    /// A member is being dialled or in the session exchange: worth waiting for.
    package func isReaching(now: Timestamp) -> Bool {
        members.values.contains { !$0.isEstablished && $0.link.isReaching(now: now) }
    }
}
