import Primitives

/// One conversation as one of its members holds it: its members' links and outboxes, its lifetime, and, at its creator,
/// its invites. It routes what happens to those machines and turns their answers into actions for this inbox.
package struct ConversationStateMachine: Sendable {
    /// The way to one other member.
    struct MemberState: Sendable {
        var link: LinkStateMachine
        var outbox = OutboxStateMachine()
        /// What we said on the link in use; `nil` while there is none.
        var sessionSent: SessionStart?
        /// Both have said where they stand on the link in use.
        var isEstablished = false
        /// What watchers were told last; a link that takes the place of another is not news.
        var isShownOnline = false
        /// The session has ended (restart, close): the next link starts with a reset.
        var hasEnded: Bool
    }

    package let client: ClientID
    package let key: IdentityKey
    /// The record but for lifetime and invites; ``savedRecord`` has all.
    package internal(set) var record: ConversationRecord
    var members: [PublicKey: MemberState] = [:]
    var lifetimeMachine: LifetimeStateMachine?
    var issuer: IssuerStateMachine?
    /// What we have stored under an agreement that the proposer may have taken back before our accept reached it.
    private var unconfirmed: (agreement: AgreementID, messages: [MessageID])?
    /// Unread contents that are in memory only, in bytes.
    package private(set) var heldByteCount = 0
    /// Messages of peers that were dropped: floods, forgeries, repeats.
    package private(set) var droppedCount = 0

    package init(client: ClientID, key: IdentityKey, record: ConversationRecord, isFresh: Bool, now: Timestamp) {
        self.client = client
        self.key = key
        self.record = record
        issuer = record.issuer.map(IssuerStateMachine.init)
        for member in record.members where !record.left.contains(member.key) {
            members[member.key] = MemberState(
                link: LinkStateMachine(
                    own: key.publicKey,
                    remote: member.key,
                    isDialable: !member.endpoints.isEmpty,
                    now: now
                ),
                hasEnded: !isFresh
            )
        }
        makeLifetimeMachine()
    }

    package var conversation: ConversationID { record.genesis.conversation }
    package var isCreator: Bool { record.genesis.creator == key.publicKey }
    /// The lifetime of new messages.
    package var lifetime: Lifetime { lifetimeMachine?.lifetime ?? .ephemeral }
    /// The proposal on the table, and whether it is ours.
    package var pendingProposal: (proposal: LifetimeProposal, isOurs: Bool)? { lifetimeMachine?.pending }
    /// The agreement in force; `nil`: ephemeral.
    package var agreement: Agreement? { lifetimeMachine?.record.inForce }
    /// The creator's invites; `nil` for others.
    package var invites: IssuerStateMachine.Record? { issuer?.record }
    /// Everyone but ourselves and those who have left.
    package var currentMembers: [Member] { record.members.filter { members[$0.key] != nil } }

    /// Whether the session with this member is established.
    package func isOnline(_ member: PublicKey) -> Bool { members[member]?.isEstablished ?? false }
    /// The link in use.
    package func link(to member: PublicKey) -> LinkID? { members[member]?.link.link }
    /// What this member has not acknowledged, in order.
    package func outbox(to member: PublicKey) -> [OutboxStateMachine.Entry] { members[member]?.outbox.all ?? [] }
    /// The session with every member goes on: none has ended by a restart or a close.
    package var sessionGoesOn: Bool { members.values.allSatisfy { !$0.hasEnded } }
    package var outboxCount: Int { members.values.reduce(0) { $0 + $1.outbox.count } }

    /// The record as it is to be saved.
    package var savedRecord: ConversationRecord {
        var saved = record
        saved.issuer = issuer?.record
        if let lifetimeMachine { saved.lifetime = lifetimeMachine.record }
        return saved
    }

    /// When ``advance(_:)`` has something to do; `nil` for never.
    package var nextDeadline: Timestamp? {
        var earliest = lifetimeMachine?.nextDeadline
        for member in members.values {
            for deadline in [member.link.nextDeadline, member.outbox.nextDeadline] {
                if let deadline { earliest = min(earliest ?? deadline, deadline) }
            }
        }
        return earliest
    }

    /// The members in a fixed order: the order of a dictionary must not reach an action.
    var memberKeys: [PublicKey] { members.keys.sorted() }

    func event(_ kind: Event.Kind, _ turn: Turn) -> NodeAction {
        .notify(Event(client: client, conversation: conversation, at: turn.now, kind: kind))
    }

    mutating func makeLifetimeMachine() {
        guard let other = record.members.first(where: { members[$0.key] != nil }) else {
            lifetimeMachine = nil
            return
        }
        lifetimeMachine = LifetimeStateMachine(
            conversation: conversation,
            membership: record.membership,
            own: key.publicKey,
            peer: other.key,
            record: record.lifetime
        )
    }

    // MARK: Sending

    /// Sends a text to every other member.
    /// - Returns: the message, and where it is kept.
    package mutating func send(
        _ text: String,
        _ turn: inout Turn
    ) throws(CommandError) -> (message: Message, actions: [NodeAction]) {
        let byteCount = text.utf8.count
        guard byteCount > 0 else { throw .emptyText }
        guard byteCount <= Limits.textByteCount else {
            throw .textTooLong(byteCount: byteCount, limit: Limits.textByteCount)
        }
        guard !members.isEmpty else { throw .noOtherMember }
        let id = MessageID.random(&turn.random)
        let expiresAt = lifetime.milliseconds.map { turn.now + $0 }
        let message = Message(
            content: Content(
                type: .text,
                id: id,
                sentAt: turn.now,
                lifetime: lifetime,
                agreement: expiresAt == nil ? nil : agreement?.id,
                fallback: "",
                shouldPush: true,
                payload: Array(text.utf8)
            ),
            sender: nil,
            state: .queued,
            expiresAt: expiresAt
        )
        let deadline = min(expiresAt ?? .latest, turn.now + Limits.outboxLifetime)
        for member in memberKeys {
            guard
                members[member]!.outbox.enqueue(
                    id,
                    sentAt: turn.now,
                    deadline: deadline,
                    isStored: expiresAt != nil
                )
            else {
                throw .outboxFull(limit: Limits.outboxCount)
            }
        }
        if let agreement = message.content.agreement, unconfirmed?.agreement == agreement {
            unconfirmed!.messages.append(id)
        }
        let keeping: NodeAction.Keeping =
            expiresAt == nil ? .memory : turn.isLocked ? .untilUnlocked(lifetime) : .disk(lifetime)
        var actions: [NodeAction] = [.keep(client, message, keeping)]
        for member in memberKeys { actions += flush(member, &turn) }
        return (message, actions)
    }

    /// Takes up again what was not delivered when the node stopped.
    package mutating func restoreOutbox(_ message: Message) {
        let deadline = min(message.expiresAt ?? .latest, message.content.sentAt + Limits.outboxLifetime)
        for member in memberKeys {
            _ = members[member]!.outbox.enqueue(
                message.content.id,
                sentAt: message.content.sentAt,
                deadline: deadline,
                isStored: true
            )
        }
    }

    /// Takes back a message that is not delivered everywhere.
    /// - Throws: ``CommandError/unknownMessage``.
    package mutating func cancel(_ message: MessageID, _ turn: inout Turn) throws(CommandError) -> [NodeAction] {
        var found = false
        for member in memberKeys where members[member]!.outbox.cancel(message) { found = true }
        guard found else { throw .unknownMessage }
        return [
            .setState(client, message, .cancelled),
            event(.messageState(message, .cancelled, stored: nil), turn),
        ]
    }

    /// Dials now instead of at the end of the wait.
    package mutating func retry(_ turn: inout Turn) -> [NodeAction] {
        for member in memberKeys { members[member]!.link.hurry(now: turn.now) }
        return advance(&turn)
    }

    mutating func flush(_ member: PublicKey, _ turn: inout Turn) -> [NodeAction] {
        guard members[member]?.isEstablished == true, let link = members[member]?.link.link else { return [] }
        return perform(members[member]!.outbox.flush(now: turn.now, random: &turn.random), to: link, turn)
    }

    func perform(_ actions: [OutboxStateMachine.Action], to link: LinkID?, _ turn: Turn) -> [NodeAction] {
        actions.flatMap { action -> [NodeAction] in
            switch action {
            case .transmit(let id, let age):
                link.map { [.transmitMessage($0, client, id, age: age)] } ?? []
            case .sent(let id):
                [.setState(client, id, .sent), event(.messageState(id, .sent, stored: nil), turn)]
            case .expired(let id):
                [
                    .setState(client, id, .expiredUndelivered),
                    event(.messageState(id, .expiredUndelivered, stored: nil), turn),
                ]
            }
        }
    }

    // MARK: Receiving

    /// A frame from a member. `memoryAvailable`: what all inboxes may still hold in memory, in bytes.
    package mutating func receive(
        _ frame: Frame,
        from member: PublicKey,
        on link: LinkID,
        memoryAvailable: Int,
        _ turn: inout Turn
    ) -> [NodeAction] {
        guard members[member] != nil else { return [.close(link)] }
        members[member]!.link.heard(link, now: turn.now)
        switch frame {
        case .session(let start): return receive(start, from: member, on: link, &turn)
        case .content(let content, let age):
            return receive(content, age: age, from: member, on: link, memoryAvailable: memoryAvailable, turn)
        case .acknowledgement(let id, let stored):
            if stored, let agreement = unconfirmed?.agreement, unconfirmed?.messages.contains(id) == true {
                unconfirmed = nil
                lifetimeMachine?.confirm(agreement)
            }
            guard members[member]!.outbox.acknowledge(id) else { return [] }
            return [
                .setState(client, id, .delivered),
                event(.messageState(id, .delivered, stored: stored), turn),
            ] + flush(member, &turn)
        case .lifetime(let message):
            // What both said at the start of the link in use already counts with what came before by another link.
            guard members[member]!.isEstablished, members[member]!.link.link == link else {
                droppedCount += 1
                return []
            }
            return receive(message, &turn)
        case .explosion(let sealed): return receiveExplosion(sealed, on: link, &turn)
        case .memberLeft: return receiveDeparture(of: member, on: link, turn)
        case .ping(let nonce): return [.transmit(link, .pong(nonce))]
        case .pong, .unknown: return []
        case .closing: return receiveClosing(from: member, on: link, turn)
        case .joinRequest, .welcome, .joinError, .deletionReceipt, .invitation:
            droppedCount += 1
            return []
        }
    }

    private mutating func receive(
        _ content: Content,
        age: Milliseconds,
        from member: PublicKey,
        on link: LinkID,
        memoryAvailable: Int,
        _ turn: Turn
    ) -> [NodeAction] {
        guard members[member]!.isEstablished else {
            droppedCount += 1
            return []
        }
        let id = content.id
        if let agreement = content.agreement, unconfirmed?.agreement == agreement {
            unconfirmed = nil
            lifetimeMachine?.confirm(agreement)
        }
        if turn.isKnown(client, id) { return [.transmit(link, .acknowledgement(id, stored: false))] }
        // Section 6, point 7: no two clocks are compared; the age counts by the sender's clock, the rest by ours.
        let agreed = content.agreement.flatMap { lifetimeMachine?.storable(under: $0, age: age, now: turn.now) }
        let length = agreed?.milliseconds ?? content.lifetime.milliseconds
        let expiresAt = length.map { turn.now + ($0 - min(max(age, 0), $0)) }
        if let expiresAt, expiresAt <= turn.now {
            return [.transmit(link, .acknowledgement(id, stored: false))]
        }
        let message = Message(content: content, sender: member, state: .received, expiresAt: expiresAt)
        let keeping: NodeAction.Keeping
        if let agreed, agreed != .ephemeral {
            keeping = turn.isLocked ? .untilUnlocked(agreed) : .disk(agreed)
        } else {
            keeping = .memory
        }
        switch keeping {
        case .disk:
            guard turn.hasRoom(client) else {
                droppedCount += 1
                return []
            }
        case .memory, .untilUnlocked:
            // Beyond the bound nothing is acknowledged, so the sender keeps it.
            guard heldByteCount + message.byteCount <= Limits.memoryByteCount, message.byteCount <= memoryAvailable
            else {
                droppedCount += 1
                return []
            }
            heldByteCount += message.byteCount
        }
        let isStored = if case .disk = keeping { true } else { false }
        return [
            .keep(client, message, keeping),
            .transmit(link, .acknowledgement(id, stored: isStored)),
            event(.message(id), turn),
        ]
    }

    /// The user has seen what is in memory, or it is on the disk now: it no longer counts against the bound.
    /// - Parameter byteCount: `nil` for all of it.
    package mutating func releaseMemory(byteCount: Int? = nil) {
        heldByteCount = byteCount.map { max(0, heldByteCount - $0) } ?? 0
    }

    // MARK: Lifetime

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

    private mutating func receive(_ message: LifetimeMessage, _ turn: inout Turn) -> [NodeAction] {
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
            for message in unconfirmed.messages { _ = members[member]!.outbox.cancel(message) }
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
    private mutating func systemMessage(_ text: String, _ turn: inout Turn) -> [NodeAction] {
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
