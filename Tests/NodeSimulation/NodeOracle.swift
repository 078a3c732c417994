import Cryptography
import Messaging
import NodeRuntime
import SimulatedDisk
import Simulation

/// Checks the invariants (I1 to I7) against each node's events, the arriving frames, and the disk as an attacker finds
/// it.
///
/// A hostile member changes no promise between the others. A hostile creator does in its own conversations: it decides
/// on members and end, and may tell each member something else. Two honest members may then disagree on agreement,
/// state or link. Still checked there:
///
/// - No frame ends the process, and the memory for the conversation is bounded (I7).
/// - A message acknowledged as stored exists until its end, unless the conversation was ended (I1), and is not kept or
/// shown longer than agreed (I3).
/// - Nothing is stored without an agreement signed by its holder and the other signers. None is in force without the
/// signature of every member that the holder knows (I4).
/// - Of several explosion times the earliest received counts, and at that time the copy is destroyed (I5).
/// - Each member has one of the creator's signed states completely: it knows everyone in it.
/// - Conversations with other creators lose nothing (I1, E1).
final class NodeOracle: @unchecked Sendable {
    struct Sent {
        var machine: Int
        var conversation: ConversationID
        var content: Content
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

    struct Promise {
        var text: String
        var id: MessageID
        var conversation: ConversationID
        /// The holder's inbox.
        var inbox: PublicKey
    }

    struct Inbox {
        var key: PublicKey
        var machine: Int
        var conversation: ConversationID
        var creator: PublicKey
    }

    /// A hostile creator may reuse another conversation's id: only the creator tells them apart.
    struct Ended: Hashable {
        var conversation: ConversationID
        var creator: PublicKey?
    }

    struct Explosion {
        var machine: Int
        /// The creator keeps no list of members to tell.
        var isTraceless: Bool
    }

    /// Greatest undetected delay of a message in milliseconds: half a minute in a network that holds it up, and as long
    /// for a lost connection.
    static let transit: Milliseconds = 75_000

    var contacts: [PublicKey: Int] = [:]
    var boxes: [BoxID: ConversationID] = [:]
    /// Machines that received a message, whether shown or expired.
    var arrived: [MessageID: Set<Int>] = [:]
    var owners: [PublicKey: Int] = [:]
    /// Existing inboxes, as far as observed.
    var inboxes: [ClientID: Inbox] = [:]
    var cancelled: Set<ClientID> = []
    var sent: [String: Sent] = [:]
    var texts: [MessageID: String] = [:]
    var shown: [Key: Shown] = [:]
    /// Messages that had expired on arrival by a clock far ahead that is not trusted yet; they were not shown.
    private var hidden: [Int: Set<MessageID>] = [:]
    /// End of each message, as its holder reported.
    var ends: [Key: Timestamp] = [:]
    var promises: [Int: [MessageID: Promise]] = [:]
    /// Agreements whose signatures this oracle has verified.
    var agreements: [AgreementID: Agreement] = [:]
    /// Exploded conversations by machine: they must never return. A conversation that was left may be joined again.
    var over: [Int: Set<Ended>] = [:]
    /// Conversations that honest creators exploded or scheduled to explode.
    var ended: Set<ConversationID> = []
    /// Inboxes whose keys must be gone from the disk.
    var goneKeys: Set<PublicKey> = []
    var explosions: [ConversationID: Explosion] = [:]
    /// Members and their addresses, as the conversation's creator last knew them.
    var known: [ConversationID: [Member]] = [:]
    /// Explosion time that each machine reported.
    var schedules: [ClientID: Timestamp] = [:]

    func destroyed(_ inbox: PublicKey?, on machine: Machine, isCertain: Bool = true) {
        guard let inbox else { return }
        if isCertain { goneKeys.insert(inbox) }
        inboxes = inboxes.filter { $0.value.key != inbox }
        promises[machine.index] = promises[machine.index]?.filter { $0.value.inbox != inbox }
    }

    func enters(_ one: Conversation, _ machine: Machine) {
        owners[one.key.publicKey] = machine.index
        guard !machine.isHostile else { return }
        inboxes[one.client] = Inbox(
            key: one.key.publicKey, machine: machine.index, conversation: one.conversation,
            creator: one.record.genesis.creator)
    }

    /// Whether the conversation exists on the machine and must not end.
    func isKnown(_ conversation: ConversationID, _ machine: Machine) -> Bool {
        !ended.contains(conversation)
            && inboxes.values.contains { $0.machine == machine.index && $0.conversation == conversation }
    }

    func isOver(_ conversation: ConversationID, _ client: ClientID, _ machine: Machine) -> Bool {
        let creator = inboxes[client]?.creator
        return (over[machine.index] ?? []).contains { gone in
            gone.conversation == conversation && (gone.creator == nil || creator == nil || gone.creator == creator)
        }
    }

    /// A closed session forgets messages in memory, which may arrive again.
    func closed(_ client: ClientID) { shown = shown.filter { $0.key.client != client || $0.value.isStored } }

    /// - Parameter now: The node's own time.
    func shows(
        _ read: Node.ReadMessage, _ reader: Conversation, _ now: Timestamp, _ machine: Machine, _ world: NodeSimulation
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

    /// A stored message needs an agreement that all members signed.
    private func checkStored(_ message: Message, _ one: Conversation, _ machine: Machine, _ world: NodeSimulation) {
        guard let id = message.content.agreement else {
            return world.violation("I4 machine \(machine.index) stores without an agreement")
        }
        if agreement(id, of: one, machine, world) == nil {
            world.violation("I4 machine \(machine.index) stores under an agreement that nobody has seen")
        }
    }

    /// An agreement signed by all. If the node crashed before the event, the conversation still has it.
    func agreement(_ id: AgreementID, of one: Conversation?, _ machine: Machine, _ world: NodeSimulation) -> Agreement?
    {
        if agreements[id] == nil, let one,
            let held = (one.agreements + [one.agreement].compactMap { $0 }).first(where: { $0.id == id })
        {
            learn(held, one, machine, world)
        }
        return agreements[id]
    }

    /// No agreement is in force without the signature of each member that this machine knows.
    func checkInForce(_ one: Conversation, _ machine: Machine, _ world: NodeSimulation) {
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
        // When that clock is trusted at a start, the message is gone. A promise ends with its message.
        if hidden[machine.index]?.remove(id) != nil { promises[machine.index]?[id] = nil }
        let message = read.message
        guard message.content.type == .text, let text = message.content.plainText, let sender = message.sender,
            let owner = owners[sender], !world.machines[owner].isHostile
        else { return }
        let key = Key(client: client, text: text)
        if let before = shown[key] {
            let isOver = before.expiresAt.map { $0 <= node.currentTime } ?? false
            // Failing reads may hide messages.
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
            // The sender crashed before the event that its message was sent.
            return
        }
        if original.content != message.content || original.machine != owner {
            world.violation("machine \(machine.index) shows \(text.prefix(12)) otherwise than it was sent")
        }
    }

    /// A reported agreement must have all signatures.
    func agreed(
        _ id: AgreementID, _ conversation: ConversationID, _ machine: Machine, _ node: isolated Node,
        _ world: NodeSimulation
    ) {
        guard agreements[id] == nil else { return }
        _ = agreement(id, of: try? node.conversation(conversation.description), machine, world)
    }

    private func learn(_ agreement: Agreement, _ one: Conversation, _ machine: Machine, _ world: NodeSimulation) {
        var members = Set(agreement.signers + [one.key.publicKey])
        // The event follows the commit, so a new member may have joined that has not signed. A hostile creator may
        // change members without a new membership number: see ``checkInForce(_:_:_:)``.
        if agreement.proposal.membership == one.record.group.membership, !world.isHostile(one.record.genesis.creator) {
            members.formUnion(one.currentMembers.map(\.key))
        }
        guard agreement.hasSpecifiedSignatures(of: members) else {
            return world.violation("I4 machine \(machine.index) agreed without all signatures")
        }
        agreements[agreement.id] = agreement
    }

    /// For ``PlantedMistake/restoredBackup``: each machine's disk before the first end of a conversation.
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

extension Content { var plainText: String? { type == .text ? String(decoding: payload, as: UTF8.self) : nil } }
