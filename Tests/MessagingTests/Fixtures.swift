import Cryptography
import Messaging
import TestSupport
import Testing

let noon = Timestamp(milliseconds: 1_750_000_000_000)

func makeKey(_ random: inout Randomness) -> IdentityKey {
    IdentityKey(try! SecretKey(SecretBytes(copying: random.bytes(32))))
}

/// A name that ends with a number.
func numbered<Name: FixedBytes>(_ number: Int) -> Name {
    let end = [UInt8(number >> 8 & 0xff), UInt8(number & 0xff)]
    return Name(unchecked: [UInt8](repeating: 0, count: Name.byteCount - 2) + end)
}

/// Sealed bytes open whole, but not cut at any length, with any byte changed, or with a byte more.
func expectOpensOnlyWhole(
    _ bytes: [UInt8], sourceLocation: SourceLocation = #_sourceLocation, _ opens: ([UInt8]) -> Bool
) {
    #expect(opens(bytes), sourceLocation: sourceLocation)
    for count in 0..<bytes.count {
        #expect(!opens(Array(bytes[..<count])), "cut at \(count)", sourceLocation: sourceLocation)
        var changed = bytes
        changed[count] ^= 1 << (count % 8)
        #expect(!opens(changed), "byte \(count) changed", sourceLocation: sourceLocation)
    }
    #expect(!opens(bytes + [0]), "a byte more", sourceLocation: sourceLocation)
}

extension RelayTerms {
    static let serving: RelayTerms = {
        var terms = RelayTerms()
        terms.isServing = true
        return terms
    }()
}

extension LifetimeTerms {
    static let oneHour = LifetimeTerms(.oneHour)
    static let sixHours = LifetimeTerms(.sixHours)
    static let oneDay = LifetimeTerms(.oneDay)
    static let sevenDays = LifetimeTerms(.sevenDays)
    static let thirtyDays = LifetimeTerms(.thirtyDays)
}

/// A command of a member's user.
typealias LifetimeCommand = (inout LifetimeStateMachine, Timestamp, IdentityKey, inout Randomness)
    throws(LifetimeStateMachine.Refusal) -> [LifetimeStateMachine.Action]

/// The two machines of one conversation and the messages in flight, in order.
struct Negotiation {
    enum Side: Int, CaseIterable {
        case one, two
        var other: Side { self == .one ? .two : .one }
    }

    typealias Action = LifetimeStateMachine.Action

    var random = Randomness.seeded(1)
    let conversation: ConversationID
    let keys: [IdentityKey]
    var machines: [LifetimeStateMachine]
    var policies: [LifetimePolicy] = [.ask, .ask]
    var wires: [[LifetimeMessage]] = [[], []]
    /// Actions of each machine, without the messages that it sent.
    var told: [[Action]] = [[], []]
    var now = noon
    var skew: Milliseconds = 0

    init(seed: UInt64 = 1) {
        random = .seeded(seed)
        conversation = ConversationID.random(&random)
        keys = [makeKey(&random), makeKey(&random)].sorted { $0.publicKey < $1.publicKey }
        machines = []
        for side in 0..<2 {
            machines.append(
                LifetimeStateMachine(
                    conversation: conversation, own: keys[side].publicKey, members: [keys[1 - side].publicKey],
                    membership: 2, record: LifetimeStateMachine.Record()))
        }
    }

    static func agreed(on lifetime: Lifetime, policies: [LifetimePolicy] = [.ask, .ask], seed: UInt64 = 1)
        -> Negotiation
    {
        var talk = Negotiation(seed: seed)
        talk.policies = policies
        talk.agree(on: lifetime)
        return talk
    }

    func time(_ side: Side) -> Timestamp { side == .one ? now : now + skew }
    func lifetime(_ side: Side) -> Lifetime { machines[side.rawValue].lifetime }
    func pending(_ side: Side) -> (proposal: LifetimeProposal, isOurs: Bool)? { machines[side.rawValue].pending }
    var agreements: [AgreementID?] { machines.map { $0.inForce?.id } }
    var isAgreed: Bool { agreements[0] == agreements[1] }

    mutating func perform(_ actions: [Action], by side: Side) {
        for action in actions {
            switch action {
            case .send(let message), .sendTo(_, let message): wires[side.other.rawValue].append(message)
            default: told[side.rawValue].append(action)
            }
        }
    }

    @discardableResult mutating func propose(_ lifetime: Lifetime, _ side: Side) -> LifetimeStateMachine.Refusal? {
        propose(terms: LifetimeTerms(lifetime), side)
    }

    @discardableResult mutating func propose(terms: LifetimeTerms, _ side: Side) -> LifetimeStateMachine.Refusal? {
        attempt(side) { machine, now, key, random throws(LifetimeStateMachine.Refusal) in
            try machine.propose(terms, now: now, key: key, random: &random)
        }
    }

    @discardableResult mutating func accept(_ side: Side) -> LifetimeStateMachine.Refusal? {
        attempt(side) { machine, now, key, random throws(LifetimeStateMachine.Refusal) in
            try machine.accept(now: now, key: key, random: &random)
        }
    }

    @discardableResult mutating func reject(_ side: Side) -> LifetimeStateMachine.Refusal? {
        attempt(side) { machine, _, _, _ throws(LifetimeStateMachine.Refusal) in try machine.reject() }
    }

    @discardableResult mutating func withdraw(_ side: Side) -> LifetimeStateMachine.Refusal? {
        attempt(side) { machine, _, _, _ throws(LifetimeStateMachine.Refusal) in try machine.withdraw() }
    }

    private mutating func attempt(_ side: Side, _ body: LifetimeCommand) -> LifetimeStateMachine.Refusal? {
        do throws(LifetimeStateMachine.Refusal) {
            perform(try body(&machines[side.rawValue], time(side), keys[side.rawValue], &random), by: side)
            return nil
        } catch { return error }
    }

    @discardableResult mutating func receive(_ message: LifetimeMessage, _ side: Side) -> [Action] {
        let actions = machines[side.rawValue].receive(
            message, from: keys[side.other.rawValue].publicKey, policy: policies[side.rawValue], now: time(side),
            key: keys[side.rawValue], random: &random)
        perform(actions, by: side)
        return actions
    }

    @discardableResult mutating func deliver(_ side: Side) -> [Action] {
        guard !wires[side.rawValue].isEmpty else { return [] }
        return receive(wires[side.rawValue].removeFirst(), side)
    }

    mutating func deliverAll() {
        while !wires[0].isEmpty || !wires[1].isEmpty {
            deliver(.one)
            deliver(.two)
        }
    }

    mutating func loseAll() { wires = [[], []] }

    /// A link opens and both sides exchange session starts.
    /// - Parameter heard: whether each side hears the other before the link breaks again.
    mutating func session(resets: [Bool] = [false, false], heard: [Bool] = [true, true]) {
        loseAll()
        let starts = (0..<2).map { machines[$0].sessionStart(reset: resets[$0], policy: policies[$0]) }
        for side in Side.allCases where heard[side.rawValue] {
            let index = side.rawValue
            let actions = machines[index].sessionEstablished(
                with: keys[1 - index].publicKey, sent: starts[index], received: starts[1 - index],
                policy: policies[index], now: time(side), key: keys[index], random: &random)
            perform(actions, by: side)
        }
        if heard != [true, true] { loseAll() }
    }

    /// A link opens over which the other side claims that this agreement is in force.
    @discardableResult mutating func hear(of head: Agreement, _ side: Side = .one) -> [Action] {
        let index = side.rawValue
        let ours = machines[index].sessionStart(reset: false, policy: .ask)
        let theirs = SessionStart(reset: false, inForce: head.id, head: head, renewable: nil)
        return machines[index].sessionEstablished(
            with: keys[1 - index].publicKey, sent: ours, received: theirs, policy: .ask, now: now, key: keys[index],
            random: &random)
    }

    mutating func renewIfDue(_ side: Side, at now: Timestamp) {
        let index = side.rawValue
        self.now = self.now + (now - time(side))
        let actions = machines[index].renewIfDue(policy: policies[index], now: now, key: keys[index], random: &random)
        perform(actions, by: side)
    }

    mutating func restart(_ side: Side) {
        let index = side.rawValue
        machines[index] = LifetimeStateMachine(
            conversation: conversation, own: keys[index].publicKey, members: [keys[1 - index].publicKey], membership: 2,
            record: machines[index].record)
    }

    mutating func agree(on lifetime: Lifetime, proposer: Side = .one) {
        agree(terms: LifetimeTerms(lifetime), proposer: proposer)
    }

    mutating func agree(terms: LifetimeTerms, proposer: Side = .one) {
        propose(terms: terms, proposer)
        deliverAll()
        accept(proposer.other)
        deliverAll()
    }

    /// A proposal of `side`, with any fields.
    mutating func proposal(
        by side: Side, _ lifetime: Lifetime = .oneDay, terms: LifetimeTerms? = nil, conversation: ConversationID? = nil,
        membership: UInt64 = 2, epoch: UInt64 = 1, at: Timestamp? = nil
    ) -> LifetimeProposal {
        LifetimeProposal(
            conversation: conversation ?? self.conversation, membership: membership, epoch: epoch, previous: .none,
            terms: terms ?? LifetimeTerms(lifetime), proposedAt: at ?? now, nonce: random.bytes(16),
            proposer: keys[side.rawValue].publicKey
        ).signed(by: keys[side.rawValue], &random)
    }

    mutating func acceptance(of proposal: LifetimeProposal, by side: Side) -> LifetimeAccept {
        LifetimeAccept(proposal, at: now, by: keys[side.rawValue], &random)
    }
}

func turn(
    _ random: Randomness, now: Timestamp = noon, isLocked: Bool = false,
    endpoints: [Endpoint] = [Endpoint(host: "a", port: 1)]
) -> Turn { Turn(now: now, random: random, endpoints: endpoints, isLocked: isLocked) }

extension NodeStateMachine {
    /// - Parameter refusal: the error of `body`.
    func command(
        _ client: ClientID, _ turn: inout Turn, refusal: inout CommandError?,
        _ body: (Conversation, inout Turn) throws -> Void
    ) {
        do throws(CommandError) {
            try command(client, &turn) { (machine, turn) throws(CommandError) in
                do { try body(machine, &turn) } catch { throw error as! CommandError }
            }
        } catch { refusal = error }
    }
}
