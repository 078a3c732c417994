/// The numbers of the routing tokens (Links.md, "Routing tokens").
package enum TokenLimits {
    /// V: counters that a dialer shows above the last one that was answered.
    package static let reach: UInt32 = 16
    /// W: counters that a listener knows above the highest that was shown to it. Half of ``reach`` more, for a listener
    /// that has lost as many in a crash.
    package static let ahead: UInt32 = 24
    /// V and W of the tokens of one day.
    package static let dayReach: UInt32 = 4
    package static let dayAhead: UInt32 = 6
    /// Tokens of a shared secret for a day, and for any day.
    package static let shared: UInt32 = 16
    /// Counters that either side may be ahead of what it has saved.
    package static let unsaved: UInt32 = 8
    /// Days whose counters a dialer keeps.
    static let dialedDays = 3
}

/// Which series of counters a member's tokens come from. The first one begins with the conversation. A handshake by a token of
/// a day begins another one and names it, so that two sides that have lost their counters begin anew without repeating any.
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

/// What a listener knows of one series of counters. Counters begin at 1; 0 stands for none.
package struct TokenWindow: Hashable, Codable, Sendable {
    /// h: the highest counter that a dialer has shown.
    package private(set) var shown: UInt32
    /// p: the highest counter whose handshake was completed, at most ``shown``.
    package private(set) var completed: UInt32

    /// Above it a counter is not followed: 2^32 handshakes do not happen.
    private static let last = UInt32.max - 64

    package init(shown: UInt32 = 0, completed: UInt32 = 0) {
        self.completed = min(completed, Self.last)
        self.shown = max(self.completed, min(shown, Self.last))
    }

    /// Counters out of their bounds are cut: what is read must not trap in the sums below.
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

/// The counters of a listener for one member: what a node keeps over a restart.
package struct ListenerCounters: Hashable, Codable, Sendable {
    /// A day with its counters.
    package struct Day: Hashable, Codable, Sendable {
        /// Days since the start of 1970, UTC.
        package let day: UInt32
        package let window: TokenWindow

        package init(day: UInt32, window: TokenWindow) {
            self.day = day
            self.window = window
        }
    }

    package var generation: TokenGeneration
    package var window: TokenWindow
    /// The generation that the dialer goes on to when it has heard of its last handshake.
    package var next: TokenGeneration?
    /// Those that were used, of three days at most.
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

/// The counters of a dialer for one member: what a node keeps over a restart.
package struct DialCounters: Hashable, Codable, Sendable {
    /// Where one series of counters stands.
    package struct Series: Hashable, Codable, Sendable {
        /// c: the highest counter that the listener has answered.
        package var answered: UInt32
        /// The last counter that was shown.
        package var shown: UInt32

        package init(answered: UInt32 = 0, shown: UInt32 = 0) {
            self.answered = answered
            self.shown = shown
        }

        /// What was saved may lag behind by so many counters: they are not shown before all others were.
        mutating func skip(_ count: UInt32) { shown = max(shown, answered + min(count, .max - answered)) }

        /// The counter after the last one, up to V above the last answered one; then the first of these again.
        mutating func advance(reach: UInt32) -> UInt32 {
            let base = min(answered, UInt32.max - reach)
            let next = shown >= base && shown < base + reach ? shown + 1 : base + 1
            shown = next
            return next
        }
    }

    /// A day with its counters.
    package struct Day: Hashable, Codable, Sendable {
        /// Days since the start of 1970, UTC.
        package let day: UInt32
        package var series: Series

        package init(day: UInt32, series: Series = Series()) {
            self.day = day
            self.series = series
        }
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
