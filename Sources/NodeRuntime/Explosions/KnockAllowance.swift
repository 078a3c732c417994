import Messaging

/// How many knocks of one kind a node lets cost it something: so many of one route, and so many of one network (Explode.md,
/// "Limits of knocks").
///
/// A route is a member's, or that of all holders of one invite; somebody who has overheard a token, or who holds the invite,
/// may use up what the others have. So a network that has used up nothing may go on beyond it, at the expense of a reserve
/// for all routes.
struct KnockAllowance {
    private struct Buckets {
        let interval: Milliseconds
        let burst: Int
        private var known: [UInt64: TokenBucket] = [:]
        /// Of all that are too many to be known.
        private var others: TokenBucket

        init(interval: Milliseconds, burst: Int) {
            self.interval = interval
            self.burst = burst
            others = TokenBucket(interval: interval, burst: burst)
        }

        private func bucket(_ name: UInt64, now: Timestamp) -> TokenBucket {
            if let bucket = known[name] { return bucket }
            return isCrowded(now) ? others : TokenBucket(interval: interval, burst: burst)
        }

        private func isCrowded(_ now: Timestamp) -> Bool {
            known.count >= Limits.knockBucketCount && !known.values.contains { $0.isFull(now: now) }
        }

        func isSpent(_ name: UInt64, now: Timestamp) -> Bool { bucket(name, now: now).isSpent(now: now) }
        func isFull(_ name: UInt64, now: Timestamp) -> Bool { bucket(name, now: now).isFull(now: now) }

        /// - Returns: whether there was one.
        mutating func take(_ name: UInt64, now: Timestamp) -> Bool {
            var bucket = bucket(name, now: now)
            let isTaken = bucket.take(now: now) == nil
            if known[name] == nil, known.count >= Limits.knockBucketCount {
                known = known.filter { !$0.value.isFull(now: now) }
                guard known.count < Limits.knockBucketCount else {
                    others = bucket
                    return isTaken
                }
            }
            known[name] = bucket
            return isTaken
        }
    }

    private var routes: Buckets
    private var sources: Buckets
    private var reserve = TokenBucket(interval: Limits.knockReserveInterval, burst: Limits.knockReserveBurst)

    /// What does not hold.
    static var forged: KnockAllowance {
        let buckets = Buckets(interval: Limits.forgedKnockInterval, burst: Limits.forgedKnockBurst)
        return KnockAllowance(routes: buckets, sources: buckets)
    }

    /// What is answered.
    static var answered: KnockAllowance {
        KnockAllowance(
            routes: Buckets(interval: Limits.answeredKnockInterval, burst: Limits.answeredKnockBurst),
            sources: Buckets(interval: Limits.knockSourceInterval, burst: Limits.knockSourceBurst))
    }

    private init(routes: Buckets, sources: Buckets) {
        self.routes = routes
        self.sources = sources
    }

    /// All that come through rendezvous nodes are of one network.
    private static func name(_ source: UInt64?) -> UInt64 { source ?? .max }

    /// Whether a knock may be looked at.
    /// - Parameters:
    ///   - route: the number of its route.
    ///   - source: a /24 or /48; `nil` for none.
    func allows(_ route: UInt64, from source: UInt64?, now: Timestamp) -> Bool {
        let source = Self.name(source)
        guard !sources.isSpent(source, now: now) else { return false }
        if !routes.isSpent(route, now: now) { return true }
        return sources.isFull(source, now: now) && !reserve.isSpent(now: now)
    }

    /// It has cost something.
    mutating func charge(_ route: UInt64, from source: UInt64?, now: Timestamp) {
        _ = sources.take(Self.name(source), now: now)
        if !routes.take(route, now: now) { _ = reserve.take(now: now) }
    }
}
