import Messaging

/// Rate limit for knocks of one kind, by route and by source network (Explode.md, "This program's measures").
///
/// A route belongs to one member, or to all holders of one invite. An attacker with an overheard token or the invite
/// can exhaust it. So a network with a full bucket may exceed the route's limit, at the expense of a reserve shared by
/// all routes.
struct KnockAllowance {
    private var routes: RateTable<UInt64>
    private var sources: RateTable<UInt64>
    private var reserve = TokenBucket(Limits.knockReserveRate)

    static var forged: KnockAllowance {
        KnockAllowance(routes: Limits.forgedKnockRate, sources: Limits.forgedKnockRate)
    }

    static var answered: KnockAllowance {
        KnockAllowance(routes: Limits.answeredKnockRate, sources: Limits.knockSourceRate)
    }

    private init(routes: Rate, sources: Rate) {
        self.routes = RateTable(routes, limit: Limits.knockBucketCount, sharesRest: true)
        self.sources = RateTable(sources, limit: Limits.knockBucketCount, sharesRest: true)
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
