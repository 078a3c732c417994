import Cryptography
import Messaging

/// A command of a member's user.
typealias LifetimeCommand = (inout LifetimeStateMachine, Timestamp, IdentityKey, inout Randomness)
    throws(LifetimeStateMachine.Refusal) -> [LifetimeStateMachine.Action]

/// The lifetime machines of some members, their links, and the messages in flight on each, in order.
struct Council {
    typealias Action = LifetimeStateMachine.Action

    enum Item {
        case start(SessionStart)
        case message(LifetimeMessage)
    }

    var random: Randomness
    let conversation: ConversationID
    var keys: [IdentityKey] = []
    var machines: [LifetimeStateMachine] = []
    var policies: [LifetimePolicy] = []
    /// Current members, and the version of the list that each one knows.
    var present: [Int] = []
    var membership: UInt64 = 1
    var known: [UInt64] = []
    var wires: [[Int]: [Item]] = [:]
    var sent: [[Int]: SessionStart] = [:]
    var established: Set<[Int]> = []
    var ended: Set<[Int]> = []
    var told: [[Action]] = []
    var now = noon
    /// How far the clocks of members are ahead.
    var skews: [Int: Milliseconds] = [:]

    init(_ count: Int, seed: UInt64 = 1) {
        random = .seeded(seed)
        conversation = ConversationID.random(&random)
        keys = (0..<count).map { _ in makeKey(&random) }
        present = Array(0..<count)
        for index in present {
            machines.append(machine(index, LifetimeStateMachine.Record()))
            policies.append(.ask)
            known.append(membership)
            told.append([])
        }
        for one in present { for two in present where one < two { link(one, two) } }
        deliverAll()
    }

    func time(_ index: Int) -> Timestamp { now + (skews[index] ?? 0) }

    func key(_ index: Int) -> PublicKey { keys[index].publicKey }
    func index(_ key: PublicKey) -> Int { keys.firstIndex { $0.publicKey == key }! }
    func others(_ index: Int) -> [PublicKey] { present.filter { $0 != index }.map(key) }

    private func machine(_ index: Int, _ record: LifetimeStateMachine.Record) -> LifetimeStateMachine {
        LifetimeStateMachine(
            conversation: conversation, own: key(index), members: others(index), membership: membership, record: record)
    }

    func isLinked(_ one: Int, _ two: Int) -> Bool { sent[[one, two]] != nil || established.contains([one, two]) }

    mutating func link(_ one: Int, _ two: Int) {
        guard !isLinked(one, two), !isLinked(two, one), known[one] == known[two] || knowEachOther(one, two) else {
            return
        }
        for (from, to) in [(one, two), (two, one)] {
            let start = machines[from].sessionStart(reset: ended.contains([from, to]), policy: policies[from])
            sent[[from, to]] = start
            wires[[from, to], default: []].append(.start(start))
        }
    }

    private func knowEachOther(_ one: Int, _ two: Int) -> Bool {
        machines[one].members.contains(key(two)) && machines[two].members.contains(key(one))
    }

    mutating func unlink(_ one: Int, _ two: Int) {
        for pair in [[one, two], [two, one]] {
            wires[pair] = nil
            sent[pair] = nil
            established.remove(pair)
        }
    }

    mutating func restart(_ index: Int) {
        for other in machines.indices where other != index {
            unlink(index, other)
            ended.insert([index, other])
        }
        let membership = known[index]
        let members = machines[index].members
        machines[index] = LifetimeStateMachine(
            conversation: conversation, own: key(index), members: members, membership: membership,
            record: machines[index].record)
    }

    mutating func perform(_ actions: [Action], by index: Int) {
        for action in actions {
            switch action {
            case .send(let message): for other in machines[index].members { put(message, index, self.index(other)) }
            case .sendTo(let member, let message): put(message, index, self.index(member))
            default: told[index].append(action)
            }
        }
    }

    private mutating func put(_ message: LifetimeMessage, _ from: Int, _ to: Int) {
        guard established.contains([from, to]) else { return }
        wires[[from, to], default: []].append(.message(message))
    }

    @discardableResult mutating func deliver(_ from: Int, _ to: Int) -> Bool {
        guard var wire = wires[[from, to]], !wire.isEmpty else { return false }
        let item = wire.removeFirst()
        wires[[from, to]] = wire.isEmpty ? nil : wire
        switch item {
        case .start(let start):
            guard let ours = sent.removeValue(forKey: [to, from]) else { return true }
            established.insert([to, from])
            ended.remove([to, from])
            if ours.reset { ended = ended.filter { $0[0] != to } }
            establish(to, with: from, sent: ours, start)
        case .message(let message):
            guard established.contains([to, from]) else { return true }
            receive(message, from: from, to)
        }
        return true
    }

    private mutating func establish(_ index: Int, with other: Int, sent: SessionStart, _ received: SessionStart) {
        let actions = machines[index].sessionEstablished(
            with: key(other), sent: sent, received: received, policy: policies[index], now: time(index),
            key: keys[index], random: &random)
        perform(actions, by: index)
    }

    @discardableResult mutating func receive(_ message: LifetimeMessage, from: Int, _ to: Int) -> [Action] {
        let actions = machines[to].receive(
            message, from: key(from), policy: policies[to], now: time(to), key: keys[to], random: &random)
        perform(actions, by: to)
        return actions
    }

    @discardableResult mutating func deliverAll() -> Bool {
        for _ in 0..<2_000 {
            var isQuiet = true
            for pair in wires.keys.sorted(by: { $0.lexicographicallyPrecedes($1) }) where deliver(pair[0], pair[1]) {
                isQuiet = false
            }
            if isQuiet { return true }
        }
        return false
    }

    /// All members learn the list, all links open, all messages arrive.
    @discardableResult mutating func heal() -> Bool {
        for index in present { learn(index) }
        for one in present { for two in present where one < two { link(one, two) } }
        return deliverAll()
    }

    mutating func learn(_ index: Int) {
        guard known[index] != membership, present.contains(index) else { return }
        known[index] = membership
        let members = others(index)
        let actions = machines[index].membersChanged(to: members, membership: membership, now: now)
        for other in machines.indices where other != index && !members.contains(key(other)) { unlink(index, other) }
        perform(actions, by: index)
    }

    /// The first member admits a new one. The others learn of it later.
    mutating func join() -> Int {
        let creator = present[0]
        let newcomer = keys.count
        keys.append(makeKey(&random))
        policies.append(.ask)
        told.append([])
        present.append(newcomer)
        membership += 1
        known.append(membership)
        learn(creator)
        machines.append(machine(newcomer, LifetimeStateMachine.Record()))
        if let standing = machines[creator].standing {
            let actions = machines[newcomer].joined(under: standing, now: now, key: keys[newcomer], random: &random)
            perform(actions, by: newcomer)
        }
        link(creator, newcomer)
        return newcomer
    }

    mutating func leave(_ index: Int) {
        present.removeAll { $0 == index }
        for other in machines.indices where other != index { unlink(index, other) }
        membership += 1
    }

    @discardableResult mutating func propose(_ terms: LifetimeTerms, _ index: Int) -> LifetimeStateMachine.Refusal? {
        attempt(index) { machine, now, key, random throws(LifetimeStateMachine.Refusal) in
            try machine.propose(terms, now: now, key: key, random: &random)
        }
    }

    @discardableResult mutating func accept(_ index: Int) -> LifetimeStateMachine.Refusal? {
        attempt(index) { machine, now, key, random throws(LifetimeStateMachine.Refusal) in
            try machine.accept(now: now, key: key, random: &random)
        }
    }

    @discardableResult mutating func reject(_ index: Int) -> LifetimeStateMachine.Refusal? {
        attempt(index) { machine, _, _, _ throws(LifetimeStateMachine.Refusal) in try machine.reject() }
    }

    @discardableResult mutating func withdraw(_ index: Int) -> LifetimeStateMachine.Refusal? {
        attempt(index) { machine, _, _, _ throws(LifetimeStateMachine.Refusal) in try machine.withdraw() }
    }

    private mutating func attempt(_ index: Int, _ body: LifetimeCommand) -> LifetimeStateMachine.Refusal? {
        do throws(LifetimeStateMachine.Refusal) {
            perform(try body(&machines[index], time(index), keys[index], &random), by: index)
            return nil
        } catch { return error }
    }

    mutating func agree(on terms: LifetimeTerms, proposer: Int = 0) {
        now = now + Limits.proposalRate.interval
        propose(terms, proposer)
        deliverAll()
        for index in present where index != proposer { accept(index) }
        deliverAll()
    }

    /// The agreement in force at each member; one value when all agree.
    var inForce: Set<AgreementID?> { Set(present.map { machines[$0].inForce?.id }) }
    var isAgreed: Bool { inForce.count == 1 }
    var terms: LifetimeTerms { machines[present[0]].terms }

    /// Members whose agreement in force lacks the signature of a member that they know.
    var unsigned: [Int] {
        present.filter { index in
            guard let agreement = machines[index].inForce else { return false }
            return !agreement.isValid(conversation: conversation)
                || !agreement.covers(machines[index].members + [key(index)])
        }
    }
}

extension Council {
    static func agreed(_ count: Int = 2, on terms: LifetimeTerms, policies: [LifetimePolicy]? = nil, seed: UInt64 = 1)
        -> Council
    {
        var council = Council(count, seed: seed)
        council.policies = policies ?? council.policies
        council.agree(on: terms)
        return council
    }

    /// The first member has proposed.
    static func proposed(_ count: Int, _ terms: LifetimeTerms = .oneDay) -> Council {
        var council = Council(count)
        council.propose(terms, 0)
        council.deliverAll()
        return council
    }
}

/// Two members.
extension Council {
    var agreements: [AgreementID?] { machines.map { $0.inForce?.id } }
    func lifetime(_ index: Int) -> Lifetime { machines[index].lifetime }
    func pending(_ index: Int) -> (proposal: LifetimeProposal, isOurs: Bool)? { machines[index].pending }

    /// Messages on their way to a member.
    func arriving(_ index: Int) -> [LifetimeMessage] {
        (wires[[1 - index, index]] ?? []).compactMap { if case .message(let message) = $0 { message } else { nil } }
    }

    mutating func deliver(_ index: Int) { deliver(1 - index, index) }
    mutating func loseAll() { wires = [:] }

    @discardableResult mutating func receive(_ message: LifetimeMessage, _ index: Int) -> [Action] {
        receive(message, from: 1 - index, index)
    }

    /// A link opens and both sides exchange session starts.
    /// - Parameter heard: whether each side hears the other before the link breaks again.
    mutating func session(resets: [Bool] = [false, false], heard: [Bool] = [true, true]) {
        loseAll()
        established = [[0, 1], [1, 0]]
        let starts = (0..<2).map { machines[$0].sessionStart(reset: resets[$0], policy: policies[$0]) }
        for index in 0..<2 where heard[index] {
            establish(index, with: 1 - index, sent: starts[index], starts[1 - index])
        }
        if heard != [true, true] { loseAll() }
    }

    /// A link opens over which the other side claims that this agreement is in force.
    @discardableResult mutating func hear(of head: Agreement, _ index: Int = 0) -> [Action] {
        let ours = machines[index].sessionStart(reset: false, policy: .ask)
        let theirs = SessionStart(reset: false, inForce: head.id, head: head, renewable: nil)
        return machines[index].sessionEstablished(
            with: key(1 - index), sent: ours, received: theirs, policy: .ask, now: now, key: keys[index],
            random: &random)
    }

    mutating func renewIfDue(_ index: Int, at now: Timestamp) {
        self.now = now
        perform(
            machines[index].renewIfDue(policy: policies[index], now: now, key: keys[index], random: &random), by: index)
    }

    /// A proposal of a member, with any fields.
    mutating func proposal(
        by index: Int, _ terms: LifetimeTerms = .oneDay, in room: ConversationID? = nil, epoch: UInt64 = 1,
        membership: UInt64? = nil, at: Timestamp? = nil
    ) -> LifetimeProposal {
        LifetimeProposal(
            conversation: room ?? conversation, membership: membership ?? self.membership, epoch: epoch,
            previous: .none, terms: terms, proposedAt: at ?? now, nonce: random.bytes(16), proposer: key(index)
        ).signed(by: keys[index], &random)
    }

    mutating func acceptance(of proposal: LifetimeProposal, by index: Int) -> LifetimeAccept {
        LifetimeAccept(proposal, at: now, by: keys[index], &random)
    }
}
