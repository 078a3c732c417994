import Crypto
import Messaging

/// Knows everything and trusts nobody: what must never happen (I1 to I7), checked as it happens.
struct Oracle {
    struct Key: Hashable {
        let client: ClientID
        let message: MessageID
        init(_ client: ClientID, _ message: MessageID) {
            self.client = client
            self.message = message
        }
    }

    struct Sent {
        var node: Int
        var time: Int64
        /// What the clock of each node had lost by then.
        var lost: [Milliseconds]
    }

    /// What a frame takes at most from the turn in which its age was measured to its receiver, in milliseconds: a commit of
    /// 40 and a delay of 4,000, behind others that are no later.
    static let transit: Milliseconds = 5_000

    struct Shown {
        var incarnation: Int
        var onDisk: Bool
        var expiresAt: Timestamp?
    }

    var violations: [String] = []
    var counts: [String: Int] = [:]
    /// A conversation's inboxes: the creator's first.
    var conversations: [ConversationID: [(node: Int, client: ClientID)]] = [:]
    var ended: Set<ClientID> = []
    /// What each node has destroyed, as its process knows it.
    var exploded: [Int: Set<ConversationID>] = [:]
    /// And with which inbox it is gone from the disk: what no crash brings back.
    var explodedDurably: [Int: [ConversationID: ClientID]] = [:]
    var everDurable: Set<Key> = []
    var everKept: Set<Key> = []
    var ackedAsStored: Set<Key> = []
    /// When what is durable ends, by its holder's clock.
    var ends: [Key: Timestamp] = [:]
    var shown: [Key: Shown] = [:]
    var sentAt: [MessageID: Sent] = [:]
    /// Agreements that both members have signed, as this oracle has verified itself.
    var agreements: [AgreementID: Agreement] = [:]
    var welcomed: [InviteTag: [ConversationID: Set<PublicKey>]] = [:]
    var wakesNow: [Int: (time: Int64, count: Int)] = [:]
    /// Contents whose dwell a mailbox may have named falsely, and by how much at most: the slice bounds it.
    var lied: [MessageID: Milliseconds] = [:]
    /// Contents of slots of a doubtful age, which are not acknowledged.
    var doubtful: Set<MessageID> = []
    /// How far a node's clock was stepped forward in all when an inbox of it was told the keys of a member's slices.
    var gainedAtKeys: [ClientID: [PublicKey: Milliseconds]] = [:]
    /// Slots that were put: no number is used twice.
    var slotNames: [BoxID: Set<SimulatedMailbox.Name>] = [:]
    /// The end that a watcher was told of: it only comes nearer.
    var shownEnd: [ClientID: Timestamp] = [:]

    /// The signed bytes, put together here again from the specification and not by the code under test.
    static func isSigned(_ agreement: Agreement, by members: Set<PublicKey>) -> Bool {
        func field(_ bytes: [UInt8]) -> [UInt8] { number(UInt64(bytes.count)) + bytes }
        func number(_ value: UInt64) -> [UInt8] { (0..<8).map { UInt8(truncatingIfNeeded: value >> (56 - 8 * $0)) } }
        func tagged(_ tag: String, _ bytes: [UInt8]) -> [UInt8] {
            let hash = SHA256.hash(Array(tag.utf8))
            return SHA256.hash(hash + hash + bytes)
        }
        let proposal = agreement.proposal
        let terms = proposal.terms
        let proposed = tagged(
            "mayfly/lifetime_proposal",
            field(proposal.conversation.bytes) + number(proposal.membership) + number(proposal.epoch)
                + field(proposal.previous.bytes) + field(Array(proposal.lifetime.rawValue.utf8))
                + number(UInt64(proposal.proposedAt.milliseconds)) + field(proposal.nonce)
                + field(proposal.proposer.bytes) + field(Array((terms.attachment?.rawValue ?? "").utf8))
                + number(UInt64(terms.unopened ?? 0)) + field(Array(terms.timer.rawValue.utf8))
                + (terms.mailbox == .no ? [] : field(Array(terms.mailbox.rawValue.utf8))))
        for accept in agreement.accepts {
            let accepted = tagged(
                "mayfly/lifetime_accept",
                field(proposal.conversation.bytes) + field(proposed) + field(Array(proposal.lifetime.rawValue.utf8))
                    + number(UInt64(accept.acceptedAt.milliseconds)) + field(accept.acceptor.bytes))
            guard accept.acceptor.isValid(accept.signature, for: accepted) else { return false }
        }
        let signers = [proposal.proposer] + agreement.accepts.map(\.acceptor)
        return members.count >= 2 && members.isSubset(of: signers) && Set(signers).count == signers.count
            && proposal.proposer.isValid(proposal.signature, for: proposed)
            && agreement.id.bytes == tagged("mayfly/lifetime_agreement", field(proposed))
    }

    // MARK: Messages

    /// How long a text stays that nobody opens (section 6, points 7 and 12); `nil`: it is not kept.
    private static func unreadLength(_ terms: LifetimeTerms) -> Milliseconds? {
        guard let length = terms.lifetime.milliseconds else { return nil }
        return terms.timer == .send ? min(length, terms.unopened ?? length) : terms.unopened ?? 30 * .day
    }

    private func terms(_ content: Content) -> LifetimeTerms? { content.agreement.flatMap { agreements[$0]?.terms } }

    /// What the clocks of a message's sender and of its holder have lost since it was sent: as much less of its age is
    /// seen.
    private func lost(since sent: Sent, _ holder: SimulatedNode, _ simulation: Simulation) -> Milliseconds {
        Set([sent.node, holder.index]).reduce(0) { $0 + simulation.nodes[$1].lost - sent.lost[$1] }
    }

    /// What a mailbox gains that names a dwell of zero: one slice. An owner whose clock went back takes a later slice for the
    /// present one.
    private func lie(_ id: MessageID, _ holder: SimulatedNode) -> Milliseconds {
        lied[id].map { $0 + holder.lost } ?? 0
    }

    /// By the simulation's time nothing is kept for longer than was agreed from when it was sent.
    ///
    /// No two clocks are compared: the age counts by the sender's, the rest by the receiver's. Both run at the
    /// simulation's pace but for steps. A step forward, whose ever, makes the age larger or the rest shorter: it never
    /// lengthens a life, so it is no reason for slack. What lengthens it is the time on the way, which nobody sees, and what
    /// a clock has lost that was set back.
    mutating func checkKept(
        _ message: Message, _ keeping: NodeAction.Keeping, _ client: ClientID, _ node: SimulatedNode,
        _ simulation: Simulation
    ) {
        let id = message.content.id
        everKept.insert(Key(client, id))
        guard message.sender != nil, let sent = sentAt[id], let expiresAt = message.expiresAt,
            let length = longestUnread(message.content, keeping)
        else { return }
        let end = expiresAt.milliseconds - node.clockOffset
        let excess = end - sent.time - length - Self.transit - lost(since: sent, node, simulation) - lie(id, node)
        if excess > 0 { violations.append("t=\(simulation.time) I3 a message lives \(excess) ms too long") }
    }

    /// Whoever does not hold the agreement keeps it in memory, for as long as its sender does.
    private func longestUnread(_ content: Content, _ keeping: NodeAction.Keeping) -> Milliseconds? {
        let agreed = terms(content).flatMap(Self.unreadLength)
        guard keeping == .memory else { return agreed }
        return [agreed, content.lifetime.milliseconds].compactMap { $0 }.max()
    }

    /// By the receiver's own clock there is no slack: it is kept for as long as it may stay unopened, less its age. A cap
    /// of the receiver's own may make that less.
    private mutating func checkEnd(
        of message: Message, age: Milliseconds, _ keeping: NodeAction.Keeping, isCapped: Bool, _ now: Timestamp,
        _ simulation: Simulation
    ) {
        guard let expiresAt = message.expiresAt, let length = longestUnread(message.content, keeping) else { return }
        let end = now + (length - min(max(age, 0), length))
        if expiresAt > end || expiresAt < end && keeping != .memory && !isCapped {
            violations.append("t=\(simulation.time) I3 a message ends \(expiresAt - end) ms after its time")
        }
    }

    /// What was read stays until its whole time is over: from when it was sent, or from now on.
    mutating func checkRescheduled(
        _ content: Content, to expiresAt: Timestamp, _ node: SimulatedNode, _ simulation: Simulation
    ) {
        guard let sent = sentAt[content.id], let terms = terms(content), let length = terms.lifetime.milliseconds else {
            return
        }
        let arrived = sent.time + Self.transit + lost(since: sent, node, simulation) + lie(content.id, node)
        // By a clock that was set back it may be read before it has come.
        let begin = terms.timer == .read ? max(simulation.time, arrived) : arrived
        let excess = expiresAt.milliseconds - node.clockOffset - begin - length
        if excess > 0 {
            violations.append("t=\(simulation.time) I3 a message that was read lives \(excess) ms too long")
        }
    }

    /// Nobody reads what is older than was agreed, whatever the clocks say: the slack is that of ``checkKept``.
    mutating func checkRead(_ message: Message, _ node: SimulatedNode, _ simulation: Simulation) {
        guard let sent = sentAt[message.content.id],
            let length = terms(message.content)?.longest ?? message.content.lifetime.milliseconds
        else { return }
        let excess =
            simulation.time - sent.time - length - Self.transit - lost(since: sent, node, simulation)
            - lie(message.content.id, node)
        if excess > 0 {
            violations.append("t=\(simulation.time) I3 node \(node.index) reads a message \(excess) ms too late")
        }
    }

    /// Whoever says that a lifetime was agreed can show both signatures.
    mutating func checkAgreement(_ id: AgreementID, _ event: Event, _ node: SimulatedNode, _ simulation: Simulation) {
        guard agreements[id] == nil else { return }
        guard let client = event.client, let machine = node.core.conversation(client),
            let agreement = machine.savedRecord.lifetime.head ?? machine.agreement, agreement.id == id,
            Self.isSigned(agreement, by: Set([machine.key.publicKey] + machine.currentMembers.map(\.key)))
        else {
            violations.append("t=\(simulation.time) I4 node \(node.index) agreed without both signatures")
            return
        }
        agreements[id] = agreement
    }

    /// What is on the disk rests on an agreement that both have signed.
    mutating func checkDurable(_ message: Message, _ client: ClientID, _ node: SimulatedNode, _ simulation: Simulation)
    {
        guard let id = message.content.agreement, let agreement = agreements[id] else {
            violations.append("t=\(simulation.time) I4 node \(node.index) stores without an agreement")
            return
        }
        if agreement.proposal.conversation != node.core.conversation(client)?.conversation,
            node.core.conversation(client) != nil
        {
            violations.append("t=\(simulation.time) I4 node \(node.index) stores under a foreign agreement")
        }
        // What was stored before a clock was set back ends later by that clock.
        let slack = sentAt[message.content.id].map { lost(since: $0, node, simulation) } ?? 0
        guard agreement.terms.keepsSomething, let expiresAt = message.expiresAt,
            expiresAt <= node.now(simulation.time) + agreement.terms.longest + slack
        else {
            violations.append("t=\(simulation.time) I4 node \(node.index) stores for longer than was agreed")
            return
        }
    }

    mutating func checkAcknowledgement(
        of content: Content, age: Milliseconds, _ actions: [NodeAction], isOwed: Bool = false, isCapped: Bool,
        _ now: Timestamp, _ simulation: Simulation
    ) {
        var isAcknowledged = isOwed
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
                checkEnd(of: message, age: age, keeping, isCapped: isCapped, now, simulation)
            }
        }
        guard isAcknowledged, !isKept else { return }
        let unopened = content.agreement.flatMap { agreements[$0]?.terms.unopened }
        guard let length = content.lifetime.milliseconds, age >= min(length, unopened ?? length) else {
            violations.append("t=\(simulation.time) I1 acknowledged without keeping")
            return
        }
    }

    /// A frame arrives; an acknowledgement means that the other side has the message.
    mutating func receives(
        _ frame: Frame, _ client: ClientID, from other: ClientID, _ node: SimulatedNode, _ simulation: Simulation
    ) {
        if case .mailbox(.keys) = frame, let key = simulation.nodes.lazy.compactMap({ $0.keys[other]?.publicKey }).first
        {
            gainedAtKeys[client, default: [:]][key] = node.gained
        }
        guard case .acknowledgement(let said) = frame else { return }
        for id in said.stored {
            let key = Key(other, id)
            ackedAsStored.insert(key)
            if !everDurable.contains(key), !ended.contains(other) {
                violations.append("t=\(simulation.time) I1 acknowledged as stored, but it is not durable")
            }
        }
        for id in said.held where !everKept.contains(Key(other, id)) && sentAt[id] != nil {
            counts["acknowledged as expired", default: 0] += 1
        }
    }

    mutating func sent(
        _ frame: Frame, from node: SimulatedNode, on link: Simulation.Link, isDialer: Bool, _ simulation: Simulation
    ) {
        switch frame {
        case .welcome(let welcome):
            let joiner = isDialer ? link.listenerKey : link.dialerKey
            let client = isDialer ? link.dialerClient : link.listenerClient
            counts["welcomes", default: 0] += 1
            // Two members: who is welcomed is in the creator's durable record.
            let admitted: Bool
            if case .conversation(let record)? = node.durable.inboxes[client]?.record.role {
                admitted = record.members.contains { $0.key == joiner }
            } else {
                admitted = false
            }
            // What has exploded since has no record, and its welcome leads nowhere.
            if !admitted, !ended.contains(client) {
                violations.append("t=\(simulation.time) a welcome left before it was durable")
            }
            welcomed[welcome.tag, default: [:]][welcome.genesis.conversation, default: []].insert(joiner)
        case .contents(let contents): checkAges(contents, node, simulation)
        default: break
        }
    }

    mutating func checkAges(_ contents: [AgedContent], _ node: SimulatedNode, _ simulation: Simulation) {
        for aged in contents {
            let (content, age) = (aged.content, aged.age)
            if age < 0 { violations.append("t=\(simulation.time) a negative age") }
            // An age that is too large would shorten the life at the receiver.
            if age > max(0, node.now(simulation.time) - content.sentAt) {
                violations.append("t=\(simulation.time) I1 node \(node.index) makes a message older than it is")
            }
            if let length = content.lifetime.milliseconds, age > length {
                violations.append("t=\(simulation.time) I3 node \(node.index) sends an expired message")
            }
        }
    }

    /// What a mailbox is given rests on an agreement of all members to it, and on a number that no other slot has.
    mutating func checkMailed(
        _ slot: SimulatedMailbox.Slot, in box: BoxID, of order: MailOrder, _ node: SimulatedNode,
        _ simulation: Simulation
    ) {
        if !slotNames[box, default: []].insert(slot.name).inserted {
            violations.append("t=\(simulation.time) I8 node \(node.index) uses a slot's number again")
        }
        let consent = agreements[order.agreement]?.terms.mailbox
        if consent != (order.kind == .disk ? .disk : .ram) {
            violations.append("t=\(simulation.time) I4 node \(node.index) gives a mailbox what was not agreed")
        }
    }

    /// A watcher is told.
    mutating func saw(_ event: Event, _ node: SimulatedNode, _ simulation: Simulation) {
        counts["event " + event.kind.name, default: 0] += 1
        switch event.kind {
        case .message(let id):
            guard let client = event.client else { return }
            let key = Key(client, id)
            let disk = node.disk.messages[client]?[id]
            let message = disk ?? node.memory[client]?[id]?.message
            if let before = shown[key] {
                let isOver = before.expiresAt.map { $0 <= node.latestNow(simulation.time) } ?? false
                if before.onDisk && !isOver || before.incarnation == node.incarnation {
                    violations.append("t=\(simulation.time) I2 node \(node.index) shows a message again")
                }
            }
            shown[key] = Shown(incarnation: node.incarnation, onDisk: disk != nil, expiresAt: message?.expiresAt)
        case .explosionScheduled(let end):
            guard let client = event.client else { return }
            if let before = shownEnd[client], before < end {
                violations.append("t=\(simulation.time) I5 node \(node.index) shows an explosion put off")
            }
            if case .conversation(let record)? = node.durable.inboxes[client]?.record.role,
                record.schedule.map({ $0.expiresAt > end }) ?? true
            {
                violations.append("t=\(simulation.time) I5 node \(node.index) shows a schedule that is not durable")
            }
            shownEnd[client] = end
        default: break
        }
    }

    mutating func explodes(_ conversation: ConversationID, _ client: ClientID, _ node: SimulatedNode) {
        exploded[node.index, default: []].insert(conversation)
        ended.insert(client)
    }

    mutating func hasExplodedDurably(_ conversation: ConversationID, _ client: ClientID, _ node: SimulatedNode) {
        explodedDurably[node.index, default: [:]][conversation] = client
        explodes(conversation, client, node)
    }

    /// An explosion whose page was not written has not happened: nobody was told of it.
    mutating func crashes(_ node: SimulatedNode) {
        let gone = explodedDurably[node.index] ?? [:]
        exploded[node.index] = Set(gone.keys)
        ended.subtract(node.keys.keys.filter { node.durable.inboxes[$0] != nil })
    }

    // MARK: State

    mutating func checkConversation(_ node: SimulatedNode, _ client: ClientID, _ simulation: Simulation) {
        guard let machine = node.core.conversation(client) else { return }
        func bound(_ name: String, _ value: Int, _ limit: Int) {
            if value > limit { violations.append("t=\(simulation.time) I7 \(name): \(value) of \(limit)") }
        }
        bound("held bytes", machine.heldByteCount, Limits.memoryByteCount)
        bound("outbox", machine.outboxCount, Limits.outboxCount)
        let record = machine.savedRecord
        bound("known agreements", record.lifetime.known.count, Limits.agreementCount)
        bound("whole agreements", record.lifetime.earlier.count, Limits.agreementRecordCount)
        bound("ballot floors", record.lifetime.floors.count, Limits.ballotFloorCount)
        bound("invites", record.issuer?.invites.count ?? 0, Limits.inviteCount)
        bound("members", machine.currentMembers.count + 1, Limits.memberCount)
        for entry in machine.currentMembers.flatMap({ machine.outbox(to: $0.key) }) where entry.attempts > 200 {
            violations.append("t=\(simulation.time) I7 a message was sent \(entry.attempts) times")
        }
    }
}

extension Simulation {
    /// After every step of a node.
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

    /// After every commit of a node.
    func checkAfterCommit(_ node: SimulatedNode) {
        guard let gone = oracle.exploded[node.index], node.pending.isEmpty else { return }
        for inbox in node.durable.inboxes.values {
            if case .conversation(let record) = inbox.record.role, gone.contains(record.genesis.conversation) {
                violation("I5 node \(node.index) has a conversation on its disk that it destroyed")
            }
        }
    }

    /// Whoever has had its turn holds nothing whose time has come by its own clock.
    func checkSchedules(_ node: SimulatedNode) {
        for conversation in node.core.conversations {
            guard let schedule = conversation.record.schedule, schedule.expiresAt <= node.now(time) else { continue }
            violation("I5 node \(node.index) has a conversation after its time")
        }
    }

    /// By this node's clock the time of an explosion that has happened elsewhere is still to come.
    func isToCome(_ tombstone: ExplodeStateMachine.Record, _ node: SimulatedNode) -> Bool {
        guard let notice = ExplodeNotice(opening: tombstone.notice, conversation: tombstone.conversation) else {
            return false
        }
        return !notice.isDue(now: node.now(time))
    }

    /// Whether a node that remembers an explosion finds a member that does not know of it, or is found by it: where one
    /// looks for the other, it is now.
    private func canTell(_ holder: SimulatedNode, _ machine: ConversationStateMachine, _ node: SimulatedNode) -> Bool {
        guard let tombstone = holder.core.tombstone(machine.conversation), !isToCome(tombstone, node) else {
            return false
        }
        let told = holder.disk.fanOuts[machine.conversation]?.first { $0.key == machine.key.publicKey }
        if told?.endpoints.contains(node.endpoint) == true { return true }
        return machine.currentMembers.contains { member in
            holder.keys.values.contains { $0.publicKey == member.key } && member.endpoints.contains(holder.endpoint)
        }
    }

    /// Where this one looks for a member, it is now.
    private func knows(_ machine: ConversationStateMachine, _ member: PublicKey, _ node: SimulatedNode) -> Bool {
        machine.record.members.first { $0.key == member }?.endpoints.contains(node.endpoint) ?? false
    }

    /// The two inboxes of a conversation that both still have it and know each other; without those that have both moved
    /// and have nobody who could tell them.
    func pairs() -> [(SimulatedNode, ConversationStateMachine, SimulatedNode, ConversationStateMachine)] {
        var result: [(SimulatedNode, ConversationStateMachine, SimulatedNode, ConversationStateMachine)] = []
        var found: [ConversationID: [(SimulatedNode, ConversationStateMachine)]] = [:]
        for node in nodes {
            for machine in node.core.conversations { found[machine.conversation, default: []].append((node, machine)) }
        }
        for conversation in found.keys.sorted() {
            let members = found[conversation]!
            for (index, (node, machine)) in members.enumerated() {
                for (other, theirs) in members[..<index] {
                    guard machine.currentMembers.contains(where: { $0.key == theirs.key.publicKey }),
                        theirs.currentMembers.contains(where: { $0.key == machine.key.publicKey })
                    else { continue }
                    guard knows(machine, theirs.key.publicKey, other) || knows(theirs, machine.key.publicKey, node)
                    else { continue }
                    result.append((node, machine, other, theirs))
                }
            }
        }
        return result
    }

    /// Why the simulation has not come to rest; `nil` when it has.
    func unrest() -> String? {
        for (node, one, other, two) in pairs() {
            guard one.isOnline(two.key.publicKey), two.isOnline(one.key.publicKey) else {
                return "nodes \(node.index) and \(other.index) have no link"
            }
            guard let link = one.link(to: two.key.publicKey), link == two.link(to: one.key.publicKey),
                let state = links[link], state.isWhole
            else { return "nodes \(node.index) and \(other.index) do not know that their link is lost" }
            let waiting = one.outbox(to: two.key.publicKey).count + two.outbox(to: one.key.publicKey).count
            if waiting > 0 {
                return "the outboxes of nodes \(node.index) and \(other.index) hold \(waiting) for each other"
            }
            guard one.groupDigest == two.groupDigest else {
                return "nodes \(node.index) and \(other.index) know different things of their group"
            }
            // An answer may be on its way over a link with seconds of delay.
            guard one.agreement?.id == two.agreement?.id else {
                return "nodes \(node.index) and \(other.index) are under different agreements"
            }
        }
        for node in nodes {
            if !node.pending.isEmpty || !node.outputs.isEmpty { return "node \(node.index) has not committed" }
            for tombstone in node.core.tombstones where tombstone.role == .creator && !tombstone.isTraceless {
                for member in tombstone.members where tombstone.confirmed[member] == nil {
                    // Whoever left or cancelled has nothing to confirm with.
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
                    // Who has moved since is found by nobody: a tombstone learns no new addresses.
                    let told = node.disk.fanOuts[tombstone.conversation]?.first { $0.key == member }
                    if let waits = holder ?? confirmer, told?.endpoints.contains(waits.endpoint) != true { continue }
                    if let waits = holder ?? confirmer {
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
            for machine in node.core.conversations where machine.isCreator {
                for other in nodes {
                    for theirs in other.core.conversations
                    where theirs.conversation == machine.conversation && !theirs.isCreator {
                        let isListed = machine.currentMembers.contains { $0.key == theirs.key.publicKey }
                        if isListed, !theirs.currentMembers.contains(where: { $0.key == machine.key.publicKey }) {
                            return "node \(other.index) does not know that it is a member"
                        }
                        if !isListed, !theirs.record.isRemoved, knows(theirs, machine.key.publicKey, node),
                            machine.record.former.contains(theirs.key.publicKey)
                        {
                            return "node \(other.index) does not know that it was removed"
                        }
                    }
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
        return nil
    }

    var hasConverged: Bool { unrest() == nil }

    func check() {
        if let unrest = unrest() { violation("liveness: \(unrest)") }
        for (node, one, other, two) in pairs() {
            count("pairs at the end")
            if one.agreement?.id != two.agreement?.id {
                violation(
                    "I6 node \(node.index) has \(one.lifetime.rawValue), node \(other.index) \(two.lifetime.rawValue)")
            }
            if one.agreement != nil { count("pairs with an agreement at the end") }
        }
        for node in nodes { for client in node.core.clients { oracle.checkConversation(node, client, self) } }
        for key in oracle.ackedAsStored where !oracle.ended.contains(key.client) {
            guard let node = nodes.first(where: { $0.keys[key.client] != nil }), let end = oracle.ends[key],
                node.disk.messages[key.client]?[key.message] == nil
            else { continue }
            // Only when its holder's clock has once come to its end may it be gone. That clock's own steps are in it, and
            // nobody else's matter any more: what the sender's has done to the age was checked when the message left, and
            // the end that follows from the age when it came. So there is no slack.
            if end > node.latestNow(time) {
                violation("I1 a message acknowledged as stored is gone at node \(node.index)")
            }
        }
    }
}
