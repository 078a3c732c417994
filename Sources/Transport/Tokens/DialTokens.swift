/// The dialer's tokens for a member: which one to show next (Links.md, "Routing tokens").
package struct DialTokens: Sendable {
    /// A shown token that may still be answered.
    private struct Shown: Hashable, Sendable {
        let token: RoutingToken
        /// `nil` for a token of the current generation.
        let day: UInt32?
        let counter: UInt32
    }

    private let secret: RoutingSecret
    /// To be saved.
    package private(set) var counters: DialCounters
    private var shown: [Shown] = []
    private var silentCount = 0

    package init(secret: RoutingSecret) {
        self.secret = secret
        counters = DialCounters()
    }

    /// - Parameter saved: the saved counters. Skips those that may have been used since.
    package init(secret: RoutingSecret, saved: DialCounters) {
        self.secret = secret
        counters = saved
        counters.series.skip(TokenLimits.unsaved)
        for index in counters.days.indices { counters.days[index].series.skip(1) }
    }

    package var knock: KnockSecret { secret.knock }

    package var lan: LanSecret { secret.lan }

    /// The token for one more dial.
    /// - Parameter day: for a token of a day, days since the start of 1970, UTC; `nil` for the next counter.
    package mutating func nextToken(day: UInt32? = nil) -> RoutingToken {
        let next: Shown
        if let day {
            let index = indexOfDay(day)
            let counter = counters.days[index].series.advance(reach: TokenLimits.dayReach)
            next = Shown(token: secret.token(day: day, counter: counter), day: day, counter: counter)
        } else {
            let counter = counters.series.advance(reach: TokenLimits.reach)
            next = Shown(token: secret.token(counters.generation, counter: counter), day: nil, counter: counter)
        }
        shown.removeAll { $0 == next }
        shown.append(next)
        return next.token
    }

    /// Whether to retry a failed dial with a token of the day, in case either side has lost its counters. Always after
    /// a node has refused the counter, and every fourth time after silence.
    package mutating func wantsDay(wasRefused: Bool) -> Bool {
        if wasRefused { return true }
        silentCount &+= 1
        return silentCount % 4 == 2
    }

    /// The listener sent an authentic answer to a dial with this token. Call before act 3 leaves.
    /// - Returns: whether the counters must be saved now.
    package mutating func answered(_ token: RoutingToken) -> Bool {
        guard let last = shown.last(where: { $0.token == token }) else { return false }
        silentCount = 0
        guard let day = last.day else {
            let before = counters.series.answered
            counters.series.answered = max(before, last.counter)
            shown.removeAll { $0.day == nil && $0.counter < last.counter }
            return isUnsaved(before, counters.series.answered)
        }
        let index = indexOfDay(day)
        counters.days[index].series.answered = max(counters.days[index].series.answered, last.counter)
        shown.removeAll { $0.day == day && $0.counter < last.counter }
        return true
    }

    /// The first frame arrived over a link with this token: the listener has completed the handshake. After a token of
    /// a day, both sides continue with the generation that it names.
    /// - Returns: whether the counters must be saved now.
    package mutating func confirmed(_ token: RoutingToken) -> Bool {
        guard let last = shown.last(where: { $0.token == token }), let day = last.day,
            counters.days.contains(where: { $0.day == day && $0.series.answered == last.counter }),
            counters.generation != TokenGeneration(day: day, counter: last.counter)
        else { return false }
        counters.generation = TokenGeneration(day: day, counter: last.counter)
        counters.series = DialCounters.Series()
        shown.removeAll { $0.day == nil }
        return true
    }

    private mutating func indexOfDay(_ day: UInt32) -> Int {
        if let index = counters.days.firstIndex(where: { $0.day == day }) { return index }
        counters.days.insert(DialCounters.Day(day: day), at: 0)
        counters.days = Array(counters.days.prefix(TokenLimits.dialedDays))
        let kept = Set(counters.days.map(\.day))
        shown.removeAll { shown in shown.day.map { !kept.contains($0) } ?? false }
        return 0
    }
}

/// Whether the counters have moved too far beyond the saved ones.
func isUnsaved(_ before: UInt32, _ after: UInt32) -> Bool {
    before / TokenLimits.unsaved != after / TokenLimits.unsaved
}

/// Limits of the routing tokens (Links.md, "Routing tokens").
package enum TokenLimits {
    /// V: the dialer's window of counters above the last answered one.
    package static let reach: UInt32 = 16
    /// W: lookahead above the highest counter shown: V plus the 8 counters that a crash may lose.
    package static let ahead: UInt32 = 24
    /// V and W of the tokens of one day.
    package static let dayReach: UInt32 = 4
    package static let dayAhead: UInt32 = 6
    /// Tokens of a shared secret for a day, and for any day.
    package static let shared: UInt32 = 16
    /// Counters that may be lost in a crash, on either side.
    package static let unsaved: UInt32 = 8
    /// Days whose counters a dialer keeps.
    static let dialedDays = 3
}

/// A series of a member's counters. A handshake under a token of a day starts another one, named after that token.
package struct TokenGeneration: Hashable, Codable, Sendable {
    /// Days since the start of 1970, UTC, by the dialer's clock.
    package let day: UInt32
    package let counter: UInt32

    package init(day: UInt32, counter: UInt32) {
        self.day = day
        self.counter = counter
    }

    package static let first = TokenGeneration(day: 0, counter: 0)
}

/// A listener's window over one series of counters. Counters begin at 1; 0 stands for none.
package struct TokenWindow: Hashable, Codable, Sendable {
    /// h: the highest counter that a dialer has shown.
    package private(set) var shown: UInt32
    /// p: the highest counter whose handshake was completed, at most ``shown``.
    package private(set) var completed: UInt32

    /// Higher counters are ignored: 2^32 handshakes do not happen.
    private static let last = UInt32.max - 64

    package init(shown: UInt32 = 0, completed: UInt32 = 0) {
        self.completed = min(completed, Self.last)
        self.shown = max(self.completed, min(shown, Self.last))
    }

    /// Clamps counters, so that the sums below cannot trap on decoded values.
    package init(from decoder: any Decoder) throws {
        let container = try decoder.container(keyedBy: CodingKeys.self)
        self.init(
            shown: try container.decode(UInt32.self, forKey: .shown),
            completed: try container.decode(UInt32.self, forKey: .completed))
    }

    private enum CodingKeys: String, CodingKey { case shown, completed }

    /// The counters that are accepted: above max(h − V, p), up to h + W.
    func accepted(reach: UInt32, ahead: UInt32) -> ClosedRange<UInt32> {
        max(shown > reach ? shown - reach : 0, completed) + 1...shown + ahead
    }

    mutating func show(_ counter: UInt32) { self = TokenWindow(shown: max(shown, counter), completed: completed) }

    mutating func complete(_ counter: UInt32) {
        self = TokenWindow(shown: max(shown, counter), completed: max(completed, counter))
    }
}

/// A listener's counters for one member, kept over a restart.
package struct ListenerCounters: Hashable, Codable, Sendable {
    package struct Day: Hashable, Codable, Sendable {
        package let day: UInt32
        package let window: TokenWindow

        package init(day: UInt32, window: TokenWindow) {
            self.day = day
            self.window = window
        }
    }

    package var generation: TokenGeneration
    package var window: TokenWindow
    /// The generation to which the dialer switches once a frame confirms its last handshake.
    package var next: TokenGeneration?
    /// Used days, three at most.
    package var days: [Day]

    package init(
        generation: TokenGeneration = .first, window: TokenWindow = TokenWindow(), next: TokenGeneration? = nil,
        days: [Day] = []
    ) {
        self.generation = generation
        self.window = window
        self.next = next
        self.days = days
    }
}

/// A dialer's counters for one member, kept over a restart.
package struct DialCounters: Hashable, Codable, Sendable {
    package struct Series: Hashable, Codable, Sendable {
        /// c: the highest counter that the listener has answered.
        package var answered: UInt32
        package var shown: UInt32

        package init(answered: UInt32 = 0, shown: UInt32 = 0) {
            self.answered = answered
            self.shown = shown
        }

        /// Skips counters that may have been used after the last save: they come last.
        mutating func skip(_ count: UInt32) { shown = max(shown, answered + min(count, .max - answered)) }

        /// The next counter, up to V above the last answered one; then wraps to the first of these.
        mutating func advance(reach: UInt32) -> UInt32 {
            let base = min(answered, UInt32.max - reach)
            let next = shown >= base && shown < base + reach ? shown + 1 : base + 1
            shown = next
            return next
        }
    }

    package struct Day: Hashable, Codable, Sendable {
        package let day: UInt32
        package var series = Series()
    }

    package var generation: TokenGeneration
    package var series: Series
    /// The newest first; at most ``TokenLimits/dialedDays``.
    package var days: [Day]

    package init(generation: TokenGeneration = .first, series: Series = Series(), days: [Day] = []) {
        self.generation = generation
        self.series = series
        self.days = days
    }
}
