import Crypto

/// The lifetime negotiation (Lifetime.md) in one conversation. ``ConversationRecord/lifetime`` holds its saved state.
struct ConversationAgreement: Sendable {
    /// `nil` without other members.
    var machine: LifetimeStateMachine?
    /// Our messages under an agreement whose proposer may have withdrawn before our accept arrived. An acknowledgement
    /// of one shows that it has not.
    var unconfirmed: Set<MessageID> = []
    /// When the last link to a member was lost; `nil` while one is up, and before the first.
    fileprivate var isolatedSince: Timestamp?
    /// The end of a session, held back so that a renewal in time can report both in one line.
    var heldEnd: (terms: LifetimeTerms, cause: String, until: Timestamp)?
}

extension ConversationStateMachine {
    // MARK: Members

    mutating func beginLifetimes() {
        guard !members.isEmpty else {
            lifetimes.machine = nil
            return
        }
        lifetimes.machine = LifetimeStateMachine(
            conversation: conversation, own: key.publicKey, members: memberKeys, membership: record.group.membership,
            record: record.lifetime)
    }

    mutating func lifetimeMembersChanged(_ turn: inout Turn) -> [NodeAction] {
        var result: [NodeAction] = []
        let present = memberKeys
        if let actions = lifetimes.machine?.membersChanged(
            to: present, membership: record.group.membership, now: turn.now)
        {
            result = report(actions, &turn)
            if members.isEmpty {
                record.lifetime = lifetimes.machine?.record ?? record.lifetime
                lifetimes.machine = nil
            }
        } else {
            beginLifetimes()
        }
        return result + settleMailAgreement(&turn) + askForWord(now: turn.now)
    }

    // MARK: Sessions

    /// Whether a link that opens now starts a new session. With two members: the link was lost for longer than the
    /// grace. With more: we had no link at all for so long, which ends the session with all of them.
    mutating func endsSession(lostAt: Timestamp?, _ turn: Turn) -> Bool {
        guard members.count > 1 else { return lostAt.map { turn.now - $0 > turn.sessionGrace } ?? false }
        guard let since = lifetimes.isolatedSince, turn.now - since > turn.sessionGrace else { return false }
        lifetimes.isolatedSince = nil
        for index in members.values.indices { members.values[index].hasEnded = true }
        return true
    }

    mutating func noteLinkLost(_ turn: Turn) {
        if lifetimes.isolatedSince == nil, !members.values.contains(where: \.isEstablished) {
            lifetimes.isolatedSince = turn.now
        }
    }

    /// Called after a session exchange. Once one member knows of our reset, the session has ended here, and the others
    /// learn it from that member.
    mutating func noteSession(with member: PublicKey, saidReset: Bool) {
        lifetimes.isolatedSince = nil
        members[member]?.hasEnded = false
        guard saidReset else { return }
        for index in members.values.indices { members.values[index].hasEnded = false }
    }

    // MARK: Actions of the machine

    mutating func perform(_ actions: [LifetimeStateMachine.Action], _ turn: inout Turn) -> [NodeAction] {
        report(actions, &turn) + settleMailAgreement(&turn) + askForWord(now: turn.now)
    }

    /// The agreement on mailboxes may have changed: publishes our mailbox or not, and requests keys.
    private mutating func settleMailAgreement(_ turn: inout Turn) -> [NodeAction] {
        mailAgreementIsNews() ? endpointsChanged(&turn) + askForSlices(now: turn.now) : []
    }

    private mutating func report(_ actions: [LifetimeStateMachine.Action], _ turn: inout Turn) -> [NodeAction] {
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
                lifetimes.unconfirmed = []
                result.append(event(.lifetimeAgreed(agreement.terms, agreement.id, automatic: automatic), turn))
                var text = Self.text(agreement.terms, previous: previous)
                if let held = lifetimes.heldEnd, held.terms == agreement.terms {
                    lifetimes.heldEnd = nil
                    text += ", as before: \(held.cause)"
                }
                result += showEnd(&turn) + systemMessage(text, &turn)
            case .asked(let proposal):
                result.append(event(.lifetimeProposed(proposal.terms, ours: false, proposal.id), turn))
            case .signed(let id, let member): result.append(event(.lifetimeSigned(id, by: member), turn))
            case .rejected(let id, let reason): result.append(event(.lifetimeRejected(id, reason), turn))
            case .withdrawn(let id): result.append(event(.lifetimeWithdrawn(id), turn))
            case .expired(let id): result.append(event(.lifetimeExpired(id), turn))
            case .reset(let previous, let end):
                result.append(event(.lifetimeReset(previous: previous.lifetime), turn))
                result += showEnd(&turn)
                lifetimes.heldEnd = (previous, text(end, turn), turn.now + Self.renewalTime)
                if lifetimes.machine?.isRenewable != true { result += showEnd(&turn) }
            case .suspended(let previous):
                result.append(event(.lifetimeSuspended(previous: previous.lifetime), turn))
                let what = previous.keepsSomething ? "Messages are not kept" : "A mailbox may not hold messages"
                result += systemMessage("\(what) until the new member has agreed", &turn)
            case .rolledBack(let agreement):
                result += eraseUnconfirmed(agreement, turn)
                result += systemMessage("The proposal was withdrawn: \(terms.displayName) is in force", &turn)
            case .dropped: tally.dropped += 1
            case .forged: _ = tally.holds(false)
            }
        }
        return result
    }

    private mutating func transmit(_ message: LifetimeMessage, to member: PublicKey) -> [NodeAction] {
        members[member]?.noteWord()
        return members[member]?.establishedLink.map { [.transmit($0, .lifetime(message))] } ?? []
    }

    /// Seed texts, where the seed has them; its lifetimes have no mailbox.
    private static func text(_ terms: LifetimeTerms, previous: LifetimeTerms) -> String {
        if !terms.keepsSomething {
            let what = previous.keepsSomething ? "Messages are no longer kept" : "Messages are not kept"
            if terms.mailbox != .no { return "\(what); a mailbox may hold them in memory" }
            if !previous.keepsSomething, previous.mailbox != .no { return noMailbox }
        }
        if !terms.keepsSomething { return "Messages are no longer kept (\(terms.displayName))" }
        return previous.keepsSomething
            ? "Changed to \(terms.displayName)" : "Messages will be deleted after \(terms.displayName)"
    }

    /// How long the report of a session's end waits for a renewal by the policies of all members.
    private static let renewalTime = 5 * Milliseconds.second

    mutating func showEndIfDue(_ turn: inout Turn) -> [NodeAction] {
        guard let held = lifetimes.heldEnd, held.until <= turn.now else { return [] }
        return showEnd(&turn)
    }

    /// Reports the held end of the session, if there is one.
    mutating func showEnd(_ turn: inout Turn) -> [NodeAction] {
        guard let held = lifetimes.heldEnd else { return [] }
        lifetimes.heldEnd = nil
        let what = held.terms.keepsSomething ? "From now on nothing is stored" : Self.noMailbox
        return systemMessage("\(what): \(held.cause)", &turn)
    }

    private func text(_ end: LifetimeStateMachine.SessionEnd, _ turn: Turn) -> String {
        let who: String
        switch end {
        case .away(let key) where key == record.own.key: who = "this node"
        case .away(let key): who = record.members.first { $0.key == key }?.profile ?? "a member"
        case .reported: who = "a member"
        case .alone: return "no other member is left"
        }
        return
            "\(who) was out of reach for over \(turn.sessionGrace / .second) s, restarted, or closed the conversation"
    }

    private static let noMailbox = "A mailbox may no longer hold messages"

    /// Never sent; expires like the contents around it (Lifetime.md, "What is shown").
    private func systemMessage(_ text: String, _ turn: inout Turn) -> [NodeAction] {
        var kept = placement(of: .text, turn)
        // A system message need not wait for the unlock.
        if case .untilUnlocked = kept.keeping {
            kept = Placement(lifetime: .ephemeral, agreement: nil, expiresAt: nil, keeping: .memory)
        }
        let id = MessageID.random(&turn.random)
        let message = Message(
            content: Content(
                type: .systemMessage, id: id, sentAt: turn.now, lifetime: kept.lifetime, agreement: kept.agreement,
                fallback: "", shouldPush: false, payload: Array(text.utf8)), sender: nil, state: .received,
            expiresAt: kept.expiresAt)
        return [.keep(client, [message], kept.keeping), event(.message(id), turn)]
    }

    // MARK: Keeping

    private var terms: LifetimeTerms { lifetimes.machine?.terms ?? .ephemeral }

    /// Consent must be durable, so a locked node asks.
    func policy(_ turn: Turn) -> LifetimePolicy { turn.isLocked ? .ask : policy ?? turn.defaultPolicy }

    package var policy: LifetimePolicy? { lifetimes.machine?.record.policy ?? record.lifetime.policy }

    package var cap: LifetimeCap? { lifetimes.machine?.record.cap ?? record.lifetime.cap }

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

    // MARK: A withdrawal that crosses our accept

    /// The proposer has used the newest agreement, so it holds it.
    mutating func confirmAgreement(by member: PublicKey) {
        guard let agreement = lifetimes.machine?.inForce, agreement.proposal.proposer == member else { return }
        lifetimes.unconfirmed = []
        lifetimes.machine?.confirm(agreement.id)
    }

    /// Also covers messages sent before a restart: the proposer can withdraw even after the session has ended.
    mutating func noteUnconfirmed(_ content: Content) {
        guard let machine = lifetimes.machine, let agreement = content.agreement, agreement != machine.record.confirmed,
            agreement == machine.inForce?.id || agreement == machine.record.head?.id,
            lifetimes.unconfirmed.count < Limits.outboxCount
        else { return }
        lifetimes.unconfirmed.insert(content.id)
    }

    private mutating func eraseUnconfirmed(_ agreement: AgreementID, _ turn: Turn) -> [NodeAction] {
        let messages = lifetimes.unconfirmed.sorted()
        lifetimes.unconfirmed = []
        for index in members.values.indices { for message in messages { _ = members.values[index].settle(message) } }
        let erased = NodeAction.eraseSent(client, agreement)
        return messages.isEmpty ? [erased] : [erased, names.events(.state(.cancelled, stored: nil), messages, turn)]
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
