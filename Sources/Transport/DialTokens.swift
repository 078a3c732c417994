import Discovery

/// The dialer's side of a member's window: which token to show next (protocol, section 2).
///
/// A dial that failed repeats its token, so that no number of failed dials runs out of the window. Only a responder
/// that closed before act 2, or was silent over every way, may not have known the token: then the next dial tries the next
/// counter of the window, and after 32 the first again, so that two sides whose counters have drifted apart in a crash find
/// each other.
package struct DialTokens: Sendable {
    private let secret: RoutingSecret
    /// The lowest counter of each day that we have not used up; today and later only.
    private var next: [UInt32: UInt32] = [:]
    private var day: UInt32 = 0
    /// How far into the window the next dial looks, 0…31.
    private var step: UInt32 = 0

    /// - Parameter counters: where they stood at the last ``counters``.
    package init(secret: RoutingSecret, counters: [RoutingCounter] = []) {
        self.secret = secret
        for counter in counters { next[counter.day] = counter.next }
    }

    /// The token for a dial on `day`. The same until one of the functions below says how the dial went.
    package mutating func nextToken(day: UInt32) -> RoutingToken {
        if day != self.day {
            self.day = day
            step = 0
            next = next.filter { $0.key >= day }
        }
        return secret.token(day: day, counter: counter)
    }

    /// The responder closed before act 2: it may not know this token.
    package mutating func closedBeforeActTwo() { step = (step + 1) % RoutingTable.windowCount }

    /// Nobody has said a word: the responder is not there, or over UDP it does not know this token. To it the next one is as
    /// good.
    package mutating func unanswered() { step = (step + 1) % RoutingTable.windowCount }

    /// A link was opened with the token: this counter and those before it are used up.
    package mutating func succeeded() {
        next[day] = counter + 1
        step = 0
    }

    /// What we announce ourselves by on a LAN.
    package var lan: LanSecret { secret.lan }

    /// Where the counters stand, by day.
    package var counters: [RoutingCounter] {
        next.keys.sorted().compactMap { day in next[day].map { RoutingCounter(day: day, next: $0) } }
    }

    private var counter: UInt32 { min(next[day] ?? 1, .max - RoutingTable.windowCount) + step }
}
