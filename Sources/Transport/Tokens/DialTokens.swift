/// The dialer's tokens for a member: which one to show next (Links.md, "Routing tokens").
///
/// Each dial shows the next counter above the last answered one. The listener knows all of these tokens, because its
/// window follows the tokens shown, not the dials' outcomes. A token is reused only after ``TokenLimits/reach``
/// unanswered dials in a row.
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

    /// Our key for knocks at this member.
    package var knock: KnockSecret { secret.knock }

    /// Our key for LAN announcements to this member.
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
