/// A rate limit: `burst` at once, then one every `interval`.
package struct TokenBucket: Hashable, Sendable {
    private let interval: Milliseconds
    private let burst: Int
    /// When the bucket is full again.
    private var fullAt: Timestamp?

    package init(interval: Milliseconds, burst: Int) {
        self.interval = interval
        self.burst = burst
    }

    /// Takes `count` tokens if at least one is there; the balance may become negative.
    /// - Returns: `nil` on success, otherwise the wait for a token.
    package mutating func take(_ count: Int = 1, now: Timestamp) -> Milliseconds? {
        let start = max(fullAt ?? now, now)
        let backlog = start - now
        let room = interval * Milliseconds(burst - 1)
        guard backlog <= room else { return backlog - room }
        fullAt = start + interval * Milliseconds(count)
        return nil
    }

    /// Reserves `count` tokens, if necessary in advance.
    /// - Parameter inAdvance: most tokens that may be reserved in advance.
    /// - Returns: the wait for the last of them; 0 for none.
    package mutating func reserve(_ count: Int = 1, inAdvance: Int, now: Timestamp) -> Milliseconds {
        // Bounds the wait after the clock was set back.
        let latest = now + interval * Milliseconds(burst + inAdvance - 1)
        let start = min(max(fullAt ?? now, now) + interval * Milliseconds(count - 1), latest)
        fullAt = start + interval
        return max(0, start - now - interval * Milliseconds(burst - 1))
    }

    package func isSpent(now: Timestamp) -> Bool {
        let backlog = max(fullAt ?? now, now) - now
        return backlog > interval * Milliseconds(burst - 1)
    }

    /// When a token is available; `nil`: now.
    package var readyAt: Timestamp? { fullAt.map { $0 - interval * Milliseconds(burst - 1) } }

    /// Whether all tokens are back.
    package func isFull(now: Timestamp) -> Bool { fullAt.map { $0 <= now } ?? true }
}
