import Cryptography
import Messaging

/// Checks the invariants (I1 to I7) at every event.
final class Oracle {
    struct Key: Hashable {
        let client: ClientID
        let message: MessageID
    }

    struct Sent {
        var node: Int
        var time: Int64
        /// Time each node's clock had lost by then.
        var lost: [Milliseconds]
    }

    /// Longest way of a frame after its age was measured, in milliseconds: a commit of 40 and a delay of 4,000, behind
    /// frames that are no later.
    static let transit: Milliseconds = 5_000

    struct Shown {
        var incarnation: Int
        var onDisk: Bool
        var expiresAt: Timestamp?
    }

    private unowned let simulation: Simulation
    var conversations: [ConversationID: [(node: Int, client: ClientID)]] = [:]
    var ended: Set<ClientID> = []
    /// Conversations each node has destroyed, as its process knows.
    var exploded: [Int: Set<ConversationID>] = [:]
    /// Conversations durably destroyed, with their inbox: a crash must not bring them back.
    var explodedDurably: [Int: [ConversationID: ClientID]] = [:]
    var everDurable: Set<Key> = []
    var everKept: Set<Key> = []
    var ackedAsStored: Set<Key> = []
    /// End of each durable message by its holder's clock.
    var ends: [Key: Timestamp] = [:]
    var shown: [Key: Shown] = [:]
    var sentAt: [MessageID: Sent] = [:]
    /// Agreements whose two signatures this oracle has verified.
    var agreements: [AgreementID: Agreement] = [:]
    var welcomed: [InviteTag: [ConversationID: Set<PublicKey>]] = [:]
    var wakesNow: [Int: (time: Int64, count: Int)] = [:]
    /// Contents whose dwell a mailbox may have misstated, with the maximum error: one slice. An owner whose clock went
    /// back takes a later slice for the current one.
    var lied: [MessageID: Milliseconds] = [:]
    /// Contents of slots with a doubtful age, which are not acknowledged.
    var doubtful: Set<MessageID> = []
    /// How far a node's clock had been stepped forward when its inbox received a member's slice keys.
    var gainedAtKeys: [ClientID: [PublicKey: Milliseconds]] = [:]
    /// Slots that were put: no number may be used twice.
    var slotNames: [BoxID: Set<SimulatedMailbox.Name>] = [:]
    /// The reported explosion time, which may only come nearer.
    var shownEnd: [ClientID: Timestamp] = [:]

    init(_ simulation: Simulation) { self.simulation = simulation }

    // MARK: Messages

    /// How long an unopened text is kept (page Lifetime); `nil`: not at all.
    private static func unreadLength(_ terms: LifetimeTerms) -> Milliseconds? {
        guard let length = terms.lifetime.milliseconds else { return nil }
        return terms.timer == .send ? min(length, terms.unopened ?? length) : terms.unopened ?? 30 * .day
    }

    private func terms(_ content: Content) -> LifetimeTerms? { content.agreement.flatMap { agreements[$0]?.terms } }

    /// Time the clocks of sender and holder have lost since sending; the age is understated by that much.
    private func lost(since sent: Sent, _ holder: SimulatedNode) -> Milliseconds {
        Set([sent.node, holder.index]).reduce(0) { $0 + simulation.nodes[$1].lost - sent.lost[$1] }
    }

    /// The most by which a message's age is understated: the undetected time on the way, the time that clocks lost when
    /// they were set back, and a lie about the dwell.
    private func slack(of id: MessageID, since sent: Sent, _ holder: SimulatedNode) -> Milliseconds {
        Self.transit + lost(since: sent, holder) + (lied[id].map { $0 + holder.lost } ?? 0)
    }

    /// By simulation time a message must not be kept longer than agreed after sending.
    ///
    /// No two clocks are compared: the age counts by the sender's, the rest by the receiver's. A step forward only
    /// shortens a life, so it needs no slack.
    func checkKept(_ message: Message, _ keeping: NodeAction.Keeping, _ client: ClientID, _ node: SimulatedNode) {
        let id = message.content.id
        everKept.insert(Key(client: client, message: id))
        guard message.sender != nil, let sent = sentAt[id], let expiresAt = message.expiresAt,
            let length = longestUnread(message.content, keeping)
        else { return }
        let end = expiresAt.milliseconds - node.clockOffset
        let excess = end - sent.time - length - slack(of: id, since: sent, node)
        if excess > 0 { simulation.violation("I3 a message lives \(excess) ms too long") }
    }

    /// A member without the agreement keeps the message in memory, as long as its sender does.
    private func longestUnread(_ content: Content, _ keeping: NodeAction.Keeping) -> Milliseconds? {
        let agreed = terms(content).flatMap(Self.unreadLength)
        guard keeping == .memory else { return agreed }
        return [agreed, content.lifetime.milliseconds].compactMap { $0 }.max()
    }

    /// By the receiver's clock there is no slack: the unopened time less the age. The receiver's cap may shorten it.
    private func checkEnd(
        of message: Message, age: Milliseconds, _ keeping: NodeAction.Keeping, isCapped: Bool, _ now: Timestamp
    ) {
        guard let expiresAt = message.expiresAt, let length = longestUnread(message.content, keeping) else { return }
        let end = now + (length - min(max(age, 0), length))
        if expiresAt > end || expiresAt < end && keeping != .memory && !isCapped {
            simulation.violation("I3 a message ends \(expiresAt - end) ms after its time")
        }
    }

    /// A read message stays for its whole lifetime, from sending or from now.
    func checkRescheduled(_ content: Content, to expiresAt: Timestamp, _ node: SimulatedNode) {
        guard let sent = sentAt[content.id], let terms = terms(content), let length = terms.lifetime.milliseconds else {
            return
        }
        let arrived = sent.time + slack(of: content.id, since: sent, node)
        // By a clock that was set back it may be read before it arrived.
        let begin = terms.timer == .read ? max(simulation.time, arrived) : arrived
        let excess = expiresAt.milliseconds - node.clockOffset - begin - length
        if excess > 0 { simulation.violation("I3 a message that was read lives \(excess) ms too long") }
    }

    /// A message older than agreed must not be read, whatever the clocks say; slack as in ``checkKept``.
    func checkRead(_ message: Message, _ node: SimulatedNode) {
        guard let sent = sentAt[message.content.id],
            let length = terms(message.content)?.longest ?? message.content.lifetime.milliseconds
        else { return }
        let excess = simulation.time - sent.time - length - slack(of: message.content.id, since: sent, node)
        if excess > 0 { simulation.violation("I3 node \(node.index) reads a message \(excess) ms too late") }
    }

    /// A reported agreement must have both signatures.
    func checkAgreement(_ id: AgreementID, _ event: Event, _ node: SimulatedNode) {
        guard agreements[id] == nil else { return }
        guard let client = event.client, let machine = node.core.conversation(client),
            let agreement = machine.record.lifetime.head ?? machine.agreement, agreement.id == id,
            agreement.hasSpecifiedSignatures(of: Set([machine.key.publicKey] + machine.currentMembers.map(\.key)))
        else {
            simulation.violation("I4 node \(node.index) agreed without both signatures")
            return
        }
        agreements[id] = agreement
    }

    /// A stored message needs an agreement with both signatures.
    func checkDurable(_ message: Message, _ client: ClientID, _ node: SimulatedNode) {
        guard let id = message.content.agreement, let agreement = agreements[id] else {
            simulation.violation("I4 node \(node.index) stores without an agreement")
            return
        }
        if agreement.proposal.conversation != node.core.conversation(client)?.conversation,
            node.core.conversation(client) != nil
        {
            simulation.violation("I4 node \(node.index) stores under a foreign agreement")
        }
        // A message stored before a clock was set back ends later by that clock.
        let slack = sentAt[message.content.id].map { lost(since: $0, node) } ?? 0
        guard agreement.terms.keepsSomething, let expiresAt = message.expiresAt,
            expiresAt <= node.now(simulation.time) + agreement.terms.longest + slack
        else {
            simulation.violation("I4 node \(node.index) stores for longer than was agreed")
            return
        }
    }

    /// - Parameter owed: Contents that are acknowledged otherwise than by a frame.
    func checkAcknowledgement(
        of aged: AgedContent, _ actions: [NodeAction], _ owed: Set<MessageID>, isCapped: Bool, _ now: Timestamp
    ) {
        let (content, age) = (aged.content, aged.age)
        var isAcknowledged = owed.contains(content.id)
        var isKept = false
        for action in actions {
            if case .transmit(_, .acknowledgement(let said)) = action,
                (said.stored + said.held + said.expired).contains(content.id)
            {
                isAcknowledged = true
            }
            if case .keep(_, let messages, let keeping) = action,
                let message = messages.first(where: { $0.content.id == content.id })
            {
                isKept = true
                if case .untilUnlocked = keeping { isKept = false }
                checkEnd(of: message, age: age, keeping, isCapped: isCapped, now)
            }
        }
        guard isAcknowledged, !isKept else { return }
        let unopened = content.agreement.flatMap { agreements[$0]?.terms.unopened }
        guard let length = content.lifetime.milliseconds, age >= min(length, unopened ?? length) else {
            simulation.violation("I1 acknowledged without keeping")
            return
        }
    }

    /// Checks an arriving frame; an acknowledgement means that the other side has the message.
    func receives(_ frame: Frame, _ client: ClientID, from other: ClientID, _ node: SimulatedNode) {
        if case .mailbox(.keys) = frame, let key = simulation.nodes.lazy.compactMap({ $0.keys[other]?.publicKey }).first
        {
            gainedAtKeys[client, default: [:]][key] = node.gained
        }
        guard case .acknowledgement(let said) = frame else { return }
        for id in said.stored {
            let key = Key(client: other, message: id)
            ackedAsStored.insert(key)
            if !everDurable.contains(key), !ended.contains(other) {
                simulation.violation("I1 acknowledged as stored, but it is not durable")
            }
        }
        for id in said.held where !everKept.contains(Key(client: other, message: id)) && sentAt[id] != nil {
            simulation.count("acknowledged as expired")
        }
    }

    func sent(_ frame: Frame, from node: SimulatedNode, on link: Simulation.Link, _ end: Int) {
        switch frame {
        case .welcome(let welcome):
            let (joiner, client) = (link.ends[1 - end].key, link.ends[end].client)
            simulation.count("welcomes")
            // A welcomed joiner must be in the creator's durable record.
            let admitted: Bool
            if case .conversation(let record)? = node.durable.inboxes[client]?.record.role {
                admitted = record.members.contains { $0.key == joiner }
            } else {
                admitted = false
            }
            // An exploded conversation has no record, and its welcome is void.
            if !admitted, !ended.contains(client) { simulation.violation("a welcome left before it was durable") }
            welcomed[welcome.tag, default: [:]][welcome.genesis.conversation, default: []].insert(joiner)
        case .contents(let contents): checkAges(contents, node)
        default: break
        }
    }

    func checkAges(_ contents: [AgedContent], _ node: SimulatedNode) {
        for aged in contents {
            let (content, age) = (aged.content, aged.age)
            if age < 0 { simulation.violation("a negative age") }
            // An overstated age would shorten the life at the receiver.
            if age > max(0, node.now(simulation.time) - content.sentAt) {
                simulation.violation("I1 node \(node.index) makes a message older than it is")
            }
            if let length = content.lifetime.milliseconds, age > length {
                simulation.violation("I3 node \(node.index) sends an expired message")
            }
        }
    }

    /// A put needs an agreement of all members and a fresh slot number.
    func checkMailed(_ slot: SimulatedMailbox.Slot, in box: BoxID, of order: MailOrder, _ node: SimulatedNode) {
        if !slotNames[box, default: []].insert(slot.name).inserted {
            simulation.violation("I8 node \(node.index) uses a slot's number again")
        }
        let consent = agreements[order.agreement]?.terms.mailbox
        if consent != (order.kind == .disk ? .disk : .ram) {
            simulation.violation("I4 node \(node.index) gives a mailbox what was not agreed")
        }
    }

    /// Checks an event for a watcher.
    func saw(_ event: Event, _ node: SimulatedNode) {
        simulation.count("event " + event.kind.name)
        switch event.kind {
        case .message(let id):
            guard let client = event.client else { return }
            let key = Key(client: client, message: id)
            let disk = node.disk.messages[client]?[id]
            let message = disk ?? node.memory[client]?[id]?.message
            if let before = shown[key] {
                let isOver = before.expiresAt.map { $0 <= node.latestNow(simulation.time) } ?? false
                if before.onDisk && !isOver || before.incarnation == node.incarnation {
                    simulation.violation("I2 node \(node.index) shows a message again")
                }
            }
            shown[key] = Shown(incarnation: node.incarnation, onDisk: disk != nil, expiresAt: message?.expiresAt)
        case .explosionScheduled(let end):
            guard let client = event.client else { return }
            if let before = shownEnd[client], before < end {
                simulation.violation("I5 node \(node.index) shows an explosion put off")
            }
            if case .conversation(let record)? = node.durable.inboxes[client]?.record.role,
                record.schedule.map({ $0.expiresAt > end }) ?? true
            {
                simulation.violation("I5 node \(node.index) shows a schedule that is not durable")
            }
            shownEnd[client] = end
        default: break
        }
    }

    func explodes(_ conversation: ConversationID, _ client: ClientID, _ node: SimulatedNode) {
        exploded[node.index, default: []].insert(conversation)
        ended.insert(client)
    }

    func hasExplodedDurably(_ conversation: ConversationID, _ client: ClientID, _ node: SimulatedNode) {
        explodedDurably[node.index, default: [:]][conversation] = client
        explodes(conversation, client, node)
    }

    /// Without its durable page an explosion did not happen, and was not reported.
    func crashes(_ node: SimulatedNode) {
        let gone = explodedDurably[node.index] ?? [:]
        exploded[node.index] = Set(gone.keys)
        ended.subtract(node.keys.keys.filter { node.durable.inboxes[$0] != nil })
    }

    // MARK: State

    func checkConversation(_ node: SimulatedNode, _ client: ClientID) {
        guard let machine = node.core.conversation(client) else { return }
        for excess in machine.excesses { simulation.violation("I7 \(excess)") }
        for entry in machine.currentMembers.flatMap({ machine.outbox(to: $0.key) }) where entry.attempts > 200 {
            simulation.violation("I7 a message was sent \(entry.attempts) times")
        }
    }
}

extension Simulation {
    /// Runs after every step of a node.
    func checkAfterStep(_ node: SimulatedNode) {
        for conversation in oracle.exploded[node.index] ?? [] where node.core.client(of: conversation) != nil {
            violation("I5 node \(node.index) has a conversation that it destroyed, awake or asleep")
        }
        for client in node.keys.keys {
            guard let end = oracle.shownEnd[client], let conversation = node.core.conversation(client) else { continue }
            if conversation.record.schedule.map({ $0.expiresAt > end }) ?? true {
                violation("I5 node \(node.index) has put off an explosion")
            }
        }
        if node.core.linkCount > 160 { violation("I7 node \(node.index) holds \(node.core.linkCount) links") }
    }

    /// Runs after every commit of a node.
    func checkAfterCommit(_ node: SimulatedNode) {
        guard let gone = oracle.exploded[node.index], node.pending.isEmpty else { return }
        for inbox in node.durable.inboxes.values {
            if case .conversation(let record) = inbox.record.role, gone.contains(record.genesis.conversation) {
                violation("I5 node \(node.index) has a conversation on its disk that it destroyed")
            }
        }
    }

    /// A node that has had its turn must not hold an expired schedule by its own clock.
    func checkSchedules(_ node: SimulatedNode) {
        for conversation in node.core.conversations {
            guard let schedule = conversation.record.schedule, schedule.expiresAt <= node.now(time) else { continue }
            violation("I5 node \(node.index) has a conversation after its time")
        }
    }

    /// Whether by this node's clock the explosion that happened elsewhere is still to come.
    func isToCome(_ tombstone: ExplosionRecord, _ node: SimulatedNode) -> Bool {
        guard let notice = ExplodeNotice(opening: tombstone.notice, conversation: tombstone.conversation) else {
            return false
        }
        return !notice.isDue(now: node.now(time))
    }

    /// Whether a node with a tombstone and a member without one can reach each other at known addresses.
    private func canTell(_ holder: SimulatedNode, _ machine: Conversation, _ node: SimulatedNode) -> Bool {
        guard let tombstone = holder.core.tombstone(machine.conversation), !isToCome(tombstone, node) else {
            return false
        }
        let told = holder.disk.fanOuts[machine.conversation]?.first { $0.key == machine.key.publicKey }
        if told?.endpoints.contains(node.endpoint) == true { return true }
        return machine.currentMembers.contains { member in
            holder.keys.values.contains { $0.publicKey == member.key } && member.endpoints.contains(holder.endpoint)
        }
    }

    /// Pairs of inboxes that still have their conversation and know each other, except those that both moved and that
    /// no other member can introduce.
    private func pairs() -> [(Side, Side)] {
        sides().flatMap { sides in sides.enumerated().flatMap { index, one in sides[..<index].map { (one, $0) } } }
            .filter { one, other in
                one.places(of: other) != nil && other.places(of: one) != nil && (one.knows(other) || other.knows(one))
            }
    }

    func unrest() -> String? {
        for (one, other) in pairs() {
            // An answer may be on its way over a link with seconds of delay.
            let names = "nodes \(one.node.index) and \(other.node.index)"
            if let reason = one.machine.unrest(with: other.machine) { return "\(names) \(reason)" }
            guard let link = one.machine.link(to: other.own), link == other.machine.link(to: one.own),
                links[link]?.isWhole == true
            else { return "\(names) do not know that their link is lost" }
        }
        for node in nodes {
            if !node.hasCommitted { return "node \(node.index) has not committed" }
            for tombstone in node.core.tombstones where tombstone.role == .creator && !tombstone.isTraceless {
                for member in tombstone.members where tombstone.confirmed[member] == nil {
                    // A member that left or cancelled cannot confirm.
                    let holder = nodes.first { holder in
                        holder.keys.contains { $0.value.publicKey == member && holder.core.conversation($0.key) != nil }
                    }
                    let confirmer = nodes.first { confirmer in
                        confirmer.core.tombstone(tombstone.conversation) != nil
                            && confirmer.keys.values.contains { $0.publicKey == member }
                    }
                    // A node that has joined twice confirms with one of its inboxes.
                    if let confirmer,
                        confirmer.keys.values.count(where: { tombstone.members.contains($0.publicKey) }) > 1
                    {
                        continue
                    }
                    if let holder, isToCome(tombstone, holder) { continue }
                    // A member that moved since is not found: a tombstone learns no new addresses.
                    let told = node.disk.fanOuts[tombstone.conversation]?.first { $0.key == member }
                    if let waits = holder ?? confirmer, told?.endpoints.contains(waits.endpoint) == true {
                        return "node \(waits.index) has not confirmed an explosion to node \(node.index)"
                    }
                }
            }
            // A member whose creator is gone must have learned it.
            for machine in node.core.conversations where !machine.isCreator {
                if nodes.contains(where: { canTell($0, machine, node) }) {
                    return "node \(node.index) still has an exploded conversation"
                }
            }
            for join in node.core.joins where join.record.state == .joining {
                // An invite learns no new addresses: a creator that moved before its welcome arrived is not found.
                for other in nodes where join.record.invite.endpoints.contains(other.endpoint) {
                    for machine in other.core.conversations
                    where machine.currentMembers.contains(where: { $0.key == join.key.publicKey }) {
                        return "node \(node.index) was admitted by node \(other.index) and does not know it"
                    }
                }
            }
        }
        for sides in sides() {
            for creator in sides where creator.machine.isCreator {
                for member in sides where !member.machine.isCreator {
                    if creator.places(of: member) != nil {
                        if member.places(of: creator) != nil { continue }
                        return "node \(member.node.index) does not know that it is a member"
                    }
                    if !member.machine.record.isRemoved, member.knows(creator),
                        creator.machine.record.former.contains(member.own)
                    {
                        return "node \(member.node.index) does not know that it was removed"
                    }
                }
            }
        }
        return nil
    }

    var hasConverged: Bool { unrest() == nil }

    func check() {
        if let unrest = unrest() { violation("liveness: \(unrest)") }
        for (one, other) in pairs() {
            count("pairs at the end")
            if one.machine.agreement?.id != other.machine.agreement?.id {
                violation("I6 nodes \(one.node.index) and \(other.node.index) are under different agreements")
            }
            if one.machine.agreement != nil { count("pairs with an agreement at the end") }
        }
        for node in nodes { for client in node.core.clients { oracle.checkConversation(node, client) } }
        for key in oracle.ackedAsStored where !oracle.ended.contains(key.client) {
            guard let node = nodes.first(where: { $0.keys[key.client] != nil }), let end = oracle.ends[key],
                node.disk.messages[key.client]?[key.message] == nil
            else { continue }
            // A stored message may only vanish after its end by its holder's clock, including its steps. The sender's
            // age and the derived end were checked before, so there is no slack.
            if end > node.latestNow(time) {
                violation("I1 a message acknowledged as stored is gone at node \(node.index)")
            }
        }
    }
}
