import Crypto
import Messaging

/// Links between nodes: ordered, and lost at any time, at one end before the other.
extension Simulation {
    func isCut(from one: Int, to other: Int) -> Bool { isParted || partitions.contains([one, other]) }
    /// A request needs both directions.
    func areParted(_ one: Int, _ other: Int) -> Bool { isCut(from: one, to: other) || isCut(from: other, to: one) }

    func delay() -> Int64 { chance(3) ? 1 + roll(4_000) : 1 + roll(150) }

    func nodeIndex(_ endpoints: [Endpoint]) -> Int? { nodes.firstIndex { endpoints.contains($0.endpoint) } }

    func move(_ node: SimulatedNode) {
        count("moves")
        node.endpoint = Endpoint(host: node.endpoint.host, port: node.endpoint.port + 1)
        log("node \(node.index): moves to \(node.endpoint)")
        for id in links.keys.sorted() where links[id]!.dialer == node.index || links[id]!.listener == node.index {
            breakLink(id)
        }
        if node.isUp { step(node) { core, turn in core.endpointsChanged(&turn) } }
    }

    func connect(_ node: SimulatedNode, _ client: ClientID, _ dial: NodeAction.Dial) {
        guard let key = node.keys[client]?.publicKey, node.core.record(client) != nil else { return }
        func fail(_ isUnknownThere: Bool, after wait: Int64) {
            queue.push(
                .dialFailed(
                    node.index, incarnation: node.incarnation, client, dial.remote, isUnknownThere: isUnknownThere),
                at: time + wait)
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
        links[id] = Link(
            dialer: node.index, listener: index, dialerClient: client, listenerClient: listener, dialerKey: key,
            listenerKey: dial.remote)
        log("link \(id.value): node \(node.index) \(client.shortName) -> node \(index) \(listener.shortName)")
        enqueue(.open, on: id, toDialer: false)
        step(node) { core, turn in core.linkOpened(id, client: client, remote: dial.remote, weDialled: true, &turn) }
    }

    func enqueue(_ item: Item, on id: LinkID, toDialer: Bool) {
        guard var link = links[id] else { return }
        let arrival: Int64
        if toDialer {
            arrival = max(link.lastArrivalAtDialer, time + delay())
            link.lastArrivalAtDialer = arrival
        } else {
            arrival = max(link.lastArrivalAtListener, time + delay())
            link.lastArrivalAtListener = arrival
        }
        links[id] = link
        queue.push(.deliver(id, toDialer: toDialer, item), at: arrival)
    }

    func transmit(_ frame: Frame, on id: LinkID, from node: SimulatedNode) {
        guard let link = links[id] else { return }
        let isDialer = link.dialer == node.index
        guard isDialer ? link.dialerOpen : link.listenerOpen else { return }
        oracle.sent(frame, from: node, on: link, isDialer: isDialer, self)
        enqueue(.frame(frame), on: id, toDialer: !isDialer)
    }

    /// This side closes; frames already sent still arrive if the link holds.
    func close(_ id: LinkID, _ node: SimulatedNode) {
        guard let link = links[id] else { return }
        let isDialer = link.dialer == node.index
        guard isDialer ? link.dialerOpen : link.listenerOpen else { return }
        if isDialer { links[id]!.dialerOpen = false } else { links[id]!.listenerOpen = false }
        enqueue(.end, on: id, toDialer: !isDialer)
        queue.push(.closed(node.index, incarnation: node.incarnation, id), at: time)
        dropIfDead(id)
    }

    func tellClosed(_ id: LinkID, dialer: Bool) {
        guard let link = links[id], dialer ? link.dialerOpen : link.listenerOpen else { return }
        if dialer { links[id]!.dialerOpen = false } else { links[id]!.listenerOpen = false }
        let node = nodes[dialer ? link.dialer : link.listener]
        if node.isUp { step(node) { core, turn in core.linkClosed(id, &turn) } }
        dropIfDead(id)
    }

    private func dropIfDead(_ id: LinkID) {
        guard let link = links[id], !link.dialerOpen, !link.listenerOpen, link.isBroken else { return }
        links[id] = nil
    }

    /// Breaks a link. Its ends learn it now, later or never.
    func breakLink(_ id: LinkID, _ crashed: SimulatedNode? = nil) {
        guard let link = links[id] else { return }
        links[id]!.isBroken = true
        for isDialer in [true, false] {
            let index = isDialer ? link.dialer : link.listener
            if index == crashed?.index {
                if isDialer { links[id]?.dialerOpen = false } else { links[id]?.listenerOpen = false }
            } else if chance(60) {
                queue.push(.deliver(id, toDialer: isDialer, .end), at: time + roll(2_000))
            }
        }
        dropIfDead(id)
    }

    func deliver(_ item: Item, on id: LinkID, toDialer: Bool) {
        guard let link = links[id] else { return }
        let (from, to) = toDialer ? (link.listener, link.dialer) : (link.dialer, link.listener)
        if isCut(from: from, to: to) {
            // Later frames in this direction are lost as well, even if the partition ends, so the receiver gets no gap.
            if toDialer { links[id]!.isLostToDialer = true } else { links[id]!.isLostToListener = true }
        }
        let isLost = links[id]!.isLost(toDialer: toDialer)
        let node = nodes[to]
        switch item {
        case .open:
            if node.isUp, !isLost { wake(node, link.listenerClient, .pushNotification) }
            guard node.isUp, !isLost, node.core.record(link.listenerClient) != nil else {
                links[id]!.isBroken = true
                if link.dialerOpen { queue.push(.deliver(id, toDialer: true, .end), at: time + delay()) }
                return
            }
            links[id]!.listenerOpen = true
            step(node) { core, turn in
                core.linkOpened(id, client: link.listenerClient, remote: link.dialerKey, weDialled: false, &turn)
            }
        case .frame(let frame):
            guard node.isUp, !isLost, toDialer ? link.dialerOpen : link.listenerOpen else { return }
            receive(frame, on: id, link, toDialer: toDialer, node)
        case .end: tellClosed(id, dialer: toDialer)
        }
    }

    private func receive(_ frame: Frame, on id: LinkID, _ link: Link, toDialer: Bool, _ node: SimulatedNode) {
        mix(frame)
        let client = toDialer ? link.dialerClient : link.listenerClient
        log("node \(node.index) <- \(frame.summary)")
        oracle.receives(frame, client, from: toDialer ? link.listenerClient : link.dialerClient, node, self)
        var unknown: [AgedContent] = []
        if case .contents(let contents) = frame {
            unknown = contents.filter { node.seen[client]?.contains($0.content.id) != true }
        }
        step(node) { [invites] core, turn in
            let cap = core.conversation(client)?.cap ?? turn.defaultCap
            core.receive(
                frame, on: id,
                verify: { signed in invites[signed.payload].flatMap { try? VerifiedInvite(signed, decoded: $0) } },
                &turn)
            for aged in unknown {
                oracle.checkAcknowledgement(
                    of: aged.content, age: aged.age, turn.actions, isCapped: cap != LifetimeCap.none, turn.now, self)
            }
        }
    }

    // MARK: Knocks

    func receiveKnock(_ knock: NodeAction.Knock, from sender: Int) {
        guard nodes[sender].isUp else { return }
        switch knock {
        case .deliver(let conversation, let member):
            guard let tombstone = nodes[sender].core.tombstone(conversation),
                let endpoints = nodes[sender].disk.fanOuts[conversation]?.first(where: { $0.key == member })?.endpoints,
                let target = reachable(endpoints, from: sender)
            else { return }
            if let client = target.routes.keys.sorted().first(where: { target.keys[$0]?.publicKey == member }) {
                receiveNotice(tombstone.notice, target, client, from: sender)
            } else if let theirs = target.core.tombstone(conversation), let creator = theirs.creator,
                let answer = theirs.answer(toNoticeOf: creator)
            {
                reply(.answer(to: sender, conversation, answer), target)
            }
        case .ask(let client, let member, let endpoints):
            let asker = nodes[sender]
            guard let conversation = asker.core.conversation(client)?.conversation,
                let key = asker.keys[client]?.publicKey, let target = reachable(endpoints, from: sender),
                let tombstone = target.core.tombstone(conversation),
                target.keys.values.contains(where: { $0.publicKey == member }),
                let notice = tombstone.answer(toQuestionOf: key)
            else { return }
            count("asks answered")
            let answer = Happening.noticeAnswer(to: sender, incarnation: asker.incarnation, client, notice)
            queue.push(answer, at: time + delay())
        case .askByInvite(let client, let invite, let endpoints):
            guard let target = reachable(endpoints, from: sender) else { return }
            let tombstone = target.core.tombstones.first { $0.openInvites.contains(invite) }
            guard let statement = tombstone?.statement else { return }
            count("late joiners answered")
            let incarnation = nodes[sender].incarnation
            queue.push(.statement(to: sender, incarnation: incarnation, client, statement), at: time + delay())
        case .report(let conversation, let endpoints):
            guard let receipt = nodes[sender].core.tombstone(conversation)?.receipt,
                let target = reachable(endpoints, from: sender), target.core.tombstone(conversation) != nil
            else { return }
            count("reports")
            queue.push(.answer(to: target.index, conversation, receipt), at: time + delay())
        }
    }

    private func reachable(_ endpoints: [Endpoint], from sender: Int) -> SimulatedNode? {
        guard let index = nodeIndex(endpoints), nodes[index].isUp, !areParted(sender, index) else { return nil }
        return nodes[index]
    }

    func receiveNotice(_ sealed: [UInt8], _ node: SimulatedNode, _ client: ClientID, from sender: Int?) {
        wake(node, client, .pushNotification)
        var answer: [UInt8]?
        let conversation = node.core.conversation(client)?.conversation
        step(node) { core, turn in answer = core.receiveNotice(sealed, for: client, isAnswer: sender == nil, &turn) }
        if let answer, let sender, let conversation { reply(.answer(to: sender, conversation, answer), node) }
    }

    private func reply(_ output: Output, _ node: SimulatedNode) {
        if node.pending.isEmpty && node.outputs.isEmpty {
            guard case .answer(let index, let conversation, let sealed) = output else { return }
            queue.push(.answer(to: index, conversation, sealed), at: time + delay())
        } else {
            node.outputs.append(output)
        }
    }

    private func mix(_ frame: Frame) {
        switch frame {
        case .contents(let contents):
            for aged in contents {
                mix(aged.content.id.bytes)
                mix(UInt64(bitPattern: aged.age))
            }
        case .acknowledgement(let said):
            for id in said.stored { mix(id.bytes + [1]) }
            for id in said.held { mix(id.bytes + [0]) }
            for id in said.expired { mix(id.bytes + [2]) }
        case .session(let start): mix(start.inForce?.bytes ?? [start.reset ? 1 : 0])
        case .lifetime(let message):
            switch message {
            case .proposal(let proposal): mix(proposal.signature.bytes)
            case .accept(let accept): mix(accept.signature.bytes)
            case .reject(let id, _), .withdraw(let id): mix(id.bytes)
            case .unsupported: mix(20)
            case .agreement(let agreement): mix(agreement.id.bytes + [UInt8(clamping: agreement.accepts.count)])
            case .ended(let id, _): mix(id.bytes + [24])
            }
        case .joinRequest(let request): mix(request.joinSecret)
        case .welcome(let welcome): mix(welcome.genesis.signature.bytes)
        case .joinError(let error): mix(Array(error.inviteTag.description.utf8))
        case .explosion(let sealed): mix(sealed)
        case .deletionReceipt(let receipt): mix(receipt.signature.bytes)
        case .invitation(let invitation): mix(invitation.id.bytes)
        case .ping(let nonce), .pong(let nonce): mix(nonce)
        case .memberLeft(let departure): mix(departure.signature.bytes)
        case .group(let update): mix(update.state?.signature.bytes ?? [24])
        case .profile(let member): mix(member.signature.bytes)
        case .closing(let asleep): mix(asleep ? 25 : 22)
        case .joinCancelled: mix(25)
        case .unknown: mix(23)
        case .receipt(let receipt): for id in receipt.messages { mix(id.bytes + [UInt8(receipt.kind.rawValue)]) }
        case .attachmentRequest(let id, let first, let count):
            mix(id.bytes)
            mix(UInt64(clamping: first) << 32 | UInt64(clamping: count))
        case .attachmentChunk(let chunk):
            mix(chunk.message.bytes)
            mix(UInt64(clamping: chunk.index))
        case .attachmentGone(let id): mix(id.bytes + [24])
        case .relayRequest, .relayAnswer: mix(26)
        case .punch: mix(27)
        case .mailboxRequest, .mailboxAnswer, .mailbox: mix(28)
        }
    }
}

extension Frame {
    var summary: String {
        switch self {
        case .session(let start):
            "session reset=\(start.reset) inForce=\(start.inForce.map { Hex.encode($0.bytes.prefix(3)) } ?? "-")"
                + " head=\(start.head.map { Hex.encode($0.id.bytes.prefix(3)) } ?? "-")"
                + "/\(start.head?.ballot.epoch ?? 0)"
        case .contents(let contents):
            "contents" + contents.map { " \(Hex.encode($0.content.id.bytes.prefix(3))) age \($0.age)" }.joined()
        case .acknowledgement(let said):
            "ack"
                + [("stored", said.stored), ("held", said.held), ("expired", said.expired)].flatMap { name, ids in
                    ids.map { " \(name) \(Hex.encode($0.bytes.prefix(3)))" }
                }.joined()
        case .lifetime(let message):
            switch message {
            case .proposal(let proposal):
                "proposal \(Hex.encode(proposal.id.bytes.prefix(3))) \(proposal.lifetime.rawValue)"
                    + " epoch \(proposal.epoch)"
            case .accept(let accept): "accept \(Hex.encode(accept.proposal.bytes.prefix(3)))"
            case .reject(let id, let reason): "reject \(Hex.encode(id.bytes.prefix(3))) \(reason)"
            case .withdraw(let id): "withdraw \(Hex.encode(id.bytes.prefix(3)))"
            case .unsupported: "unsupported"
            case .agreement(let agreement):
                "agreement \(Hex.encode(agreement.id.bytes.prefix(3))) by \(agreement.signers.count)"
            case .ended(let id, _): "ended \(Hex.encode(id.bytes.prefix(3)))"
            }
        case .joinRequest: "joinRequest"
        case .welcome: "welcome"
        case .joinError(let error): "joinError \(error.errorType)"
        case .explosion: "explosion"
        case .deletionReceipt: "receipt"
        case .invitation: "invitation"
        case .memberLeft: "memberLeft"
        case .joinCancelled: "joinCancelled"
        case .ping: "ping"
        case .pong: "pong"
        case .closing(let asleep): asleep ? "closing, asleep" : "closing"
        case .unknown: "unknown"
        case .receipt(let receipt): "receipt \(receipt.kind) of \(receipt.messages.count)"
        case .attachmentRequest(_, let first, let count): "request \(first)+\(count)"
        case .attachmentChunk(let chunk): "chunk \(chunk.index)"
        case .attachmentGone: "gone"
        case .group(let update):
            "group \(update.state?.version ?? 0) members \(update.members.count) departures \(update.departures.count)"
        case .profile: "profile"
        case .relayRequest: "relay request"
        case .relayAnswer: "relay answer"
        case .punch: "punch"
        case .mailboxRequest: "mailbox request"
        case .mailboxAnswer: "mailbox answer"
        case .mailbox(.want(let agreement, let above)):
            "want slices of \(Hex.encode(agreement.bytes.prefix(3))) above \(above.map { "\($0)" } ?? "-")"
        case .mailbox(.keys(let keys)):
            "slices \(keys.first)+\(keys.keys.count) of \(Hex.encode(keys.agreement.bytes.prefix(3)))"
                + " present \(keys.present) left \(keys.left)"
        }
    }
}

extension [MessageID] { var summary: String { map { Hex.encode($0.bytes.prefix(3)) }.joined(separator: " ") } }

extension NodeAction {
    var summary: String {
        switch self {
        case .save(let client): "save \(client.shortName)"
        case .keep(_, let messages, let keeping):
            "keep"
                + messages.map { " \(Hex.encode($0.content.id.bytes.prefix(3))) \($0.content.displayText.prefix(20))" }
                .joined() + " \(keeping)"
        case .setState(_, let ids, let state): "state \(ids.summary) \(state)"
        case .forgetMemory: "forgetMemory"
        case .reschedule(_, let id, let at): "reschedule \(Hex.encode(id.bytes.prefix(3))) to \(at.milliseconds)"
        case .eraseSent(_, let id): "eraseSent \(Hex.encode(id.bytes.prefix(3)))"
        case .explode(let client, _, _): "explode \(client.shortName)"
        case .destroy: "destroy"
        case .saveTombstone: "saveTombstone"
        case .removeTombstone: "removeTombstone"
        case .armExplosion: "arm"
        case .register: "register"
        case .unregister: "unregister"
        case .dial(let client, let dial):
            "dial for \(client.shortName) to \(dial.remote.shortName) at \(dial.endpoints.map(\.description))"
        case .transmit(let link, let frame): "transmit on \(link.value) \(frame.summary)"
        case .transmitMessages(let link, _, let messages):
            "transmit on \(link.value)"
                + messages.map { " message \(Hex.encode($0.id.bytes.prefix(3))) age \($0.age)" }.joined()
        case .close(let link): "close \(link.value)"
        case .pauseReading(let link, let time): "pause \(link.value) for \(time)"
        case .knock: "knock"
        case .notify(let event): "notify \(event.kind.name)"
        case .notifyMessages(let events):
            "notify \(events.events.first { _ in true }?.kind.name ?? "") \(events.messages.summary)"
        case .wake(let client, let reason): "wake \(client.shortName) \(reason.rawValue)"
        case .sleep(let client): "sleep \(client.shortName)"
        case .setDelivery(_, let ids, let delivery): "delivery \(ids.summary) \(delivery.state)"
        case .keepChunk(_, let chunk, _, _): "keep chunk \(chunk.index)"
        case .forgetChunks: "forget chunks"
        case .verifyAttachment: "verify"
        case .serveChunks: "serve"
        case .transmitChunk(_, _, _, let index): "transmit chunk \(index)"
        case .forward(_, let frame): "forward \(frame.summary)"
        case .relayed: "relayed"
        case .endpointsMayHaveChanged: "endpoints"
        case .gatherCandidates: "candidates"
        case .dialPunching: "dial, punching"
        case .punch: "punch"
        case .mail: "mail"
        case .makeSlices: "slices"
        case .mailNotices: "mail notices"
        case .mailbox: "mailbox"
        }
    }
}

extension PublicKey { var shortName: String { Hex.encode(bytes[1..<4]) } }

extension ClientID { var shortName: String { Hex.encode(bytes.prefix(3)) } }

extension Event.Kind {
    var name: String {
        switch self {
        case .message: "message"
        case .messageState(_, let state, _): "messageState \(state)"
        case .messageExpired: "messageExpired"
        case .lifetimeProposed(_, let ours, _): ours ? "we proposed" : "peer proposed"
        case .lifetimeSigned: "signed"
        case .lifetimeAgreed: "agreed"
        case .lifetimeRejected: "rejected"
        case .lifetimeWithdrawn: "withdrawn"
        case .lifetimeExpired: "proposal expired"
        case .lifetimeReset: "reset"
        case .lifetimeSuspended: "suspended"
        case .memberJoined: "memberJoined"
        case .memberLeft: "memberLeft"
        case .joinRequested: "joinRequested"
        case .joined: "joined"
        case .joinFailed: "joinFailed"
        case .invited: "invited"
        case .exploded: "exploded"
        case .deletionReceipt: "deletionReceipt"
        case .explosionScheduled: "explosionScheduled"
        case .explosionReminder: "explosionReminder"
        case .peerOnline: "peerOnline"
        case .peerOffline: "peerOffline"
        case .conversationUpdated: "conversationUpdated"
        case .groupConflict: "groupConflict"
        case .memberRemoved: "memberRemoved"
        case .removed: "removed"
        case .profileChanged: "profileChanged"
        case .messagesMissed: "messagesMissed"
        case .twoCopies: "twoCopies"
        case .locked: "locked"
        case .unlocked: "unlocked"
        case .inboxAwake(let reason): "inboxAwake \(reason.rawValue)"
        case .inboxAsleep: "inboxAsleep"
        case .codeEnded(_, let outcome): "code \(outcome.rawValue)"
        case .messageDelivery(_, _, let state): "delivery \(state)"
        case .attachmentProgress(_, _, let count, let total): "progress \(count) of \(total)"
        }
    }
}
