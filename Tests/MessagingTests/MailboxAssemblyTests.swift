import Cryptography
import Messaging
import TestSupport
import Testing

extension World {
    /// Members under these terms, each with its own mailbox.
    static func mailing(_ count: Int, _ terms: LifetimeTerms = .mailed) throws -> World {
        var all = try joined(count)
        try all.giveMailboxes()
        all.agree(on: terms)
        for node in 0..<count { #expect(all.machine(node)?.agreement?.terms == terms) }
        return all
    }

    /// Node 1 is away, and node 0 has ordered that its message is put into the box there.
    static func away(_ terms: LifetimeTerms = .mailed) throws -> (all: World, id: MessageID, order: MailOrder) {
        var all = try mailing(2, terms)
        all.isolate(1)
        let id = try all.say("hello", from: 0)
        let order = try all.order(of: 0)
        return (all, id, order)
    }

    mutating func giveMailboxes() throws { for node in nodes.indices { mailboxes[node] = try makeMailbox(of: node) } }

    mutating func makeMailbox(of node: Int) throws -> MailboxPlace {
        let card = ContactCard(
            key: makeKey(&random).publicKey, routingSecret: random.bytes(32),
            endpoints: [Endpoint(host: "hub\(node)", port: 7_440)])
        return try #require(MailboxPlace(card, own: keys[node]))
    }

    /// Runs the node's timers at this time.
    mutating func advance(_ node: Int, to time: Timestamp) -> [NodeAction] {
        now = max(now, time)
        var seen: [NodeAction] = []
        step(node) { core, turn in
            core.advance(&turn)
            seen = turn.actions
        }
        return seen
    }

    /// Whether the node comes to rest: no timer is due for ever.
    mutating func settles(_ node: Int) -> Bool {
        for _ in 0..<50 {
            guard let due = nodes[node].nextDeadline, due <= now else { return true }
            _ = advance(node, to: now)
        }
        return false
    }

    mutating func frame(_ frame: Frame, from one: Int, to other: Int) -> [NodeAction] {
        guard let link = machine(other)?.link(to: keys[one].publicKey) else { return [] }
        var seen: [NodeAction] = []
        step(other) { core, turn in
            core.receive(frame, on: link, verify: { _ in nil }, &turn)
            seen = turn.actions
        }
        return seen
    }

    mutating func secret(from one: Int, to other: Int, _ box: BoxID) throws -> SlotSecret {
        SlotSecret(
            sender: keys[one].publicKey, owner: keys[other].publicKey, box: box,
            conversation: try #require(machine(one) ?? machine(other)).conversation, own: keys[one])
    }

    mutating func order(of node: Int, within time: Milliseconds = 10 * .second) throws -> MailOrder {
        let before = orders[node]?.count ?? 0
        run(for: time)
        try #require((orders[node]?.count ?? 0) == before + 1)
        return try #require(orders[node]?.last)
    }

    /// The frames of an order, as its owner reads them.
    func frames(of order: MailOrder, from node: Int) -> [Frame] {
        let contents = order.messages.compactMap { one in
            archive[node][one.id].map { AgedContent($0.content, age: one.age) }
        }
        return order.frames + (contents.isEmpty ? [] : [.contents(contents)])
    }

    mutating func end(_ order: MailOrder, of node: Int, _ result: MailResult? = nil) {
        let all = MailResult(mailed: order.messages.map(\.id), tooLarge: [], slotCount: 1, isComplete: true)
        let client = clients[node]
        step(node) { core, turn in core.step(client, &turn) { $0.mailed(order, result ?? all, &$1) } }
    }

    /// The mailbox refuses, is out of reach, or ends with `too fast`.
    mutating func fail(_ order: MailOrder, of node: Int, mailed: [MessageID] = []) {
        end(order, of: node, MailResult(mailed: mailed, tooLarge: [], slotCount: 1, isComplete: false))
    }

    /// Whether the next order of the node comes after exactly `wait`.
    mutating func orders(_ node: Int, after wait: Milliseconds) -> Bool {
        let (start, count) = (now, orders[node]?.count ?? 0)
        _ = advance(node, to: start + wait - 1)
        guard orders[node]?.count ?? 0 == count else { return false }
        _ = advance(node, to: start + wait)
        return orders[node]?.count == count + 1
    }

    @discardableResult mutating func receive(
        _ frames: [Frame], number: UInt64? = 0, from one: Int, at owner: Int, age: SlotAge = SlotAge(dwell: 0)
    ) -> (actions: [NodeAction], isTaken: Bool) {
        let (client, member) = (clients[owner], keys[one].publicKey)
        var result: (actions: [NodeAction], isTaken: Bool) = ([], false)
        step(owner) { core, turn in
            result.isTaken = core.receiveMailed(frames, number: number, from: member, age: age, client: client, &turn)
            result.actions = turn.actions
        }
        return result
    }

    /// Seals, puts, takes and opens the order.
    @discardableResult mutating func deliver(_ order: MailOrder, from one: Int, to owner: Int, dwell: Milliseconds = 0)
        throws -> Bool
    {
        let box = order.address.box
        let hint = SlotSealing.Hint(agreement: order.agreement, slice: order.slice)
        let secret = try secret(from: one, to: owner, box)
        let sealed = SlotSealing.seal(
            [[1]], to: order.key, hint, number: order.number, secret, box: box, ephemeral: SecretKey.generate(),
            nonce: randomBytes(XChaChaPoly.nonceByteCount))
        let body = try #require(sealed)
        let theirs = SlotSecret(
            sender: keys[one].publicKey, owner: keys[owner].publicKey, box: box,
            conversation: try #require(machine(owner)).conversation, own: keys[owner])
        let found = try #require(SlotSealing.hint(of: body, number: order.number, theirs))
        #expect(machine(owner)?.knownTerms(of: found) == machine(owner)?.agreement?.terms)
        let key = try #require(slices[owner]?[found.slice])
        #expect(SlotSealing.open(body, with: key.secret, number: order.number, theirs, box: box) == [[1]])
        let age = SlotAge(dwell: dwell)
        return receive(frames(of: order, from: one), number: order.number, from: one, at: owner, age: age).isTaken
    }

    func box(_ node: Int) -> BoxID? { machine(node)?.record.own.mailbox?.box }

    func box(_ node: Int, as other: Int) -> BoxID? {
        machine(other)?.record.members.first { $0.key == keys[node].publicKey }?.mailbox?.box
    }

    func isMailable(_ node: Int, by other: Int) -> Bool {
        machine(other)?.isMailable(keys[node].publicKey, now: now) ?? false
    }

    func incoming(_ one: Int, at owner: Int) -> MailboxRecord.Incoming {
        machine(owner)?.record.mailbox.incoming[keys[one].publicKey] ?? MailboxRecord.Incoming()
    }

    func shown(_ id: MessageID, at node: Int) -> Int { events[node].count { $0 == .message(id) } }
    func state(_ id: MessageID, at node: Int) -> DeliveryState? { archive[node][id]?.state }
}

extension LifetimeTerms {
    static let mailed = LifetimeTerms(.oneDay, mailbox: .disk)
    static let inMemory = LifetimeTerms(.ephemeral, mailbox: .ram)
}
