import Cryptography
import Messaging

/// Links between nodes: ordered, and lost at any time, at one end before the other.
extension Simulation {
    func isCut(from one: Int, to other: Int) -> Bool { isParted || partitions.contains([one, other]) }
    /// A request needs both directions.
    func areParted(_ one: Int, _ other: Int) -> Bool { isCut(from: one, to: other) || isCut(from: other, to: one) }

    func delay() -> Int64 { chance(3) ? 1 + roll(4_000) : 1 + roll(150) }

    func nodeIndex(_ endpoints: [Endpoint]) -> Int? { nodes.firstIndex { endpoints.contains($0.endpoint) } }

    func linkIDs(of node: SimulatedNode) -> [LinkID] {
        links.keys.sorted().filter { links[$0]!.ends.contains { $0.node == node.index } }
    }

    func move(_ node: SimulatedNode) {
        count("moves")
        node.endpoint = Endpoint(host: node.endpoint.host, port: node.endpoint.port + 1)
        note("node \(node.index): moves to \(node.endpoint)")
        for id in linkIDs(of: node) { breakLink(id) }
        if node.isUp { step(node) { core, turn in core.endpointsChanged(&turn) } }
    }

    func connect(_ node: SimulatedNode, _ client: ClientID, _ dial: NodeAction.Dial) {
        guard let key = node.keys[client]?.publicKey, node.core.record(client) != nil else { return }
        func fail(_ isUnknownThere: Bool, after wait: Int64) {
            plan(node, in: wait) { [self] in
                step(node) { core, turn in
                    core.dialFailed(client, to: dial.remote, isUnknownThere: isUnknownThere, &turn)
                }
            }
        }
        guard let index = nodeIndex(dial.endpoints) else { return fail(false, after: 10) }
        let target = nodes[index]
        guard !areParted(node.index, index), target.isUp else { return fail(false, after: 200 + roll(3_000)) }
        let listener = target.routes.keys.sorted().first { candidate in
            guard target.keys[candidate]?.publicKey == dial.remote, let routes = target.routes[candidate] else {
                return false
            }
            switch dial.route {
            case .member: return routes.contains(.member(key))
            case .invite(let id): return routes.contains(.invite(id))
            case .contact: return false
            }
        }
        guard let listener else { return fail(true, after: delay()) }
        let id = LinkID(nextLink)
        nextLink += 1
        count("links")
        links[id] = Link(ends: [
            Link.End(node: node.index, client: client, key: key, isOpen: true),
            Link.End(node: index, client: listener, key: dial.remote, isOpen: false),
        ])
        note("link \(id.value): node \(node.index) \(client.shortName) -> node \(index) \(listener.shortName)")
        enqueue(.open, on: id, to: 1)
        step(node) { core, turn in core.linkOpened(id, client: client, remote: dial.remote, weDialled: true, &turn) }
    }

    func enqueue(_ item: Item, on id: LinkID, to end: Int) {
        guard let before = links[id]?.ends[end].lastArrival else { return }
        let arrival = max(before, time + delay())
        links[id]!.ends[end].lastArrival = arrival
        plan(in: arrival - time) { [self] in deliver(item, on: id, to: end) }
    }

    func transmit(_ frame: Frame, on id: LinkID, from node: SimulatedNode) {
        guard let link = links[id] else { return }
        let end = link.end(of: node.index)
        guard link.ends[end].isOpen else { return }
        oracle.sent(frame, from: node, on: link, end)
        enqueue(.frame(frame), on: id, to: 1 - end)
    }

    /// This side closes; frames already sent still arrive if the link holds.
    func close(_ id: LinkID, _ node: SimulatedNode) {
        guard let end = links[id]?.end(of: node.index), links[id]!.ends[end].isOpen else { return }
        links[id]!.ends[end].isOpen = false
        enqueue(.end, on: id, to: 1 - end)
        plan(node, in: 0) { [self] in step(node) { core, turn in core.linkClosed(id, &turn) } }
        dropIfDead(id)
    }

    func tellClosed(_ id: LinkID, _ end: Int) {
        guard let link = links[id], link.ends[end].isOpen else { return }
        links[id]!.ends[end].isOpen = false
        let node = nodes[link.ends[end].node]
        if node.isUp { step(node) { core, turn in core.linkClosed(id, &turn) } }
        dropIfDead(id)
    }

    private func dropIfDead(_ id: LinkID) {
        guard let link = links[id], link.isBroken, !link.ends.contains(where: \.isOpen) else { return }
        links[id] = nil
    }

    /// Breaks a link. Its ends learn it now, later or never.
    func breakLink(_ id: LinkID, _ crashed: SimulatedNode? = nil) {
        guard let link = links[id] else { return }
        links[id]!.isBroken = true
        for end in 0..<2 {
            if link.ends[end].node == crashed?.index {
                links[id]?.ends[end].isOpen = false
            } else if chance(60) {
                plan(in: roll(2_000)) { [self] in deliver(.end, on: id, to: end) }
            }
        }
        dropIfDead(id)
    }

    func deliver(_ item: Item, on id: LinkID, to end: Int) {
        guard let ends = links[id]?.ends else { return }
        // Later frames in this direction are lost as well, even if the partition ends, so the receiver gets no gap.
        if isCut(from: ends[1 - end].node, to: ends[end].node) { links[id]!.ends[end].isLost = true }
        let isLost = links[id]!.isLost(to: end)
        let (node, client) = (nodes[ends[end].node], ends[end].client)
        switch item {
        case .open:
            if node.isUp, !isLost { wake(node, client, .pushNotification) }
            guard node.isUp, !isLost, node.core.record(client) != nil else {
                links[id]!.isBroken = true
                if ends[0].isOpen { plan(in: delay()) { [self] in deliver(.end, on: id, to: 0) } }
                return
            }
            links[id]!.ends[1].isOpen = true
            step(node) { core, turn in core.linkOpened(id, client: client, remote: ends[0].key, weDialled: false, &turn)
            }
        case .frame(let frame):
            guard node.isUp, !isLost, ends[end].isOpen else { return }
            receive(frame, on: id, client, from: ends[1 - end].client, node)
        case .end: tellClosed(id, end)
        }
    }

    private func receive(_ frame: Frame, on id: LinkID, _ client: ClientID, from other: ClientID, _ node: SimulatedNode)
    {
        mix(frame)
        note("node \(node.index) <- \("\(frame)".prefix(300))")
        oracle.receives(frame, client, from: other, node)
        var unknown: [AgedContent] = []
        if case .contents(let contents) = frame {
            unknown = contents.filter { node.seen[client]?.contains($0.content.id) != true }
        }
        receive(unknown, client, node) { [invites] core, turn in
            core.receive(
                frame, on: id,
                verify: { signed in invites[signed.payload].flatMap { try? VerifiedInvite(signed, decoded: $0) } },
                &turn)
            return []
        }
    }

    /// A step that receives contents.
    /// - Parameter body: Returns what it acknowledges otherwise than by a frame.
    func receive(
        _ contents: [AgedContent], _ client: ClientID, _ node: SimulatedNode,
        _ body: (inout NodeStateMachine, inout Turn) -> Set<MessageID>
    ) {
        step(node) { core, turn in
            let cap = core.conversation(client)?.cap ?? turn.defaultCap
            let owed = body(&core, &turn)
            for aged in contents {
                oracle.checkAcknowledgement(of: aged, turn.actions, owed, isCapped: cap != LifetimeCap.none, turn.now)
            }
        }
    }

    func receiveKnock(_ knock: NodeAction.Knock, from sender: SimulatedNode) {
        guard sender.isUp else { return }
        switch knock {
        case .deliver(let conversation, let member):
            guard let tombstone = sender.core.tombstone(conversation),
                let endpoints = sender.disk.fanOuts[conversation]?.first(where: { $0.key == member })?.endpoints,
                let target = reachable(endpoints, from: sender)
            else { return }
            if let client = target.routes.keys.sorted().first(where: { target.keys[$0]?.publicKey == member }) {
                receiveNotice(tombstone.notice, target, client, from: sender)
            } else if let theirs = target.core.tombstone(conversation), let creator = theirs.creator,
                let answer = theirs.answer(toNoticeOf: creator)
            {
                reply(answer, for: conversation, to: sender, from: target)
            }
        case .ask(let client, let member, let endpoints):
            guard let conversation = sender.core.conversation(client)?.conversation,
                let key = sender.keys[client]?.publicKey, let target = reachable(endpoints, from: sender),
                let tombstone = target.core.tombstone(conversation),
                target.keys.values.contains(where: { $0.publicKey == member }),
                let notice = tombstone.answer(toQuestionOf: key)
            else { return }
            count("asks answered")
            plan(sender, in: delay()) { [self] in receiveNotice(notice, sender, client, from: nil) }
        case .askByInvite(let client, let invite, let endpoints):
            guard let target = reachable(endpoints, from: sender) else { return }
            let tombstone = target.core.tombstones.first { $0.openInvites.contains(invite) }
            guard let statement = tombstone?.statement else { return }
            count("late joiners answered")
            plan(sender, in: delay()) { [self] in
                step(sender) { core, turn in core.receive(statement, for: client, &turn) }
            }
        case .report(let conversation, let endpoints):
            guard let receipt = sender.core.tombstone(conversation)?.receipt,
                let target = reachable(endpoints, from: sender), target.core.tombstone(conversation) != nil
            else { return }
            count("reports")
            answer(receipt, for: conversation, to: target, in: delay())
        }
    }

    private func reachable(_ endpoints: [Endpoint], from sender: SimulatedNode) -> SimulatedNode? {
        guard let index = nodeIndex(endpoints), nodes[index].isUp, !areParted(sender.index, index) else { return nil }
        return nodes[index]
    }

    private func receiveNotice(
        _ sealed: [UInt8], _ node: SimulatedNode, _ client: ClientID, from sender: SimulatedNode?
    ) {
        wake(node, client, .pushNotification)
        var answer: [UInt8]?
        let conversation = node.core.conversation(client)?.conversation
        step(node) { core, turn in answer = core.receiveNotice(sealed, for: client, isAnswer: sender == nil, &turn) }
        if let answer, let sender, let conversation { reply(answer, for: conversation, to: sender, from: node) }
    }

    private func reply(
        _ sealed: [UInt8], for conversation: ConversationID, to asker: SimulatedNode, from node: SimulatedNode
    ) {
        if node.hasCommitted { return answer(sealed, for: conversation, to: asker, in: delay()) }
        node.outputs.append { [self] in answer(sealed, for: conversation, to: asker, in: 1 + roll(300)) }
    }

    private func answer(_ sealed: [UInt8], for conversation: ConversationID, to asker: SimulatedNode, in wait: Int64) {
        plan(in: wait) { [self] in
            guard asker.isUp else { return }
            step(asker) { core, turn in core.receiveReceipt(sealed, for: conversation, &turn) }
        }
    }

    private func mix(_ frame: Frame) {
        func mix(_ id: MessageID, _ value: Int) {
            for byte in id.bytes.prefix(8) { journal.mix(UInt64(byte)) }
            journal.mix(value)
        }
        switch frame {
        case .contents(let contents): for aged in contents { mix(aged.content.id, Int(aged.age)) }
        case .acknowledgement(let said):
            for id in said.stored { mix(id, 1) }
            for id in said.held { mix(id, 0) }
            for id in said.expired { mix(id, 2) }
        default: for byte in FrameCodec.encode(frame) { journal.mix(UInt64(byte)) }
        }
    }
}

extension PublicKey { var shortName: String { Hex.encode(bytes[1..<4]) } }

extension ClientID { var shortName: String { Hex.encode(bytes.prefix(3)) } }

extension Event.Kind {
    var name: String {
        let name = Mirror(reflecting: self).children.first?.label ?? "\(self)"
        return if case .messageState(_, let state, _) = self { "\(name) \(state)" } else { name }
    }
}
