import Cryptography
import Messaging

/// Users' actions and faults.
extension Simulation {
    func makeInbox(_ node: SimulatedNode) -> ClientID {
        let client = ClientID.generate(&node.random)
        // One draw in 2^127 is not a key.
        let key = IdentityKey(try! SecretKey(SecretBytes(copying: node.random.bytes(32))))
        node.keys[client] = key
        step(node) { core, turn in core.addUnused(client, key: key, &turn) }
        return client
    }

    func createConversation(_ node: SimulatedNode) {
        guard node.core.directory.count < (options.isCrowded ? 12 : 4), !node.isLocked else { return }
        let client = makeInbox(node)
        step(node) { core, turn in _ = try? core.createConversation(client, name: "c", profile: "p", &turn) }
        guard let conversation = node.core.conversation(client)?.conversation else {
            return violation("a conversation could not be created")
        }
        oracle.conversations[conversation, default: []].append((node.index, client))
        invite(node, client)
    }

    func invite(_ node: SimulatedNode, _ client: ClientID) {
        guard !node.isLocked else { return }
        let singleUse = chance(70)
        let made = command(node, client) { try $0.invite(lifetime: .day, singleUse: singleUse, &$1) }
        guard let made, let key = node.keys[client] else { return }
        let payload = made.joinSecret + made.conversationToken
        invites[payload] = made
        guard let verified = try? VerifiedInvite(SignedInvite(payload: payload, signedBy: key.secret), decoded: made)
        else { return violation("an invite of our own does not verify") }
        // Sometimes several joiners race for the same invite.
        for _ in 0..<(chance(25) ? 2 + roll(3) : 1) {
            let guest = one(of: nodes)
            if guest === node { continue }
            plan(in: 1 + roll(3_000)) { [self] in if guest.isUp { join(guest, verified) } }
        }
    }

    func join(_ node: SimulatedNode, _ invite: VerifiedInvite) {
        guard !node.isLocked, node.core.joins.count < 4, node.core.directory.count < (options.isCrowded ? 16 : 6) else {
            return
        }
        let client = makeInbox(node)
        count("joins")
        step(node) { core, turn in _ = try? core.join(client, invite: invite, profile: "g", &turn) }
        if node.core.isUnused(client) { drop(node, client) }
    }

    func read(_ node: SimulatedNode, _ client: ClientID) {
        let now = node.now(time)
        let messages = node.readable(client, now: now, ignoringExpiry: options.bug == .readAfterExpiry)
        for message in messages {
            if let expiresAt = message.expiresAt, expiresAt <= now {
                violation("I3 node \(node.index) reads a message \(now - expiresAt) ms after its end")
            }
            oracle.checkRead(message, node)
        }
        guard node.core.conversation(client) != nil else { return }
        command(node, client) { machine, turn in
            machine.releaseMemory()
            turn.add(machine.markRead(messages, now: turn.now))
        }
        oracle.checkConversation(node, client)
    }

    func act(_ node: SimulatedNode) {
        // A locked node refuses commands.
        guard !node.isLocked else { return }
        if chance(options.isCrowded ? 15 : 2) { return createConversation(node) }
        let clients = node.core.clients
        guard !clients.isEmpty else { return }
        let client = one(of: clients)
        if chance(3) { return sleepOrRebalance(node, client) }
        wake(node, client, .userInteraction)
        guard let conversation = node.core.conversation(client) else {
            if case .joining? = node.core.record(client)?.role, chance(3) {
                count("cancelled joins")
                var turn = turn(node)
                node.core.cancelJoin(client, &turn)
                perform(turn.actions, node)
            }
            return
        }
        var choice = roll(1_000)
        // Users mostly answer proposals.
        if conversation.pendingProposal?.isOurs == false, chance(50) { choice = 580 }
        if options.isExplosive, chance(10) { choice = chance(60) ? 990 : 970 }
        switch choice {
        case ..<480: send(String(repeating: "x", count: Int(chance(1) ? 30_000 : 1 + roll(40))), node, client)
        case ..<580:
            let lifetime = one(of: Lifetime.allCases)
            let isKept = lifetime != .ephemeral
            let terms = LifetimeTerms(
                lifetime, attachment: chance(10) ? one(of: Lifetime.allCases) : nil,
                unopened: isKept && chance(20) ? 5 * .minute : nil, timer: isKept && chance(10) ? .read : .send,
                mailbox: chance(hasMailbox ? 75 : 10) ? (isKept ? .disk : .ram) : .no)
            command(node, client, "proposed") { try $0.propose(terms, &$1) }
        case ..<700: command(node, client, "accepted") { try $0.accept(&$1) }
        case ..<720: command(node, client) { try $0.reject(&$1) }
        case ..<770: command(node, client, "withdrew") { try $0.withdraw(&$1) }
        case ..<810:
            let policy = one(of: [
                nil, LifetimePolicy.ask, .refuse, .acceptUpTo(.oneDay), .acceptUpTo(.thirtyDays, mailbox: .disk),
                .acceptUpTo(.oneHour, mailbox: .ram),
            ])
            let cap = one(of: LifetimeCap.set)
            let isCap = chance(20)
            command(node, client) { isCap ? $0.setCap(cap, &$1) : $0.setPolicy(policy, &$1) }
        case ..<840: command(node, client, "closes") { $0.close(&$1) }
        case ..<930: read(node, client)
        case ..<950:
            let waiting = conversation.currentMembers.flatMap { conversation.outbox(to: $0.key) }
            guard let first = waiting.first else { return }
            command(node, client, "cancelled messages") { try $0.cancel(first.message, &$1) }
        case ..<960: command(node, client) { $0.retry(&$1) }
        case ..<980: if conversation.isCreator, conversation.currentMembers.count < 7 { invite(node, client) }
        case ..<982:
            let name = chance(20) ? nil : "name \(roll(100))"
            command(node, client) { machine, turn in
                conversation.isCreator && chance(50)
                    ? try machine.rename(name, &turn) : try machine.setProfile(name, &turn)
            }
        case ..<984:
            guard conversation.isCreator, let member = pick(conversation.currentMembers.map(\.key).sorted()) else {
                return
            }
            command(node, client, "removed") { try $0.remove(member, &$1) }
        case ..<987:
            guard conversation.isCreator else { return }
            let isLocked = chance(50)
            command(node, client) { try $0.setLocked(isLocked, &$1) }
        case ..<991:
            guard conversation.isCreator else { return }
            // Clocks differ by days.
            let isScheduled = chance(60)
            let wait = chance(60) ? 1 + roll(90_000) : 1 + roll(3 * .day)
            let isTraceless = chance(15)
            command(node, client, isScheduled ? "schedules" : nil) { machine, turn in
                try machine.explode(at: isScheduled ? turn.now + wait : nil, isTraceless: isTraceless, &turn)
            }
        default:
            guard chance(10) else { return }
            if !conversation.currentMembers.allSatisfy({ conversation.isOnline($0.key) }) { count("left offline") }
            command(node, client, "left") { $0.leave(&$1) }
        }
    }

    @discardableResult func send(_ text: String, _ node: SimulatedNode, _ client: ClientID) -> MessageID? {
        let sent = command(node, client, "sent") { try $0.send(text, &$1) }?.content.id
        if let sent { oracle.sentAt[sent] = Oracle.Sent(node: node.index, time: time, lost: nodes.map(\.lost)) }
        return sent
    }

    func makeFault() {
        if hasMailbox, chance(6) { return mailboxFails() }
        switch roll(100) {
        case ..<2: move(one(of: nodes))
        case ..<35: if let open = pick(links.keys.sorted().filter { !links[$0]!.isBroken }) { breakLink(open) }
        case ..<55:
            let one = Int(roll(Int64(nodes.count)))
            let other = Int(roll(Int64(nodes.count)))
            guard one != other else { return }
            let isOneWay = chance(30)
            count(isOneWay ? "one-way partitions" : "partitions")
            let wait = roll(chance(hasMailbox ? 40 : 70) ? 5_000 : 90_000)
            for way in isOneWay ? [[one, other]] : [[one, other], [other, one]] {
                partitions.insert(way)
                plan(in: wait) { [self] in partitions.remove(way) }
            }
        case ..<75:
            let node = one(of: nodes)
            if node.isUp { crash(node) }
        case ..<88:
            let node = one(of: nodes)
            if node.isUp, !node.isLocked { lock(node) }
        default:
            let node = one(of: nodes)
            let step = chance(60) ? roll(20_000) : roll(3 * .hour)
            count("clock steps")
            note("node \(node.index): clock +\(step)")
            node.clockOffset += step
            node.gained += step
            if node.isUp {
                if chance(50) { reap(node) }
                for client in node.core.clients { read(node, client) }
                planWake(node)
            }
        }
    }
}
