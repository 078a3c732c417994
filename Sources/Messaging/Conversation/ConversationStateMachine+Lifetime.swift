import Primitives

/// What the members agree on about keeping messages (section 6).
extension ConversationStateMachine {
    /// Proposes a lifetime (section 6).
    /// - Throws: ``CommandError/noOtherMember``, ``CommandError/notConnected``, ``CommandError/lifetime(_:)``.
    package mutating func propose(_ lifetime: Lifetime, _ turn: inout Turn) throws(CommandError) -> [NodeAction] {
        try negotiate(&turn) { [key] machine, turn throws(LifetimeStateMachine.Refusal) in
            try machine.propose(lifetime, now: turn.now, key: key, random: &turn.random)
        }
    }

    /// Accepts the open proposal. Throws as ``propose(_:_:)``.
    package mutating func accept(_ turn: inout Turn) throws(CommandError) -> [NodeAction] {
        try negotiate(&turn) { [key] machine, turn throws(LifetimeStateMachine.Refusal) in
            try machine.accept(now: turn.now, key: key, random: &turn.random)
        }
    }

    /// Turns the open proposal down. Throws as ``propose(_:_:)``.
    package mutating func reject(_ turn: inout Turn) throws(CommandError) -> [NodeAction] {
        try negotiate(&turn) { machine, _ throws(LifetimeStateMachine.Refusal) in try machine.reject() }
    }

    /// Takes our own proposal back. Throws as ``propose(_:_:)``.
    package mutating func withdraw(_ turn: inout Turn) throws(CommandError) -> [NodeAction] {
        try negotiate(&turn) { machine, _ throws(LifetimeStateMachine.Refusal) in try machine.withdraw() }
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
        guard var machine = lifetimeMachine, let peer = members.keys.first else { throw .noOtherMember }
        guard members[peer]?.isEstablished == true else { throw .notConnected }
        let actions: [LifetimeStateMachine.Action]
        do throws(LifetimeStateMachine.Refusal) {
            actions = try step(&machine, &turn)
        } catch {
            throw .lifetime(error)
        }
        lifetimeMachine = machine
        return perform(actions, &turn)
    }

    mutating func receive(_ message: LifetimeMessage, _ turn: inout Turn) -> [NodeAction] {
        let policy = policyNow(turn)
        guard
            let actions = lifetimeMachine?.receive(
                message,
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
        let link = members.first?.value.link.link
        for action in actions {
            switch action {
            case .save: result.append(.save(client))
            case .send(let message):
                if let link { result.append(.transmit(link, .lifetime(message))) }
                if case .proposal(let proposal) = message {
                    result.append(event(.lifetimeProposed(proposal.lifetime, ours: true, proposal.id), turn))
                }
            case .agreed(let agreement, let previous, let automatic):
                unconfirmed = agreement.accept.acceptor == key.publicKey ? (agreement.id, []) : nil
                result.append(
                    event(.lifetimeAgreed(agreement.lifetime, agreement.id, automatic: automatic), turn)
                )
                result += systemMessage(Self.agreementText(agreement.lifetime, previous: previous), &turn)
            case .asked(let proposal):
                result.append(event(.lifetimeProposed(proposal.lifetime, ours: false, proposal.id), turn))
            case .rejected(let id, let reason): result.append(event(.lifetimeRejected(id, reason), turn))
            case .withdrawn(let id): result.append(event(.lifetimeWithdrawn(id), turn))
            case .expired(let id): result.append(event(.lifetimeExpired(id), turn))
            case .reset(let previous):
                result.append(event(.lifetimeReset(previous: previous), turn))
                result += systemMessage("Messages are no longer kept: the session has ended", &turn)
            case .rolledBack(let agreement):
                result += eraseUnconfirmed(agreement, turn)
                result += systemMessage("The proposal was taken back: \(lifetime.displayName) is in force", &turn)
            case .dropped: droppedCount += 1
            }
        }
        return result
    }

    private mutating func eraseUnconfirmed(_ agreement: AgreementID, _ turn: Turn) -> [NodeAction] {
        guard let unconfirmed, unconfirmed.agreement == agreement else { return [] }
        self.unconfirmed = nil
        for member in memberKeys {
            for message in unconfirmed.messages {
                _ = members[member]!.outbox.cancel(message)
                members[member]!.serving.remove(message)
            }
        }
        return [.erase(client, unconfirmed.messages)]
            + unconfirmed.messages.map { event(.messageState($0, .cancelled, stored: nil), turn) }
    }

    /// The seed's words.
    private static func agreementText(_ lifetime: Lifetime, previous: Lifetime) -> String {
        if lifetime == .ephemeral { return "Messages are no longer kept (\(lifetime.displayName))" }
        return previous == .ephemeral
            ? "Messages will be deleted after \(lifetime.displayName)" : "Changed to \(lifetime.displayName)"
    }

    /// Shown here only; expires with the contents around it (section 6, point 11).
    mutating func systemMessage(_ text: String, _ turn: inout Turn) -> [NodeAction] {
        let lifetime = turn.isLocked ? .ephemeral : lifetime
        let id = MessageID.random(&turn.random)
        let message = Message(
            content: Content(
                type: .systemMessage,
                id: id,
                sentAt: turn.now,
                lifetime: lifetime,
                agreement: agreement?.id,
                fallback: "",
                shouldPush: false,
                payload: Array(text.utf8)
            ),
            sender: nil,
            state: .received,
            expiresAt: lifetime.milliseconds.map { turn.now + $0 }
        )
        return [
            .keep(client, message, lifetime == .ephemeral ? .memory : .disk(lifetime)),
            event(.message(id), turn),
        ]
    }
}
