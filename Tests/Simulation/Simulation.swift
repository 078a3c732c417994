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
package final class Simulation: SimulatedWorld {
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
    package var dice: Randomness
    private var queue = EventQueue<() -> Void>()
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
    package let journal: Journal
    private(set) lazy var oracle = Oracle(self)
    let grace: Milliseconds
    package var milliseconds: Int64 { time }

    package static func run(_ options: Options, log: ((String) -> Void)? = nil) -> Report {
        Simulation(options, log).run()
    }

    private init(_ options: Options, _ log: ((String) -> Void)?) {
        (self.options, journal) = (options, Journal(limit: 20, log: log))
        dice = .seeded(options.seed &* 0x9e37_79b9_7f4a_7c15 &+ 1)
        grace = dice.one(of: [0, 5_000, 30_000])
        let isWithMailbox = dice.chance(20)
        hasMailbox = options.hasMailbox ?? isWithMailbox
        mailbox = SimulatedMailbox(&dice)
        mailbox.conduct = one(of: [.honest] + SimulatedMailbox.Conduct.allCases)
        if options.bug == .trustDwell { mailbox.conduct = .lies }
        let count = 2 + (chance(70) ? roll(3) : roll(7))
        for index in 0..<Int(count) {
            let skew = 1_750_000_000_000 + roll(4 * .day) - 2 * .day
            let capacity = one(of: options.isCrowded ? [1, 1, 2, 2] : [1, 2, 3, Limits.inboxCapacity])
            let consenting = LifetimePolicy.acceptUpTo(.thirtyDays, mailbox: hasMailbox ? .disk : .no)
            let usual = hasMailbox ? consenting : .ask
            let random = Randomness.seeded(dice.next())
            let policy = one(of: [.ask, usual, usual, usual, consenting, .refuse])
            let cap = one(of: LifetimeCap.drawn)
            nodes.append(
                SimulatedNode(
                    index: index, random: random, clockOffset: skew, capacity: capacity, policy: policy, cap: cap))
            // One draw in 2^127 is not a key.
            let contact = IdentityKey(try! SecretKey(SecretBytes(copying: dice.bytes(32))))
            if hasMailbox { nodes[index].place = MailboxPlace(mailbox.card, own: contact) }
        }
    }

    // MARK: Running

    private func run() -> Report {
        for node in nodes { for _ in 0..<1 + roll(2) { createConversation(node) } }
        for node in nodes { plan(in: roll(2_000)) { [self] in useAndGoOn(node) } }
        plan(in: 3_000) { [self] in faultAndGoOn() }
        run(until: options.seconds * 1_000)
        calmDown()
        if hasMailbox, chance(50) { part() }
        // Everything must arrive with few inboxes awake.
        let quietAt = time
        while time < quietAt + 3 * .hour {
            run(until: time + 30 * .second)
            for node in nodes { for client in node.core.clients { read(node, client) } }
            if waiting() == nil { break }
        }
        if let waiting = waiting() { violation("liveness: \(waiting)") }
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
        // Its events hold the simulation.
        queue = EventQueue()
        return report(seed: options.seed, nodeCount: nodes.count, events: eventCount)
    }

    func run(until end: Int64) {
        while !journal.isFull, let (at, event) = queue.pop(until: end) {
            time = at
            eventCount += 1
            journal.mix(UInt64(time))
            event()
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
        note("calm")
    }

    private func useAndGoOn(_ node: SimulatedNode) {
        guard !isCalm else { return }
        if node.isUp { act(node) }
        plan(in: chance(5) ? roll(60_000) : 50 + roll(3_000)) { [self] in useAndGoOn(node) }
    }

    private func faultAndGoOn() {
        guard !isCalm else { return }
        makeFault()
        plan(in: 200 + roll(16_000)) { [self] in faultAndGoOn() }
    }

    func plan(in wait: Int64, _ event: @escaping () -> Void) { queue.push(event, at: time + wait) }

    /// Plans a step or an observation of one process. Nothing happens if the node has gone down meanwhile.
    /// - Parameter incarnation: of the process; of the one that runs now if `nil`.
    func plan(_ node: SimulatedNode, incarnation: Int? = nil, in wait: Int64, _ deed: @escaping () -> Void) {
        plan(in: wait) { [incarnation = incarnation ?? node.incarnation] in
            if node.isUp, node.incarnation == incarnation { deed() }
        }
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
        plan(in: at - time) { [self] in
            node.nextWake = nil
            guard node.isUp else { return }
            step(node) { core, turn in core.advance(&turn) }
            checkSchedules(node)
        }
    }

    func perform(_ actions: [NodeAction], _ node: SimulatedNode) {
        journal.mix(actions.count)
        for case .notify(let event) in actions {
            if case .lifetimeAgreed(_, let id, _) = event.kind { oracle.checkAgreement(id, event, node) }
        }
        for action in actions {
            note("node \(node.index): \("\(action)".prefix(300))")
            switch action {
            case .save(let client): save(client, node)
            case .keep(let client, let messages, let keeping):
                for message in messages { keep(message, keeping, client, node) }
            case .setState(let client, let ids, let state):
                for id in ids {
                    node.memory[client]?[id]?.message.state = state
                    guard node.disk.messages[client]?[id] != nil else { continue }
                    write(node, client) { $0.messages[client]?[id]?.state = state }
                }
            case .reschedule(let client, let id, let expiresAt):
                count("rescheduled")
                if let read = node.message(id, of: client) {
                    oracle.checkRescheduled(read.content, to: expiresAt, node)
                }
                node.memory[client]?[id]?.message.expiresAt = expiresAt
                node.memory[client]?[id]?.message.onReading = nil
                if var stored = node.disk.messages[client]?[id] {
                    stored.expiresAt = expiresAt
                    stored.onReading = nil
                    oracle.checkDurable(stored, client, node)
                    write(stored, client, node)
                }
            case .forgetMemory(let client): node.memory[client] = node.memory[client]?.filter { $0.value.untilUnlocked }
            case .explode(let client, let record, let fanOut):
                count("explosions")
                let conversation = record.conversation
                oracle.explodes(conversation, client, node)
                node.forget(client)
                if options.bug == .resurrectAfterExplosion {
                    count("planted")
                    oracle.hasExplodedDurably(conversation, client, node)
                    continue
                }
                let end = Disk.Armed(client: client, record: record, fanOut: fanOut)
                write(node, client, isDestruction: true) {
                    $0.explode(end)
                } whenDurable: { [self] in
                    oracle.hasExplodedDurably(conversation, client, node)
                }
            case .destroy(let client):
                node.forget(client)
                oracle.ended.insert(client)
                destroy(client, node)
            case .saveTombstone(let conversation):
                guard let record = node.core.tombstone(conversation) else { continue }
                write(node) { $0.tombstones[conversation] = record }
            case .removeTombstone(let conversation): write(node, isDestruction: true) { $0.forget(conversation) }
            case .armExplosion(let client, let record, let fanOut):
                let end = Disk.Armed(client: client, record: record, fanOut: fanOut)
                write(node, client) { $0.armed[record.conversation] = end }
            case .register(let client, let route):
                put(node) { if node.core.contains(client) { node.routes[client, default: []].insert(route) } }
            case .unregister(let client, let route): node.routes[client]?.remove(route)
            case .dial(let client, let dial): plan(node, in: 1 + roll(100)) { [self] in connect(node, client, dial) }
            case .transmit(let link, let frame): put(frame, on: link, node)
            case .transmitMessages(let link, let client, let messages):
                let contents = contents(of: messages, client, node)
                if contents.count > 1 { count("frames of several contents") }
                if !contents.isEmpty { put(.contents(contents), on: link, node) }
            case .close(let link): put(node) { [self] in close(link, node) }
            // The simulated network delivers frames without backpressure.
            case .pauseReading: count("pauses")
            case .knock(let knock):
                put(node) { [self] in plan(in: 1 + roll(300)) { [self] in receiveKnock(knock, from: node) } }
            case .notify(let event): put(node) { [self] in oracle.saw(event, node) }
            case .notifyMessages(let events):
                for event in events.events { put(node) { [self] in oracle.saw(event, node) } }
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
                put(node, isHasty: options.bug == .mailBeforeDurable) { [self] in begin(order, client, node) }
                // The crash comes before or after the slot numbers are durable.
                guard !isCalm, chance(10) else { continue }
                plan(node, in: roll(30)) { [self] in if !isCalm { crash(node) } }
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
        case .disk: write(message, client, node)
        case .memory where options.bug == .storeWithoutAgreement && message.sender != nil: write(message, client, node)
        case .memory: node.memory[client, default: [:]][id] = SimulatedNode.Held(message: message, untilUnlocked: false)
        case .untilUnlocked:
            count("held until unlocked")
            node.memory[client, default: [:]][id] = SimulatedNode.Held(message: message, untilUnlocked: true)
        }
    }

    func contents(of messages: [NodeAction.AgedMessage], _ client: ClientID, _ node: SimulatedNode) -> [AgedContent] {
        messages.compactMap { one in
            if let message = node.message(one.id, of: client) { return AgedContent(message.content, age: one.age) }
            count("transmissions of nothing")
            return nil
        }
    }

    func save(_ client: ClientID, _ node: SimulatedNode) {
        guard let record = node.core.record(client), let key = node.keys[client] else { return }
        write(node, client) { $0.inboxes[client] = Disk.Inbox(record: record, key: key) }
    }

    func destroy(_ client: ClientID, _ node: SimulatedNode) {
        write(node, client, isDestruction: true) { $0.destroy(client) }
    }

    private func write(_ message: Message, _ client: ClientID, _ node: SimulatedNode) {
        write(node, client) {
            $0.messages[client, default: [:]][message.content.id] = message
        } whenDurable: { [self] in
            let key = Oracle.Key(client: client, message: message.content.id)
            oracle.everDurable.insert(key)
            oracle.ends[key] = message.expiresAt
            oracle.checkDurable(message, client, node)
        }
    }

    /// - Parameters:
    ///   - client: The inbox with which the change is forgotten.
    ///   - isDestruction: It is not deferred while the storage is locked.
    func write(
        _ node: SimulatedNode, _ client: ClientID? = nil, isDestruction: Bool = false,
        _ change: @escaping (inout Disk) -> Void, whenDurable: @escaping () -> Void = {}
    ) {
        let operation = Disk.Operation(client: client, change: change, whenDurable: whenDurable)
        change(&node.disk)
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
        plan(node, in: 1 + roll(40)) { [self] in commit(node) }
    }

    func put(_ frame: Frame, on link: LinkID, _ node: SimulatedNode) {
        put(node) { [self] in transmit(frame, on: link, from: node) }
    }

    /// Lets something out as soon as all that was written before is durable.
    func put(_ node: SimulatedNode, isHasty: Bool? = nil, _ output: @escaping () -> Void) {
        if node.hasCommitted || isHasty ?? (options.bug == .acknowledgeBeforeDurable) { return output() }
        node.outputs.append(output)
        planCommit(node)
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
            if node.hasCommitted {
                output()
            } else {
                node.outputs.append(output)
                planCommit(node)
            }
        }
    }

    private func applyDurably(_ operation: Disk.Operation, _ node: SimulatedNode) {
        operation.change(&node.durable)
        operation.whenDurable()
    }

    /// - Parameter returns: Whether it restarts in a minute; otherwise another event starts it.
    func crash(_ node: SimulatedNode, returns: Bool = true) {
        count("crashes")
        note("node \(node.index): crash")
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
        guard returns else { return }
        plan(in: roll(chance(50) ? 500 : 50_000)) { [self] in if !node.isUp { start(node) } }
    }

    func start(_ node: SimulatedNode) {
        note("node \(node.index): start")
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
        note("node \(node.index): clock -\(loss)")
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
            node.disk.explode(one)
            node.durable.explode(one)
        }
    }

    func lock(_ node: SimulatedNode) {
        count("locks")
        // Pending operations are committed first.
        commit(node)
        while !node.pending.isEmpty { commit(node) }
        node.isLocked = true
        note("node \(node.index): lock")
        plan(in: 1_000 + roll(40_000)) { [self] in if node.isUp, node.isLocked { unlock(node) } }
    }

    func unlock(_ node: SimulatedNode) {
        note("node \(node.index): unlock")
        node.isLocked = false
        let deferred = node.deferred
        node.deferred.removeAll()
        node.pending += deferred
        for client in node.memory.keys.sorted() {
            var stored: [StoredContent] = []
            for id in (node.memory[client] ?? [:]).keys.sorted() {
                guard let held = node.memory[client]?[id], held.untilUnlocked else { continue }
                node.memory[client]?[id] = nil
                write(held.message, client, node)
                if let sender = held.message.sender { stored.append(StoredContent(id: id, sender: sender)) }
            }
            step(node) { core, turn in core.step(client, &turn) { $0.stored(stored, &$1) } }
        }
        if !node.pending.isEmpty { planCommit(node) }
        for client in node.core.clients where node.core.conversation(client) != nil {
            command(node, client) { machine, _ in machine.releaseMemory() }
        }
    }

    /// - Parameter name: Counts the command if it is not refused.
    /// - Returns: `nil` if it is refused.
    @discardableResult func command<Result>(
        _ node: SimulatedNode, _ client: ClientID, _ name: String? = nil,
        _ body: (Conversation, inout Turn) throws -> Result
    ) -> Result? {
        var turn = turn(node)
        var result: Result?
        do throws(CommandError) {
            try node.core.command(client, &turn) { machine, turn throws(CommandError) in
                do { result = try body(machine, &turn) } catch {
                    guard let error = error as? CommandError else { preconditionFailure("\(error)") }
                    throw error
                }
            }
            node.random = turn.random
            perform(turn.actions, node)
            if let name { count(name) }
        } catch {
            node.random = turn.random
            note("node \(node.index): refused \(error)")
        }
        planWake(node)
        return result
    }
}
