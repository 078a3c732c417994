import Cryptography
import Messaging
import TestSupport

/// Several connected nodes in memory with their shells. Every action is performed at once, and every frame can cross as
/// bytes. A value type except for its nodes; ``restart(sessionGoesOn:)`` makes new ones.
struct FuzzAssembly {
    struct InFlight {
        var to: Int
        var link: LinkID
        /// `nil`: the other side has closed, and nothing follows.
        var frame: Frame?
    }

    /// A sealed body in a node's box.
    struct Slot {
        let order: MailOrder
        let from: Int
        let body: [UInt8]
    }

    var random = Randomness.seeded(1)
    var nodes: [NodeStateMachine] = []
    var clients: [ClientID] = []
    var keys: [IdentityKey] = []
    var now = Timestamp(milliseconds: 1_795_247_146_133)
    var wire: [InFlight] = []
    /// Open ends of each link.
    var links: [LinkID: [Int]] = [:]
    var routes: [Set<NodeAction.Route>] = []
    var archive: [[MessageID: Message]] = []
    var chunks: [[MessageID: Set<Int>]] = []
    var saved: [InboxRecord?] = []
    var tombstones: [[ConversationID: ExplosionRecord]] = []
    var gone: Set<Int> = []
    var invites: [VerifiedInvite] = []
    /// The mailbox of each node, if any, and the contents of the boxes.
    var places: [MailboxPlace?] = []
    var slots: [Slot] = []
    var nextLink: UInt64 = 1
    var verifies = true
    /// Whether frames are encoded and decoded on their way, which takes a quarter of the time.
    var checksFrames = true
    var failure: String?
    var count = 0
    /// Bound of the work, lower for quick inputs: no input may keep the nodes busy forever.
    var limit = FuzzAssembly.longLimit
    static let longLimit = 12_000
    var isOver: Bool { count >= limit }

    init(_ count: Int) {
        for node in 0..<count {
            let client = ClientID.generate(&random)
            clients.append(client)
            let key = FuzzKeys.all[node]
            keys.append(key)
            nodes.append(NodeStateMachine())
            routes.append([])
            archive.append([:])
            chunks.append([:])
            saved.append(nil)
            tombstones.append([:])
            step(node) { core, turn in core.addUnused(client, key: key, &turn) }
        }
    }

    static func joined(_ count: Int) throws -> FuzzAssembly {
        var all = try created(count)
        for node in 1..<count {
            try all.join(node)
            all.run(for: 5 * .second)
        }
        guard (0..<count).allSatisfy({ all.machine($0)?.currentMembers.count == count - 1 }) else {
            throw FuzzFailure("the members do not come together")
        }
        return all
    }

    /// A joiner whose request is on its way.
    static func halfJoined() throws -> FuzzAssembly {
        var all = try created(2)
        try all.join(1)
        all.dial()
        guard !all.links.isEmpty else { throw FuzzFailure("the joiner does not dial") }
        return all
    }

    /// Until a dial has opened a link; frames on it are lost.
    mutating func dial() {
        for _ in 0..<64 where links.isEmpty { tick(until: now + .second) }
        wire.removeAll()
    }

    static func contacts() -> FuzzAssembly {
        var all = FuzzAssembly(2)
        for node in 0..<2 {
            let client = all.clients[node]
            all.step(node) { core, turn in core.makeContact(client, &turn) }
        }
        all.open(0, to: 1)
        return all
    }

    private static func created(_ count: Int) throws -> FuzzAssembly {
        var all = FuzzAssembly(count)
        let client = all.clients[0]
        all.step(0) { core, turn in _ = try? core.createConversation(client, name: "talk", profile: "p0", &turn) }
        return all
    }

    mutating func join(_ node: Int) throws {
        var made: Invite?
        command(0) { (machine, turn) throws(CommandError) in
            let invite = try machine.invite(lifetime: .day, singleUse: true, &turn)
            made = invite
        }
        guard let made else { throw FuzzFailure("no invite") }
        let signed = SignedInvite(payload: InviteSlug.encodePayload(made), signedBy: keys[0].secret)
        let invite = try VerifiedInvite(signed, decoded: made)
        invites.append(invite)
        let client = clients[node]
        step(node) { core, turn in _ = try? core.join(client, invite: invite, profile: "p\(node)", &turn) }
    }

    func endpoint(_ node: Int) -> Endpoint { Endpoint(host: "n\(node)", port: 1) }
    func machine(_ node: Int) -> Conversation? { nodes[node].conversation(clients[node]) }

    private func turn(_ node: Int) -> Turn {
        let known = archive[node]
        let held = chunks[node]
        var turn = Turn(now: now, random: random, endpoints: [endpoint(node)])
        turn.around.known = { id, _ in known[id] != nil }
        turn.around.messages = { known[$0] }
        turn.around.chunks = { held[$0]?.contains($1) ?? false }
        turn.mailbox = places.isEmpty ? nil : places[node]
        return turn
    }

    mutating func step(_ node: Int, _ body: (inout NodeStateMachine, inout Turn) -> Void) {
        var turn = turn(node)
        body(&nodes[node], &turn)
        random = turn.random
        perform(turn.actions, node)
    }

    private mutating func perform(_ actions: [NodeAction], _ node: Int) {
        for action in actions {
            count += 1
            guard !isOver else { return }
            switch action {
            case .save(let client): if client == clients[node] { saved[node] = nodes[node].record(client) }
            case .keep(_, let messages, _): for message in messages { archive[node][message.content.id] = message }
            case .setState(_, let ids, let state): for id in ids { archive[node][id]?.state = state }
            case .setDelivery(_, let ids, let delivery): for id in ids { archive[node][id]?.merge([delivery]) }
            case .reschedule(_, let id, let expiresAt): archive[node][id]?.expiresAt = expiresAt
            case .forgetMemory: break
            case .explode(_, let record, _):
                tombstones[node][record.conversation] = record
                forget(node)
            case .destroy: forget(node)
            case .saveTombstone(let conversation):
                if let record = nodes[node].tombstone(conversation) { tombstones[node][conversation] = record }
            case .removeTombstone(let conversation): tombstones[node][conversation] = nil
            case .armExplosion(_, let record, _): tombstones[node][record.conversation] = record
            case .register(_, let route): routes[node].insert(route)
            case .unregister(_, let route): routes[node].remove(route)
            case .dial(_, let dial): connect(dial, from: node)
            case .transmit(let link, let frame): send(frame, on: link, from: node)
            case .transmitMessages(let link, _, let messages):
                let contents = messages.compactMap { one in
                    archive[node][one.id].map { AgedContent($0.content, age: one.age) }
                }
                if !contents.isEmpty { send(.contents(contents), on: link, from: node) }
            case .close(let link): close(link, by: node)
            case .knock, .notify, .notifyMessages: break
            case .wake(let client, let reason): wake(node, client, reason)
            case .sleep(let client):
                saved[node] = nodes[node].record(client)
                var turn = turn(node)
                nodes[node].fallAsleep(client, &turn)
                random = turn.random
            case .keepChunk(_, let chunk, _, _): chunks[node][chunk.message, default: []].insert(chunk.index)
            case .forgetChunks(_, let id): chunks[node][id] = nil
            case .verifyAttachment(let client, let id):
                step(node) { core, turn in
                    core.step(client, &turn) { $0.attachmentVerified(id, id.bytes[0] & 1 == 0, &$1) }
                }
            case .serveChunks(let link): step(node) { core, turn in core.chunksMayGo(on: link, &turn) }
            case .transmitChunk(let link, _, let id, let index):
                let chunk = AttachmentChunk(message: id, index: index, isDeflated: false, bytes: [1, 2, 3])
                send(.attachmentChunk(chunk), on: link, from: node)
            case .forward(let link, let frame): send(frame, on: link, from: node)
            case .mail(let client, let order): mail(order, client, from: node)
            case .makeSlices(_, let agreement, let above, let link): sendSlices(agreement, above, link, node)
            case .relayed, .endpointsMayHaveChanged, .gatherCandidates, .dialPunching, .punch, .pauseReading,
                .mailNotices, .mailbox:
                break
            }
        }
    }

    private mutating func forget(_ node: Int) {
        gone.insert(node)
        routes[node] = []
        archive[node] = [:]
        chunks[node] = [:]
        saved[node] = nil
    }

    mutating func wake(_ node: Int, _ client: ClientID, _ reason: WakeReason) {
        guard let record = saved[node], record.client == client else { return }
        let key = keys[node]
        step(node) { core, turn in core.wake(record, key: key, undelivered: [], reason, &turn) }
    }

    /// Every sent frame must be decodable.
    mutating func send(_ frame: Frame, on link: LinkID, from node: Int) {
        if checksFrames {
            let bytes = FrameCodec.encode(frame)
            if bytes.count > 65_535 { failure = failure ?? "a frame of \(bytes.count) bytes" }
            let read = try? FrameCodec.decode(bytes)
            if read != frame { failure = failure ?? "\(frame) does not come back" }
        }
        guard let ends = links[link], ends.contains(node), let other = ends.first(where: { $0 != node }) else { return }
        wire.append(InFlight(to: other, link: link, frame: frame))
    }

    private mutating func connect(_ dial: NodeAction.Dial, from node: Int) {
        let own = keys[node].publicKey
        let target = keys.indices.first { index in
            guard keys[index].publicKey == dial.remote, dial.endpoints.contains(endpoint(index)) else { return false }
            switch dial.route {
            case .member: return routes[index].contains(.member(own))
            case .invite(let id): return routes[index].contains(.invite(id))
            case .contact: return routes[index].contains(.contact)
            }
        }
        guard let target, !gone.contains(target) else {
            let client = clients[node]
            return step(node) { core, turn in
                core.dialFailed(client, to: dial.remote, isUnknownThere: target == nil, &turn)
            }
        }
        open(node, to: target)
    }

    mutating func open(_ node: Int, to target: Int) {
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

    /// Frames sent before still arrive.
    mutating func close(_ link: LinkID, by node: Int) {
        guard let ends = links[link], ends.contains(node) else { return }
        let others = ends.filter { $0 != node }
        links[link] = others.isEmpty ? nil : others
        wire.removeAll { $0.link == link && $0.to == node }
        for other in others { wire.append(InFlight(to: other, link: link, frame: nil)) }
        step(node) { core, turn in core.linkClosed(link, &turn) }
    }

    mutating func deliver(_ bytes: [UInt8], to node: Int, on link: LinkID) {
        guard let frame = try? FrameCodec.decode(bytes) else { return }
        receive(frame, node, on: link)
    }

    mutating func receive(_ frame: Frame, _ node: Int, on link: LinkID) {
        let verifies = verifies
        step(node) { core, turn in
            core.receive(frame, on: link, verify: { verifies ? InviteSlug.verify($0) : nil }, &turn)
        }
    }

    /// Runs one event due by `end`. Returns whether there was one.
    @discardableResult mutating func tick(until end: Timestamp) -> Bool {
        count += 1
        guard !isOver else { return false }
        if !wire.isEmpty {
            let next = wire.removeFirst()
            if let frame = next.frame { receive(frame, next.to, on: next.link) } else { close(next.link, by: next.to) }
            return true
        }
        let deadlines = nodes.map(\.nextDeadline)
        guard let due = deadlines.lazy.compactMap({ $0 }).min(), due <= end else { return false }
        now = max(now, due)
        for (node, deadline) in deadlines.enumerated() where deadline.map({ $0 <= now }) ?? false {
            step(node) { core, turn in core.advance(&turn) }
        }
        return true
    }

    mutating func run(for time: Milliseconds) {
        let end = now + time
        while tick(until: end) {}
        now = end
    }

    /// - Parameter sessionGoesOn: no session ends.
    mutating func restart(sessionGoesOn: Bool = false) {
        links.removeAll()
        wire.removeAll()
        for node in nodes.indices {
            guard let record = saved[node] else { continue }
            let bytes = StoredCodec.encode(record: record)
            guard let read = try? StoredCodec.decode(InboxRecord.self, bytes), read == record else {
                failure = failure ?? "a record of our own does not come back"
                continue
            }
            nodes[node] = NodeStateMachine()
            for var record in tombstones[node].values.sorted(by: { $0.conversation < $1.conversation }) {
                record.openInvites = []
                let tombstone = try? StoredCodec.decodeTombstone(StoredCodec.encode(tombstone: record, byteLimit: .max))
                if tombstone != record { failure = failure ?? "a tombstone of our own does not come back" }
                step(node) { core, turn in core.load(record, &turn) }
            }
            let key = keys[node]
            step(node) { core, turn in core.load(read, key: key, sessionGoesOn: sessionGoesOn, &turn) }
        }
    }

    @discardableResult mutating func command(
        _ node: Int, _ body: (Conversation, inout Turn) throws(CommandError) -> Void
    ) -> CommandError? {
        var refusal: CommandError?
        let client = clients[node]
        step(node) { core, turn in
            do throws(CommandError) { try core.command(client, &turn, body) } catch { refusal = error }
        }
        return refusal
    }

    func check() throws {
        if let failure { throw FuzzFailure(failure) }
        try expect(count < Self.longLimit, "one input makes the nodes do \(count) things and no end")
    }
}
