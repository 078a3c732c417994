import Cryptography
import Messaging

/// Several nodes in memory with their shells. Actions are performed at once, frames keep the order of their link, and a
/// dial succeeds where the token is known. A value type except for its nodes.
package struct World {
    package struct Frames {
        package var to: Int
        package var link: LinkID
        /// `nil`: the other side has closed, and nothing follows.
        package var frame: Frame?
    }

    /// A sealed body in a node's box.
    package struct Slot {
        package let order: MailOrder
        package let from: Int
        package let body: [UInt8]

        package init(order: MailOrder, from: Int, body: [UInt8]) {
            (self.order, self.from, self.body) = (order, from, body)
        }
    }

    @dynamicMemberLookup package struct Kept {
        package var message: Message
        package var keeping: NodeAction.Keeping

        package subscript<Value>(dynamicMember path: WritableKeyPath<Message, Value>) -> Value {
            get { message[keyPath: path] }
            set { message[keyPath: path] = newValue }
        }

        package subscript<Value>(dynamicMember path: KeyPath<Message, Value>) -> Value { message[keyPath: path] }
    }

    /// How links come about and end, and what the tests of a decoder replace.
    package struct Manner: Sendable {
        /// Dials are noted only, and the test opens every link. The world has two nodes.
        package var isByHand = false
        /// The last frame of a link that is closed.
        package var farewell: Frame? = .closing(asleep: false)
        /// Whether frames are encoded and decoded on their way, which takes a quarter of the time.
        package var checksFrames = false
        /// Whether an attachment is what it says; by its hash if `nil`.
        package var verdict: (@Sendable (MessageID) -> Bool)?
        package var mail: (@Sendable (inout World, MailOrder, ClientID, Int) -> Void)?
        /// How many slice keys a message has at most. Each costs a curve operation.
        package var sliceCount = Int.max

        package init() {}
    }

    package var manner: Manner
    package var random = Randomness.seeded(1)
    package var nodes: [NodeStateMachine] = []
    package var clients: [ClientID] = []
    package var keys: [IdentityKey] = []
    package var inboxKeys: [ClientID: IdentityKey] = [:]
    package var now: Timestamp
    package var sessionGrace = Limits.sessionGrace
    package var endpoints: [String] = []
    package var cut: Set<Set<Int>> = []
    package var wire: [Frames] = []
    package var sent: [Frame] = []
    /// Open ends of each link.
    package var links: [LinkID: [Int]] = [:]
    package var routes: [Set<NodeAction.Route>] = []
    package var archive: [[MessageID: Kept]] = []
    package var chunks: [[MessageID: [Int: AttachmentChunk]]] = []
    package var records: [ClientID: InboxRecord] = [:]
    package var events: [[Event.Kind]] = []
    package var tombstones: [[ConversationID: ExplosionRecord]] = []
    package var exploded: [ExplosionRecord?] = []
    package var armed: [ExplosionRecord?] = []
    package var removed: [Int: ConversationID] = [:]
    package var fanOut: [[Member]] = []
    package var destroyed: Set<Int> = []
    package var knocks: [[NodeAction.Knock]] = []
    package var dials: [NodeAction.Dial?] = []
    /// Links that a node has closed.
    package var closed: Set<LinkID> = []
    package var invites: [VerifiedInvite] = []
    package var nextLink: UInt64 = 1
    /// How often each node was told to stop reading a link.
    package var pauses: [Int: Int] = [:]
    package var isLocked: [Bool] = []
    /// Each node's file limit, whether it has room for files, and whether it sends read receipts.
    package var fileLimit: [Int64] = []
    package var hasRoom: [Bool] = []
    package var readReceipts: [Bool] = []
    package var mailboxes: [Int: MailboxPlace] = [:]
    package var slices: [Int: [UInt32: IdentityKey]] = [:]
    package var withoutSlices: Set<Int> = []
    package var orders: [Int: [MailOrder]] = [:]
    package var notices: [Int: [MailNotice]] = [:]
    /// Sealed bodies in boxes.
    package var slots: [Slot] = []
    /// The first frame that is too long or does not come back.
    package var failure: String?
    package var count = 0
    /// Bound of the work, lower for quick inputs: no input may keep the nodes busy forever.
    package var limit = Int.max
    package var isOver: Bool { count >= limit }

    /// - Parameter keys: of the first inboxes; new ones if `nil`.
    package init(
        _ count: Int, capacity: Int = Limits.inboxCapacity, keys: [IdentityKey]? = nil,
        now: Timestamp = Timestamp(milliseconds: 1_750_000_000_000), _ manner: Manner = Manner()
    ) {
        (self.manner, self.now) = (manner, now)
        nodes = (0..<count).map { _ in NodeStateMachine(capacity: capacity) }
        endpoints = (0..<count).map { "n\($0)" }
        routes = Array(repeating: [], count: count)
        (archive, chunks) = (Array(repeating: [:], count: count), Array(repeating: [:], count: count))
        (events, fanOut) = (Array(repeating: [], count: count), Array(repeating: [], count: count))
        (tombstones, knocks) = (Array(repeating: [:], count: count), Array(repeating: [], count: count))
        (exploded, armed) = (Array(repeating: nil, count: count), Array(repeating: nil, count: count))
        dials = Array(repeating: nil, count: count)
        (isLocked, hasRoom) = (Array(repeating: false, count: count), Array(repeating: true, count: count))
        (readReceipts, fileLimit) = (isLocked, Array(repeating: Limits.attachmentByteCount, count: count))
        takeFreshInboxes(keys)
    }

    /// Switches to new inboxes; conversations of the earlier ones go on.
    package mutating func takeFreshInboxes(_ given: [IdentityKey]? = nil) {
        (clients, keys) = ([], [])
        for node in nodes.indices {
            let client = ClientID.generate(&random)
            let key = given?[node] ?? Self.freshKey(&random)
            clients.append(client)
            keys.append(key)
            inboxKeys[client] = key
            step(node) { core, turn in core.addUnused(client, key: key, &turn) }
        }
    }

    private static func freshKey(_ random: inout Randomness) -> IdentityKey {
        IdentityKey(try! SecretKey(SecretBytes(copying: random.bytes(32))))
    }

    package mutating func create() {
        let client = clients[0]
        step(0) { core, turn in _ = try? core.createConversation(client, name: "talk", profile: "p0", &turn) }
    }

    /// - Returns: a new invite of a node.
    @discardableResult package mutating func invite(by node: Int = 0, singleUse: Bool = true) throws -> VerifiedInvite {
        var made: Invite?
        let refusal = command(node) { made = try $0.invite(lifetime: .day, singleUse: singleUse, &$1) }
        if let refusal { throw refusal }
        let signed = SignedInvite(payload: InviteSlug.encodePayload(made!), signedBy: keys[node].secret)
        invites.append(try VerifiedInvite(signed, decoded: made!))
        return invites[invites.count - 1]
    }

    package mutating func ask(_ node: Int, by invite: VerifiedInvite, as profile: String?) {
        let client = clients[node]
        step(node) { core, turn in _ = try? core.join(client, invite: invite, profile: profile, &turn) }
    }

    package func machine(_ node: Int) -> Conversation? { nodes[node].conversation(clients[node]) }
    package var saved: [InboxRecord?] { clients.map { records[$0] } }

    private func turn(_ node: Int) -> Turn {
        let (known, present, isLocked) = (archive[node], chunks[node], isLocked[node])
        var turn = Turn(
            now: now, random: random, endpoints: [Endpoint(host: endpoints[node], port: 1)], isLocked: isLocked)
        turn.sessionGrace = sessionGrace
        turn.around.known = { id, _ in known[id] != nil }
        turn.around.messages = { id in
            if isLocked, case .disk? = known[id]?.keeping { return nil }
            return known[id]?.message
        }
        turn.around.stored = { if case .disk? = known[$0]?.keeping { true } else { false } }
        turn.around.awaiting = { if case .untilUnlocked? = known[$0]?.keeping { true } else { false } }
        turn.around.chunks = { present[$0]?[$1] != nil }
        turn.around.hasRoomForFiles = hasRoom[node]
        turn.around.sleeperKeys = isLocked ? [:] : inboxKeys
        turn.attachmentByteCount = fileLimit[node]
        turn.sendsReadReceipts = readReceipts[node]
        turn.mailbox = mailboxes[node]
        return turn
    }

    package mutating func step(_ node: Int, _ body: (inout NodeStateMachine, inout Turn) -> Void) {
        var turn = turn(node)
        body(&nodes[node], &turn)
        random = turn.random
        perform(turn.actions, node)
    }

    @discardableResult package mutating func command(_ node: Int, _ body: (Conversation, inout Turn) throws -> Void)
        -> CommandError?
    {
        var refusal: CommandError?
        let client = clients[node]
        step(node) { core, turn in
            do throws(CommandError) {
                try core.command(client, &turn) { (machine, turn) throws(CommandError) in
                    do { try body(machine, &turn) } catch { throw error as! CommandError }
                }
            } catch { refusal = error }
        }
        return refusal
    }

    private mutating func perform(_ actions: [NodeAction], _ node: Int) {
        for action in actions {
            count += 1
            guard !isOver else { return }
            switch action {
            case .save(let client): records[client] = nodes[node].record(client) ?? records[client]
            case .keep(_, let messages, let keeping):
                for message in messages { archive[node][message.content.id] = Kept(message: message, keeping: keeping) }
            case .setState(_, let ids, let state): for id in ids { archive[node][id]?.message.state = state }
            case .setDelivery(_, let ids, let delivery):
                for id in ids { archive[node][id]?.message.deliveries.merge([delivery]) }
            case .reschedule(_, let id, let expiresAt):
                archive[node][id]?.message.expiresAt = expiresAt
                archive[node][id]?.message.onReading = nil
            case .forgetMemory: archive[node] = archive[node].filter { $0.value.keeping != .memory }
            case .explode(let client, let record, let told):
                (exploded[node], fanOut[node]) = (record, told)
                tombstones[node][record.conversation] = record
                forget(client, node)
            case .destroy(let client):
                destroyed.insert(node)
                forget(client, node)
            case .saveTombstone(let conversation):
                if let record = nodes[node].tombstone(conversation) { tombstones[node][conversation] = record }
            case .removeTombstone(let conversation):
                removed[node] = conversation
                tombstones[node][conversation] = nil
            case .armExplosion(_, let record, _):
                armed[node] = record
                tombstones[node][record.conversation] = record
            case .register(_, let route): routes[node].insert(route)
            case .unregister(_, let route): routes[node].remove(route)
            case .dial(_, let dial):
                dials[node] = dial
                if !manner.isByHand { connect(dial, from: node) }
            case .transmit(let link, let frame), .forward(let link, let frame): send(frame, on: link, from: node)
            case .transmitMessages(let link, _, let messages):
                let contents = messages.compactMap { one in
                    archive[node][one.id].map { AgedContent($0.message.content, age: one.age) }
                }
                if !contents.isEmpty { send(.contents(contents), on: link, from: node) }
            case .close(let link):
                closed.insert(link)
                if !manner.isByHand { close(link, by: node) }
            case .notify(let event): events[node].append(event.kind)
            case .notifyMessages(let happened): events[node] += happened.events.map(\.kind)
            case .wake(let client, let reason): wake(node, reason, client)
            case .sleep(let client):
                records[client] = nodes[node].record(client)
                var turn = turn(node)
                nodes[node].fallAsleep(client, &turn)
                random = turn.random
            case .keepChunk(_, let chunk, _, _): chunks[node][chunk.message, default: [:]][chunk.index] = chunk
            case .forgetChunks(_, let id): chunks[node][id] = nil
            case .verifyAttachment(let client, let id): verify(id, client, node)
            case .serveChunks(let link):
                var isServed = false
                repeat {
                    step(node) { core, turn in
                        core.chunksMayGo(on: link, &turn)
                        isServed = !turn.actions.isEmpty
                    }
                } while isServed && !isOver
            case .transmitChunk(let link, _, let id, let index):
                if let chunk = chunks[node][id]?[index] { send(.attachmentChunk(chunk), on: link, from: node) }
            case .knock(let knock): knocks[node].append(knock)
            case .pauseReading: pauses[node, default: 0] += 1
            case .mail(let client, let order):
                orders[node, default: []].append(order)
                manner.mail?(&self, order, client, node)
            case .mailNotices(_, let notices): self.notices[node] = notices
            case .makeSlices(_, let agreement, let above, let link): makeSlices(agreement, above: above, on: link, node)
            case .relayed, .endpointsMayHaveChanged, .gatherCandidates, .dialPunching, .punch, .mailbox: break
            }
        }
    }

    private mutating func forget(_ client: ClientID, _ node: Int) {
        (routes[node], archive[node], chunks[node]) = ([], [:], [:])
        records[client] = nil
    }

    package mutating func wake(_ node: Int, _ reason: WakeReason, _ client: ClientID? = nil) {
        let client = client ?? clients[node]
        guard let record = records[client], let key = inboxKeys[client] else { return }
        var undelivered: [Message] = []
        for message in archive[node].values.map(\.message) where message.sender == nil && message.content.type == .text
        { if message.state == .queued || message.state == .sent { undelivered.append(message) } }
        undelivered.sort { $0.content.displayText < $1.content.displayText }
        step(node) { core, turn in core.wake(record, key: key, undelivered: undelivered, reason, &turn) }
    }

    private mutating func verify(_ id: MessageID, _ client: ClientID, _ node: Int) {
        var isRight = manner.verdict?(id)
        if isRight == nil {
            guard let attachment = archive[node][id]?.message.content.attachment else { return }
            let bytes = (0..<attachment.chunkCount).flatMap { index in
                chunks[node][id]?[index]?.plain(byteCount: attachment.chunkByteCount(index)) ?? []
            }
            isRight = BLAKE2b.hash(bytes) == attachment.hash
        }
        step(node) { core, turn in core.step(client, &turn) { $0.attachmentVerified(id, isRight == true, &$1) } }
    }

    package mutating func send(_ frame: Frame, on link: LinkID, from node: Int) {
        if manner.checksFrames {
            let bytes = FrameCodec.encode(frame)
            if bytes.count > 65_535 { failure = failure ?? "a frame of \(bytes.count) bytes" }
            if (try? FrameCodec.decode(bytes)) != frame { failure = failure ?? "\(frame) does not come back" }
        }
        let other: Int
        if manner.isByHand {
            other = 1 - node
        } else {
            guard let ends = links[link], ends.contains(node), let end = ends.first(where: { $0 != node }) else {
                return
            }
            other = end
        }
        guard !cut.contains([node, other]) else { return }
        wire.append(Frames(to: other, link: link, frame: frame))
        sent.append(frame)
    }

    /// Slice keys from the present slice, or from the one after `above`.
    private mutating func makeSlices(_ agreement: AgreementID, above: UInt32?, on link: LinkID, _ node: Int) {
        guard let terms = machine(node)?.agreement?.terms, !withoutSlices.contains(node) else { return }
        let schedule = SliceSchedule(terms)
        let (present, last) = (schedule.slice(at: now), schedule.last(at: now))
        let first = max(present, above.map { min($0, last) + 1 } ?? 0)
        var keys: [PublicKey] = []
        for slice in (first..<max(first, last + 1)).prefix(manner.sliceCount) {
            let key = slices[node]?[slice] ?? Self.freshKey(&random)
            slices[node, default: [:]][slice] = key
            keys.append(key.publicKey)
        }
        let left = schedule.end(of: present) - now
        let message = SliceKeys(agreement: agreement, first: first, present: present, left: left, keys: keys)
        send(.mailbox(.keys(message)), on: link, from: node)
    }

    private mutating func connect(_ dial: NodeAction.Dial, from node: Int) {
        let own = keys[node].publicKey
        let target = keys.indices.first { index in
            guard keys[index].publicKey == dial.remote, dial.endpoints.contains(where: { $0.host == endpoints[index] })
            else { return false }
            switch dial.route {
            case .member: return routes[index].contains(.member(own))
            case .invite(let id): return routes[index].contains(.invite(id))
            case .contact: return routes[index].contains(.contact)
            }
        }
        guard let target, !cut.contains([node, target]) else {
            let client = clients[node]
            return step(node) { core, turn in
                core.dialFailed(client, to: dial.remote, isUnknownThere: target == nil, &turn)
            }
        }
        open(node, to: target)
    }

    package mutating func open(_ node: Int, to target: Int) {
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
    package mutating func close(_ link: LinkID, by node: Int) {
        guard let ends = links[link], ends.contains(node) else { return }
        let others = ends.filter { $0 != node }
        links[link] = others.isEmpty ? nil : others
        wire.removeAll { $0.link == link && $0.to == node }
        for other in others { wire.append(Frames(to: other, link: link, frame: manner.farewell)) }
        step(node) { core, turn in core.linkClosed(link, &turn) }
    }

    /// Breaks all links of a node and blocks new ones.
    package mutating func isolate(_ node: Int, from others: [Int]? = nil) {
        for other in others ?? Array(nodes.indices) where other != node { cut.insert([node, other]) }
        for (link, ends) in links.sorted(by: { $0.key < $1.key }) where cut.contains(Set(ends)) {
            links[link] = nil
            for end in ends { step(end) { core, turn in core.linkClosed(link, &turn) } }
        }
    }

    package mutating func receive(_ frame: Frame, _ node: Int, on link: LinkID) {
        step(node) { core, turn in core.receive(frame, on: link, verify: { InviteSlug.verify($0) }, &turn) }
    }

    package mutating func deliverOne() {
        let next = wire.removeFirst()
        if let frame = next.frame { receive(frame, next.to, on: next.link) } else { close(next.link, by: next.to) }
    }

    /// Runs one event due by `end`. Returns whether there was one.
    @discardableResult package mutating func tick(until end: Timestamp) -> Bool {
        count += 1
        guard !isOver else { return false }
        if !wire.isEmpty {
            deliverOne()
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

    package mutating func run(for time: Milliseconds) {
        let end = now + time
        while tick(until: end) {}
        now = end
    }

    /// All frames arrive; where no test opens links by hand, five seconds pass.
    package mutating func run() {
        guard manner.isByHand else { return run(for: 5_000) }
        while !wire.isEmpty { deliverOne() }
    }
}
