import Cryptography
import FoundationEssentials
import Testing

@testable import Transport

private func secret(_ byte: UInt8) -> RoutingSecret {
    RoutingSecret(SecretBytes(copying: [UInt8](repeating: byte, count: 32)))
}

private func identity(_ byte: UInt8) throws -> IdentityKey {
    IdentityKey(try SecretKey(SecretBytes(copying: [UInt8](repeating: byte, count: 32))))
}

private let today: UInt32 = 20_000

private func memberTable() -> RoutingTable {
    var table = RoutingTable(day: today)
    table.addMember(1, secret: secret(1))
    return table
}

@Suite struct RoutingSecretTests {
    @Test func `a card and an invite with the same bytes have different tokens`() {
        let shared = SecretBytes(copying: [UInt8](repeating: 3, count: 32))
        let card = RoutingSecret.derive(shared: shared, purpose: "card").knock.token(day: today)
        let invite = RoutingSecret.derive(shared: shared, purpose: "invite").knock.token(day: today)
        #expect(card != invite)
    }
}

@Suite struct RoutingTableTests {
    @Test func `a member has 24 counter tokens, 6 on each of three days, and knock tokens`() {
        let table = memberTable()
        #expect(table.count == 24 + 3 * 6 + 4)
        let there = RoutingTable.Match(route: .member(1), isKnock: false)
        for counter in 0...60 as ClosedRange<UInt32> {
            let match = table.match(secret(1).token(.first, counter: counter))
            #expect(match == ((1...24).contains(counter) ? there : nil))
            #expect(table.match(secret(1).token(counter: counter)) == nil)
        }
        for day in today - 2...today + 2 {
            let isNear = (today - 1...today + 1).contains(day)
            for counter in 0...40 as ClosedRange<UInt32> {
                let match = table.match(secret(1).token(day: day, counter: counter))
                #expect(match == (isNear && (1...6).contains(counter) ? there : nil))
            }
            let knock = table.match(secret(1).knock.token(day: day))
            #expect(knock == (isNear ? RoutingTable.Match(route: .member(1), isKnock: true) : nil))
        }
        #expect(table.match(secret(1).knock.token) == RoutingTable.Match(route: .member(1), isKnock: true))
        #expect(table.match(secret(2).token(.first, counter: 1)) == nil)
    }

    @Test func `a shown token moves the window ahead, and a completed token is used up`() {
        var table = memberTable()
        func known() -> [UInt32] { (0...100).filter { table.match(secret(1).token(.first, counter: $0)) != nil } }
        table.show(secret(1).token(.first, counter: 20))
        // The window begins V below the shown counter: no dial was completed.
        #expect(known() == Array(5...44))
        table.use(secret(1).token(.first, counter: 10))
        #expect(known() == Array(11...44))
        table.show(secret(1).token(.first, counter: 12))
        #expect(known() == Array(11...44))
        #expect(table.counters(ofMember: 1).window == TokenWindow(shown: 20, completed: 10))
        // A knock, a used token and an unknown token change nothing.
        for token in [secret(1).knock.token, secret(1).token(.first, counter: 10), secret(2).token(.first, counter: 1)]
        {
            let isUsed = table.use(token)
            let isShown = table.show(token)
            #expect(!isUsed && !isShown)
        }
        #expect(known() == Array(11...44))
    }

    @Test func `a listener asks to save its counters before a crash can lose eight`() {
        var table = memberTable()
        var saved: UInt32 = 0
        for counter in 1...100 as ClosedRange<UInt32> {
            if table.show(secret(1).token(.first, counter: counter)) { saved = counter }
            #expect(counter - saved < TokenLimits.unsaved)
        }
        let isSavedForDay = table.show(secret(1).token(day: today, counter: 1))
        #expect(isSavedForDay)
    }

    @Test func `the old generation of tokens stays until a token of the new one is shown`() {
        var table = memberTable()
        table.use(secret(1).token(.first, counter: 3))
        table.use(secret(1).token(day: today, counter: 2))
        let next = TokenGeneration(day: today, counter: 2)
        func known(_ generation: TokenGeneration) -> [UInt32] {
            (0...50).filter { table.match(secret(1).token(generation, counter: $0)) != nil }
        }
        #expect(known(.first) == Array(4...27) && known(next) == Array(1...16))
        #expect(table.match(secret(1).token(day: today, counter: 2)) == nil)
        #expect(table.match(secret(1).token(day: today, counter: 8)) != nil)
        // An earlier token of the day replaces the generation.
        table.use(secret(1).token(day: today, counter: 3))
        let later = TokenGeneration(day: today, counter: 3)
        #expect(known(next) == [] && known(later) == Array(1...16) && known(.first) == Array(4...27))
        table.show(secret(1).token(later, counter: 5))
        #expect(known(.first) == [] && known(later) == Array(1...29))
        #expect(table.counters(ofMember: 1).generation == later && table.counters(ofMember: 1).next == nil)
        table.remove(.member(1))
        #expect(table.count == 0)
    }

    @Test func `a shared secret has 16 tokens a day and 16 of any day, all reusable`() {
        var table = RoutingTable(day: today)
        var generator = SplitMix64(state: 1)
        table.addShared(4, secret: secret(9))
        #expect(table.count == 64)
        for step in 0..<200 {
            let token = secret(9).sharedToken(day: step % 2 == 0 ? today : nil, using: &generator)
            #expect(table.match(token) == RoutingTable.Match(route: .shared(4), isKnock: false))
            let isUsed = table.use(token)
            let isShown = table.show(token)
            #expect(!isUsed && !isShown)
        }
        #expect(table.count == 64)
        table.roll(to: today + 18_000)
        #expect(table.match(secret(9).sharedToken(day: nil, using: &generator)) != nil)
        #expect(table.match(secret(9).sharedToken(day: today, using: &generator)) == nil)
    }

    @Test func `a tombstone accepts knocks of three rolling days and by the token of any day`() {
        var table = RoutingTable(day: today)
        table.addKnockOnly(8, secret: secret(6).knock)
        #expect(table.count == 4)
        for token in (today - 1...today + 1).map({ secret(6).knock.token(day: $0) }) + [secret(6).knock.token] {
            #expect(table.match(token) == RoutingTable.Match(route: .knockOnly(8), isKnock: true))
            let isUsed = table.use(token)
            #expect(!isUsed)
        }
        table.roll(to: today + 30)
        #expect(table.match(secret(6).knock.token(day: today)) == nil)
        #expect(table.match(secret(6).knock.token(day: today + 31)) != nil)
        #expect(table.match(secret(6).knock.token) != nil)
        table.remove(.knockOnly(8))
        #expect(table.count == 0)
    }

    @Test func `removing one route leaves the others whole, even with shared tokens`() {
        var table = memberTable()
        table.addMember(2, secret: secret(2))
        // A tombstone with the tokens of a live member neither takes nor removes them.
        table.addKnockOnly(3, secret: secret(1).knock)
        #expect(table.count == 92)
        table.remove(.knockOnly(3))
        #expect(table.count == 92)
        // Two ids share a secret: the first has the tokens, and removing the second keeps them.
        table.addMember(5, secret: secret(1))
        table.remove(.member(5))
        #expect(table.match(secret(1).token(.first, counter: 1))?.route == .member(1))
        table.remove(.member(1))
        #expect(table.count == 46)
        #expect(table.match(secret(2).token(.first, counter: 1))?.route == .member(2))
        table.remove(.member(2))
        table.remove(.member(2))
        #expect(table.count == 0)
    }

    @Test func `a new day adds its tokens, removes the oldest day and keeps the counters`() {
        var table = memberTable()
        table.addShared(2, secret: secret(2))
        table.use(secret(1).token(.first, counter: 1))
        table.show(secret(1).token(day: today, counter: 1))
        table.show(secret(1).token(day: today - 1, counter: 5))
        table.roll(to: today + 1)
        #expect(table.match(secret(1).token(day: today - 1, counter: 6)) == nil)
        #expect(table.match(secret(1).token(day: today, counter: 7)) != nil)
        #expect(table.match(secret(1).token(day: today + 2, counter: 6)) != nil)
        #expect(
            table.counters(ofMember: 1).days == [
                ListenerCounters.Day(day: today, window: TokenWindow(shown: 1, completed: 0))
            ])
        table.roll(to: today + 400)
        #expect(table.count == 46 + 64)
        #expect(table.match(secret(2).token(day: today + 401, counter: 1)) != nil)
        #expect(table.match(secret(1).token(.first, counter: 25)) != nil)
        #expect(table.counters(ofMember: 1).days.isEmpty)
        #expect(table.counters(ofMember: 1).window == TokenWindow(shown: 1, completed: 1))
    }

    @Test func `a decoded window is cut to its bounds`() throws {
        for text in [
            #"{"shown":4294967295,"completed":4294967295}"#, #"{"shown":0,"completed":4294967295}"#,
            #"{"shown":3,"completed":9}"#,
        ] {
            let window = try JSONDecoder().decode(TokenWindow.self, from: Data(text.utf8))
            #expect(window == TokenWindow(shown: window.shown, completed: window.completed))
            #expect(window.completed <= window.shown)
            var table = RoutingTable(day: 1)
            table.addMember(1, secret: secret(1), counters: ListenerCounters(window: window))
            #expect(table.match(secret(1).token(.first, counter: window.shown + 24)) != nil)
        }
    }

    @Test func `extreme days and counters never trap`() {
        for day in [0, 1, .max - 1, .max] as [UInt32] {
            var table = RoutingTable(day: day)
            let window = TokenWindow(shown: .max, completed: .max)
            let counters = ListenerCounters(window: window, days: [ListenerCounters.Day(day: day, window: window)])
            table.addMember(1, secret: secret(1), counters: counters)
            for _ in 0..<3 {
                for token in [
                    secret(1).token(.first, counter: window.shown + 24), secret(1).token(day: day, counter: .max - 60),
                ] {
                    table.show(token)
                    table.use(token)
                }
            }
            table.roll(to: 0)
            table.roll(to: .max)
            table.remove(.member(1))
            #expect(table.count == 0)
        }
        var tokens = DialTokens(
            secret: secret(1),
            saved: DialCounters(
                generation: TokenGeneration(day: .max, counter: .max),
                series: DialCounters.Series(answered: .max, shown: .max),
                days: [DialCounters.Day(day: .max, series: DialCounters.Series(answered: .max, shown: .max))]))
        for _ in 0..<40 {
            for token in [tokens.nextToken(), tokens.nextToken(day: .max), tokens.nextToken(day: 0)] {
                _ = tokens.answered(token)
                _ = tokens.confirmed(token)
            }
        }
    }

    @Test func `counters survive a restart`() {
        var table = memberTable()
        table.show(secret(1).token(.first, counter: 20))
        table.use(secret(1).token(.first, counter: 9))
        table.use(secret(1).token(day: today - 1, counter: 2))
        let kept = table.counters(ofMember: 1)
        var next = RoutingTable(day: today)
        next.addMember(1, secret: secret(1), counters: kept)
        #expect(next.counters(ofMember: 1) == kept && next.count == table.count)
        for counter in 0...60 as ClosedRange<UInt32> {
            let token = secret(1).token(.first, counter: counter)
            #expect(next.match(token) == table.match(token))
        }
        #expect(next.match(secret(1).token(TokenGeneration(day: today - 1, counter: 2), counter: 1)) != nil)
    }
}

@Suite struct DialTokensTests {
    @Test func `a dialer repeats a token only after sixteen unanswered dials in a row`() {
        var tokens = DialTokens(secret: secret(1))
        let first = (0..<16).map { _ in tokens.nextToken() }
        #expect(Set(first).count == 16)
        #expect((0..<16).map { _ in tokens.nextToken() } == first)
        _ = tokens.answered(first[4])
        // First the tokens above the answered one, then the following ones, each once.
        let second = (0..<16).map { _ in tokens.nextToken() }
        #expect(Set(second).count == 16 && Set(second).isDisjoint(with: first.prefix(5)))
    }

    @Test func `a dialer with only successful dials never shows a token twice`() {
        var table = memberTable()
        var tokens = DialTokens(secret: secret(1))
        var seen: Set<RoutingToken> = []
        for step in 0..<200 {
            table.roll(to: today + UInt32(step / 100))
            let token = tokens.nextToken()
            #expect(table.match(token) != nil)
            #expect(seen.insert(token).inserted)
            table.show(token)
            _ = tokens.answered(token)
            table.use(token)
            _ = tokens.confirmed(token)
        }
        #expect(tokens.counters == DialCounters(series: DialCounters.Series(answered: 200, shown: 200)))
    }

    @Test func `a restarted dialer skips tokens it may have used since its last save`() {
        let saved = DialCounters(series: DialCounters.Series(answered: 40, shown: 41))
        var tokens = DialTokens(secret: secret(1), saved: saved)
        let shown = (0..<16).map { _ in tokens.nextToken() }
        #expect(shown == (Array(49...56) + Array(41...48)).map { secret(1).token(.first, counter: $0) })
        // Tokens shown without an answer are skipped as well.
        var clean = DialTokens(
            secret: secret(1), saved: DialCounters(series: DialCounters.Series(answered: 40, shown: 53)))
        #expect(clean.nextToken() == secret(1).token(.first, counter: 54))
    }

    @Test func `a dialer wants a day token after each refusal and every fourth silence`() {
        var tokens = DialTokens(secret: secret(1))
        for _ in 0..<3 {
            let isWanted = tokens.wantsDay(wasRefused: true)
            #expect(isWanted)
        }
        let silence = (0..<12).map { _ in tokens.wantsDay(wasRefused: false) }
        #expect(silence == (0..<12).map { $0 % 4 == 1 })
    }
}
