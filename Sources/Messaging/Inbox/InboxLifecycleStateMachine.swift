import Crypto

/// Which inboxes are awake (section 10): at most ``capacity`` of them, the most recently active first.
///
///                     track                      wake: makes room first
///     not tracked ─────────▶ sleeping ─────────────────────────────▶ awake
///          ▲                    │  ◀───────────────────────────────────│
///          │                    │     sleep, eviction, rebalance       │
///          └──────remove────────┴────────────────remove────────────────┘
///     not tracked ──wake (a new inbox)──▶ awake
///
/// Whoever is woken beyond the capacity puts the least recently active to sleep. Protected inboxes stay, so that there
/// may be more awake than the capacity says, up to twice as many. The machine knows times and names only; what protects
/// an inbox is asked when it matters.
package struct InboxLifecycleStateMachine {
    /// Why an inbox cannot be woken or put to sleep.
    package enum Refusal: Error, Hashable, Sendable {
        case notTracked
        /// As many as may be are awake, and each is protected.
        case full(limit: Int)
        case protected(InboxProtection)
    }

    /// What a rebalance comes to, in the order in which it is to be done.
    package struct Plan: Hashable {
        package var sleep: [InboxEntry] = []
        package var wake: [InboxEntry] = []

        package init() {}
    }

    private var tracked: Set<InboxEntry> = []
    private var awake: Set<InboxEntry> = []
    /// How many inboxes are to be awake.
    package private(set) var capacity: Int

    package init(capacity: Int = Limits.inboxCapacity) {
        self.capacity = Self.clamped(capacity)
    }

    /// - Parameter inboxes: what they know of their activity is taken over.
    init(capacity: Int, inboxes: some Sequence<InboxEntry>) {
        self.init(capacity: capacity)
        tracked = Set(inboxes.filter { $0.activity != nil })
        awake = tracked.filter(isAwake)
    }

    private static func clamped(_ capacity: Int) -> Int {
        min(max(capacity, 1), Limits.inboxCapacityMaximum)
    }

    /// At most so many are awake, protected ones included.
    package var hardLimit: Int { 2 * capacity }
    package var awakeCount: Int { awake.count }
    package var sleepingCount: Int { tracked.count - awake.count }
    package var isOverCapacity: Bool { awake.count > capacity }

    // MARK: What there is

    package func isAwake(_ inbox: InboxEntry) -> Bool {
        if case .awake? = inbox.activity?.state { true } else { false }
    }
    package func isTracked(_ inbox: InboxEntry) -> Bool { inbox.activity != nil }
    package func lastActivity(_ inbox: InboxEntry) -> Timestamp? { inbox.activity?.lastActivity }

    /// Why it was woken; `nil` unless it is awake.
    package func wakeReason(_ inbox: InboxEntry) -> WakeReason? {
        if case .awake(let reason, _)? = inbox.activity?.state { reason } else { nil }
    }

    /// It was woken, or asked for something by a user, a moment ago.
    package func isStaying(_ inbox: InboxEntry, now: Timestamp) -> Bool {
        if case .awake(_, let until)? = inbox.activity?.state { now < until } else { false }
    }

    /// Awake inboxes that were woken to deliver and have had no time for it yet.
    package func deliveryCount(now: Timestamp) -> Int {
        awake.count { wakeReason($0) == .activityRanking && isStaying($0, now: now) }
    }

    // MARK: Events

    package mutating func setCapacity(_ capacity: Int) { self.capacity = Self.clamped(capacity) }

    /// An inbox from the disk: it sleeps until ``launch(pending:)`` has chosen.
    package mutating func track(_ inbox: InboxEntry, lastActivity: Timestamp?) {
        guard inbox.activity == nil else { return }
        inbox.activity = InboxActivity(state: .sleeping, lastActivity: lastActivity, touchedAt: nil)
        tracked.insert(inbox)
    }

    /// Wakes an inbox, or takes note of a new one, which is awake.
    /// - Parameters:
    ///   - stay: for how long it is left alone.
    ///   - mayExceed: pending joins at launch and what is due at a time are never refused.
    ///   - protection: of another inbox; empty when it may be put to sleep.
    /// - Returns: which inboxes are put to sleep for it, in order.
    package mutating func wake(
        _ inbox: InboxEntry,
        _ reason: WakeReason,
        now: Timestamp,
        stay: Milliseconds,
        mayExceed: Bool = false,
        excluding excluded: Set<InboxEntry> = [],
        protection: (InboxEntry) -> InboxProtection
    ) throws(Refusal) -> [InboxEntry] {
        if isAwake(inbox) {
            touch(inbox, reason, now: now, stay: stay)
            return []
        }
        let victims = try room(
            for: reason,
            now: now,
            mayExceed: mayExceed,
            excluding: excluded.union([inbox]),
            protection: protection
        )
        for victim in victims { fallAsleep(victim) }
        track(inbox, lastActivity: nil)
        inbox.activity?.state = .awake(reason, stayUntil: now + stay)
        if reason == .userInteraction { inbox.activity?.touchedAt = now }
        awake.insert(inbox)
        return victims
    }

    /// A user, or a token, asks for an inbox that is awake.
    private mutating func touch(_ inbox: InboxEntry, _ reason: WakeReason, now: Timestamp, stay: Milliseconds) {
        guard case .awake(let first, let until)? = inbox.activity?.state else { return }
        inbox.activity?.state = .awake(first, stayUntil: max(until, now + stay))
        if reason == .userInteraction { inbox.activity?.touchedAt = now }
    }

    /// A message has come or gone.
    package mutating func active(_ inbox: InboxEntry, at now: Timestamp) {
        guard let last = inbox.activity?.lastActivity else {
            inbox.activity?.lastActivity = now
            return
        }
        inbox.activity?.lastActivity = max(last, now)
    }

    /// An inbox that was woken to deliver has delivered: it need not stay.
    package mutating func endDelivery(_ inbox: InboxEntry) {
        guard case .awake(.activityRanking, _)? = inbox.activity?.state else { return }
        inbox.activity?.state = .awake(.activityRanking, stayUntil: Timestamp(milliseconds: 0))
    }

    /// Puts an inbox to sleep that its user names.
    /// - Returns: whether it was awake.
    package mutating func sleep(_ inbox: InboxEntry, protection: (InboxEntry) -> InboxProtection) throws(Refusal)
        -> Bool
    {
        guard inbox.activity != nil else { throw .notTracked }
        guard isAwake(inbox) else { return false }
        let reasons = protection(inbox)
        guard reasons.isEmpty else { throw .protected(reasons) }
        fallAsleep(inbox)
        return true
    }

    /// Its keys are gone.
    package mutating func remove(_ inbox: InboxEntry) {
        inbox.activity = nil
        tracked.remove(inbox)
        awake.remove(inbox)
    }

    private mutating func fallAsleep(_ inbox: InboxEntry) {
        awake.remove(inbox)
        inbox.activity?.state = .sleeping
    }

    /// Puts to sleep what is awake beyond the capacity and protected no longer.
    package mutating func trim(now: Timestamp, protection: (InboxEntry) -> InboxProtection) -> [InboxEntry] {
        guard isOverCapacity else { return [] }
        let victims = evictable(now: now, excluding: [], protection: protection).prefix(awake.count - capacity)
        for victim in victims { fallAsleep(victim) }
        return Array(victims)
    }

    // MARK: Choosing

    /// The order in which inboxes give way: never active first, then the least recently active.
    private func precedes(_ one: InboxEntry, _ other: InboxEntry) -> Bool {
        let never = Timestamp(milliseconds: .min)
        let activity = (one.activity?.lastActivity ?? never, other.activity?.lastActivity ?? never)
        if activity.0 != activity.1 { return activity.0 < activity.1 }
        let touched = (one.activity?.touchedAt ?? never, other.activity?.touchedAt ?? never)
        if touched.0 != touched.1 { return touched.0 < touched.1 }
        return one.client < other.client
    }

    private func evictable(
        now: Timestamp,
        excluding excluded: Set<InboxEntry>,
        protection: (InboxEntry) -> InboxProtection
    ) -> [InboxEntry] {
        awake.filter { !excluded.contains($0) && !isStaying($0, now: now) && protection($0).isEmpty }
            .sorted(by: precedes)
    }

    private func room(
        for reason: WakeReason,
        now: Timestamp,
        mayExceed: Bool,
        excluding excluded: Set<InboxEntry>,
        protection: (InboxEntry) -> InboxProtection
    ) throws(Refusal) -> [InboxEntry] {
        let excess = awake.count + 1 - capacity
        guard excess > 0 else { return [] }
        var victims = Array(evictable(now: now, excluding: excluded, protection: protection).prefix(excess))
        let over = awake.count + 1 - victims.count - hardLimit
        if over > 0, reason != .activityRanking {
            // Whoever asks comes before what was only just woken.
            let gone = excluded.union(victims)
            victims += awake.filter { !gone.contains($0) && protection($0).isEmpty }.sorted(by: precedes).prefix(over)
        }
        guard mayExceed || awake.count + 1 - victims.count <= hardLimit else { throw .full(limit: hardLimit) }
        return victims
    }

    /// The awake set as it should be: what is protected, and the most recently active in the places that are left.
    package func rebalance(now: Timestamp, protection: (InboxEntry) -> InboxProtection) -> Plan {
        let kept = awake.filter { isStaying($0, now: now) || !protection($0).isEmpty }
        let places = max(0, capacity - kept.count)
        let chosen = Set(ranked().lazy.filter { !kept.contains($0) }.prefix(places))
        var plan = Plan()
        plan.sleep = awake.filter { !kept.contains($0) && !chosen.contains($0) }.sorted(by: precedes)
        plan.wake = chosen.filter { !awake.contains($0) }.sorted { precedes($1, $0) }
        return plan
    }

    /// Puts to sleep what a ``rebalance(now:protection:)`` chose.
    package mutating func apply(_ plan: Plan) {
        for inbox in plan.sleep { fallAsleep(inbox) }
    }

    /// The order of a start: pending joins first, which may exceed the capacity, then the most recently active.
    package func launch(pending: [InboxEntry]) -> [(InboxEntry, WakeReason)] {
        let joins = Set(pending)
        let rest = ranked().lazy.filter { !joins.contains($0) }.prefix(capacity)
        return pending.map { ($0, .pendingInvite) } + rest.map { ($0, .appLaunch) }
    }

    /// The most recently active first: one sort over plain values.
    private func ranked() -> [InboxEntry] {
        let never = Int64.min
        var entries = tracked.map { inbox in
            let activity = inbox.activity
            return (
                activity?.lastActivity?.milliseconds ?? never, activity?.touchedAt?.milliseconds ?? never, inbox
            )
        }
        entries.sort { one, other in
            if one.0 != other.0 { return one.0 > other.0 }
            if one.1 != other.1 { return one.1 > other.1 }
            return other.2.client < one.2.client
        }
        return entries.map(\.2)
    }
}
