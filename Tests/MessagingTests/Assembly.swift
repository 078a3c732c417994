import Cryptography
import Messaging
import TestSupport
import Testing

protocol TestNodes {
    var clients: [ClientID] { get }
    mutating func step(_ node: Int, _ body: (inout NodeStateMachine, inout Turn) -> Void)
}

extension TestNodes {
    @discardableResult mutating func command(_ node: Int, _ body: (Conversation, inout Turn) throws -> Void)
        -> CommandError?
    {
        var refusal: CommandError?
        let client = clients[node]
        step(node) { core, turn in core.command(client, &turn, refusal: &refusal, body) }
        return refusal
    }

    mutating func say(_ text: String, from node: Int) throws -> MessageID {
        var id: MessageID?
        command(node) { (machine, turn) throws(CommandError) in
            let message = try machine.send(text, &turn)
            id = message.content.id
        }
        return try #require(id)
    }
}

/// Several nodes with one inbox each, back to back in memory. Actions are performed at once, frames keep the order of
/// their link, and a dial succeeds where the token is known.
struct Assembly: TestNodes {
    struct Frames {
        var to: Int
        var link: LinkID
        var frame: Frame
    }

    var random = Randomness.seeded(1)
    var nodes: [NodeStateMachine] = []
    var clients: [ClientID] = []
    var keys: [IdentityKey] = []
    var inboxKeys: [ClientID: IdentityKey] = [:]
    var now = noon
    var endpoints: [String] = []
    var cut: Set<Set<Int>> = []
    var wire: [Frames] = []
    var sent: [Frame] = []
    var links: [LinkID: [Int]] = [:]
    var routes: [Set<NodeAction.Route>] = []
    var archive: [[MessageID: Message]] = []
    var events: [[Event.Kind]] = []
    var exploded: [ExplosionRecord?] = []
    var fanOut: [[Member]] = []
    var destroyed: Set<Int> = []
    var armed: [Int: ExplosionRecord] = [:]
    var removed: [Int: ConversationID] = [:]
    var knocks: [Int: [NodeAction.Knock]] = [:]
    var invites: [VerifiedInvite] = []
    var nextLink: UInt64 = 1
    /// How often each node was told to stop reading a link.
    var pauses: [Int: Int] = [:]
    var locked: Set<Int> = []
    var mailboxes: [Int: MailboxPlace] = [:]
    var slices: [Int: [UInt32: IdentityKey]] = [:]
    var withoutSlices: Set<Int> = []
    var orders: [Int: [MailOrder]] = [:]
    var notices: [Int: [MailNotice]] = [:]

    init(_ count: Int) {
        for node in 0..<count {
            let client = ClientID.generate(&random)
            let key = makeKey(&random)
            clients.append(client)
            keys.append(key)
            inboxKeys[client] = key
            nodes.append(NodeStateMachine())
            endpoints.append("n\(node)")
            routes.append([])
            archive.append([:])
            events.append([])
            exploded.append(nil)
            fanOut.append([])
            knocks[node] = []
            step(node) { core, turn in core.addUnused(client, key: key, &turn) }
        }
    }

    static func joined(_ count: Int) throws -> Assembly {
        var all = Assembly(count)
        all.create()
        for node in 1..<count { try all.join(node) }
        return all
    }

    mutating func create() {
        let client = clients[0]
        step(0) { core, turn in _ = try? core.createConversation(client, name: "talk", profile: "p0", &turn) }
    }

    mutating func join(_ node: Int) throws {
        var made: Invite?
        command(0) { (machine, turn) throws(CommandError) in
            let invite = try machine.invite(lifetime: .day, singleUse: true, &turn)
            made = invite
        }
        let signed = SignedInvite(payload: [UInt8(invites.count)], signedBy: keys[0].secret)
        let invite = try VerifiedInvite(signed, decoded: try #require(made))
        invites.append(invite)
        let client = clients[node]
        step(node) { core, turn in _ = try? core.join(client, invite: invite, profile: "p\(node)", &turn) }
        run()
    }

    /// The creator removes a member, which joins again by a new invite with another inbox and key.
    /// - Returns: the removed inbox.
    mutating func removeAndRejoin(_ node: Int) throws -> ClientID {
        let (earlier, removed) = (clients[node], keys[node].publicKey)
        command(0) { try $0.remove(removed, &$1) }
        run()
        let (client, key) = (ClientID.generate(&random), makeKey(&random))
        (clients[node], keys[node], inboxKeys[client]) = (client, key, key)
        step(node) { core, turn in core.addUnused(client, key: key, &turn) }
        try join(node)
        return earlier
    }

    mutating func sleep(_ client: ClientID, of node: Int) {
        step(node) { core, turn in _ = try? core.sleep(client, &turn) }
        step(node) { core, turn in core.fallAsleep(client, &turn) }
    }

    mutating func step(_ node: Int, _ body: (inout NodeStateMachine, inout Turn) -> Void) {
        let known = archive[node]
        var turn = turn(
            random, now: now, isLocked: locked.contains(node), endpoints: [Endpoint(host: endpoints[node], port: 1)])
        turn.around.known = { id, _ in known[id] != nil }
        turn.around.messages = { known[$0] }
        turn.mailbox = mailboxes[node]
        turn.around.sleeperKeys = locked.contains(node) ? [:] : inboxKeys
        body(&nodes[node], &turn)
        random = turn.random
        perform(turn.actions, node)
    }

    private mutating func perform(_ actions: [NodeAction], _ node: Int) {
        for action in actions {
            switch action {
            case .keep(_, let messages, _): for message in messages { archive[node][message.content.id] = message }
            case .setState(_, let ids, let state): for id in ids { archive[node][id]?.state = state }
            case .setDelivery(_, let ids, let delivery): for id in ids { archive[node][id]?.merge([delivery]) }
            case .explode(_, let record, let told):
                exploded[node] = record
                fanOut[node] = told
                routes[node] = []
            case .destroy:
                destroyed.insert(node)
                routes[node] = []
            case .transmit(let link, let frame): send(frame, on: link, from: node)
            case .transmitMessages(let link, _, let messages):
                let contents = messages.compactMap { one in
                    archive[node][one.id].map { AgedContent($0.content, age: one.age) }
                }
                if !contents.isEmpty { send(.contents(contents), on: link, from: node) }
            case .dial(_, let dial): open(dial, from: node)
            case .close(let link): close(link, by: node)
            case .notify(let event): events[node].append(event.kind)
            case .notifyMessages(let happened): events[node] += happened.events.map(\.kind)
            case .register(_, let route): routes[node].insert(route)
            case .unregister(_, let route): routes[node].remove(route)
            case .armExplosion(_, let record, _): armed[node] = record
            case .removeTombstone(let conversation): removed[node] = conversation
            case .knock(let knock): knocks[node, default: []].append(knock)
            case .pauseReading: pauses[node, default: 0] += 1
            case .mail(_, let order): orders[node, default: []].append(order)
            case .mailNotices(_, let notices): self.notices[node] = notices
            case .makeSlices(_, let agreement, let above, let link): makeSlices(agreement, above: above, on: link, node)
            default: break
            }
        }
    }

    private mutating func send(_ frame: Frame, on link: LinkID, from node: Int) {
        guard let other = links[link]?.first(where: { $0 != node }), !cut.contains([node, other]) else { return }
        wire.append(Frames(to: other, link: link, frame: frame))
        sent.append(frame)
    }

    /// Slice keys from the present slice, or from the one after `above`.
    private mutating func makeSlices(_ agreement: AgreementID, above: UInt32?, on link: LinkID, _ node: Int) {
        guard let terms = machine(node)?.agreement?.terms, !withoutSlices.contains(node) else { return }
        let schedule = SliceSchedule(terms)
        let present = schedule.slice(at: now)
        let first = max(present, above.map { $0 + 1 } ?? 0)
        var keys: [PublicKey] = []
        for slice in first..<max(first, schedule.last(at: now) + 1) {
            let key = slices[node]?[slice] ?? makeKey(&random)
            slices[node, default: [:]][slice] = key
            keys.append(key.publicKey)
        }
        let left = schedule.end(of: present) - now
        let message = SliceKeys(agreement: agreement, first: first, present: present, left: left, keys: keys)
        send(.mailbox(.keys(message)), on: link, from: node)
    }

    private mutating func open(_ dial: NodeAction.Dial, from node: Int) {
        let own = keys[node].publicKey
        let target = keys.indices.first { index in
            guard keys[index].publicKey == dial.remote, dial.endpoints.contains(where: { $0.host == endpoints[index] })
            else { return false }
            switch dial.route {
            case .member: return routes[index].contains(.member(own))
            case .invite(let id): return routes[index].contains(.invite(id))
            case .contact: return false
            }
        }
        guard let target, !cut.contains([node, target]) else {
            let client = clients[node]
            return step(node) { core, turn in
                core.dialFailed(client, to: dial.remote, isUnknownThere: target == nil, &turn)
            }
        }
        let link = LinkID(nextLink)
        nextLink += 1
        links[link] = [node, target]
        for side in [node, target] {
            let client = clients[side]
            let remote = keys[side == node ? target : node].publicKey
            step(side) { core, turn in
                core.linkOpened(link, client: client, remote: remote, weDialled: side == node, &turn)
            }
        }
    }

    /// Frames that were sent before still arrive.
    private mutating func close(_ link: LinkID, by node: Int) {
        guard let ends = links[link] else { return }
        step(node) { core, turn in core.linkClosed(link, &turn) }
        if let other = ends.first(where: { $0 != node }) {
            wire.append(Frames(to: other, link: link, frame: .closing(asleep: false)))
        }
    }

    mutating func run(for time: Milliseconds = 5_000) {
        let end = now + time
        while true {
            while !wire.isEmpty {
                let next = wire.removeFirst()
                let invites = invites
                step(next.to) { core, turn in
                    core.receive(
                        next.frame, on: next.link, verify: { signed in invites.first { $0.signed == signed } }, &turn)
                }
            }
            let due = nodes.compactMap(\.nextDeadline).min()
            guard let due, due <= end else { break }
            now = max(now, due)
            for node in nodes.indices { step(node) { core, turn in core.advance(&turn) } }
        }
        now = end
    }

    /// Breaks all links of a node and blocks new ones.
    mutating func isolate(_ node: Int, from others: [Int]? = nil) {
        for other in others ?? Array(nodes.indices) where other != node { cut.insert([node, other]) }
        for (link, ends) in links.sorted(by: { $0.key < $1.key }) where cut.contains(Set(ends)) {
            links[link] = nil
            for end in ends { step(end) { core, turn in core.linkClosed(link, &turn) } }
        }
    }

    mutating func heal() { cut = [] }

    mutating func heal(for time: Milliseconds) {
        heal()
        run(for: time)
    }

    func machine(_ node: Int) -> Conversation? { nodes[node].conversation(clients[node]) }
    func names(_ node: Int) -> [String] { (machine(node)?.currentMembers ?? []).compactMap(\.profile).sorted() }
    func isOnline(_ one: Int, _ other: Int) -> Bool {
        machine(one)?.isOnline(keys[other].publicKey) == true && machine(other)?.isOnline(keys[one].publicKey) == true
    }
}
