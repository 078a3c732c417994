import Cryptography

/// The lifetime negotiation (Lifetime.md) in one conversation. ``ConversationRecord/lifetime`` holds its saved state.
struct ConversationAgreement: Sendable {
    /// `nil` without other members.
    var machine: LifetimeStateMachine?
    /// When the last link to a member was lost; `nil` while one is up, and before the first.
    fileprivate var isolatedSince: Timestamp?
    /// The end of a session, held back so that a renewal in time can report both in one line.
    var heldEnd: (terms: LifetimeTerms, cause: String, until: Timestamp)?
}

extension Conversation {
    func beginLifetimes() {
        guard !peers.isEmpty else {
            lifetimes.machine = nil
            return
        }
        lifetimes.machine = LifetimeStateMachine(
            conversation: conversation, own: key.publicKey, members: peers.map(\.key),
            membership: record.group.membership, record: record.lifetime)
    }

    func lifetimeMembersChanged(_ turn: inout Turn) {
        let actions = lifetimes.machine?.membersChanged(
            to: peers.map(\.key), membership: record.group.membership, now: turn.now)
        if actions == nil { beginLifetimes() }
        perform(actions ?? [], &turn)
        if peers.isEmpty { lifetimes.machine = nil }
    }

    /// Whether a link that opens now starts a new session. With two members: the link was lost for longer than the
    /// grace. With more: we had no link at all for so long, which ends the session with all of them.
    func endsSession(lostAt: Timestamp?, _ turn: Turn) -> Bool {
        guard peers.count > 1 else { return lostAt.map { turn.now - $0 > turn.sessionGrace } ?? false }
        guard let since = lifetimes.isolatedSince, turn.now - since > turn.sessionGrace else { return false }
        lifetimes.isolatedSince = nil
        for peer in peers { peer.hasEnded = true }
        return true
    }

    func noteLinkLost(_ turn: Turn) {
        if lifetimes.isolatedSince == nil, !peers.contains(where: \.isEstablished) {
            lifetimes.isolatedSince = turn.now
        }
    }

    /// Called after a session exchange. Once one member knows of our reset, the session has ended here, and the others
    /// learn it from that member.
    func noteSession(with peer: Peer, saidReset: Bool) {
        lifetimes.isolatedSince = nil
        for peer in saidReset ? peers : [peer] { peer.hasEnded = false }
    }

    /// - Parameter actions: `nil` without a machine.
    func perform(_ actions: [LifetimeStateMachine.Action]?, _ turn: inout Turn) {
        guard let actions else { return }
        for action in actions {
            switch action {
            case .save: turn.save(client)
            case .send(let message):
                for peer in peers { transmit(message, to: peer, &turn) }
                if case .proposal(let proposal) = message {
                    tell(.lifetimeProposed(proposal.terms, ours: true, proposal.id), &turn)
                }
            case .sendTo(let member, let message): if let peer = peer(member) { transmit(message, to: peer, &turn) }
            case .agreed(let agreement, let previous, let automatic):
                tell(.lifetimeAgreed(agreement.terms, agreement.id, automatic: automatic), &turn)
                var text = Self.text(agreement.terms, previous: previous)
                if let held = lifetimes.heldEnd {
                    lifetimes.heldEnd = nil
                    text += "\(held.terms == agreement.terms ? ", as before" : ""): \(held.cause)"
                }
                systemMessage(text, &turn)
            case .tell(let kind): tell(kind, &turn)
            case .reset(let previous, let end):
                tell(.lifetimeReset(previous: previous.lifetime), &turn)
                showEnd(&turn)
                lifetimes.heldEnd = (previous, text(end, turn), turn.now + Self.renewalTime)
                // A member that has just caught up names its terms only in its next message.
                if lifetimes.machine?.ownRenewable == nil { showEnd(&turn) }
            case .suspended(let previous):
                tell(.lifetimeSuspended(previous: previous.lifetime), &turn)
                let what = previous.keepsSomething ? "Messages are not kept" : "A mailbox may not hold messages"
                systemMessage("\(what) until the new member has agreed", &turn)
            case .dropped: drop()
            case .forged: _ = tally.holds(false)
            }
        }
        let agreed = usesMailbox ? agreement?.id : nil
        if mailAgreement != agreed {
            // Publishes our mailbox or not, and requests keys.
            mailAgreement = agreed
            endpointsChanged(&turn)
            askForSlices(&turn)
        }
        askForWord(&turn)
    }

    private func transmit(_ message: LifetimeMessage, to peer: Peer, _ turn: inout Turn) {
        peer.noteWord()
        if let link = peer.establishedLink { turn.send(.lifetime(message), on: link) }
    }

    /// Seed texts, where the seed has them; its lifetimes have no mailbox.
    private static func text(_ terms: LifetimeTerms, previous: LifetimeTerms) -> String {
        if !terms.keepsSomething {
            let what = previous.keepsSomething ? "Messages are no longer kept" : "Messages are not kept"
            if terms.mailbox != .no { return "\(what); a mailbox may hold them in memory" }
            if !previous.keepsSomething, previous.mailbox != .no { return noMailbox }
        }
        if !terms.keepsSomething { return "Messages are no longer kept (\(terms.displayName))" }
        if terms.lifetime == .ephemeral { return "Messages are \(terms.displayName)" }
        return previous.keepsSomething
            ? "Changed to \(terms.displayName)" : "Messages will be deleted after \(terms.displayName)"
    }

    /// How long the report of a session's end waits for a renewal by the policies of all members.
    private static let renewalTime = 5 * Milliseconds.second

    /// Reports the held end of the session, if there is one.
    func showEnd(_ turn: inout Turn) {
        guard let held = lifetimes.heldEnd else { return }
        lifetimes.heldEnd = nil
        let what = held.terms.keepsSomething ? "From now on nothing is stored" : Self.noMailbox
        systemMessage("\(what): \(held.cause)", &turn)
    }

    private func text(_ end: LifetimeStateMachine.SessionEnd, _ turn: Turn) -> String {
        let who: String
        switch end {
        case .away(let key) where key == record.own.key: who = "this node"
        case .away(let key): who = name(of: key)
        case .reported: who = "a member"
        case .alone: return "no other member is left"
        }
        return
            "\(who) was out of reach for over \(turn.sessionGrace / .second) s, restarted, or closed the conversation"
    }

    /// Cut, so that a name cannot pass for the node's own words.
    func name(of member: PublicKey) -> String {
        (profile(of: member)?.profile).map { $0.count > 16 ? "\($0.prefix(15))…" : $0 }
            ?? String(InboxID(member).description.prefix(12))
    }

    private static let noMailbox = "A mailbox may no longer hold messages"

    /// Never sent; expires like the contents around it (Lifetime.md, "What is shown").
    func systemMessage(_ text: String, _ turn: inout Turn) {
        var kept = placement(of: .text, turn)
        // A system message need not wait for the unlock, nor take the room that expiry and explosions need.
        let isRefused =
            switch kept.keeping {
            case .disk: !turn.node.hasRoom(client)
            case .untilUnlocked: true
            case .memory: false
            }
        if isRefused { kept = Placement(lifetime: .ephemeral, agreement: nil, expiresAt: nil, keeping: .memory) }
        let id = MessageID.random(&turn.random)
        let message = Message(
            content: Content(
                type: .systemMessage, id: id, sentAt: turn.now, lifetime: kept.lifetime, agreement: kept.agreement,
                fallback: "", shouldPush: false, payload: Array(text.utf8)), sender: nil, state: .received,
            expiresAt: kept.expiresAt)
        turn.add(.keep(client, [message], kept.keeping))
        tell(.message(id), &turn)
    }

    private var terms: LifetimeTerms { lifetimes.machine?.terms ?? .ephemeral }

    /// `nil` at a locked node: consent must be durable.
    func policy(_ turn: Turn) -> LifetimePolicy? { turn.isLocked ? nil : policy ?? turn.defaultPolicy }

    package var policy: LifetimePolicy? { record.lifetime.policy }

    package var cap: LifetimeCap? { record.lifetime.cap }

    func placement(of kind: ContentKind, _ turn: Turn) -> Placement {
        let retention = Retention.sent(kind, under: terms, cap: cap ?? turn.defaultCap, now: turn.now)
        return Placement(
            lifetime: terms.lifetime(of: kind), agreement: retention == nil ? nil : lifetimes.machine?.inForce?.id,
            expiresAt: retention?.expiresAt, keeping: Self.keeping(retention, turn))
    }

    static func keeping(_ retention: Retention?, _ turn: Turn) -> NodeAction.Keeping {
        guard let retention, retention.isStored else { return .memory }
        return turn.isLocked ? .untilUnlocked(retention.tier) : .disk(retention.tier)
    }
}

/// How a sent content is kept, here and by the receivers.
struct Placement: Hashable, Sendable {
    var lifetime: Lifetime
    var agreement: AgreementID?
    /// When our own copy expires.
    var expiresAt: Timestamp?
    var keeping: NodeAction.Keeping
}

extension Conversation {
    package func propose(_ terms: LifetimeTerms, _ turn: inout Turn) throws(CommandError) {
        // An agreement needs every member's signature.
        guard peers.allSatisfy(\.isEstablished) else { throw .notConnected }
        guard lifetimes.machine != nil else { throw .noOtherMember }
        perform(try lifetimes.machine?.propose(terms, now: turn.now, key: key, random: &turn.random), &turn)
    }

    /// - Parameter seen: the proposal that the user saw; `nil`: any open one.
    package func accept(only seen: ProposalID? = nil, _ turn: inout Turn) throws(CommandError) {
        try checkProposer()
        perform(try lifetimes.machine?.accept(only: seen, now: turn.now, key: key, random: &turn.random), &turn)
    }

    package func reject(_ turn: inout Turn) throws(CommandError) {
        try checkProposer()
        perform(try lifetimes.machine?.reject(), &turn)
    }

    package func withdraw(_ turn: inout Turn) throws(CommandError) {
        // With more members, an absent one learns it on its next link.
        if peers.count == 1 { guard peers[0].isEstablished else { throw .notConnected } }
        guard lifetimes.machine != nil else { throw .noOtherMember }
        perform(try lifetimes.machine?.withdraw(), &turn)
    }

    package func setPolicy(_ policy: LifetimePolicy?, _ turn: inout Turn) {
        record.lifetime.policy = policy
        _ = lifetimes.machine?.setPolicy(policy)
        turn.save(client)
    }

    package func renew(_ terms: LifetimeTerms, _ turn: inout Turn) {
        lifetimes.machine?.renew(terms)
        turn.save(client)
    }

    package func renews(_ terms: LifetimeTerms, _ policy: LifetimePolicy) -> Bool {
        lifetimes.machine?.renews(terms, policy) ?? false
    }

    /// Applies to messages sent and received from now on. `nil` follows the node's default.
    package func setCap(_ cap: LifetimeCap?, _ turn: inout Turn) {
        record.lifetime.cap = cap
        lifetimes.machine?.record.cap = cap
        turn.save(client)
    }

    /// An answer needs a link to the proposer.
    private func checkProposer() throws(CommandError) {
        guard !peers.isEmpty else { throw .noOtherMember }
        guard let pending = pendingProposal, !pending.isOurs else {
            guard peers.contains(where: \.isEstablished) else { throw .notConnected }
            return
        }
        guard isOnline(pending.proposal.proposer) else { throw .notConnected }
    }

    func receive(_ message: LifetimeMessage, from peer: Peer, _ turn: inout Turn) {
        let policy = policy(turn)
        let actions = lifetimes.machine?.receive(
            message, from: peer.key, policy: policy, now: turn.now, key: key, random: &turn.random)
        perform(actions, &turn)
    }

    /// The newest agreement while its session lasts; in force when all have signed. A welcome shows it to the joiner.
    package var standing: Agreement? { lifetimes.machine?.standing }
    /// Members that have not answered the open proposal.
    package var unanswered: [PublicKey] { lifetimes.machine?.unanswered ?? [] }
    /// All agreements that are kept whole, oldest first.
    package var agreements: [Agreement] { record.lifetime.earlier + [record.lifetime.head].compactMap(\.self) }

    /// Entering is consent to the agreement in the welcome.
    func enter(under agreement: Agreement?, _ turn: inout Turn) {
        guard let agreement else { return }
        perform(lifetimes.machine?.joined(under: agreement, now: turn.now, key: key, random: &turn.random), &turn)
    }

    /// Reading extends a message to its full lifetime, or starts its read timer.
    package func markRead(_ messages: [Message], now: Timestamp) -> [NodeAction] {
        messages.compactMap { message in
            message.opened(at: now)?.expiresAt.map { .reschedule(client, message.content.id, expiresAt: $0) }
        }
    }
}
