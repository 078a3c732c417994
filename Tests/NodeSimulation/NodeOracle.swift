import Crypto
import Messaging
import NodeRuntime
import SimulatedDisk
import Wire

/// Knows everything and trusts nobody: what must never happen (I1 to I7), from what each node tells its user, from the
/// frames that arrive, and from the disk as a thief would find it.
///
/// A hostile member changes nothing of what the others promise each other. A hostile creator does, in what it has made: who
/// is a member is its word, and so is the end; it may say one thing to one and another to the other, so that two honest
/// members need not come to the same agreement, state or link, nor to anything with it. What they may still be promised,
/// and what is looked at there as everywhere:
///
/// - They go on: no frame ends the process, and what they remember of the conversation is bounded (I7).
/// - What one has said to have stored it has until its end, unless the conversation was ended (I1), and nobody shows or keeps
///   it longer than was agreed (I3).
/// - Nothing is on a disk but under an agreement that its holder, and all whom it has signed with, have signed; and none is
///   in force that somebody whom the holder takes for a member has not signed (I4).
/// - Of several times for its end the earliest that has come to a member stands there, and at it the copy is gone (I5).
/// - Each has one of the states that the creator has signed, whole: it knows everybody who is in it.
/// - Their other conversations, those with other creators, lose nothing by it (I1, E1).
final class NodeOracle: @unchecked Sendable {
    struct Sent {
        var machine: Int
        var conversation: ConversationID
        var content: Content
        /// By the world's time, in milliseconds.
        var time: Int64
    }

    struct Key: Hashable {
        var client: ClientID
        var text: String
    }

    struct Shown {
        var incarnation: Int
        var isStored: Bool
        var expiresAt: Timestamp?
    }

    /// A message that was acknowledged as durable.
    struct Promise {
        var text: String
        var id: MessageID
        var conversation: ConversationID
        /// Whose it is.
        var inbox: PublicKey
    }

    /// An inbox of an honest machine that is in a conversation.
    struct Inbox {
        var key: PublicKey
        var machine: Int
        var conversation: ConversationID
        /// Of the conversation, as its beginning says.
        var creator: PublicKey
    }

    /// A hostile creator may give its conversation the name of another one: they differ in who has made them.
    struct Ended: Hashable {
        var conversation: ConversationID
        var creator: PublicKey?
    }

    struct Explosion {
        var machine: Int
        /// Where everybody was.
        var places: [Int]
    }

    /// What a message may be late by on its way, in milliseconds: half a minute in a network that holds it up, and as
    /// long for a connection that nobody knows to be lost.
    static let transit: Milliseconds = 75_000

    /// Whose contact inboxes these are, of those that are known by name.
    var contacts: [PublicKey: Int] = [:]
    /// For which conversation a box at the mailbox is.
    var boxes: [BoxID: ConversationID] = [:]
    /// Machines to which a message has come, whether it was shown or had expired.
    var arrived: [MessageID: Set<Int>] = [:]
    /// On which machine an inbox is.
    var owners: [PublicKey: Int] = [:]
    /// That are there, as far as was seen.
    var inboxes: [ClientID: Inbox] = [:]
    /// Inboxes whose joins were given up.
    var cancelled: Set<ClientID> = []
    var sent: [String: Sent] = [:]
    var texts: [MessageID: String] = [:]
    var shown: [Key: Shown] = [:]
    /// What had expired as it came, by a clock that is far ahead and not yet believed: nobody has seen it.
    private var hidden: [Int: Set<MessageID>] = [:]
    /// Until when a message is kept, as its holder has said.
    var ends: [Key: Timestamp] = [:]
    /// By machine.
    var promises: [Int: [MessageID: Promise]] = [:]
    /// Agreements that all members have signed, as this oracle has verified itself.
    var agreements: [AgreementID: Agreement] = [:]
    /// Conversations that have exploded on a machine: they never come back. One that was left may be joined again.
    var over: [Int: Set<Ended>] = [:]
    /// Those that honest creators have wanted to end, at once or at a time.
    var ended: Set<ConversationID> = []
    /// Inboxes whose keys must be gone from the disk.
    var goneKeys: Set<PublicKey> = []
    var explosions: [ConversationID: Explosion] = [:]
    /// The end that a machine has told its user of.
    var schedules: [Key: Timestamp] = [:]

    /// An inbox is destroyed, and all that it has promised with it.
    func destroyed(_ inbox: PublicKey?, on machine: Machine, isCertain: Bool = true) {
        guard let inbox else { return }
        if isCertain { goneKeys.insert(inbox) }
        inboxes = inboxes.filter { $0.value.key != inbox }
        promises[machine.index] = promises[machine.index]?.filter { $0.value.inbox != inbox }
    }

    /// An inbox of a machine has become one of a conversation, or is seen to be.
    func enters(_ one: ConversationStateMachine, _ machine: Machine) {
        owners[one.key.publicKey] = machine.index
        guard !machine.isHostile else { return }
        inboxes[one.client] = Inbox(
            key: one.key.publicKey, machine: machine.index, conversation: one.conversation,
            creator: one.record.genesis.creator)
    }

    /// It is there, and nobody has wanted to end it.
    func isKnown(_ conversation: ConversationID, _ machine: Machine) -> Bool {
        !ended.contains(conversation)
            && inboxes.values.contains { $0.machine == machine.index && $0.conversation == conversation }
    }

    /// A conversation of this machine that it has seen the end of.
    func isOver(_ conversation: ConversationID, _ client: ClientID, _ machine: Machine) -> Bool {
        let creator = inboxes[client]?.creator
        return (over[machine.index] ?? []).contains { gone in
            gone.conversation == conversation && (gone.creator == nil || creator == nil || gone.creator == creator)
        }
    }

    /// A user has ended a session: what was in memory only is forgotten, and may come again.
    func closed(_ client: ClientID) { shown = shown.filter { $0.key.client != client || $0.value.isStored } }

    // MARK: What a user is shown

    /// - Parameter now: by the node's own clock.
    func shows(
        _ read: Node.ReadMessage, _ reader: ConversationStateMachine, _ now: Timestamp, _ machine: Machine,
        _ world: NodeSimulation
    ) {
        let message = read.message
        guard message.content.type == .text else { return }
        if let expiresAt = message.expiresAt, expiresAt <= now {
            world.violation("I3 machine \(machine.index) shows a message \(now - expiresAt) ms after its end")
        }
        guard let text = message.content.plainText, let sent = sent[text],
            message.sender.map({ !world.isHostile($0) }) ?? true
        else { return }
        if let end = message.expiresAt { ends[Key(client: reader.client, text: text)] = end }
        if read.isStored { checkStored(message, reader, machine, world) }
        let agreed = message.content.agreement.flatMap { agreements[$0]?.terms.longest }
        guard let length = agreed ?? message.content.lifetime.milliseconds else { return }
        let lost = world.machines[sent.machine].lostTime + machine.lostTime
        let age = world.time.milliseconds - sent.time
        if age > length + Self.transit + lost + world.mailboxSlack(under: message.content.agreement) {
            world.violation("I3 machine \(machine.index) shows a message \(age - length) ms too long")
        }
    }

    /// What is on the disk rests on an agreement that all have signed.
    private func checkStored(
        _ message: Message, _ one: ConversationStateMachine, _ machine: Machine, _ world: NodeSimulation
    ) {
        guard let id = message.content.agreement else {
            return world.violation("I4 machine \(machine.index) stores without an agreement")
        }
        if agreement(id, of: one, machine, world) == nil {
            world.violation("I4 machine \(machine.index) stores under an agreement that nobody has seen")
        }
    }

    /// An agreement that all have signed. Nobody was told of it if the node crashed at that moment; then the conversation
    /// has it.
    func agreement(_ id: AgreementID, of one: ConversationStateMachine?, _ machine: Machine, _ world: NodeSimulation)
        -> Agreement?
    {
        if agreements[id] == nil, let one,
            let held = (one.agreements + [one.agreement].compactMap { $0 }).first(where: { $0.id == id })
        {
            learn(held, one, machine, world)
        }
        return agreements[id]
    }

    /// Nothing is in force that somebody has not signed whom this machine takes for a member.
    func checkInForce(_ one: ConversationStateMachine, _ machine: Machine, _ world: NodeSimulation) {
        guard let agreement = one.agreement else { return }
        if !([one.key.publicKey] + one.currentMembers.map(\.key)).allSatisfy(agreement.isSigned) {
            world.violation("I4 machine \(machine.index) keeps messages under what not all members have signed")
        }
    }

    func received(
        _ id: MessageID, _ client: ClientID, _ machine: Machine, _ node: isolated Node, _ world: NodeSimulation
    ) {
        arrived[id, default: []].insert(machine.index)
        guard let read = node.message(id, client: client) else {
            hidden[machine.index, default: []].insert(id)
            return
        }
        // When that clock is believed at a start, it is gone. No promise outlives its end.
        if hidden[machine.index]?.remove(id) != nil { promises[machine.index]?[id] = nil }
        let message = read.message
        guard message.content.type == .text, let text = message.content.plainText, let sender = message.sender,
            let owner = owners[sender], !world.machines[owner].isHostile
        else { return }
        let key = Key(client: client, text: text)
        if let before = shown[key] {
            let isOver = before.expiresAt.map { $0 <= node.currentTime } ?? false
            // What cannot be read is not known to be there.
            if before.incarnation == machine.incarnation || before.isStored && !isOver, !machine.readsHaveFailed {
                world.violation("I2 machine \(machine.index) shows \(text.prefix(12)) again")
            }
            if isOver { promises[machine.index]?[id] = nil }
        }
        shown[key] = Shown(incarnation: machine.incarnation, isStored: read.isStored, expiresAt: message.expiresAt)
        if let end = message.expiresAt { ends[key] = end }
        world.checkEnd(of: message, sent[text], machine, node.currentTime)
        if read.isStored, let one = try? node.conversation(client.description) {
            checkStored(message, one, machine, world)
        }
        guard let original = sent[text] else {
            // Its sender has crashed before it was told that it is on its way.
            return
        }
        if original.content != message.content || original.machine != owner {
            world.violation("machine \(machine.index) shows \(text.prefix(12)) otherwise than it was sent")
        }
    }

    // MARK: Agreements

    /// The signed bytes, put together here again from the specification and not by the code under test.
    static func isSigned(_ agreement: Agreement, by members: Set<PublicKey>) -> Bool {
        func number(_ value: UInt64) -> [UInt8] { (0..<8).map { UInt8(truncatingIfNeeded: value >> (56 - 8 * $0)) } }
        func field(_ bytes: [UInt8]) -> [UInt8] { number(UInt64(bytes.count)) + bytes }
        func tagged(_ tag: String, _ bytes: [UInt8]) -> [UInt8] {
            let hash = SHA256.hash(Array(tag.utf8))
            return SHA256.hash(hash + hash + bytes)
        }
        let proposal = agreement.proposal
        let terms = proposal.terms
        var bytes = field(proposal.conversation.bytes) + number(proposal.membership) + number(proposal.epoch)
        bytes += field(proposal.previous.bytes) + field(Array(proposal.lifetime.rawValue.utf8))
        bytes += number(UInt64(proposal.proposedAt.milliseconds)) + field(proposal.nonce)
        bytes += field(proposal.proposer.bytes) + field(Array((terms.attachment?.rawValue ?? "").utf8))
        bytes += number(UInt64(terms.unopened ?? 0)) + field(Array(terms.timer.rawValue.utf8))
        if terms.mailbox != .no { bytes += field(Array(terms.mailbox.rawValue.utf8)) }
        let proposed = tagged("mayfly/lifetime_proposal", bytes)
        for accept in agreement.accepts {
            var consent = field(proposal.conversation.bytes) + field(proposed)
            consent += field(Array(proposal.lifetime.rawValue.utf8))
            consent += number(UInt64(accept.acceptedAt.milliseconds)) + field(accept.acceptor.bytes)
            let accepted = tagged("mayfly/lifetime_accept", consent)
            guard accept.acceptor.isValid(accept.signature, for: accepted) else { return false }
        }
        let signers = [proposal.proposer] + agreement.accepts.map(\.acceptor)
        return members.count >= 2 && members.isSubset(of: signers) && Set(signers).count == signers.count
            && proposal.proposer.isValid(proposal.signature, for: proposed)
            && agreement.id.bytes == tagged("mayfly/lifetime_agreement", field(proposed))
    }

    /// Whoever says that a lifetime was agreed can show all signatures.
    func agreed(
        _ id: AgreementID, _ conversation: ConversationID, _ machine: Machine, _ node: isolated Node,
        _ world: NodeSimulation
    ) {
        guard agreements[id] == nil else { return }
        _ = agreement(id, of: try? node.conversation(conversation.description), machine, world)
    }

    private func learn(
        _ agreement: Agreement, _ one: ConversationStateMachine, _ machine: Machine, _ world: NodeSimulation
    ) {
        var members = Set(agreement.signers + [one.key.publicKey])
        // What is said comes after the disk has it: somebody may have joined since, who has yet to sign. A hostile creator
        // may have changed the members since without saying so by the number: see ``checkInForce(_:_:_:)``.
        if agreement.proposal.membership == one.record.group.membership, !world.isHostile(one.record.genesis.creator) {
            members.formUnion(one.currentMembers.map(\.key))
        }
        guard Self.isSigned(agreement, by: members) else {
            return world.violation("I4 machine \(machine.index) agreed without all signatures")
        }
        agreements[agreement.id] = agreement
    }

    // MARK: Disks

    /// For ``PlantedMistake/restoredBackup``: a disk from before the first end of a conversation, by machine.
    private var backups: [Int: SimulatedDisk] = [:]

    func backUp(_ machine: Machine, _ world: NodeSimulation) {
        guard world.options.mistake == .restoredBackup else { return }
        if over[machine.index]?.isEmpty ?? true {
            backups[machine.index] = machine.disk.platter.copy()
        } else if let backup = backups[machine.index] {
            machine.disk.replace(by: backup.copy())
        }
    }
}

extension Content {
    /// Of a plain text.
    var plainText: String? { type == .text ? String(decoding: payload, as: UTF8.self) : nil }
}
