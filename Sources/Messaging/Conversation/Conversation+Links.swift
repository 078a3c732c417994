import Cryptography

extension Conversation {
    package func linkOpened(
        _ link: LinkID, to member: PublicKey, weDialled: Bool, isRelayed: Bool = false, _ turn: inout Turn
    ) {
        guard let peer = peer(member) else { return turn.close(link) }
        guard !peer.isShunned(now: turn.now) else {
            if weDialled { peer.link.dialFailed(now: turn.now, random: &turn.random) }
            return turn.close(link)
        }
        let dialer = weDialled ? key.publicKey : member
        perform(peer.link.opened(link, dialer: dialer, isRelayed: isRelayed, now: turn.now), with: peer, &turn)
    }

    /// - Parameter found: where local discovery has heard the member: a dial tries nothing else.
    private func perform(
        _ actions: [LinkStateMachine.Action], with peer: Peer, found: Endpoint? = nil, _ turn: inout Turn
    ) {
        for action in actions {
            switch action {
            case .dial: dial(peer, at: found, &turn)
            case .upgrade:
                dial(peer, isUpgrade: true, &turn)
                let punching = peer.punching.start(now: turn.now, random: &turn.random)
                perform(punching, with: peer, &turn)
            case .use(let link):
                let wasEstablished = peer.isEstablished
                peer.punching.linkChanged()
                if wasEstablished {
                    // A link replaces another: frames in flight are sent again after the session exchange.
                    peer.linkLost()
                    pauseFiles(of: peer)
                }
                let wasAway = !wasEstablished && endsSession(lostAt: peer.link.lostAt, turn)
                startSession(with: peer, on: link, wasAway: wasAway, &turn)
            // `close` sends what is queued, still delivers incoming frames, and bounds the wait for the peer's close.
            case .retire(let link):
                turn.send(.closing(asleep: false), on: link)
                turn.close(link)
            case .ping(let link): turn.send(.ping(turn.random.next()), on: link)
            case .drop(let link):
                linkLost(to: peer, &turn)
                turn.close(link)
            }
        }
    }

    private func startSession(with peer: Peer, on link: LinkID, wasAway: Bool, _ turn: inout Turn) {
        endpointsChanged(&turn)
        // Messages that expired meanwhile are part of the count that this session start reports.
        let overdue = peer.outbox.advance(now: turn.now, isLinked: false, random: &turn.random)
        perform(overdue, to: peer, on: nil, &turn)
        let reset = peer.hasEnded || wasAway
        // The side that reads it ends what stands: this side must hear of that even if it sleeps before the answer.
        if reset, agreement != nil || pendingProposal != nil { peer.noteWord() }
        var start =
            lifetimes.machine?.sessionStart(reset: reset, policy: policy(turn))
            ?? SessionStart(reset: reset, inForce: nil, head: nil, renewable: nil)
        start.member = record.own
        start.groupDigest = groupDigest
        start.undelivered = record.undelivered[peer.key] ?? 0
        if run == 0 { run = turn.random.next() }
        start.run = run
        start.copies = peer.runs.areCopied(now: turn.now)
        peer.sessionSent = start
        turn.send(.session(start), on: link)
    }

    func receive(_ start: SessionStart, from peer: Peer, on link: LinkID, _ turn: inout Turn) {
        guard peer.link.link == link, let sent = peer.sessionSent else { return }
        if let member = start.member { receive(member, from: peer, &turn) }
        noteMissed(start.undelivered, of: peer, &turn)
        noteRun(start, of: peer, &turn)
        if start.groupDigest != groupDigest { turn.send(.group(wholeGroup), on: link) }
        if let member = start.member { confirm(member, from: peer, on: link, &turn) }
        peer.sessionSent = nil
        peer.isEstablished = true
        peer.link.sessionEstablished()
        let hasRestarted = peer.hasEnded
        noteSession(with: peer, saidReset: sent.reset)
        let isNews = !peer.isShownOnline
        peer.isShownOnline = true
        peer.movesUntil = nil
        if isNews { tell(.peerOnline(peer.key), &turn) }
        let actions = lifetimes.machine?.sessionEstablished(
            with: peer.key, sent: sent, received: start, policy: policy(turn), hasRestarted: hasRestarted,
            now: turn.now, key: key, random: &turn.random)
        perform(actions, &turn)
        showSchedule(on: link, &turn)
        let said = stopMail(to: peer)
        if !said.isEmpty { turn.send(.acknowledgement(said), on: link) }
        askForSlices(&turn)
        flush(peer, &turn)
        flushReceipts(to: peer, &turn)
        askForWord(&turn)
        resume(of: peer, on: link, &turn)
    }

    /// Shows the gap of messages to us that the member gave up.
    private func noteMissed(_ count: UInt64, of peer: Peer, _ turn: inout Turn) {
        let known = record.missed[peer.key] ?? 0
        guard count > known else { return }
        record.missed[peer.key] = count
        turn.save(client)
        tell(.messagesMissed(peer.key, count: count - known), &turn)
    }

    /// Two copies of one home supersede each other's links many times a second, so both sides then dial slowly.
    private func noteRun(_ start: SessionStart, of peer: Peer, _ turn: inout Turn) {
        if peer.runs.note(start.run, now: turn.now) { tell(.twoCopies(peer.key, ours: false), &turn) }
        if start.copies, peer.runs.noteReport(now: turn.now) { tell(.twoCopies(peer.key, ours: true), &turn) }
        if peer.runs.areCopied(now: turn.now) || peer.runs.reportsCopies(now: turn.now) {
            let wait = Limits.redialCopies + Milliseconds(turn.random.next(upperBound: UInt64(Limits.redialCopies / 2)))
            peer.link.dialSlowly(wait, until: turn.now + Limits.copiesLifetime)
        }
    }

    package func isCopied(_ member: PublicKey, now: Timestamp) -> Bool {
        peer(member)?.runs.areCopied(now: now) ?? false
    }

    package func reportsCopies(_ member: PublicKey, now: Timestamp) -> Bool {
        peer(member)?.runs.reportsCopies(now: now) ?? false
    }

    var hasShownCopies: Bool { peers.contains(where: \.runs.haveShownCopies) }

    /// The member closed this link for a newer one, which may not have opened here yet.
    func receiveClosing(from peer: Peer, on link: LinkID, _ turn: inout Turn) {
        turn.close(link)
        guard peer.link.closed(link, now: turn.now) else { return }
        let isShown = peer.isShownOnline
        peer.isShownOnline = false
        linkLost(to: peer, &turn)
        if isShown {
            peer.isShownOnline = true
            peer.movesUntil = turn.now + Limits.pingPatience
        }
    }

    /// Reports the member offline: no link has replaced the closed one.
    private func endMove(of peer: Peer, _ turn: inout Turn) {
        guard peer.movesUntil != nil else { return }
        peer.movesUntil = nil
        peer.isShownOnline = false
        tell(.peerOffline(peer.key), &turn)
    }

    package func linkClosed(_ link: LinkID, to member: PublicKey, _ turn: inout Turn) {
        if let peer = peer(member) { linkClosed(link, to: peer, &turn) }
    }

    private func linkClosed(_ link: LinkID, to peer: Peer, _ turn: inout Turn) {
        if peer.link.closed(link, now: turn.now) { linkLost(to: peer, &turn) }
    }

    func linkLost(to peer: Peer, _ turn: inout Turn) {
        peer.linkLost()
        pauseFiles(of: peer)
        peer.sessionSent = nil
        noteLinkLost(turn)
        if peer.isShownOnline {
            peer.isShownOnline = false
            tell(.peerOffline(peer.key), &turn)
        }
    }

    /// - Parameter isUnknownThere: the remote node closed since it does not know our token. Over UDP such a node is
    ///   silent, so there it also means no answer.
    package func dialFailed(to member: PublicKey, isUnknownThere: Bool, _ turn: inout Turn) {
        guard let peer = peer(member) else { return }
        peer.link.dialFailed(now: turn.now, random: &turn.random)
        guard isUnknownThere, let endpoints = profile(of: member)?.endpoints else { return }
        // The conversation may have exploded while we were away: the member's tombstone answers a knock.
        turn.add(.knock(.ask(client, member, endpoints)))
    }

    /// Honest members forge nothing. After a few invalid signatures the member is refused for ``Limits/forgeryPause``.
    func noteForgery(by peer: Peer, on link: LinkID, _ turn: inout Turn) {
        guard isPresent(peer), peer.forgeries.take(now: turn.now) != nil else { return }
        let end = turn.now + Limits.forgeryPause
        peer.shunnedUntil = end
        turn.close(link)
        linkClosed(link, to: peer, &turn)
        peer.link.wait(until: end)
    }

    package func isShunned(_ member: PublicKey, now: Timestamp) -> Bool { peer(member)?.isShunned(now: now) ?? false }

    package func advance(_ turn: inout Turn) {
        let hasEnded = advanceEnding(&turn)
        if hasEnded { return }
        // Not saved at once: an expired invite is still expired after a restart.
        forgetInvites(after: Limits.joinLifetime, &turn)
        advanceRelay(&turn)
        if let held = lifetimes.heldEnd, held.until <= turn.now { showEnd(&turn) }
        perform(lifetimes.machine?.expire(now: turn.now), &turn)
        let policy = policy(turn)
        perform(lifetimes.machine?.renewIfDue(policy: policy, now: turn.now, key: key, random: &turn.random), &turn)
        for peer in peers {
            if let end = peer.movesUntil, end <= turn.now { endMove(of: peer, &turn) }
            perform(peer.link.advance(now: turn.now), with: peer, &turn)
            perform(peer.punching.advance(now: turn.now), with: peer, &turn)
            let isLinked = peer.establishedLink != nil
            let actions = peer.outbox.advance(now: turn.now, isLinked: isLinked, random: &turn.random)
            perform(actions, to: peer, on: peer.link.link, &turn)
        }
        advanceDescriptions(&turn)
        advanceMail(&turn)
        advanceFiles(&turn)
    }

    private func dial(_ peer: Peer, at found: Endpoint? = nil, isUpgrade: Bool = false, _ turn: inout Turn) {
        var endpoints = peer.heard.endpoints(now: turn.now, before: profile(of: peer.key)?.endpoints ?? [])
        if isUpgrade { endpoints.removeAll { $0.relay != nil } }
        var dial = NodeAction.Dial(
            remote: peer.key, endpoints: found.map { [$0] } ?? endpoints, route: .member, isUpgrade: isUpgrade)
        dial.isUrgent = found == nil && (peer.hasNews || peer.link.isHurried)
        turn.add(.dial(client, dial))
    }

    package func gathered(_ endpoints: [Endpoint], for member: PublicKey, _ turn: inout Turn) {
        guard let peer = peer(member) else { return }
        perform(peer.punching.gathered(endpoints, now: turn.now), with: peer, &turn)
    }

    func perform(_ actions: [PunchStateMachine.Action], with peer: Peer, _ turn: inout Turn) {
        for action in actions {
            switch action {
            case .gather: turn.add(.gatherCandidates(client, peer.key))
            case .say(let message): if let link = peer.link.link { turn.send(.punch(message), on: link) }
            case .dial(let nonce, let endpoints):
                let dial = NodeAction.Dial(remote: peer.key, endpoints: endpoints, route: .member, isUpgrade: true)
                turn.add(.dialPunching(client, dial, nonce))
            case .punch(let nonce, let endpoints): turn.add(.punch(nonce, endpoints))
            }
        }
    }

    /// A member announced its endpoint on the local network: dials try it first from now on.
    package func found(_ member: PublicKey, at endpoint: Endpoint, _ turn: inout Turn) {
        guard let peer = peer(member), !peer.isShunned(now: turn.now) else { return }
        peer.heard.note(endpoint, now: turn.now)
        perform(peer.link.found(now: turn.now), with: peer, found: endpoint, &turn)
    }

    /// The machine's addresses changed: a ping checks each link.
    package func addressesChanged(_ dials: inout ChangeDials?, _ turn: inout Turn) {
        for peer in peers { perform(peer.link.addressesChanged(now: turn.now, &dials), with: peer, &turn) }
    }

    package func linksUnlocked(_ turn: inout Turn) {
        for peer in peers { perform(peer.link.unlocked(now: turn.now), with: peer, &turn) }
    }

    /// Members to look for on the local network: a link is wanted, and there is none, a silent or a relayed one.
    package func missedMembers(now: Timestamp) -> [PublicKey] {
        peers.filter { $0.link.isMissed(now: now) && !$0.isShunned(now: now) }.map(\.key)
    }

    /// Forgets memory-only contents and ends the session: the next link starts without an agreement.
    package func close(_ turn: inout Turn) {
        releaseMemory()
        var ended: Set<MessageID> = []
        for peer in peers { ended.formUnion(peer.outbox.removeAll(onlyInMemory: true)) }
        become(.cancelled, ended.sorted(), stored: nil, &turn)
        turn.add(.forgetMemory(client))
        files = files.filter { $0.value.keeping != .memory }
        for peer in peers {
            peer.hasEnded = true
            if let link = peer.link.link {
                turn.close(link)
                linkClosed(link, to: peer, &turn)
            }
        }
    }

    // MARK: Sleep (Delivery.md, "Sleep")
    // Sleep saves memory and ends no session: links close as asleep, and the grace does not run.

    /// Wakes a sleeping conversation.
    /// - Parameters:
    ///   - session: `nil` when a restart has ended it.
    ///   - dials: dials all members at once; otherwise those with news, and the others a little later.
    package convenience init(
        client: ClientID, key: IdentityKey, record: ConversationRecord, session: ConversationSession?,
        undelivered: [Message], dials: Bool, now: Timestamp
    ) {
        self.init(client: client, key: key, record: record, isFresh: session != nil, now: now)
        for message in undelivered { restoreOutbox(message) }
        for peer in peers {
            if let side = session?.sides[peer.key] {
                peer.hasEnded = side.hasEnded
                peer.link.remember(lostAt: side.lostAt)
                peer.readReceipts = side.readReceipts
                peer.owesWord = side.owesWord
                peer.runs = side.runs
                if side.runs.areCopied(now: now) || side.runs.reportsCopies(now: now) {
                    peer.link.dialSlowly(Limits.redialCopies, until: now + Limits.copiesLifetime)
                }
                receipted.formUnion(side.readReceipts)
            }
            guard !dials else { continue }
            peer.link.rest()
            // The peer whose token woke us is dialling. If its dial fails, two awake inboxes still find each other.
            let pause = Limits.inboxStayForToken + (key.publicKey < peer.key ? 0 : Limits.redialYield)
            peer.link.wanted(at: hasNews(for: peer) ? now : now + pause)
        }
        guard let session else { return }
        if let machine = session.lifetimeMachine { lifetimes.machine = machine }
        ending.deferredNotice = session.deferredNotice
    }

    /// Closes the links as asleep, which counts as no loss. Only the conversation's own deadlines remain.
    func prepareToSleep(_ turn: inout Turn) {
        showEnd(&turn)
        for peer in peers {
            let open = peer.link.link
            peer.rest()
            guard let open else {
                endMove(of: peer, &turn)
                continue
            }
            linkLost(to: peer, &turn)
            turn.send(.closing(asleep: true), on: open)
            turn.close(open)
        }
    }

    var session: ConversationSession {
        var sides: [PublicKey: ConversationSession.Side] = [:]
        for peer in peers { sides[peer.key] = ConversationSession.Side(peer) }
        // An unconfirmed frame keeps the machine, so that a repeated message gets the same answer.
        let isQuiet =
            pendingProposal == nil && lifetimes.machine?.renewsAt == nil && !sides.values.contains(where: \.owesWord)
        let machine = isQuiet ? nil : lifetimes.machine
        if sides.isEmpty, machine == nil, ending.deferredNotice == nil { return .quiet }
        return ConversationSession(sides: sides, lifetimeMachine: machine, deferredNotice: ending.deferredNotice)
    }

    /// Every member has acknowledged our endpoints. Until then we must dial.
    var isFound: Bool { peers.allSatisfy { record.told[$0.key] == record.own.version } }

    /// A file is under way on a link. A stalled one, without a moving chunk, keeps no inbox awake.
    package var isTransferring: Bool {
        files.values.contains { $0.stallsAt != nil && isOnline($0.sender) } || peers.contains(where: \.isTaking)
    }

    /// A member went to sleep: no loss. It is dialled when there is news for it.
    func receiveSleep(of peer: Peer, on link: LinkID, _ turn: inout Turn) {
        turn.close(link)
        guard peer.link.closedAsleep(link, now: turn.now) else { return }
        linkLost(to: peer, &turn)
        if hasNews(for: peer) {
            let wait = Limits.redial.first + Milliseconds(turn.random.next(upperBound: UInt64(Milliseconds.second)))
            peer.link.wanted(at: turn.now + wait)
        }
    }

    /// Dials members without a link, for a user who wants to talk.
    package func reach(_ turn: inout Turn) {
        hurry(now: turn.now)
        advance(&turn)
    }

    func hurry(now: Timestamp) { for peer in peers where peer.link.link == nil { peer.link.hurry(now: now) } }

    /// Every other member, if any, has an established link.
    package var isReached: Bool { peers.allSatisfy(\.isEstablished) }

    func isDelivering(now: Timestamp) -> Bool { peers.contains { hasNews(for: $0) && $0.link.isReaching(now: now) } }

    /// A member is being dialled or in the session exchange: worth waiting for.
    package func isReaching(now: Timestamp) -> Bool {
        peers.contains { !$0.isEstablished && $0.link.isReaching(now: now) }
    }
}
