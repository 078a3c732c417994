import Messaging

/// Rate limit for knocks of one kind, by route and by source network (Explode.md, "This program's measures").
///
/// A route belongs to one member, or to all holders of one invite. An attacker with an overheard token or the invite
/// can exhaust it. So a network with a full bucket may exceed the route's limit, at the expense of a reserve shared by
/// all routes.
struct KnockAllowance {
    private struct Buckets {
        let interval: Milliseconds
        let burst: Int
        private var known: [UInt64: TokenBucket] = [:]
        /// Shared by all names beyond the table's limit.
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

    static var forged: KnockAllowance {
        let buckets = Buckets(interval: Limits.forgedKnockInterval, burst: Limits.forgedKnockBurst)
        return KnockAllowance(routes: buckets, sources: buckets)
    }

    static var answered: KnockAllowance {
        KnockAllowance(
            routes: Buckets(interval: Limits.answeredKnockInterval, burst: Limits.answeredKnockBurst),
            sources: Buckets(interval: Limits.knockSourceInterval, burst: Limits.knockSourceBurst))
    }

    private init(routes: Buckets, sources: Buckets) {
        self.routes = routes
        self.sources = sources
    }

    /// All knocks through rendezvous nodes count as one network.
    private static func name(_ source: UInt64?) -> UInt64 { source ?? .max }

    /// Whether a knock may be processed.
    /// - Parameters:
    ///   - route: its routing number.
    ///   - source: a /24 or /48; `nil` for none.
    func allows(_ route: UInt64, from source: UInt64?, now: Timestamp) -> Bool {
        let source = Self.name(source)
        guard !sources.isSpent(source, now: now) else { return false }
        if !routes.isSpent(route, now: now) { return true }
        return sources.isFull(source, now: now) && !reserve.isSpent(now: now)
    }

    mutating func charge(_ route: UInt64, from source: UInt64?, now: Timestamp) {
        _ = sources.take(Self.name(source), now: now)
        if !routes.take(route, now: now) { _ = reserve.take(now: now) }
    }
}
