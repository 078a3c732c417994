import Cryptography
import Messaging
import TestSupport

/// A defect planted in the simulated shell, which a test must find.
package enum PlantedBug: String, Sendable, CaseIterable {
    case acknowledgeBeforeDurable
    case storeWithoutAgreement
    case showDuplicates
    case readAfterExpiry
    case resurrectAfterExplosion
    /// Messages of others are kept a minute too long.
    case keepTooLong
    /// Messages that would end within a day are destroyed early.
    case reapTooSoon
    /// Slots are put before their numbers are durable.
    case mailBeforeDurable
    /// The age of a slot's contents comes from the mailbox alone.
    case trustDwell
}

/// Several nodes in one thread with their clocks, disks and network, deterministic by seed. During a phase of faults
/// and random commands no invariant may break. Then the faults stop, and the nodes must converge.
package final class Simulation {
    package struct Options: Sendable {
        package var seed: UInt64
        /// Duration of the faults in simulated seconds.
        package var seconds: Int64 = 120
        package var bug: PlantedBug?
        /// Users explode their conversations, mostly on a schedule, and go on inviting to them.
        package var isExplosive = false
        /// All nodes have a mailbox; `nil`: in some seeds.
        package var hasMailbox: Bool?
        /// Many conversations, one or two awake per node.
        package var isCrowded = false

        package init(
            seed: UInt64, seconds: Int64 = 120, bug: PlantedBug? = nil, isExplosive: Bool = false,
            hasMailbox: Bool? = nil, isCrowded: Bool = false
        ) {
            (self.seed, self.seconds, self.bug, self.isExplosive) = (seed, seconds, bug, isExplosive)
            (self.hasMailbox, self.isCrowded) = (hasMailbox, isCrowded)
        }
    }

    package struct Report: Sendable {
        package var seed: UInt64
        package var nodeCount: Int
        package var events: Int
        package var violations: [String]
        /// Hash of all events in order: equal for equal seeds.
        package var traceHash: UInt64
        package var counts: [String: Int]
    }

    enum Happening {
        case wake(Int)
        /// Nothing happens if the node has gone down since this was planned.
        case deed(Int, incarnation: Int, Deed)
        case deliver(LinkID, to: Int, Item)
        case knock(from: Int, NodeAction.Knock)
        case answer(to: Int, ConversationID, [UInt8])
        case user(Int)
        case join(Int, VerifiedInvite)
        case fault
        case restart(Int)
        case unlock(Int)
        case heal(Int, Int)
        case mail(Int, incarnation: Int, ClientID, MailOrder, [SimulatedMailbox.Parcel])
        case discard(BoxID, SimulatedMailbox.Name, answer: [UInt8]?)
        case mailboxReturns
    }

    /// A step or an observation of one process of a node.
    enum Deed {
        case commit
        case dial(ClientID, NodeAction.Dial)
        case dialFailed(ClientID, PublicKey, isUnknownThere: Bool)
        case closed(LinkID)
        case noticeAnswer(ClientID, [UInt8])
        case statement(ClientID, ExpiredStatement)
        case slices(ClientID, AgreementID, above: UInt32?, LinkID)
        case mailed(ClientID, MailOrder, MailResult)
        case visit
        case notices(ConversationID)
        case crash
    }

    enum Item {
        case open
        case frame(Frame)
        case end
    }

    struct Link {
        struct End {
            let node: Int
            let client: ClientID
            let key: PublicKey
            var isOpen: Bool
            /// Frames to this end are lost.
            var isLost = false
            var lastArrival: Int64 = 0
        }

        /// The dialer's end and the listener's.
        var ends: [End]
        var isBroken = false

        func isLost(to end: Int) -> Bool { isBroken || ends[end].isLost }
        var isWhole: Bool { !isBroken && !ends.contains(where: \.isLost) }
        func end(of node: Int) -> Int { ends[0].node == node ? 0 : 1 }
    }

    let options: Options
    var random: Randomness
    var queue = EventQueue<Happening>()
    var time: Int64 = 0
    var nodes: [SimulatedNode] = []
    var links: [LinkID: Link] = [:]
    var nextLink: UInt64 = 1
    var partitions: Set<[Int]> = []
    /// Invites by their payload, which stands for their encoding.
    var invites: [[UInt8]: Invite] = [:]
    var isCalm = false
    let hasMailbox: Bool
    var mailbox: SimulatedMailbox
    /// All links are cut, and no new one opens.
    var isParted = false
    var eventCount = 0
    var trace: UInt64 = 0xcbf2_9ce4_8422_2325
    private(set) lazy var oracle = Oracle(self)
    let grace: Milliseconds
    package var verbose = false

    package static func run(_ options: Options) -> Report { Simulation(options).run() }

    package init(_ options: Options) {
        self.options = options
        random = .seeded(options.seed &* 0x9e37_79b9_7f4a_7c15 &+ 1)
        grace = [0, 5_000, 30_000][Int(random.next(upperBound: UInt64(3)))]
        let isWithMailbox = random.next(upperBound: UInt64(100)) < 20
        hasMailbox = options.hasMailbox ?? isWithMailbox
        mailbox = SimulatedMailbox(&random)
        let conducts = [.honest] + SimulatedMailbox.Conduct.allCases
        mailbox.conduct = conducts[Int(random.next(upperBound: UInt64(conducts.count)))]
        if options.bug == .trustDwell { mailbox.conduct = .lies }
        let count =
            2
            + Int(
                random.next(upperBound: UInt64(100)) < 70
                    ? random.next(upperBound: UInt64(3)) : random.next(upperBound: UInt64(7)))
        for index in 0..<count {
            let skew = 1_750_000_000_000 + Milliseconds(random.next(upperBound: UInt64(4 * 86_400_000))) - 2 * .day
            let capacities = options.isCrowded ? [1, 1, 2, 2] : [1, 2, 3, Limits.inboxCapacity]
            let capacity = capacities[Int(random.next(upperBound: UInt64(4)))]
            let consenting = LifetimePolicy.acceptUpTo(.thirtyDays, mailbox: hasMailbox ? .disk : .no)
            let usual = hasMailbox ? consenting : .ask
            let policies: [LifetimePolicy] = [.ask, usual, usual, usual, consenting, .refuse]
            let caps: [LifetimeCap] = [
                .none, .none, .none, .none, .none, .none, .atMost(.oneHour), .atMost(.ephemeral),
            ]
            nodes.append(
                SimulatedNode(
                    index: index, random: .seeded(random.next()), clockOffset: skew, capacity: capacity,
                    policy: policies[Int(random.next(upperBound: UInt64(6)))],
                    cap: caps[Int(random.next(upperBound: UInt64(8)))]))
            // One draw in 2^127 is not a key.
            let contact = IdentityKey(try! SecretKey(SecretBytes(copying: random.bytes(32))))
            if hasMailbox { nodes[index].place = MailboxPlace(mailbox.card, own: contact) }
        }
    }

    func roll(_ bound: Int64) -> Int64 { Int64(random.next(upperBound: UInt64(bound))) }
    func chance(_ percent: Int64) -> Bool { roll(100) < percent }

    func mix(_ value: UInt64) { trace = (trace ^ value) &* 0x100_0000_01b3 }

    func mix(_ bytes: [UInt8]) { for byte in bytes.prefix(8) { mix(UInt64(byte)) } }

    func pick<Element>(_ elements: [Element]) -> Element { elements[Int(roll(Int64(elements.count)))] }

    func violation(_ text: String) { oracle.violations.append("t=\(time) \(text)") }

    func count(_ name: String) { oracle.counts[name, default: 0] += 1 }

    func log(_ text: @autoclosure () -> String) { if verbose { print("t=\(time) \(text())") } }

    // MARK: Running

    package func run() -> Report {
        for node in nodes { for _ in 0..<1 + roll(2) { createConversation(node) } }
        for node in nodes { queue.push(.user(node.index), at: roll(2_000)) }
        queue.push(.fault, at: 3_000)
        run(until: options.seconds * 1_000)
        calmDown()
        if hasMailbox, chance(50) { part() }
        // Everything must arrive with few inboxes awake.
        let quietAt = time
        while time < quietAt + 3 * .hour {
            run(until: time + 30 * .second)
            for node in nodes { for client in node.core.clients { read(node, client) } }
            if undeliveredConversation() == nil, unheardWord() == nil { break }
        }
        if let waiting = undeliveredConversation() ?? unheardWord() { violation("liveness: \(waiting)") }
        count(time - quietAt <= 60 * .second ? "quiet within 60 s" : "quiet later")
        // With all inboxes awake the members must agree.
        for node in nodes { wakeAll(node) }
        let calmAt = time
        while time < calmAt + 60 * .minute {
            run(until: time + 5 * .second)
            if hasConverged {
                count(time - calmAt <= 60 * .second ? "healed within 60 s" : "healed later")
                break
            }
        }
        check()
        // Long after their end messages must be unreadable, before any reaper runs.
        for node in nodes {
            node.clockOffset += 31 * .day
            node.gained += 31 * .day
            for client in node.core.clients { read(node, client) }
            step(node) { core, turn in core.explodeDue(&turn) }
            checkSchedules(node)
        }
        return Report(
            seed: options.seed, nodeCount: nodes.count, events: eventCount, violations: oracle.violations,
            traceHash: trace, counts: oracle.counts)
    }

    func run(until end: Int64) {
        while let next = queue.nextTime, next <= end, oracle.violations.count < 20 {
            guard let (at, happening) = queue.pop() else { break }
            time = max(time, at)
            handle(happening)
        }
        time = max(time, end)
    }

    private func calmDown() {
        isCalm = true
        partitions.removeAll()
        mailbox.isUp = true
        for node in nodes {
            if !node.isUp { start(node) }
            if node.isLocked { unlock(node) }
            for client in node.core.clients { read(node, client) }
        }
        log("calm")
    }

    private func handle(_ happening: Happening) {
        eventCount += 1
        mix(UInt64(time))
        switch happening {
        case .wake(let index):
            mix(1)
            let node = nodes[index]
            node.nextWake = nil
            guard node.isUp else { return }
            step(node) { core, turn in core.advance(&turn) }
            checkSchedules(node)
        case .deed(let index, let incarnation, let deed):
            let isThere = nodes[index].isUp && nodes[index].incarnation == incarnation
            handle(deed, nodes[index], isThere: isThere)
        case .deliver(let link, let end, let item):
            mix(5)
            deliver(item, on: link, to: end)
        case .knock(let from, let knock):
            mix(6)
            receiveKnock(knock, from: from)
        case .answer(let index, let conversation, let sealed):
            mix(7)
            let node = nodes[index]
            guard node.isUp else { return }
            step(node) { core, turn in core.receiveReceipt(sealed, for: conversation, &turn) }
        case .user(let index):
            mix(9)
            guard !isCalm else { return }
            if nodes[index].isUp { act(nodes[index]) }
            let pause = chance(5) ? roll(60_000) : 50 + roll(3_000)
            queue.push(.user(index), at: time + pause)
        case .join(let index, let invite):
            mix(10)
            if nodes[index].isUp { join(nodes[index], invite) }
        case .fault:
            mix(11)
            guard !isCalm else { return }
            makeFault()
            queue.push(.fault, at: time + 200 + roll(16_000))
        case .restart(let index):
            mix(12)
            if !nodes[index].isUp { start(nodes[index]) }
        case .unlock(let index):
            mix(13)
            if nodes[index].isUp, nodes[index].isLocked { unlock(nodes[index]) }
        case .heal(let one, let other):
            mix(14)
            partitions.remove([one, other])
        case .mail(let index, let incarnation, let client, let order, let parcels):
            mix(18)
            mail(order, parcels, client, nodes[index], incarnation)
        case .discard(let box, let name, let answer):
            mix(21)
            discard(name, in: box, answer: answer)
        case .mailboxReturns:
            mix(23)
            mailbox.isUp = true
        }
    }

    private func handle(_ deed: Deed, _ node: SimulatedNode, isThere: Bool) {
        mix(UInt64(node.index))
        guard isThere else { return }
        switch deed {
        case .commit: commit(node)
        case .dial(let client, let dial): connect(node, client, dial)
        case .dialFailed(let client, let remote, let isUnknownThere):
            step(node) { core, turn in core.dialFailed(client, to: remote, isUnknownThere: isUnknownThere, &turn) }
        case .closed(let link): step(node) { core, turn in core.linkClosed(link, &turn) }
        case .noticeAnswer(let client, let sealed): receiveNotice(sealed, node, client, from: nil)
        case .statement(let client, let statement):
            step(node) { core, turn in core.receive(statement, for: client, &turn) }
        case .slices(let client, let agreement, let above, let link):
            sendSlices(node, client, agreement, above: above, on: link)
        case .mailed(let client, let order, let result): mailed(order, result, client, node)
        case .visit:
            node.nextVisit = nil
            visit(node)
        case .notices(let conversation): putNotices(conversation, node)
        case .crash: if !isCalm { crash(node) }
        }
    }

    /// Plans it for the process that runs now.
    func plan(_ deed: Deed, _ node: SimulatedNode, in wait: Int64) {
        queue.push(.deed(node.index, incarnation: node.incarnation, deed), at: time + wait)
    }

    // MARK: The shell

    func turn(_ node: SimulatedNode) -> Turn {
        var turn = Turn(now: node.now(time), random: node.random, endpoints: [node.endpoint], isLocked: node.isLocked)
        (turn.defaultPolicy, turn.sessionGrace) = (node.policy, grace)
        (turn.defaultCap, turn.mailbox) = (node.cap, node.place)
        turn.around.known = { [bug = options.bug] id, client in
            bug == .showDuplicates ? false : node.seen[client]?.contains(id) ?? false
        }
        return turn
    }

    func step(_ node: SimulatedNode, _ body: (inout NodeStateMachine, inout Turn) -> Void) {
        var turn = turn(node)
        body(&node.core, &turn)
        node.random = turn.random
        perform(turn.actions, node)
        planWake(node)
    }

    func planWake(_ node: SimulatedNode) {
        if hasMailbox, node.core.boxesMayHaveChanged { planVisit(node, in: 1 + roll(300)) }
        guard node.isUp, let deadline = node.withCore({ $0.nextDeadline }) else { return }
        let at = max(time, deadline.milliseconds - node.clockOffset)
        if let planned = node.nextWake, planned <= at { return }
        node.nextWake = at
        if at == time {
            var wakes = oracle.wakesNow[node.index] ?? (time, 0)
            if wakes.time != time { wakes = (time, 0) }
            wakes.count += 1
            oracle.wakesNow[node.index] = wakes
            if wakes.count > 1_000 {
                violation("I7 node \(node.index) wakes without end at one time")
                return
            }
        }
        queue.push(.wake(node.index), at: at)
    }

    func perform(_ actions: [NodeAction], _ node: SimulatedNode) {
        mix(UInt64(actions.count))
        for case .notify(let event) in actions {
            if case .lifetimeAgreed(_, let id, _) = event.kind { oracle.checkAgreement(id, event, node) }
        }
        for action in actions {
            log("node \(node.index): \("\(action)".prefix(300))")
            switch action {
            case .save(let client):
                guard let record = node.core.record(client), let key = node.keys[client] else { continue }
                write(.save(client, Disk.Inbox(record: record, key: key)), node)
            case .keep(let client, let messages, let keeping):
                for message in messages { keep(message, keeping, client, node) }
            case .setState(let client, let ids, let state):
                for id in ids {
                    node.memory[client]?[id]?.message.state = state
                    if node.disk.messages[client]?[id] != nil { write(.state(client, id, state), node) }
                }
            case .reschedule(let client, let id, let expiresAt):
                count("rescheduled")
                if let read = node.memory[client]?[id]?.message ?? node.disk.messages[client]?[id] {
                    oracle.checkRescheduled(read.content, to: expiresAt, node)
                }
                if var held = node.memory[client]?[id] {
                    held.message.expiresAt = expiresAt
                    held.message.onReading = nil
                    node.memory[client]?[id] = held
                }
                if var stored = node.disk.messages[client]?[id] {
                    stored.expiresAt = expiresAt
                    stored.onReading = nil
                    oracle.checkDurable(stored, client, node)
                    write(.message(client, stored), node)
                }
            case .forgetMemory(let client): node.memory[client] = node.memory[client]?.filter { $0.value.untilUnlocked }
            case .explode(let client, let record, let fanOut):
                count("explosions")
                oracle.explodes(record.conversation, client, node)
                node.forget(client)
                if options.bug == .resurrectAfterExplosion {
                    count("planted")
                    oracle.hasExplodedDurably(record.conversation, client, node)
                } else {
                    write(.explode(client, record, fanOut), node)
                }
            case .destroy(let client):
                node.forget(client)
                oracle.ended.insert(client)
                write(.destroy(client), node)
            case .saveTombstone(let conversation):
                if let record = node.core.tombstone(conversation) { write(.tombstone(record), node) }
            case .removeTombstone(let conversation): write(.removeTombstone(conversation), node)
            case .armExplosion(let client, let record, let fanOut): write(.arm(client, record, fanOut), node)
            case .register(let client, let route): put(.register(client, route), node)
            case .unregister(let client, let route): node.routes[client]?.remove(route)
            case .dial(let client, let dial): plan(.dial(client, dial), node, in: 1 + roll(100))
            case .transmit(let link, let frame): put(.transmit(link, frame), node)
            case .transmitMessages(let link, let client, let messages):
                var contents: [AgedContent] = []
                for one in messages {
                    let message = node.memory[client]?[one.id]?.message ?? node.disk.messages[client]?[one.id]
                    guard let message else {
                        count("transmissions of nothing")
                        continue
                    }
                    contents.append(AgedContent(message.content, age: one.age))
                }
                if contents.count > 1 { count("frames of several contents") }
                if !contents.isEmpty { put(.transmit(link, .contents(contents)), node) }
            case .close(let link): put(.close(link), node)
            // The simulated network delivers frames without backpressure.
            case .pauseReading: count("pauses")
            case .knock(let knock): put(.knock(knock), node)
            case .notify(let event): put(.notify(event), node)
            case .notifyMessages(let events): for event in events.events { put(.notify(event), node) }
            case .wake(let client, let reason): wake(node, client, reason)
            case .sleep(let client): sleep(node, client)
            // Durable at once, unlike a real node's acknowledgement.
            case .setDelivery(let client, let ids, let delivery):
                for id in ids {
                    count("deliveries")
                    node.memory[client]?[id]?.message.deliveries.merge([delivery])
                    node.disk.messages[client]?[id]?.deliveries.merge([delivery])
                }
            case .keepChunk, .forgetChunks, .verifyAttachment, .serveChunks, .transmitChunk:
                violation("node \(node.index) deals with a file that nobody has sent")
            case .forward, .relayed, .endpointsMayHaveChanged, .gatherCandidates, .dialPunching, .punch:
                violation("node \(node.index) deals with a relay that nobody has")
            case .mail(let client, let order):
                put(.mail(client, order), node)
                // The crash comes before or after the slot numbers are durable.
                guard !isCalm, chance(10) else { continue }
                plan(.crash, node, in: roll(30))
            case .makeSlices(let client, let agreement, let above, let link):
                sendSlices(node, client, agreement, above: above, on: link)
            case .mailNotices(let conversation, let notices): keep(notices, of: conversation, among: actions, node)
            case .mailbox: violation("node \(node.index) is a mailbox, which none is")
            }
        }
        checkAfterStep(node)
    }

    private func keep(_ message: Message, _ keeping: NodeAction.Keeping, _ client: ClientID, _ node: SimulatedNode) {
        let id = message.content.id
        var message = message
        if options.bug == .keepTooLong, message.sender != nil, let end = message.expiresAt {
            message.expiresAt = end + .minute
        }
        node.seen[client, default: []].insert(id)
        oracle.checkKept(message, keeping, client, node)
        switch keeping {
        case .disk: write(.message(client, message), node)
        case .memory:
            if options.bug == .storeWithoutAgreement, message.sender != nil {
                write(.message(client, message), node)
            } else {
                node.memory[client, default: [:]][id] = SimulatedNode.Held(message: message, untilUnlocked: false)
            }
        case .untilUnlocked:
            count("held until unlocked")
            node.memory[client, default: [:]][id] = SimulatedNode.Held(message: message, untilUnlocked: true)
        }
    }

    func write(_ operation: Disk.Operation, _ node: SimulatedNode) {
        let isDestruction =
            switch operation {
            case .explode, .destroy, .removeTombstone: true
            case .save, .message, .state, .tombstone, .arm, .mailNotices: false
            }
        node.disk.apply(operation)
        if node.isLocked, !isDestruction {
            node.deferred.append(operation)
            return
        }
        node.pending.append(operation)
        planCommit(node)
    }

    private func planCommit(_ node: SimulatedNode) {
        guard !node.commitPlanned else { return }
        node.commitPlanned = true
        plan(.commit, node, in: 1 + roll(40))
    }

    func put(_ output: Output, _ node: SimulatedNode) {
        var isHasty = options.bug == .acknowledgeBeforeDurable
        if case .mail = output { isHasty = options.bug == .mailBeforeDurable }
        if node.pending.isEmpty && node.outputs.isEmpty || isHasty {
            perform(output, node)
        } else {
            node.outputs.append(output)
            planCommit(node)
        }
    }

    func commit(_ node: SimulatedNode) {
        node.commitPlanned = false
        for operation in node.pending { applyDurably(operation, node) }
        node.pending.removeAll()
        checkAfterCommit(node)
        let outputs = node.outputs
        node.outputs.removeAll()
        for output in outputs {
            // An output may need another commit; the outputs after it wait as well.
            if node.pending.isEmpty && node.outputs.isEmpty {
                perform(output, node)
            } else {
                node.outputs.append(output)
                planCommit(node)
            }
        }
    }

    private func applyDurably(_ operation: Disk.Operation, _ node: SimulatedNode) {
        node.durable.apply(operation)
        if case .explode(let client, let record, _) = operation {
            oracle.hasExplodedDurably(record.conversation, client, node)
        }
        if case .message(let client, let message) = operation {
            let key = Oracle.Key(client, message.content.id)
            oracle.everDurable.insert(key)
            oracle.ends[key] = message.expiresAt
            oracle.checkDurable(message, client, node)
        }
    }

    private func perform(_ output: Output, _ node: SimulatedNode) {
        switch output {
        case .transmit(let link, let frame): transmit(frame, on: link, from: node)
        case .close(let link): close(link, node)
        case .register(let client, let route):
            if node.core.contains(client) { node.routes[client, default: []].insert(route) }
        case .knock(let knock): queue.push(.knock(from: node.index, knock), at: time + 1 + roll(300))
        case .answer(let index, let conversation, let sealed):
            queue.push(.answer(to: index, conversation, sealed), at: time + 1 + roll(300))
        case .notify(let event): oracle.saw(event, node)
        case .mail(let client, let order): begin(order, client, node)
        case .discard(let box, let name, let answer):
            queue.push(.discard(box, name, answer: answer), at: time + 1 + roll(300))
        }
    }

    /// - Parameter returns: Whether it restarts in a minute; otherwise another event starts it.
    func crash(_ node: SimulatedNode, returns: Bool = true) {
        count("crashes")
        log("node \(node.index): crash")
        node.isUp = false
        node.incarnation += 1
        node.downSince = time
        node.latest = node.latestNow(time)
        // An unfinished commit may have written its first operations.
        if !node.pending.isEmpty, chance(30) {
            for operation in node.pending.prefix(Int(roll(Int64(node.pending.count) + 1))) {
                applyDurably(operation, node)
            }
        }
        oracle.crashes(node)
        node.disk = node.durable
        node.pending.removeAll()
        node.deferred.removeAll()
        node.outputs.removeAll()
        node.commitPlanned = false
        node.memory.removeAll()
        node.seen.removeAll()
        node.routes.removeAll()
        node.isLocked = false
        node.core = NodeStateMachine(capacity: node.capacity)
        node.nextWake = nil
        node.nextVisit = nil
        node.boxes = [:]
        node.claimed = [:]
        for id in linkIDs(of: node) { breakLink(id, node) }
        if returns { queue.push(.restart(node.index), at: time + roll(chance(50) ? 500 : 50_000)) }
    }

    func start(_ node: SimulatedNode) {
        log("node \(node.index): start")
        node.isUp = true
        if !isCalm, chance(20) { setBack(node) }
        reap(node)
        let bringsBack = options.bug == .resurrectAfterExplosion
        if !bringsBack {
            burnFuses(node)
            for conversation in node.disk.tombstones.keys.sorted() {
                step(node) { core, turn in core.load(node.disk.tombstones[conversation]!, &turn) }
            }
        }
        for client in node.disk.inboxes.keys.sorted() {
            let inbox = node.disk.inboxes[client]!
            node.keys[client] = inbox.key
            node.seen[client] = Set(node.disk.messages[client].map { Array($0.keys) } ?? [])
            let undelivered = undelivered(node, client)
            step(node) { core, turn in
                guard case .conversation = inbox.record.role else {
                    return core.load(inbox.record, key: inbox.key, &turn)
                }
                core.load(sleeping: inbox.record, key: inbox.key, undelivered: undelivered, lastActivity: nil, &turn)
            }
        }
        step(node) { core, turn in core.launch(&turn) }
        for conversation in node.disk.mailNotices.keys.sorted() { planNotices(conversation, node, in: 5_000) }
        planVisit(node, in: 1 + roll(1_000))
        planWake(node)
    }

    /// The system clock was set back while the node was off. The node's own clock continues from its mark, which is at
    /// most a minute old: it loses the time off and that minute.
    func setBack(_ node: SimulatedNode) {
        let loss = roll(time - node.downSince + .minute)
        count("clocks set back")
        log("node \(node.index): clock -\(loss)")
        node.clockOffset -= loss
        node.lost += loss
    }

    func reap(_ node: SimulatedNode) {
        let haste: Milliseconds = options.bug == .reapTooSoon ? .day : 0
        node.reap(now: node.now(time) + haste)
    }

    private func burnFuses(_ node: SimulatedNode) {
        for conversation in node.disk.armed.keys.sorted() {
            guard let one = node.disk.armed[conversation], one.record.explodedAt <= node.now(time) else { continue }
            count("burnt fuses")
            oracle.hasExplodedDurably(conversation, one.client, node)
        }
        node.disk.burnFuses(now: node.now(time))
        node.durable.burnFuses(now: node.now(time))
    }

    func lock(_ node: SimulatedNode) {
        count("locks")
        // Pending operations are committed first.
        commit(node)
        while !node.pending.isEmpty { commit(node) }
        node.isLocked = true
        log("node \(node.index): lock")
        queue.push(.unlock(node.index), at: time + 1_000 + roll(40_000))
    }

    func unlock(_ node: SimulatedNode) {
        log("node \(node.index): unlock")
        node.isLocked = false
        let deferred = node.deferred
        node.deferred.removeAll()
        for operation in deferred { node.pending.append(operation) }
        for client in node.memory.keys.sorted() {
            var stored: [StoredContent] = []
            for id in (node.memory[client] ?? [:]).keys.sorted() {
                guard let held = node.memory[client]?[id], held.untilUnlocked else { continue }
                node.memory[client]?[id] = nil
                write(.message(client, held.message), node)
                if let sender = held.message.sender { stored.append(StoredContent(id: id, sender: sender)) }
            }
            step(node) { core, turn in core.step(client, &turn) { $0.stored(stored, &$1) } }
        }
        if !node.pending.isEmpty { planCommit(node) }
        for client in node.core.clients where node.core.conversation(client) != nil {
            command(node, client) { machine, _ in machine.releaseMemory() }
        }
    }

    @discardableResult func command(
        _ node: SimulatedNode, _ client: ClientID, _ body: (Conversation, inout Turn) throws(CommandError) -> Void
    ) -> CommandError? {
        var turn = turn(node)
        var refusal: CommandError?
        do throws(CommandError) {
            try node.core.command(client, &turn, body)
            node.random = turn.random
            perform(turn.actions, node)
        } catch {
            refusal = error
            node.random = turn.random
            log("node \(node.index): refused \(error)")
        }
        planWake(node)
        return refusal
    }
}
