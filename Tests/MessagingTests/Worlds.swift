import Cryptography
import Messaging
import TestSupport
import Testing

/// Two nodes whose links the test opens. The links of other worlds open by themselves.
typealias Pair = World

extension World {
    static func joined(_ count: Int) throws -> World {
        var all = World(count)
        all.create()
        for node in 1..<count { try all.join(node) }
        return all
    }

    mutating func join(_ node: Int) throws {
        ask(node, by: try invite(), as: "p\(node)")
        run()
    }

    mutating func say(_ text: String, from node: Int) throws -> MessageID {
        var id: MessageID?
        command(node) { id = try $0.send(text, &$1).content.id }
        return try #require(id)
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
    }

    /// Time passes for one node alone.
    mutating func advance(_ node: Int, by time: Milliseconds = 0) {
        now = now + time
        step(node) { core, turn in core.advance(&turn) }
    }

    /// A sealed notice of an explosion arrives without a link.
    mutating func notify(_ node: Int, _ sealed: [UInt8]) {
        let client = clients[node]
        step(node) { core, turn in core.receiveNotice(sealed, for: client, &turn) }
    }

    /// A sealed notice, by the creator unless it is forged.
    mutating func notice(at time: Timestamp, isImmediate: Bool = false, by node: Int = 0) -> [UInt8] {
        let genesis = machine(0)!.record.genesis
        return ExplodeNotice(genesis: genesis, expiresAt: time, isImmediate: isImmediate, key: keys[node], &random)
            .sealed(&random)
    }

    mutating func heal() { cut = [] }

    mutating func heal(for time: Milliseconds) {
        heal()
        run(for: time)
    }

    func names(_ node: Int) -> [String] { (machine(node)?.currentMembers ?? []).compactMap(\.profile).sorted() }
    func isOnline(_ one: Int, _ other: Int) -> Bool {
        machine(one)?.isOnline(keys[other].publicKey) == true && machine(other)?.isOnline(keys[one].publicKey) == true
    }
}

extension Pair {
    init(capacity: Int = Limits.inboxCapacity) {
        var manner = Manner()
        manner.isByHand = true
        self.init(2, capacity: capacity, manner)
    }

    static func joined(agreed terms: LifetimeTerms? = nil) throws -> World {
        var pair = World()
        try pair.createAndInvite()
        try pair.join()
        if let terms { pair.agree(on: terms) }
        return pair
    }

    var machines: [Conversation?] { [machine(0), machine(1)] }
    var invite: VerifiedInvite? { invites.last }
    func lifetimes() -> [Lifetime?] { machines.map { $0?.lifetime } }

    @discardableResult mutating func sleep(_ node: Int) -> CommandError? {
        let client = clients[node]
        var refusal: CommandError?
        step(node) { core, turn in do throws(CommandError) { try core.sleep(client, &turn) } catch { refusal = error } }
        return refusal
    }

    mutating func meet(dialer: Int) {
        open(dialer, to: 1 - dialer)
        run()
    }

    mutating func disconnect() {
        wire.removeAll()
        for link in 1..<nextLink {
            for node in 0..<2 { step(node) { core, turn in core.linkClosed(LinkID(link), &turn) } }
        }
    }

    mutating func createAndInvite(singleUse: Bool = true) throws {
        let client = clients[0]
        step(0) { core, turn in _ = try? core.createConversation(client, name: "talk", profile: "one", &turn) }
        try invite(singleUse: singleUse)
    }

    mutating func askToJoin(as profile: String? = nil) throws { ask(1, by: try #require(invite), as: profile) }

    mutating func join() throws {
        try askToJoin(as: "two")
        #expect(dials[1]?.remote == keys[0].publicKey)
        meet(dialer: 1)
    }
}
