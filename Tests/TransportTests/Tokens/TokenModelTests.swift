import Cryptography
import Testing
import Transport

/// A dialer and a listener with durable counters, and an attacker between them that cuts, delays and repeats (Links.md,
/// "Routing tokens").
private struct TokenModel {
    private let secret = RoutingSecret(SecretBytes(copying: [UInt8](repeating: 9, count: 32)))
    private var random: SplitMix64
    private var table: RoutingTable
    private var dialer: DialTokens
    private var savedListener = ListenerCounters()
    private var savedDialer = DialCounters()
    private var listenerDay: UInt32
    private var dialerDay: UInt32
    /// Tokens the attacker has seen, and acts 3 that it delays.
    private var recorded: [RoutingToken] = []
    private var actsThree: [RoutingToken] = []
    /// Dials by token since the last answer; a crash forgets them.
    private var seen: [RoutingToken: Int] = [:]
    private var unanswered = 0
    private(set) var repeats = 0
    private(set) var largestTable = 0

    init(seed: UInt64, apart days: UInt32) {
        random = SplitMix64(state: seed)
        listenerDay = 20_000
        dialerDay = 20_000 - days
        table = RoutingTable(day: listenerDay)
        table.addMember(1, secret: secret)
        dialer = DialTokens(secret: secret)
    }

    private mutating func roll(_ bound: Int) -> Int { Int.random(in: 0..<bound, using: &random) }

    private mutating func saveListener() { savedListener = table.counters(ofMember: 1) }
    private mutating func saveDialer() { savedDialer = dialer.counters }

    mutating func crashListener() {
        table = RoutingTable(day: listenerDay)
        table.addMember(1, secret: secret, counters: savedListener)
    }

    mutating func crashDialer() {
        dialer = DialTokens(secret: secret, saved: savedDialer)
        seen = [:]
    }

    mutating func restoreListener(_ counters: ListenerCounters) {
        savedListener = counters
        crashListener()
    }

    mutating func restoreDialer(_ counters: DialCounters) {
        savedDialer = counters
        crashDialer()
    }

    var backup: (ListenerCounters, DialCounters) { (table.counters(ofMember: 1), dialer.counters) }

    private mutating func show(ofDay: Bool) -> RoutingToken {
        let token = dialer.nextToken(day: ofDay ? dialerDay : nil)
        unanswered += 1
        if let last = seen[token] {
            repeats += 1
            let reach = Int(ofDay ? TokenLimits.dayReach : TokenLimits.reach)
            #expect(unanswered - last >= reach, "a token came again after \(unanswered - last) dials")
        }
        seen[token] = unanswered
        recorded.append(token)
        return token
    }

    /// Act 1 reaches the listener. Returns whether it answers.
    private mutating func arrive(_ token: RoutingToken) -> Bool {
        guard table.match(token).map({ !$0.isKnock }) ?? false else { return false }
        if table.show(token) { saveListener() }
        largestTable = max(largestTable, table.count)
        return true
    }

    private mutating func answer(_ token: RoutingToken) {
        if dialer.answered(token) { saveDialer() }
        unanswered = 0
        seen = seen.mapValues { _ in -1_000 }
    }

    mutating func disturb() {
        let token = show(ofDay: roll(4) == 0)
        switch roll(5) {
        case 0: break
        case 1: _ = arrive(token)
        case 2: if arrive(token) { answer(token) }
        case 3:
            guard arrive(token) else { break }
            answer(token)
            actsThree.append(token)
        default:
            guard arrive(token) else { break }
            answer(token)
            if table.use(token) { saveListener() }
            if roll(2) == 0, dialer.confirmed(token) { saveDialer() }
        }
        if roll(3) == 0, let old = recorded.randomElement(using: &random) { _ = arrive(old) }
        if roll(3) == 0, !actsThree.isEmpty {
            // Act 3 arrives late, while its handshake is pending.
            if table.use(actsThree.remove(at: roll(actsThree.count))) { saveListener() }
        }
        if roll(40) == 0 { crashListener() }
        if roll(40) == 0 { crashDialer() }
        if roll(50) == 0 {
            listenerDay += 1
            table.roll(to: listenerDay)
            dialerDay += 1
        }
    }

    /// Whether the first undisturbed dial opens a link in one of its two rounds.
    mutating func meetsInTwoRounds() -> Bool { meets() || meets(ofDay: true) }

    /// Whether the first undisturbed dial opens a link.
    mutating func meets(ofDay: Bool = false) -> Bool {
        let token = show(ofDay: ofDay)
        guard arrive(token) else { return false }
        answer(token)
        if table.use(token) { saveListener() }
        if dialer.confirmed(token) { saveDialer() }
        return true
    }
}

@Suite struct TokenModelTests {
    @Test(arguments: [0, 1, 2, 18_000] as [UInt32])
    func `the first undisturbed dial opens a link after a thousand cuts, crashes and repetitions`(apart: UInt32) {
        for seed in 1...12 as ClosedRange<UInt64> {
            var model = TokenModel(seed: seed, apart: apart)
            for cut in 1...1_000 {
                model.disturb()
                guard cut % 97 == 0 || cut == 1_000 else { continue }
                // The second round covers a generation whose first frame was cut off: a token of the day brought it
                // about.
                let meets = apart > 1 ? model.meets() : model.meetsInTwoRounds()
                #expect(meets, "seed \(seed), cut \(cut)")
                let meetsAgain = model.meets()
                #expect(meetsAgain, "seed \(seed), cut \(cut): the next one")
            }
            #expect(model.largestTable <= 99)
        }
    }

    @Test func `one dial by a day token repairs counters restored from an old backup`() {
        for seed in 1...40 as ClosedRange<UInt64> {
            var model = TokenModel(seed: seed, apart: UInt32(seed % 2))
            let old = model.backup
            #expect(meets(200, &model) == 200)
            switch seed % 3 {
            case 0: model.restoreListener(old.0)
            case 1: model.restoreDialer(old.1)
            default:
                model.restoreListener(old.0)
                model.restoreDialer(old.1)
            }
            if seed % 3 < 2 { #expect(meets(1, &model) == 0) }
            let meetsByDay = model.meets(ofDay: true)
            #expect(meetsByDay)
            #expect(meets(100, &model) == 100)
        }
    }

    private func meets(_ count: Int, _ model: inout TokenModel) -> Int {
        var result = 0
        for _ in 0..<count where model.meets() { result += 1 }
        return result
    }
}
