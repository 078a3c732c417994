import Noise
import Primitives
import Testing
import Transport

private func secret(_ byte: UInt8) -> RoutingSecret {
    RoutingSecret(SecretBytes(copying: [UInt8](repeating: byte, count: 32)))
}

private func identity(_ byte: UInt8) throws -> IdentityKey {
    IdentityKey(try SecretKey(SecretBytes(copying: [UInt8](repeating: byte, count: 32))))
}

private let today: UInt32 = 20_000

@Suite struct RoutingSecretTests {
    @Test func `a token is the first half of the HMAC of day and counter`() {
        let key = [UInt8](repeating: 4, count: 32)
        let code = HMACSHA256.authenticate(key: key, [0, 0, 0x4e, 0x20, 0, 0, 1, 2])
        #expect(secret(4).token(day: 20_000, counter: 258).bytes == Array(code.prefix(16)))
        #expect(RoutingToken(code.prefix(15)) == nil)
        #expect(RoutingToken(code.prefix(16)) == secret(4).token(day: 20_000, counter: 258))
    }

    @Test func `both members derive both directions, and no two alike`() throws {
        let (one, two) = try (identity(1), identity(2))
        let conversation = [UInt8](repeating: 7, count: 32)
        func token(_ own: IdentityKey, _ remote: IdentityKey, _ role: Role, _ conversation: [UInt8]) -> RoutingToken {
            RoutingSecret.derive(own: own, remote: remote.publicKey, conversation: conversation, role: role)
                .token(day: today, counter: 1)
        }
        let there = token(one, two, .initiator, conversation)
        let back = token(two, one, .initiator, conversation)
        #expect(there == token(two, one, .responder, conversation))
        #expect(back == token(one, two, .responder, conversation))
        #expect(there != back)
        #expect(there != token(one, two, .initiator, [UInt8](repeating: 8, count: 32)))
    }

    @Test func `a card and an invite with the same bytes have other tokens`() {
        let shared = SecretBytes(copying: [UInt8](repeating: 3, count: 32))
        let card = RoutingSecret.derive(shared: shared, purpose: "card").knock.token(day: today)
        let invite = RoutingSecret.derive(shared: shared, purpose: "invite").knock.token(day: today)
        #expect(card != invite)
    }
}

@Suite struct RoutingTableTests {
    @Test func `a member's window is 32 counters on three days, and a knock each day`() {
        var table = RoutingTable(day: today)
        table.addMember(1, secret: secret(1))
        #expect(table.count == 99)
        for day in today - 2...today + 2 {
            let isNear = (today - 1...today + 1).contains(day)
            for counter in 0...40 as ClosedRange<UInt32> {
                let match = table.match(secret(1).token(day: day, counter: counter))
                let isThere = isNear && (1...32).contains(counter)
                #expect(match == (isThere ? RoutingTable.Match(route: .member(1), isKnock: false) : nil))
            }
            let knock = table.match(secret(1).knock.token(day: day))
            #expect(knock == (isNear ? RoutingTable.Match(route: .member(1), isKnock: true) : nil))
        }
        #expect(table.match(secret(2).token(day: today, counter: 1)) == nil)
    }

    @Test func `a used counter is gone and the window slides by it`() {
        var table = RoutingTable(day: today)
        table.addMember(1, secret: secret(1))
        let isFirst = table.use(secret(1).token(day: today, counter: 5))
        #expect(isFirst)
        #expect(table.count == 99)
        for counter in 1...5 as ClosedRange<UInt32> {
            #expect(table.match(secret(1).token(day: today, counter: counter)) == nil)
        }
        for counter in 6...37 as ClosedRange<UInt32> {
            #expect(table.match(secret(1).token(day: today, counter: counter)) != nil)
        }
        #expect(table.match(secret(1).token(day: today, counter: 38)) == nil)
        // Neither the knock, nor the other days, nor the same again.
        #expect(table.match(secret(1).knock.token(day: today)) != nil)
        #expect(table.match(secret(1).token(day: today + 1, counter: 1)) != nil)
        let isAgain = table.use(secret(1).token(day: today, counter: 5))
        #expect(!isAgain)
        let isKnock = table.use(secret(1).knock.token(day: today))
        #expect(!isKnock)
        #expect(table.counters(ofMember: 1) == [RoutingCounter(day: today, next: 6)])
    }

    @Test func `a shared secret has 32 slots that are never used up`() {
        var table = RoutingTable(day: today)
        var generator = SplitMix(state: 1)
        table.addShared(4, secret: secret(9))
        #expect(table.count == 96)
        for _ in 0..<200 {
            let token = secret(9).sharedToken(day: today, using: &generator)
            #expect(table.match(token) == RoutingTable.Match(route: .shared(4), isKnock: false))
            let isUsed = table.use(token)
            #expect(!isUsed)
        }
        #expect(table.count == 96)
    }

    @Test func `at a tombstone one may knock on three days, which roll on`() {
        var table = RoutingTable(day: today)
        table.addKnockOnly(8, secret: secret(6).knock)
        #expect(table.count == 3)
        for day in today - 1...today + 1 {
            let token = secret(6).knock.token(day: day)
            #expect(table.match(token) == RoutingTable.Match(route: .knockOnly(8), isKnock: true))
            let isUsed = table.use(token)
            #expect(!isUsed)
        }
        table.roll(to: today + 30)
        #expect(table.match(secret(6).knock.token(day: today)) == nil)
        #expect(table.match(secret(6).knock.token(day: today + 31)) != nil)
        table.remove(.knockOnly(8))
        #expect(table.count == 0)
    }

    @Test func `a knock secret comes back from its bytes and tells nothing of the links`() {
        let knock = secret(6).knock
        #expect(KnockSecret(bytes: knock.bytes)?.token(day: today) == knock.token(day: today))
        for count in [0, 31, 33] { #expect(KnockSecret(bytes: [UInt8](repeating: 0, count: count)) == nil) }
        let sealing = knock.sealingKey.withBytes { Array($0) }
        #expect(sealing != knock.bytes)
        for counter in 0...32 as ClosedRange<UInt32> {
            #expect(secret(6).token(day: today, counter: counter) != knock.token(day: today))
        }
    }

    @Test func `removing one route leaves the others whole, even under one token`() {
        var table = RoutingTable(day: today)
        table.addMember(1, secret: secret(1))
        table.addMember(2, secret: secret(2))
        // A tombstone with the very tokens of a live member takes none of them, and takes none away.
        table.addKnockOnly(3, secret: secret(1).knock)
        #expect(table.count == 198)
        table.remove(.knockOnly(3))
        #expect(table.count == 198)
        // The same secret under two ids: the first has the tokens, and the second's removal leaves them.
        table.addMember(5, secret: secret(1))
        table.remove(.member(5))
        #expect(table.match(secret(1).token(day: today, counter: 1))?.route == .member(1))
        table.remove(.member(1))
        #expect(table.count == 99)
        #expect(table.match(secret(2).token(day: today, counter: 1))?.route == .member(2))
        table.remove(.member(2))
        table.remove(.member(2))
        #expect(table.count == 0)
    }

    @Test func `a new day brings its tokens and takes the oldest away`() {
        var table = RoutingTable(day: today)
        table.addMember(1, secret: secret(1))
        table.addShared(2, secret: secret(2))
        table.use(secret(1).token(day: today, counter: 1))
        table.use(secret(1).token(day: today - 1, counter: 9))
        table.roll(to: today + 1)
        #expect(table.count == 99 + 96)
        #expect(table.match(secret(1).token(day: today - 1, counter: 12)) == nil)
        #expect(table.match(secret(1).token(day: today, counter: 1)) == nil)
        #expect(table.match(secret(1).token(day: today, counter: 33)) != nil)
        #expect(table.match(secret(1).token(day: today + 2, counter: 32)) != nil)
        #expect(table.counters(ofMember: 1) == [RoutingCounter(day: today, next: 2)])
        table.roll(to: today + 400)
        #expect(table.count == 99 + 96)
        #expect(table.match(secret(2).token(day: today + 401, counter: 1)) != nil)
        #expect(table.counters(ofMember: 1).isEmpty)
    }

    @Test func `the ends of the numbers are no trap`() {
        for day in [0, 1, .max - 1, .max] as [UInt32] {
            var table = RoutingTable(day: day)
            table.addMember(1, secret: secret(1), counters: [RoutingCounter(day: day, next: .max)])
            let last = secret(1).token(day: day, counter: .max - 1)
            #expect(table.match(last) != nil)
            let isUsed = table.use(last)
            #expect(isUsed)
            #expect(table.match(secret(1).token(day: day, counter: .max - 32)) != nil)
            table.roll(to: 0)
            table.roll(to: .max)
            table.remove(.member(1))
            #expect(table.count == 0)
        }
    }

    @Test func `counters survive a restart`() {
        var table = RoutingTable(day: today)
        table.addMember(1, secret: secret(1))
        table.use(secret(1).token(day: today, counter: 20))
        table.use(secret(1).token(day: today - 1, counter: 2))
        let kept = table.counters(ofMember: 1)
        var next = RoutingTable(day: today)
        next.addMember(1, secret: secret(1), counters: kept + [RoutingCounter(day: today - 9, next: 4)])
        #expect(next.counters(ofMember: 1) == kept)
        #expect(next.match(secret(1).token(day: today, counter: 20)) == nil)
        #expect(next.match(secret(1).token(day: today, counter: 52)) != nil)
    }
}

@Suite struct DialTokensTests {
    @Test func `a failed dial repeats its token, however often`() {
        var table = RoutingTable(day: today)
        table.addMember(1, secret: secret(1))
        var tokens = DialTokens(secret: secret(1))
        let first = tokens.nextToken(day: today)
        for _ in 0..<1_000 { #expect(tokens.nextToken(day: today) == first) }
        #expect(table.match(first) != nil)
        // Even responders that close every time do not lead out of the window.
        for _ in 0..<1_000 {
            tokens.closedBeforeActTwo()
            #expect(table.match(tokens.nextToken(day: today)) != nil)
        }
    }

    @Test func `two sides in step never show a token twice`() {
        var table = RoutingTable(day: today)
        table.addMember(1, secret: secret(1))
        var tokens = DialTokens(secret: secret(1))
        var seen: Set<RoutingToken> = []
        for step in 0..<200 {
            let day = today + UInt32(step / 100)
            table.roll(to: day)
            let token = tokens.nextToken(day: day)
            #expect(table.match(token) != nil)
            #expect(seen.insert(token).inserted)
            table.use(token)
            tokens.succeeded()
        }
        #expect(tokens.counters == [RoutingCounter(day: today + 1, next: 101)])
    }

    @Test(arguments: [-31, -30, -1, 0, 1, 16, 31])
    func `counters that have drifted apart find each other within 32 dials`(drift: Int) {
        let (dialer, responder) = (UInt32(100 + drift), UInt32(100))
        var table = RoutingTable(day: today)
        table.addMember(1, secret: secret(1), counters: [RoutingCounter(day: today, next: responder)])
        var tokens = DialTokens(secret: secret(1), counters: [RoutingCounter(day: today, next: dialer)])
        var dials = 1
        while table.match(tokens.nextToken(day: today)) == nil, dials < 100 {
            tokens.closedBeforeActTwo()
            dials += 1
        }
        #expect(dials <= 32)
        // From then on they are in step.
        for _ in 0..<10 {
            let token = tokens.nextToken(day: today)
            let isUsed = table.use(token)
            #expect(isUsed)
            tokens.succeeded()
        }
    }

    @Test func `a larger drift ends with the day`() {
        var table = RoutingTable(day: today)
        table.addMember(1, secret: secret(1), counters: [RoutingCounter(day: today, next: 500)])
        var tokens = DialTokens(secret: secret(1))
        for _ in 0..<64 {
            #expect(table.match(tokens.nextToken(day: today)) == nil)
            tokens.closedBeforeActTwo()
        }
        #expect(table.match(tokens.nextToken(day: today + 1)) != nil)
    }
}
