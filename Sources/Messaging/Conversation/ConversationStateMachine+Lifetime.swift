import Primitives

/// What the members agree on about keeping messages (section 6).
extension ConversationStateMachine {
    /// Proposes how long messages are kept (section 6).
    /// - Throws: ``CommandError/noOtherMember``, ``CommandError/notConnected``, ``CommandError/lifetime(_:)``.
    package mutating func propose(_ terms: LifetimeTerms, _ turn: inout Turn) throws(CommandError) -> [NodeAction] {
        // Nothing comes of it without everybody's signature.
        guard memberKeys.allSatisfy(isOnline) else { throw .notConnected }
        return try negotiate(&turn) { [key] machine, turn throws(LifetimeStateMachine.Refusal) in
            try machine.propose(terms, now: turn.now, key: key, random: &turn.random)
        }
    }

    /// Accepts the open proposal. Throws as ``propose(_:_:)``.
    /// - Parameter seen: what our user has looked at; `nil` for whatever is open.
    package mutating func accept(
        only seen: ProposalID? = nil,
        _ turn: inout Turn
    ) throws(CommandError) -> [NodeAction] {
        try checkProposer()
        return try negotiate(&turn) { [key] machine, turn throws(LifetimeStateMachine.Refusal) in
            try machine.accept(only: seen, now: turn.now, key: key, random: &turn.random)
        }
    }

    /// Turns the open proposal down. Throws as ``propose(_:_:)``.
    package mutating func reject(_ turn: inout Turn) throws(CommandError) -> [NodeAction] {
        try checkProposer()
        return try negotiate(&turn) { machine, _ throws(LifetimeStateMachine.Refusal) in try machine.reject() }
    }

    /// Takes our own proposal back. Throws as ``propose(_:_:)``.
    package mutating func withdraw(_ turn: inout Turn) throws(CommandError) -> [NodeAction] {
        // Of many, whoever is not there learns it with the next link.
        if members.count == 1 { guard memberKeys.allSatisfy(isOnline) else { throw .notConnected } }
        return try negotiate(&turn) { machine, _ throws(LifetimeStateMachine.Refusal) in try machine.withdraw() }
    }

    /// - Parameter policy: `nil` follows the node's default.
    package mutating func setPolicy(_ policy: LifetimePolicy?) -> [NodeAction] {
        record.lifetime.policy = policy
        _ = lifetimeMachine?.setPolicy(policy)
        return [.save(client)]
    }

    /// `nil` follows the node's default.
    package var policy: LifetimePolicy? { lifetimeMachine?.record.policy ?? record.lifetime.policy }

    private mutating func negotiate(
        _ turn: inout Turn,
        _ step: (inout LifetimeStateMachine, inout Turn) throws(LifetimeStateMachine.Refusal)
            -> [LifetimeStateMachine.Action]
    ) throws(CommandError) -> [NodeAction] {
        guard var machine = lifetimeMachine else { throw .noOtherMember }
        let actions: [LifetimeStateMachine.Action]
        do throws(LifetimeStateMachine.Refusal) {
            actions = try step(&machine, &turn)
        } catch {
            throw .lifetime(error)
        }
        lifetimeMachine = machine
        return perform(actions, &turn)
    }

    /// An answer must reach whoever has proposed.
    private func checkProposer() throws(CommandError) {
        guard !members.isEmpty else { throw .noOtherMember }
        guard let pending = pendingProposal, !pending.isOurs else {
            guard memberKeys.contains(where: isOnline) else { throw .notConnected }
            return
        }
        guard isOnline(pending.proposal.proposer) else { throw .notConnected }
    }

    mutating func receive(
        _ message: LifetimeMessage,
        from member: PublicKey,
        _ turn: inout Turn
    ) -> [NodeAction] {
        let policy = policyNow(turn)
        guard
            let actions = lifetimeMachine?.receive(
                message,
                from: member,
                policy: policy,
                now: turn.now,
                key: key,
                random: &turn.random
            )
        else { return [] }
        return perform(actions, &turn)
    }

    /// Consent must be durable, so a locked node asks.
    func policyNow(_ turn: Turn) -> LifetimePolicy { turn.isLocked ? .ask : policy ?? turn.defaultPolicy }

    mutating func perform(_ actions: [LifetimeStateMachine.Action], _ turn: inout Turn) -> [NodeAction] {
        var result: [NodeAction] = []
        for action in actions {
            switch action {
            case .save: result.append(.save(client))
            case .send(let message):
                for member in memberKeys { result += transmit(message, to: member) }
                if case .proposal(let proposal) = message {
                    result.append(event(.lifetimeProposed(proposal.terms, ours: true, proposal.id), turn))
                }
            case .sendTo(let member, let message): result += transmit(message, to: member)
            case .agreed(let agreement, let previous, let automatic):
                unconfirmed = []
                result.append(event(.lifetimeAgreed(agreement.terms, agreement.id, automatic: automatic), turn))
                result += systemMessage(Self.agreementText(agreement.terms, previous: previous), &turn)
            case .asked(let proposal):
                result.append(event(.lifetimeProposed(proposal.terms, ours: false, proposal.id), turn))
            case .rejected(let id, let reason): result.append(event(.lifetimeRejected(id, reason), turn))
            case .withdrawn(let id): result.append(event(.lifetimeWithdrawn(id), turn))
            case .expired(let id): result.append(event(.lifetimeExpired(id), turn))
            case .reset(let previous):
                result.append(event(.lifetimeReset(previous: previous.lifetime), turn))
                result += systemMessage("Messages are no longer kept: the session has ended", &turn)
            case .suspended(let previous):
                result.append(event(.lifetimeSuspended(previous: previous.lifetime), turn))
                result += systemMessage("Messages are not kept until the new member has agreed", &turn)
            case .rolledBack(let agreement):
                result += eraseUnconfirmed(agreement, turn)
                result += systemMessage(
                    "The proposal was taken back: \(lifetimeMachine?.terms.displayName ?? lifetime.displayName) is in force",
                    &turn
                )
            case .dropped: droppedCount += 1
            case .forged:
                droppedCount += 1
                forgedCount += 1
            }
        }
        return result
    }

    private func transmit(_ message: LifetimeMessage, to member: PublicKey) -> [NodeAction] {
        guard isOnline(member), let link = link(to: member) else { return [] }
        return [.transmit(link, .lifetime(message))]
    }

    // MARK: Members and sessions

    /// Tells the lifetime machine who is there now. Called whenever the members or their version have changed.
    mutating func lifetimeMembersChanged(_ turn: inout Turn) -> [NodeAction] {
        guard lifetimeMachine != nil else {
            makeLifetimeMachine()
            return []
        }
        let present = memberKeys
        let actions =
            lifetimeMachine?.membersChanged(to: present, membership: record.group.membership, now: turn.now) ?? []
        let result = perform(actions, &turn)
        if members.isEmpty {
            record.lifetime = lifetimeMachine?.record ?? record.lifetime
            lifetimeMachine = nil
        }
        return result
    }

    /// The newest agreement while its session goes on; in force when all members have signed it.
    package var standing: Agreement? { lifetimeMachine?.standing }
    /// Who is still to answer the open proposal.
    package var unanswered: [PublicKey] { lifetimeMachine?.unanswered ?? [] }
    /// All that are kept whole, oldest first.
    package var agreements: [Agreement] {
        let saved = lifetimeMachine?.record ?? record.lifetime
        return saved.earlier + [saved.head].compactMap(\.self)
    }

    /// What a welcome shows to whoever enters.
    var standingAgreement: Agreement? { lifetimeMachine?.standing }

    /// We have entered: joining is consent to the agreement that the welcome has shown.
    mutating func enter(under agreement: Agreement?, _ turn: inout Turn) -> [NodeAction] {
        guard let agreement,
            let actions = lifetimeMachine?.joined(under: agreement, now: turn.now, key: key, random: &turn.random)
        else { return [] }
        return perform(actions, &turn)
    }

    /// Whether a link that opens now begins a new session: with two members, after it was lost for longer than the
    /// grace; with more, after we were without any link for so long. Then that holds for all members.
    mutating func endsSession(lostAt: Timestamp?, _ turn: Turn) -> Bool {
        guard members.count > 1 else { return lostAt.map { turn.now - $0 > turn.sessionGrace } ?? false }
        guard let isolatedSince, turn.now - isolatedSince > turn.sessionGrace else { return false }
        self.isolatedSince = nil
        for member in memberKeys { members[member]?.hasEnded = true }
        return true
    }

    mutating func noteLinkLost(_ turn: Turn) {
        if isolatedSince == nil, !memberKeys.contains(where: isOnline) { isolatedSince = turn.now }
    }

    /// Both have said where they stand. Once the end of our session is told to one member, what it ended is over here, and
    /// the others learn it from that.
    mutating func noteSession(with member: PublicKey, saidReset: Bool) {
        isolatedSince = nil
        members[member]?.hasEnded = false
        guard saidReset else { return }
        for member in memberKeys { members[member]?.hasEnded = false }
    }

    // MARK: Keeping

    /// Our own bound on what is kept here; `nil`: the node's default.
    package var cap: LifetimeCap? { lifetimeMachine?.record.cap ?? record.lifetime.cap }

    /// Of what is sent and received from now on. `nil` follows the node's default.
    package mutating func setCap(_ cap: LifetimeCap?) -> [NodeAction] {
        record.lifetime.cap = cap
        lifetimeMachine?.record.cap = cap
        return [.save(client)]
    }

    func capNow(_ turn: Turn) -> LifetimeCap { cap ?? turn.defaultCap }

    /// How a content of ours that is sent now is kept.
    func placement(of kind: ContentKind, _ turn: Turn) -> Placement {
        let terms = lifetimeMachine?.terms ?? .ephemeral
        let retention = Retention.sent(kind, under: terms, cap: capNow(turn), now: turn.now)
        return Placement(
            lifetime: terms.lifetime(of: kind),
            agreement: retention == nil ? nil : agreement?.id,
            expiresAt: retention?.expiresAt,
            keeping: keeping(retention, turn)
        )
    }

    func keeping(_ retention: Retention?, _ turn: Turn) -> NodeAction.Keeping {
        guard let retention, retention.isStored else { return .memory }
        return turn.isLocked ? .untilUnlocked(retention.tier) : .disk(retention.tier)
    }

    /// What was read: unopened ones get their whole time, those whose time counts from reading begin it.
    package func markRead(_ messages: [Message], now: Timestamp) -> [NodeAction] {
        messages.compactMap { message in
            message.opened(at: now)?.expiresAt.map { .reschedule(client, message.content.id, expiresAt: $0) }
        }
    }

    // MARK: Withdrawals that cross our accept

    /// The proposer has used the newest agreement, so it holds it.
    mutating func confirmAgreement(by member: PublicKey) {
        guard let agreement, agreement.proposal.proposer == member else { return }
        unconfirmed = []
        lifetimeMachine?.confirm(agreement.id)
    }

    /// Also of what was sent before a restart: the agreement need not stand any more for its proposer to take it back.
    mutating func noteUnconfirmed(_ content: Content) {
        guard let machine = lifetimeMachine, let agreement = content.agreement,
            agreement != machine.record.confirmed,
            agreement == machine.inForce?.id || agreement == machine.record.head?.id,
            unconfirmed.count < Limits.outboxCount
        else { return }
        unconfirmed.insert(content.id)
    }

    private mutating func eraseUnconfirmed(_ agreement: AgreementID, _ turn: Turn) -> [NodeAction] {
        let messages = unconfirmed.sorted()
        unconfirmed = []
        for member in memberKeys {
            for message in messages {
                _ = members[member]?.outbox.cancel(message)
                members[member]?.serving.remove(message)
            }
        }
        return [.eraseSent(client, agreement)]
            + messages.map { event(.messageState($0, .cancelled, stored: nil), turn) }
    }

    /// The seed's words.
    private static func agreementText(_ terms: LifetimeTerms, previous: LifetimeTerms) -> String {
        if !terms.keepsSomething { return "Messages are no longer kept (\(terms.displayName))" }
        return previous.keepsSomething
            ? "Changed to \(terms.displayName)" : "Messages will be deleted after \(terms.displayName)"
    }

    /// Shown here only; expires with the contents around it (section 6, point 11).
    mutating func systemMessage(_ text: String, _ turn: inout Turn) -> [NodeAction] {
        var kept = placement(of: .text, turn)
        // It need not wait for an unlock.
        if case .untilUnlocked = kept.keeping {
            kept = Placement(lifetime: .ephemeral, agreement: nil, expiresAt: nil, keeping: .memory)
        }
        let id = MessageID.random(&turn.random)
        let message = Message(
            content: Content(
                type: .systemMessage,
                id: id,
                sentAt: turn.now,
                lifetime: kept.lifetime,
                agreement: kept.agreement,
                fallback: "",
                shouldPush: false,
                payload: Array(text.utf8)
            ),
            sender: nil,
            state: .received,
            expiresAt: kept.expiresAt
        )
        return [.keep(client, message, kept.keeping), event(.message(id), turn)]
    }
}

/// How a content that is sent is kept, here and by the others.
struct Placement: Hashable, Sendable {
    /// As agreed, for contents of its kind.
    var lifetime: Lifetime
    /// `nil` when ephemeral.
    var agreement: AgreementID?
    /// Of our own copy.
    var expiresAt: Timestamp?
    var keeping: NodeAction.Keeping
}
