/// The dialer's side of a member's tokens: which one to show next (Links.md, "Routing tokens").
///
/// Each dial shows the next counter above the last one that was answered. The listener knows all of these, whatever became of
/// the dials, because it moves its window by what it is shown and not by what came of it. A token comes again only after
/// ``TokenLimits/reach`` dials in a row without an answer.
package struct DialTokens: Sendable {
    /// A token that was shown, until it cannot be answered any more.
    private struct Shown: Hashable, Sendable {
        let token: RoutingToken
        /// `nil` for a token of the present generation.
        let day: UInt32?
        let counter: UInt32
    }

    private let secret: RoutingSecret
    /// What is to be saved.
    package private(set) var counters: DialCounters
    private var shown: [Shown] = []
    /// Dials in a row that met silence.
    private var silentCount = 0

    /// A dialer that has never dialled.
    package init(secret: RoutingSecret) {
        self.secret = secret
        counters = DialCounters()
    }

    /// - Parameter saved: where the counters stood when they were saved. Those that may have been used since are passed over.
    package init(secret: RoutingSecret, saved: DialCounters) {
        self.secret = secret
        counters = saved
        counters.series.skip(TokenLimits.unsaved)
        for index in counters.days.indices { counters.days[index].series.skip(1) }
    }

    /// By which we knock there.
    package var knock: KnockSecret { secret.knock }

    /// What we announce ourselves by on a LAN.
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

    /// Whether a dial that has failed is to be tried again with a token of the day, in case the listener has lost its counters
    /// or we have: always when a node has refused the counter, and every fourth time when there was only silence.
    package mutating func wantsDay(wasRefused: Bool) -> Bool {
        if wasRefused { return true }
        silentCount &+= 1
        return silentCount % 4 == 2
    }

    /// The listener has answered a dial with this token, and the answer is authentic. To be called before act 3 leaves.
    /// - Returns: whether the counters want to be saved now.
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

    /// The first frame has come over a link with this token: the listener has completed the handshake. If the token was one
    /// of a day, both sides go on with the generation that it names.
    /// - Returns: whether the counters want to be saved now.
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

/// Whether counters have moved so far that what is saved of them would lag behind.
func isUnsaved(_ before: UInt32, _ after: UInt32) -> Bool {
    before / TokenLimits.unsaved != after / TokenLimits.unsaved
}
