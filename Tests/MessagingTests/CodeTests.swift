import Cryptography
import TestSupport
import Testing

@testable import Messaging

@Suite("The text of a spoken code") struct SpokenCodeTests {
    @Test func `the word list is that of BIP 39, in order, and the first four letters of a word are unique`() {
        #expect(CodeWords.all.count == CodeWords.count)
        #expect(Hex.encode(SHA256.hash(CodeWords.all.flatMap { Array("\($0)\n".utf8) })) == CodeWords.fileHash)
        #expect(CodeWords.all == CodeWords.all.sorted())
        #expect(Set(CodeWords.all.map { $0.prefix(4) }).count == CodeWords.count)
        #expect(CodeWords.all.allSatisfy { CodeWords.contains($0) })
        for word in ["", "a", "abando", "abandonn", "zooo", "Harvest", "lantern"] { #expect(!CodeWords.contains(word)) }
    }

    @Test func `a word is found by its beginning or by a similar spelling`() {
        #expect(Array(CodeWords.words(beginningWith: "harv")) == ["harvest"])
        #expect(CodeWords.words(beginningWith: "").count == CodeWords.count)
        #expect(CodeWords.words(beginningWith: "zz").isEmpty)
        for (typed, meant) in [
            ("harvset", "harvest"), ("havest", "harvest"), ("harrvest", "harvest"), ("hamnmer", "hammer"),
            ("lmap", "lamp"), ("", "act"), ("zebraa", "zebra"),
        ] { #expect(CodeWords.nearest(to: typed) == meant) }
        #expect(CodeWords.contains(CodeWords.nearest(to: String(repeating: "q", count: 5_000))))
        for (typed, meant) in [("sned", "send"), ("häuss", "häuser"), ("lst", "list"), ("xy", nil), ("frob", nil)] {
            #expect(["send", "list", "häuser"].nearest(to: typed) == meant, "\(typed)")
        }
    }

    @Test func `a spoken code is read in any case, with hyphens or spaces`() throws {
        for text in ["7-harvest-lamp", "7 Harvest LAMP", " 7-harvest  lamp\n", "07-harvest-lamp"] {
            let code = try SpokenCode(text)
            #expect(code == SpokenCode(slot: 7, words: ["harvest", "lamp"]) && code.description == "7-harvest-lamp")
        }
    }

    @Test func `an invalid code is refused, with the nearest word`() {
        func failure(_ text: String) -> SpokenCode.Failure? {
            do throws(SpokenCode.Failure) { _ = try SpokenCode(text) } catch { return error }
            return nil
        }
        #expect(failure("7-harvset-lamp") == .unknownWord("harvset", nearest: "harvest"))
        #expect(failure("7-harvest-lampp") == .unknownWord("lampp", nearest: "lamp"))
        for text in ["", "7", "7-harvest", "7-harvest-lamp-lamp", "7-harvest-l4mp", "harvest-lamp", "7-härvest-lamp"] {
            #expect(failure(text) == .malformed, "\(text)")
        }
        for text in [
            "0-harvest-lamp", "100-harvest-lamp", "99999999999-harvest-lamp", "x-harvest-lamp", "+7-harvest-lamp",
        ] {
            let isOfSlot = if case .slot? = failure(text) { true } else { false }
            #expect(isOfSlot, "\(text)")
        }
        #expect(failure("7-harvest-lamp" + String(repeating: " ", count: 100)) == .malformed)
    }

    @Test func `an invite or the id of an invitation is not read as a code`() {
        for text in ["mayfly:join/H1a-b_c", "7f3a", "7", "", "1-2-3", "7-a1-b", String(repeating: "7-a", count: 100)] {
            #expect(!SpokenCode.isMeant(by: text), "\(text)")
        }
        for text in ["7-harvset", "7 harvest", "7-a-b-c", "0-a-b"] { #expect(SpokenCode.isMeant(by: text), "\(text)") }
    }

    @Test func `words are drawn from the whole list`() {
        var random = Randomness.seeded(1)
        var first: Set<String> = []
        for _ in 0..<20_000 { first.insert(SpokenCode.random(slot: 7, &random).words[0]) }
        #expect(first.count == CodeWords.count)
    }
}

private typealias Action = CodeIssuerStateMachine.Action

private struct Exchange {
    var random = Randomness.seeded(3)
    let code = SpokenCode(slot: 7, words: ["harvest", "lamp"])
    let attempt = CodeAttempt(1)
    let other = CodeAttempt(2)
    let text = Array("mayfly:join/abc".utf8)

    func creator() -> CodeIssuerStateMachine { CodeIssuerStateMachine(code) }

    mutating func joiner(_ words: [String] = ["harvest", "lamp"], slot: UInt16 = 7) throws -> CodeJoinerStateMachine {
        try #require(CodeJoinerStateMachine(SpokenCode(slot: slot, words: words), &random))
    }

    /// - Parameter changed: another share than the joiner's own.
    mutating func share(
        of joiner: CodeJoinerStateMachine, _ changed: [UInt8]? = nil, to creator: inout CodeIssuerStateMachine,
        from attempt: CodeAttempt? = nil
    ) -> [Action] {
        creator.receive(share: changed ?? joiner.share, joiner.greeting, from: attempt ?? self.attempt, &random)
    }

    /// The joiner's proof after the creator's answer to its share.
    mutating func proof(of joiner: inout CodeJoinerStateMachine, to creator: inout CodeIssuerStateMachine) throws
        -> [UInt8]
    {
        guard case .answer(attempt, let share)? = share(of: joiner, to: &creator).first,
            case .send(let proof) = try joiner.receive(share)
        else { throw CodeFailure.invalidAnswer }
        return proof
    }

    /// The creator after a valid share, the joiner after the answer, and the joiner's proof.
    mutating func answered() throws -> (CodeIssuerStateMachine, CodeJoinerStateMachine, proof: [UInt8]) {
        var (creator, joiner) = (creator(), try joiner())
        let proof = try proof(of: &joiner, to: &creator)
        return (creator, joiner, proof)
    }

    mutating func proven() throws -> (CodeIssuerStateMachine, CodeJoinerStateMachine) {
        var (creator, joiner, proof) = try answered()
        #expect(creator.receive(proof: proof, from: attempt) == [.makeInvite])
        return (creator, joiner)
    }

    mutating func delivered() throws -> (message: [UInt8], CodeJoinerStateMachine) {
        var (creator, joiner) = try proven()
        let actions = creator.made(invite: text)
        guard case .deliver(attempt, let message)? = actions.first else { throw CodeFailure.foreign }
        #expect(actions.last == .ended(.taken) && creator.outcome == .taken)
        return (message, joiner)
    }
}

@Suite("The exchange of a spoken code") struct CodeExchangeTests {
    private var exchange = Exchange()

    @Test mutating func `the right words give the joiner the invite, in four messages of fixed size`() throws {
        var (message, joiner) = try exchange.delivered()
        #expect(joiner.share.count == 32 && message.count == 64 + 4_096 + 16)
        #expect(joiner.expectedByteCount == message.count)
        #expect(try joiner.receive(message) == .invite(exchange.text))
        #expect(joiner.expectedByteCount == 0)
        // A message has the same size for the longest invite.
        var (creator, other) = try exchange.proven()
        let longest = [UInt8](repeating: 9, count: CodeExchange.textByteCount)
        guard case .deliver(_, let long)? = creator.made(invite: longest).first else { throw CodeFailure.foreign }
        #expect(long.count == message.count)
        #expect(try other.receive(long) == .invite(longest))
    }

    @Test(
        "a joiner with wrong words gets one answer, learns nothing, and the code is spent",
        arguments: [("harvest", "lady", 7), ("lamp", "harvest", 7), ("harvest", "harvest", 7), ("harvest", "lamp", 8)]
            as [(String, String, UInt16)]) mutating func wrongGuess(_ first: String, _ second: String, _ slot: UInt16)
        throws
    {
        var (creator, joiner) = (exchange.creator(), try exchange.joiner([first, second], slot: slot))
        let proof = try exchange.proof(of: &joiner, to: &creator)
        let refused = creator.receive(proof: proof, from: exchange.attempt)
        #expect(refused == [.refuse(exchange.attempt), .ended(.wrongGuess)])
        #expect(joiner.closed() == .refused)
        // The code is spent: the right words fail, too.
        var late = try exchange.joiner()
        #expect(exchange.share(of: late, to: &creator, from: exchange.other) == [.refuse(exchange.other)])
        #expect(late.closed() == .notOpen)
    }

    @Test mutating func `a changed byte of any message ends the exchange without an invite`() throws {
        let (creator, _, proof) = try exchange.answered()
        let attempt = exchange.attempt
        expectOpensOnlyWhole(proof) { shown in
            var creator = creator
            let actions = creator.receive(proof: shown, from: attempt)
            #expect(shown == proof || actions == [.refuse(attempt), .ended(.wrongGuess)])
            return actions == [.makeInvite]
        }
        let (message, proving) = try exchange.delivered()
        var wrong = (Array(0..<message.count) + [message.count + 1]).map { Array((message + [0]).prefix($0)) }
        for index in Array(message.indices.prefix(100)) + Array(message.indices.suffix(40)) {
            wrong.append(message)
            wrong[wrong.count - 1][index] ^= 0x80
        }
        for message in wrong {
            var joiner = proving
            #expect(throws: CodeFailure.foreign) { try joiner.receive(message) }
        }
        for index in 0..<32 {
            var (creator, joiner) = (exchange.creator(), try exchange.joiner())
            var changed = joiner.share
            changed[index] ^= 4
            let actions = exchange.share(of: joiner, changed, to: &creator)
            guard case .answer(_, let share)? = actions.first else {
                #expect(actions == [.refuse(exchange.attempt)] && creator.isOpen)
                continue
            }
            guard case .send(let proof) = try joiner.receive(share) else { continue }
            #expect(creator.receive(proof: proof, from: exchange.attempt).last == .ended(.wrongGuess))
        }
    }

    @Test mutating func `a share that is cut, longer or no group element gets no answer and does not spend the code`()
        throws
    {
        let joiner = try exchange.joiner()
        let (zeros, ones) = ([UInt8](repeating: 0, count: 32), [UInt8](repeating: 0xff, count: 32))
        let cut = (Array(0..<32) + [33]).map { Array((joiner.share + [0]).prefix($0)) }
        for share in cut + [zeros, ones, [1] + zeros.dropFirst()] {
            var (creator, other) = (exchange.creator(), joiner)
            #expect(exchange.share(of: joiner, share, to: &creator) == [.refuse(exchange.attempt)] && creator.isOpen)
            #expect(throws: CodeFailure.invalidAnswer) { try other.receive(share) }
            #expect(other.expectedByteCount == 0)
        }
    }

    @Test mutating func `a creator's own messages, reflected to it or to the joiner, are refused`() throws {
        var joiner = try exchange.joiner()
        guard case .send(let proof) = try joiner.receive(joiner.share) else { return }
        let sealed = [UInt8](repeating: 0, count: CodeExchange.inviteByteCount - proof.count)
        #expect(throws: CodeFailure.foreign) { try joiner.receive(proof + sealed) }
    }
}

@Suite("Creator of a code: each event in each state") struct CodeIssuerTests {
    private enum State: Int, CaseIterable { case open, answered, proven, taken, void }

    private typealias Event = (inout CodeIssuerStateMachine, inout Exchange, _ proof: [UInt8]) throws -> [Action]

    private func machine(_ state: State, _ exchange: inout Exchange) throws -> (CodeIssuerStateMachine, proof: [UInt8])
    {
        switch state {
        case .open: return (exchange.creator(), [])
        case .answered:
            let (creator, _, proof) = try exchange.answered()
            return (creator, proof)
        case .proven: return (try exchange.proven().0, [])
        case .taken:
            var (creator, _) = try exchange.proven()
            _ = creator.made(invite: exchange.text)
            return (creator, [])
        case .void:
            var creator = exchange.creator()
            _ = creator.expire()
            return (creator, [])
        }
    }

    /// The actions of an event in the states open, answered, proven, taken and void. Messages are shown empty.
    private func cells() -> [(name: String, event: Event, actions: [[Action]])] {
        let (own, other) = (CodeAttempt(1), CodeAttempt(2))
        let (refused, refusedOther): ([Action], [Action]) = ([.refuse(own)], [.refuse(other)])
        let wrong = [UInt8](repeating: 1, count: 64)
        let long = [UInt8](repeating: 0, count: CodeExchange.textByteCount + 1)
        func share(_ attempt: CodeAttempt) -> Event {
            { creator, exchange, _ in exchange.share(of: try exchange.joiner(), to: &creator, from: attempt) }
        }
        func end(_ outcome: CodeOutcome) -> [[Action]] {
            [[.ended(outcome)], refused + [.ended(outcome)], refused + [.ended(outcome)], [], []]
        }
        let late: [[Action]] = [[.revokeInvite], [.revokeInvite], [], [.revokeInvite], [.revokeInvite]]
        func made(_ actions: [Action]) -> [[Action]] { late.map { $0.isEmpty ? actions : $0 } }
        return [
            ("a share", share(own), [[.answer(own, [])], refused, refused, refused, refused]),
            (
                "a share of another attempt", share(other),
                [[.answer(other, [])], refusedOther, refusedOther, refusedOther, refusedOther]
            ),
            (
                "the right proof", { creator, _, proof in creator.receive(proof: proof, from: own) },
                [refused, [.makeInvite], refused, refused, refused]
            ),
            (
                "a wrong proof", { creator, _, _ in creator.receive(proof: wrong, from: own) },
                [refused, refused + [.ended(.wrongGuess)], refused, refused, refused]
            ),
            (
                "a proof of another attempt", { creator, _, proof in creator.receive(proof: proof, from: other) },
                Array(repeating: refusedOther, count: 5)
            ),
            (
                "the end of the attempt", { creator, _, _ in creator.ended(own) },
                [[], refused + [.ended(.unproven)], refused + [.ended(.failed)], [], []]
            ), ("the end of another attempt", { creator, _, _ in creator.ended(other) }, [[], [], [], [], []]),
            (
                "no invite", { creator, _, _ in creator.made(invite: nil) },
                [[], [], refused + [.ended(.failed)], [], []]
            ),
            (
                "a too long invite", { creator, _, _ in creator.made(invite: long) },
                made([.revokeInvite] + refused + [.ended(.failed)])
            ),
            (
                "the invite", { creator, exchange, _ in creator.made(invite: exchange.text) },
                made([.deliver(own, []), .ended(.taken)])
            ),
            // A proof received before it counts.
            (
                "expiry", { creator, _, _ in creator.expire() },
                [[.ended(.expired)], refused + [.ended(.expired)], [], [], []]
            ), ("revocation", { creator, _, _ in creator.end(.revoked) }, end(.revoked)),
            ("a lock", { creator, _, _ in creator.end(.locked) }, end(.locked)),
            ("the conversation's end", { creator, _, _ in creator.end(.gone) }, end(.gone)),
        ]
    }

    @Test func `each event in each state`() throws {
        for cell in cells() {
            for state in State.allCases {
                var exchange = Exchange()
                var (creator, proof) = try machine(state, &exchange)
                let before = creator.outcome
                let actions = try cell.event(&creator, &exchange, proof).map { action -> Action in
                    switch action {
                    case .answer(let attempt, let share):
                        #expect(share.count == 32)
                        return .answer(attempt, [])
                    case .deliver(let attempt, _): return .deliver(attempt, [])
                    default: return action
                    }
                }
                let expected = cell.actions[state.rawValue]
                #expect(actions == expected, "\(cell.name), \(state)")
                let ended = expected.compactMap { if case .ended(let outcome) = $0 { outcome } else { nil } }
                #expect(creator.outcome == ended.first ?? before, "\(cell.name), \(state)")
                let isAnswered = expected.contains { if case .answer = $0 { true } else { false } }
                #expect(creator.isOpen == (state == .open && ended.isEmpty && !isAnswered), "\(cell.name), \(state)")
            }
        }
    }
}

@Suite("Joiner of a code: each event in each state") struct CodeJoinerTests {
    private var exchange = Exchange()

    @Test mutating func `a wrong message and a lost connection in each state: asking, proving, ended`() throws {
        let asking = try exchange.joiner()
        let (_, proving, _) = try exchange.answered()
        var ended = asking
        _ = ended.closed()
        let invite = [UInt8](repeating: 0, count: CodeExchange.inviteByteCount)
        let cells: [(CodeJoinerStateMachine, message: [UInt8], CodeFailure, ofLoss: CodeFailure)] = [
            (asking, invite, .invalidAnswer, .notOpen), (proving, asking.share, .foreign, .refused),
            (ended, asking.share, .notOpen, .notOpen),
        ]
        for (machine, message, failure, ofLoss) in cells {
            var (told, lost) = (machine, machine)
            #expect(throws: failure) { try told.receive(message) }
            #expect(told.expectedByteCount == 0 && lost.closed() == ofLoss && lost.closed() == .notOpen)
        }
    }

    @Test mutating func `no two sessions have the same greeting, and each greeting names the code's number`() throws {
        let greetings = try (0..<100).map { _ in try exchange.joiner().greeting }
        #expect(Set(greetings).count == 100 && greetings.allSatisfy { $0.slot == 7 && $0.bytes.count == 16 })
        for count in [0, 15, 17] { #expect(CodeExchange.Greeting([UInt8](repeating: 0, count: count)) == nil) }
    }
}

@Suite("The open codes of a node") struct OpenCodesTests {
    private let start = Timestamp(milliseconds: 1_800_000_000_000)
    private let client = ClientID.random(&Self.randomness)
    private let conversation = ConversationID.random(&Self.randomness)
    nonisolated(unsafe) private static var randomness = Randomness.seeded(5)

    @Test func `at most four codes are open, each with its own number; an ended code makes room`() {
        var (codes, random) = (OpenCodes(), Randomness.seeded(1))
        func open() -> UInt16? { codes.open(client, conversation, now: start, &random)?.code.slot }
        let slots = (0..<Limits.codeCount).compactMap { _ in open() }
        #expect(Set(slots).count == Limits.codeCount && open() == nil)
        #expect(codes.end { $0.code.slot == slots[1] ? .revoked : nil }.map(\.action) == [.ended(.revoked)])
        #expect(!codes.isOpen(slots[1]) && codes.isOpen(slots[0]) && open() != nil)
        let ended = Array(repeating: CodeIssuerStateMachine.Action.ended(.locked), count: Limits.codeCount)
        #expect(codes.end { _ in .locked }.map(\.action) == ended)
    }

    @Test("the end of an attempt ends only its own code; the outcomes of the last sixteen codes are kept")
    func attempts() throws {
        var (codes, random) = (OpenCodes(), Randomness.seeded(1))
        var numbers: [OpenCodes.Number] = []
        for index in 0..<20 {
            let entry = try #require(codes.open(client, conversation, now: start, &random))
            let other = try #require(codes.open(client, conversation, now: start, &random))
            let joiner = try #require(CodeJoinerStateMachine(entry.code, &random))
            let attempt = CodeAttempt(UInt64(index))
            let answered = codes.receive(share: joiner.share, joiner.greeting, from: attempt, &random)
            #expect(answered.count == 1 && answered.first?.entry?.number == entry.number)
            #expect(!codes.isOpen(entry.code.slot) && codes.isOpen(other.code.slot))
            #expect(codes.ended(attempt).map(\.action) == [.refuse(attempt), .ended(.unproven)])
            #expect(codes.end { $0.number == other.number ? .revoked : nil }.count == 1)
            numbers.append(entry.number)
        }
        #expect(codes.outcome(of: numbers[19]) == .unproven && codes.outcome(of: numbers[0]) == nil)
    }

    @Test func `an attempt at a number without a code is refused`() throws {
        var (codes, random) = (OpenCodes(), Randomness.seeded(1))
        let joiner = try #require(CodeJoinerStateMachine(SpokenCode(slot: 7, words: ["harvest", "lamp"]), &random))
        let attempt = CodeAttempt(1)
        #expect(
            codes.receive(share: joiner.share, joiner.greeting, from: attempt, &random).map(\.action) == [
                .refuse(attempt)
            ])
        #expect(codes.receive(proof: [], joiner.greeting, from: attempt).map(\.action) == [.refuse(attempt)])
        #expect(codes.ended(attempt).isEmpty)
    }

    @Test func `an invite that arrives after its code has ended is revoked`() throws {
        var (codes, random) = (OpenCodes(), Randomness.seeded(1))
        let entry = try #require(codes.open(client, conversation, now: start, &random))
        _ = codes.end { $0.number == entry.number ? .revoked : nil }
        #expect(codes.made(invite: [1], for: entry).map(\.action) == [.revokeInvite])
        #expect(codes.made(invite: nil, for: entry).isEmpty)
    }
}

/// The example of a spoken code, from `Tests/Vectors/vectors.py`.
@Suite("The example of a spoken code") struct CodeVectors {
    private let vector: Vector

    init() throws { vector = try VectorFile("SpokenCodes")["exchange of a code"] }

    @Test func `both machines send the messages of the page`() throws {
        let attempt = CodeAttempt(1)
        let code = try SpokenCode(try vector.text("code"))
        // Consumes the example's nonce and ya, then its yb.
        var random = Randomness.seeded(7)
        let started = CodeJoinerStateMachine(code, &random)
        var joiner = try #require(started)
        var creator = CodeIssuerStateMachine(code)
        let first = Array("c".utf8) + joiner.greeting.bytes + joiner.share
        #expect(first == (try vector.bytes("message 1")))

        let second = try vector.bytes("message 2")
        let answered = creator.receive(share: joiner.share, joiner.greeting, from: attempt, &random)
        #expect(answered == [.answer(attempt, second)])

        let third = try vector.bytes("message 3")
        let proving = try joiner.receive(second)
        #expect(proving == .send(third))

        let proven = creator.receive(proof: third, from: attempt)
        #expect(proven == [.makeInvite])
        let text = Array(try vector.text("invite").utf8)
        let actions = creator.made(invite: text)
        guard case .deliver(attempt, let fourth)? = actions.first else {
            Issue.record("the invite is not delivered")
            return
        }
        #expect(Array(fourth.prefix(128)) == (try vector.bytes("message 4, first 128 bytes")))
        #expect(Array(fourth.suffix(16)) == (try vector.bytes("message 4, last 16 bytes")))
        #expect(SHA256.hash(fourth) == (try vector.bytes("message 4, SHA-256")))

        let received = try joiner.receive(fourth)
        #expect(received == .invite(text))
    }
}
