import Crypto
import Messaging
import Testing

@Suite("The text of a spoken code") struct SpokenCodeTests {
    @Test("the word list is that of BIP 39, in order, and the first four letters of a word are unique") func list() {
        #expect(CodeWords.all.count == CodeWords.count)
        #expect(Hex.encode(SHA256.hash(CodeWords.all.flatMap { Array("\($0)\n".utf8) })) == CodeWords.fileHash)
        #expect(CodeWords.all == CodeWords.all.sorted())
        #expect(Set(CodeWords.all.map { $0.prefix(4) }).count == CodeWords.count)
        #expect(CodeWords.all.allSatisfy { CodeWords.contains($0) })
        for word in ["", "a", "abando", "abandonn", "zooo", "Harvest", "lantern"] { #expect(!CodeWords.contains(word)) }
    }

    @Test("a word is found by its beginning or by a similar spelling") func nearness() {
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

    @Test("a spoken code is read in any case, with hyphens or spaces") func reading() throws {
        let code = SpokenCode(slot: 7, words: ["harvest", "lamp"])
        #expect(code.description == "7-harvest-lamp")
        for text in ["7-harvest-lamp", "7 Harvest LAMP", " 7-harvest  lamp\n", "07-harvest-lamp"] {
            #expect(try SpokenCode(text) == code)
            #expect(SpokenCode.isMeant(by: text))
        }
    }

    @Test("an invalid code is refused, with the nearest word") func refusals() {
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
            guard case .slot? = failure(text) else {
                Issue.record("\(text): \(String(describing: failure(text)))")
                continue
            }
        }
        #expect(failure("7-harvest-lamp" + String(repeating: " ", count: 100)) == .malformed)
    }

    @Test("an invite or the id of an invitation is not read as a code") func others() {
        for text in ["mayfly:join/H1a-b_c", "7f3a", "7", "", "1-2-3", "7-a1-b", String(repeating: "7-a", count: 100)] {
            #expect(!SpokenCode.isMeant(by: text), "\(text)")
        }
        for text in ["7-harvset", "7 harvest", "7-a-b-c", "0-a-b"] { #expect(SpokenCode.isMeant(by: text), "\(text)") }
    }

    @Test("words are drawn from the whole list") func drawing() {
        var random = Randomness.seeded(1)
        var first: Set<String> = []
        for _ in 0..<20_000 { first.insert(SpokenCode.random(slot: 7, &random).words[0]) }
        #expect(first.count == CodeWords.count)
    }
}

private struct Exchange {
    var random = Randomness.seeded(3)
    let code = SpokenCode(slot: 7, words: ["harvest", "lamp"])
    let attempt = CodeAttempt(1)
    let other = CodeAttempt(2)
    let text = Array("mayfly:join/abc".utf8)

    func creator() -> CodeIssuerStateMachine { CodeIssuerStateMachine(code) }

    mutating func joiner(_ words: [String] = ["harvest", "lamp"]) throws -> CodeJoinerStateMachine {
        try #require(CodeJoinerStateMachine(SpokenCode(slot: 7, words: words), &random))
    }

    /// The creator after a valid share, the joiner after the answer, and the joiner's proof.
    mutating func answered() throws -> (CodeIssuerStateMachine, CodeJoinerStateMachine, proof: [UInt8]) {
        var (creator, joiner) = (creator(), try joiner())
        let actions = creator.receive(share: joiner.share, joiner.greeting, from: attempt, &random)
        guard case .answer(attempt, let share)? = actions.first, case .send(let proof) = try joiner.receive(share)
        else { throw CodeFailure.invalidAnswer }
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
    @Test("the right words give the joiner the invite, in four messages of fixed size") func whole() throws {
        var exchange = Exchange()
        var (message, joiner) = try exchange.delivered()
        #expect(joiner.share.count == 32 && message.count == 64 + 4_096 + 16)
        #expect(joiner.expectedByteCount == message.count)
        #expect(try joiner.receive(message) == .invite(exchange.text))
        #expect(joiner.expectedByteCount == 0)
        // A message has the same size for the longest invite.
        var (creator, other) = try exchange.proven()
        let longest = [UInt8](repeating: 9, count: CodeExchange.textByteCount)
        guard case .deliver(_, let long)? = creator.made(invite: longest).first else {
            Issue.record("the longest invite is not delivered")
            return
        }
        #expect(long.count == message.count)
        #expect(try other.receive(long) == .invite(longest))
    }

    @Test("a joiner with wrong words gets one answer, learns nothing, and the code is spent") func wrongGuess() throws {
        for words in [["harvest", "lady"], ["lamp", "harvest"], ["harvest", "harvest"]] {
            var exchange = Exchange()
            var (creator, joiner) = (exchange.creator(), try exchange.joiner(words))
            let actions = creator.receive(
                share: joiner.share, joiner.greeting, from: exchange.attempt, &exchange.random)
            guard case .answer(_, let share)? = actions.first, case .send(let proof) = try joiner.receive(share) else {
                Issue.record("the share is not answered")
                return
            }
            #expect(
                creator.receive(proof: proof, from: exchange.attempt) == [
                    .refuse(exchange.attempt), .ended(.wrongGuess),
                ])
            #expect(joiner.closed() == .refused)
            // The code is spent: the right words fail, too.
            var late = try exchange.joiner()
            #expect(
                creator.receive(share: late.share, late.greeting, from: exchange.other, &exchange.random) == [
                    .refuse(exchange.other)
                ])
            #expect(late.closed() == .notOpen)
        }
    }

    @Test("the same words under another number are another code") func otherSlot() throws {
        var exchange = Exchange()
        var creator = exchange.creator()
        var joiner = try #require(
            CodeJoinerStateMachine(SpokenCode(slot: 8, words: ["harvest", "lamp"]), &exchange.random))
        let actions = creator.receive(share: joiner.share, joiner.greeting, from: exchange.attempt, &exchange.random)
        guard case .answer(_, let share)? = actions.first, case .send(let proof) = try joiner.receive(share) else {
            Issue.record("the share is not answered")
            return
        }
        #expect(creator.receive(proof: proof, from: exchange.attempt).last == .ended(.wrongGuess))
    }

    @Test("a message cut at any byte, or one byte longer, is refused") func truncation() throws {
        var exchange = Exchange()
        let joiner = try exchange.joiner()
        for count in Array(0..<32) + [33] {
            let share = Array((joiner.share + [0]).prefix(count))
            var creator = exchange.creator()
            #expect(
                creator.receive(share: share, joiner.greeting, from: exchange.attempt, &exchange.random) == [
                    .refuse(exchange.attempt)
                ])
            #expect(creator.isOpen)
            var other = joiner
            #expect(throws: CodeFailure.invalidAnswer) { try other.receive(share) }
            #expect(other.expectedByteCount == 0)
        }
        let (creator, _, proof) = try exchange.answered()
        for count in Array(0..<64) + [65] {
            var creator = creator
            let actions = creator.receive(proof: Array((proof + [0]).prefix(count)), from: exchange.attempt)
            #expect(actions == [.refuse(exchange.attempt), .ended(.wrongGuess)])
        }
        let (message, proving) = try exchange.delivered()
        for count in Array(0..<message.count) + [message.count + 1] {
            var joiner = proving
            #expect(throws: CodeFailure.foreign) { try joiner.receive(Array((message + [0]).prefix(count))) }
        }
    }

    @Test("a changed byte of any message ends the exchange without an invite") func changes() throws {
        var exchange = Exchange()
        let (creator, _, proof) = try exchange.answered()
        for index in proof.indices {
            var (creator, changed) = (creator, proof)
            changed[index] ^= 1
            #expect(creator.receive(proof: changed, from: exchange.attempt).last == .ended(.wrongGuess))
        }
        let (message, proving) = try exchange.delivered()
        for index in Array(message.indices.prefix(100)) + Array(message.indices.suffix(40)) {
            var (joiner, changed) = (proving, message)
            changed[index] ^= 0x80
            #expect(throws: CodeFailure.foreign) { try joiner.receive(changed) }
        }
        for index in 0..<32 {
            var (creator, joiner) = (exchange.creator(), try exchange.joiner())
            var changed = joiner.share
            changed[index] ^= 4
            let actions = creator.receive(share: changed, joiner.greeting, from: exchange.attempt, &exchange.random)
            guard case .answer(_, let share)? = actions.first else {
                #expect(actions == [.refuse(exchange.attempt)] && creator.isOpen)
                continue
            }
            guard case .send(let proof) = try joiner.receive(share) else { continue }
            #expect(creator.receive(proof: proof, from: exchange.attempt).last == .ended(.wrongGuess))
        }
    }

    @Test("an invalid or neutral group element gets no answer and does not spend the code") func invalidPoints() throws
    {
        var exchange = Exchange()
        let joiner = try exchange.joiner()
        for point in [
            [UInt8](repeating: 0, count: 32), [UInt8](repeating: 0xff, count: 32),
            [1] + [UInt8](repeating: 0, count: 31),
        ] {
            var creator = exchange.creator()
            #expect(
                creator.receive(share: point, joiner.greeting, from: exchange.attempt, &exchange.random) == [
                    .refuse(exchange.attempt)
                ])
            #expect(creator.isOpen)
            var other = joiner
            #expect(throws: CodeFailure.invalidAnswer) { try other.receive(point) }
        }
    }

    @Test("a creator's own messages, reflected to it or to the joiner, are refused") func reflection() throws {
        var exchange = Exchange()
        var joiner = try exchange.joiner()
        guard case .send(let proof) = try joiner.receive(joiner.share) else { return }
        let sealed = [UInt8](repeating: 0, count: CodeExchange.inviteByteCount - proof.count)
        #expect(throws: CodeFailure.foreign) { try joiner.receive(proof + sealed) }
    }
}

@Suite("Creator of a code: each event in each state") struct CodeIssuerTests {
    private enum State: CaseIterable { case open, answered, proven, taken, void }

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

    @Test("a share in each state", arguments: [1, 2] as [UInt64]) func share(_ number: UInt64) throws {
        for state in State.allCases {
            var exchange = Exchange()
            var (creator, _) = try machine(state, &exchange)
            let before = creator.outcome
            let joiner = try exchange.joiner()
            let attempt = CodeAttempt(number)
            let actions = creator.receive(share: joiner.share, joiner.greeting, from: attempt, &exchange.random)
            if state == .open {
                guard case .answer(attempt, let share)? = actions.first else {
                    Issue.record("not answered")
                    return
                }
                #expect(share.count == 32 && actions.count == 1 && !creator.isOpen)
            } else {
                #expect(actions == [.refuse(attempt)])
                #expect(creator.outcome == before)
            }
        }
    }

    @Test("a proof in each state: right, wrong, and of another attempt") func proof() throws {
        for state in State.allCases {
            var exchange = Exchange()
            var (creator, proof) = try machine(state, &exchange)
            let before = creator.outcome
            var other = creator
            #expect(other.receive(proof: proof, from: exchange.other) == [.refuse(exchange.other)])
            #expect(other.outcome == before)
            var wrong = creator
            let refused = wrong.receive(proof: [UInt8](repeating: 1, count: 64), from: exchange.attempt)
            if state == .answered {
                #expect(refused == [.refuse(exchange.attempt), .ended(.wrongGuess)])
                #expect(creator.receive(proof: proof, from: exchange.attempt) == [.makeInvite])
                #expect(creator.outcome == nil && !creator.isOpen)
            } else {
                #expect(refused == [.refuse(exchange.attempt)])
                #expect(wrong.outcome == before)
            }
        }
    }

    @Test("the end of an attempt in each state, its own and another's") func attemptEnds() throws {
        for state in State.allCases {
            var exchange = Exchange()
            var (creator, _) = try machine(state, &exchange)
            let before = creator.outcome
            #expect(creator.ended(exchange.other) == [])
            #expect(creator.outcome == before)
            let actions = creator.ended(exchange.attempt)
            switch state {
            case .answered: #expect(actions == [.refuse(exchange.attempt), .ended(.unproven)])
            case .proven: #expect(actions == [.refuse(exchange.attempt), .ended(.failed)])
            case .open, .taken, .void: #expect(actions == [] && creator.outcome == before)
            }
        }
    }

    @Test("the invite in each state: present, missing, and too long") func invite() throws {
        for state in State.allCases {
            var exchange = Exchange()
            let (creator, _) = try machine(state, &exchange)
            var (none, long, good) = (creator, creator, creator)
            let tooLong = [UInt8](repeating: 0, count: CodeExchange.textByteCount + 1)
            let attempt = exchange.attempt
            if state == .proven {
                #expect(none.made(invite: nil) == [.refuse(attempt), .ended(.failed)])
                #expect(long.made(invite: tooLong) == [.revokeInvite, .refuse(attempt), .ended(.failed)])
                #expect(good.made(invite: exchange.text).last == .ended(.taken))
            } else {
                #expect(none.made(invite: nil) == [])
                #expect(long.made(invite: tooLong) == [.revokeInvite])
                #expect(good.made(invite: exchange.text) == [.revokeInvite])
                #expect(good.outcome == creator.outcome)
            }
        }
    }

    @Test("expiry in each state: a proof received before it counts") func expiry() throws {
        for state in State.allCases {
            var exchange = Exchange()
            var (creator, _) = try machine(state, &exchange)
            let before = creator.outcome
            let actions = creator.expire()
            switch state {
            case .open: #expect(actions == [.ended(.expired)])
            case .answered: #expect(actions == [.refuse(exchange.attempt), .ended(.expired)])
            case .proven, .taken, .void: #expect(actions == [] && creator.outcome == before)
            }
        }
    }

    @Test(
        "revocation, a lock and the end of the conversation in each state",
        arguments: [CodeOutcome.revoked, .locked, .gone]) func end(_ outcome: CodeOutcome) throws
    {
        for state in State.allCases {
            var exchange = Exchange()
            var (creator, _) = try machine(state, &exchange)
            let before = creator.outcome
            let actions = creator.end(outcome)
            switch state {
            case .open: #expect(actions == [.ended(outcome)])
            case .answered, .proven: #expect(actions == [.refuse(exchange.attempt), .ended(outcome)])
            case .taken, .void: #expect(actions == [] && creator.outcome == before)
            }
            #expect(creator.outcome == before ?? outcome)
            #expect(!creator.isOpen)
        }
    }
}

@Suite("Joiner of a code: each event in each state") struct CodeJoinerTests {
    @Test("each message in each state: asking, proving, ended") func messages() throws {
        var exchange = Exchange()
        let asking = try exchange.joiner()
        let (_, proving, _) = try exchange.answered()
        var ended = asking
        #expect(ended.closed() == .notOpen)
        var (first, second) = (asking, proving)
        #expect(throws: CodeFailure.invalidAnswer) {
            try first.receive([UInt8](repeating: 0, count: CodeExchange.inviteByteCount))
        }
        #expect(throws: CodeFailure.foreign) { try second.receive(asking.share) }
        #expect(throws: CodeFailure.notOpen) { try ended.receive(asking.share) }
        for machine in [first, second, ended] { #expect(machine.expectedByteCount == 0) }
    }

    @Test("a lost connection costs nothing before an answer, and the code after the proof") func closing() throws {
        var exchange = Exchange()
        var asking = try exchange.joiner()
        var (_, proving, _) = try exchange.answered()
        #expect(asking.closed() == .notOpen && proving.closed() == .refused)
        #expect(asking.closed() == .notOpen && proving.closed() == .notOpen)
    }

    @Test("no two sessions have the same greeting, and each greeting names the code's number") func greetings() throws {
        var exchange = Exchange()
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

    @Test("at most four codes are open, each with its own number; an ended code makes room") func count() throws {
        var (codes, random) = (OpenCodes(), Randomness.seeded(1))
        let opened = try (0..<Limits.codeCount).map { _ in
            try #require(codes.open(client, conversation, now: start, &random))
        }
        #expect(Set(opened.map(\.code.slot)).count == Limits.codeCount)
        #expect(codes.open(client, conversation, now: start, &random) == nil)
        #expect(codes.end(opened[1].number, .revoked).map(\.action) == [.ended(.revoked)])
        #expect(codes.end(opened[1].number, .revoked).isEmpty)
        #expect(!codes.isOpen(opened[1].code.slot) && codes.isOpen(opened[0].code.slot))
        #expect(codes.outcome(of: opened[1].number) == .revoked && codes.outcome(of: opened[0].number) == nil)
        #expect(codes.open(client, conversation, now: start, &random) != nil)
        #expect(
            codes.end { _ in .locked }.map(\.action) == [
                .ended(.locked), .ended(.locked), .ended(.locked), .ended(.locked),
            ])
    }

    @Test("a code expires after exactly five minutes") func expiry() throws {
        var (codes, random) = (OpenCodes(), Randomness.seeded(1))
        let first = try #require(codes.open(client, conversation, now: start, &random))
        let second = try #require(codes.open(client, conversation, now: start + 1_000, &random))
        #expect(codes.nextDeadline == start + 5 * .minute)
        #expect(codes.advance(now: start + 5 * .minute - 1).isEmpty)
        #expect(codes.advance(now: start + 5 * .minute).map(\.action) == [.ended(.expired)])
        #expect(codes.outcome(of: first.number) == .expired && codes[second.number] != nil)
        #expect(codes.nextDeadline == second.expiresAt)
        #expect(codes.advance(now: start + 10 * .minute).map(\.action) == [.ended(.expired)])
        #expect(codes.nextDeadline == nil)
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
            #expect(codes.end(other.number, .revoked).count == 1)
            numbers.append(entry.number)
        }
        #expect(codes.outcome(of: numbers[19]) == .unproven && codes.outcome(of: numbers[0]) == nil)
    }

    @Test("an attempt at a number without a code is refused") func unknown() throws {
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

    @Test("an invite that arrives after its code has ended is revoked") func lateInvite() throws {
        var (codes, random) = (OpenCodes(), Randomness.seeded(1))
        let entry = try #require(codes.open(client, conversation, now: start, &random))
        _ = codes.end(entry.number, .revoked)
        #expect(codes.made(invite: [1], for: entry).map(\.action) == [.revokeInvite])
        #expect(codes.made(invite: nil, for: entry).isEmpty)
    }
}
