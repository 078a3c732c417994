/// `burst` at once, then one every `interval`.
package struct Rate: Hashable, Sendable {
    package let interval: Milliseconds
    package let burst: Int

    package init(every interval: Milliseconds, burst: Int) { (self.interval, self.burst) = (interval, burst) }
}

/// A rate limit.
package struct TokenBucket: Hashable, Sendable {
    private let rate: Rate
    /// When the bucket is full again.
    private var fullAt: Timestamp?

    private var interval: Milliseconds { rate.interval }
    private var burst: Int { rate.burst }

    package init(_ rate: Rate) { self.rate = rate }

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

/// The same rate limit for each of many keys. A full table drops the keys whose tokens are all back.
package struct RateTable<Key: Hashable & Sendable>: Hashable, Sendable {
    private let rate: Rate
    private let limit: Int
    private var buckets: [Key: TokenBucket] = [:]
    /// For keys beyond the limit; `nil`: these get no token.
    private var shared: TokenBucket?

    package init(_ rate: Rate, limit: Int, sharesRest: Bool = false) {
        (self.rate, self.limit, shared) = (rate, limit, sharesRest ? TokenBucket(rate) : nil)
    }

    /// - Returns: whether a token was there.
    package mutating func take(_ key: Key, now: Timestamp) -> Bool {
        if buckets[key] == nil, buckets.count >= limit {
            buckets = buckets.filter { !$0.value.isFull(now: now) }
            guard buckets.count < limit else { return takeShared(now: now) }
        }
        return buckets[key, default: TokenBucket(rate)].take(now: now) == nil
    }

    package mutating func takeShared(now: Timestamp) -> Bool {
        guard shared != nil else { return false }
        return shared!.take(now: now) == nil
    }

    package func isSpent(_ key: Key, now: Timestamp) -> Bool { bucket(of: key, now: now)?.isSpent(now: now) ?? true }
    package func isFull(_ key: Key, now: Timestamp) -> Bool { bucket(of: key, now: now)?.isFull(now: now) ?? false }
    package func isFull(now: Timestamp) -> Bool { buckets.values.allSatisfy { $0.isFull(now: now) } }

    private func bucket(of key: Key, now: Timestamp) -> TokenBucket? {
        if let bucket = buckets[key] { return bucket }
        let isCrowded = buckets.count >= limit && !buckets.values.contains { $0.isFull(now: now) }
        return isCrowded ? shared : TokenBucket(rate)
    }
}

/// Waits that double with each failure: `first`, twice `first` … `longest`.
package struct Backoff: Hashable, Sendable {
    package let first: Milliseconds
    package let longest: Milliseconds

    package func wait(after failures: Int) -> Milliseconds { min(first << Milliseconds(min(failures, 20)), longest) }
}
