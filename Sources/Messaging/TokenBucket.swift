/// A rate limit: `burst` at once, then one every `interval`.
package struct TokenBucket: Hashable, Sendable {
    private let interval: Milliseconds
    private let burst: Int
    /// When the bucket would be full again.
    private var fullAt: Timestamp?

    package init(interval: Milliseconds, burst: Int) {
        self.interval = interval
        self.burst = burst
    }

    /// Takes `count` tokens if at least one is there; the next taker waits for those that were not.
    /// - Returns: `nil` if there was one, otherwise how long to wait for it.
    package mutating func take(_ count: Int = 1, now: Timestamp) -> Milliseconds? {
        let start = max(fullAt ?? now, now)
        let backlog = start - now
        let room = interval * Milliseconds(burst - 1)
        guard backlog <= room else { return backlog - room }
        fullAt = start + interval * Milliseconds(count)
        return nil
    }

    /// Takes `count` tokens, one after the other, now or in advance.
    /// - Parameter inAdvance: how many may be taken before they are there.
    /// - Returns: how long it is until the last one is there: 0 if it is.
    package mutating func reserve(_ count: Int = 1, inAdvance: Int, now: Timestamp) -> Milliseconds {
        // A clock that was set back does not make anybody wait for what it has lost.
        let latest = now + interval * Milliseconds(burst + inAdvance - 1)
        let start = min(max(fullAt ?? now, now) + interval * Milliseconds(count - 1), latest)
        fullAt = start + interval
        return max(0, start - now - interval * Milliseconds(burst - 1))
    }

    /// There is no token now.
    package func isSpent(now: Timestamp) -> Bool {
        let backlog = max(fullAt ?? now, now) - now
        return backlog > interval * Milliseconds(burst - 1)
    }

    /// When there is a token, if none is taken before; `nil`: now.
    package var readyAt: Timestamp? { fullAt.map { $0 - interval * Milliseconds(burst - 1) } }

    /// Nothing has been taken that has not come back.
    package func isFull(now: Timestamp) -> Bool { fullAt.map { $0 <= now } ?? true }
}
