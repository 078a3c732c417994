import Messaging
import Transport

/// Spoken codes: typed text, network input, and both sides of the exchange.
let codeTargets: [FuzzTarget] = [
    FuzzTarget("code-text", byteCountLimit: 128, cost: 10) {
        ["7-harvest-lamp", "7 Harvset LAMP", "0-a-b", "mayfly:join/abc", "99-zoo-zoo-zoo"].map { Array($0.utf8) }
    } run: { bytes in
        let text = String(decoding: bytes, as: UTF8.self)
        let code: SpokenCode
        do throws(SpokenCode.Failure) { code = try SpokenCode(text) } catch {
            guard case .unknownWord(let word, let nearest) = error else { return }
            return try expect(!CodeWords.contains(word) && CodeWords.contains(nearest), "the nearest word is none")
        }
        try expect(SpokenCode.isMeant(by: text), "a code was not meant")
        try expect((try? SpokenCode(code.description)) == code, "a code does not read back")
    },
    FuzzTarget("code-datagram", byteCountLimit: 64) {
        [LanCodeDatagram(.question, number: 7, id: 5).bytes, LanCodeDatagram(.answer, number: 7_440, id: .max).bytes]
    } run: { bytes in
        guard let datagram = LanCodeDatagram(bytes) else { return }
        try expect(datagram.bytes == bytes, "a datagram is not what it was read from")
    },
    FuzzTarget("code-exchange", byteCountLimit: 8_192, cost: 20) {
        [
            // A valid exchange; wrong words; silence; two at once; bytes of strangers; time.
            FuzzScript().byte(0, 1, 0, 2, 0, 3, 3, 0).bytes, FuzzScript().byte(0, 1, 1, 2, 0).bytes,
            FuzzScript().byte(0, 1, 0, 4, 0).bytes, FuzzScript().byte(0, 1, 0, 1, 0, 2, 1, 2, 0).bytes,
            FuzzScript().byte(0, 5, 0).run([UInt8](repeating: 7, count: 32), isLong: true).bytes,
            FuzzScript().byte(0, 1, 0, 6, 0, 2, 9, 1).bytes,
            FuzzScript().byte(0, 1, 0, 7).number(400_000).byte(2, 0).bytes,
        ]
    } run: { bytes in
        var exchange = FuzzExchange(bytes)
        var left = FuzzPatience(bytes) == .long ? 256 : 24
        while !exchange.isAtEnd && left > 0 {
            try exchange.step()
            left -= 1
        }
    },
]

/// A node with codes, joiners with right and wrong words, and an attacker that changes and forges their messages.
private struct FuzzExchange {
    private struct Joiner {
        let number: OpenCodes.Number
        var machine: CodeJoinerStateMachine
        let hasRightWords: Bool
        var isDone = false
        /// The joiner's next message, before and after the attacker's change.
        var proof: [UInt8]?
        var unchanged: [UInt8]?
        var hasProven = false
    }

    private var input: FuzzInput
    private var random: Randomness
    private var codes = OpenCodes()
    private var joiners: [UInt64: Joiner] = [:]
    private var next: UInt64 = 1
    private var now = Timestamp(milliseconds: 1_800_000_000_000)
    private var answered: Set<OpenCodes.Number> = []
    private var proven: [OpenCodes.Entry] = []
    private let client: ClientID
    private let conversation: ConversationID
    private let text = Array("mayfly:join/abc".utf8)

    init(_ bytes: [UInt8]) {
        input = FuzzInput(bytes)
        var random = Randomness.seeded(FuzzInput.seed(of: bytes))
        client = ClientID.random(&random)
        conversation = ConversationID.random(&random)
        self.random = random
    }

    var isAtEnd: Bool { input.isAtEnd }

    private mutating func joiner() -> UInt64? {
        joiners.isEmpty ? nil : joiners.keys.sorted()[input.index(below: joiners.count)]
    }

    mutating func step() throws {
        switch input.index(below: 9) {
        case 0:
            let isFull = codes.entries.count >= Limits.codeCount
            let entry = codes.open(client, conversation, now: now, &random)
            try expect((entry == nil) == isFull, "the number of codes is not bounded")
        case 1:
            guard let entry = codes.entries.first else { return }
            let isRight = input.byte() & 1 == 0
            let words = isRight ? entry.code.words : [entry.code.words[1], "zoo"]
            guard let machine = CodeJoinerStateMachine(SpokenCode(slot: entry.code.slot, words: words), &random) else {
                throw FuzzFailure("no joiner")
            }
            joiners[next] = Joiner(number: entry.number, machine: machine, hasRightWords: words == entry.code.words)
            defer { next += 1 }
            try take(codes.receive(share: machine.share, machine.greeting, from: CodeAttempt(next), &random))
        case 2:
            guard let number = joiner(), let joiner = joiners[number], let proof = joiner.proof else { return }
            let wasProven = proven.count
            let isRight = joiner.hasRightWords && proof == joiner.unchanged
            joiners[number]?.hasProven = isRight
            joiners[number]?.proof = nil
            try take(codes.receive(proof: proof, joiner.machine.greeting, from: CodeAttempt(number)))
            try expect(isRight || proven.count == wasProven, "a wrong proof is taken for a right one")
        case 3:
            guard let entry = proven.popLast() else { return }
            let invite: [UInt8]? =
                switch input.index(below: 3) {
                case 0: nil
                case 1: [UInt8](repeating: 1, count: Int(input.short()))
                default: text
                }
            try take(codes.made(invite: invite, for: entry))
        case 4: if let number = joiner() { try take(codes.ended(CodeAttempt(number))) }
        // A stranger's share and proof.
        case 5:
            let slot = codes.entries.first?.code.slot ?? UInt16(input.byte())
            let greeting = CodeExchange.Greeting(slot: slot, &random)
            let bytes = input.run(isLong: true)
            defer { next += 1 }
            try take(codes.receive(share: bytes, greeting, from: CodeAttempt(next), &random))
            let wasProven = proven.count
            try take(codes.receive(proof: input.run(isLong: true), greeting, from: CodeAttempt(next)))
            try expect(proven.count == wasProven, "a stranger's proof is taken for a right one")
        // A joiner's next message is changed.
        case 6:
            guard let number = joiner(), var proof = joiners[number]?.proof, !proof.isEmpty else { return }
            proof[input.index(below: proof.count)] ^= max(1, input.byte())
            joiners[number]?.proof = proof
        case 7:
            now = now + Int64(clamping: min(input.number(), 1 << 30))
            try take(codes.advance(now: now))
            try expect(
                codes.entries.allSatisfy { $0.expiresAt > now || proven.map(\.number).contains($0.number) },
                "a code is too old")
        // A joiner receives other bytes.
        default:
            guard let number = joiner(), var joiner = joiners[number], !joiner.isDone else { return }
            let bytes = input.run(isLong: true)
            joiner.isDone = true
            if let action = try? joiner.machine.receive(bytes), case .invite = action {
                throw FuzzFailure("an invite is taken from a stranger")
            }
            joiners[number] = joiner
        }
    }

    private mutating func take(_ actions: [OpenCodes.Action]) throws {
        for action in actions {
            switch action.action {
            case .answer(let attempt, let share):
                guard let entry = action.entry else { throw FuzzFailure("an answer for no code") }
                try expect(answered.insert(entry.number).inserted, "a code has answered twice")
                guard var joiner = joiners[attempt.number], !joiner.isDone else { continue }
                guard case .send(let proof) = try joiner.machine.receive(share) else { throw FuzzFailure("no proof") }
                joiner.proof = proof
                joiner.unchanged = proof
                joiners[attempt.number] = joiner
            case .deliver(let attempt, let message):
                try expect(message.count == CodeExchange.inviteByteCount, "an invite's size tells something")
                guard var joiner = joiners[attempt.number], joiner.hasProven else {
                    throw FuzzFailure("an invite for somebody who does not know the code")
                }
                guard !joiner.isDone else { continue }
                guard case .invite = try joiner.machine.receive(message) else { throw FuzzFailure("no invite") }
                joiner.isDone = true
                joiners[attempt.number] = joiner
            case .refuse(let attempt): joiners[attempt.number]?.isDone = true
            case .makeInvite:
                guard let entry = action.entry else { throw FuzzFailure("an invite for no code") }
                proven.append(entry)
            case .revokeInvite: break
            case .ended:
                guard let entry = action.entry else { throw FuzzFailure("the end of no code") }
                try expect(
                    codes[entry.number] == nil && codes.outcome(of: entry.number) != nil, "a code outlives its end")
            }
        }
    }
}
