/// Decides which inboxes are awake (Delivery.md): at most ``capacity``, the most recently active first.
///
///                     track                      wake: makes room first
///     not tracked ─────────▶ sleeping ─────────────────────────────▶ awake
///          ▲                    │  ◀───────────────────────────────────│
///          │                    │     sleep, eviction, rebalance       │
///          └──────remove────────┴────────────────remove────────────────┘
///     not tracked ──wake (a new inbox)──▶ awake
///
/// A wake beyond the capacity puts the least recently active inbox to sleep. An inbox stays awake for a while, so up to
/// twice the capacity may be awake. No wake is refused. Protected inboxes do not count, since other limits bound them.
/// Inboxes that woke just now do not count either, since a handshake takes time. The caller supplies each inbox's
/// protection.
package struct InboxLifecycleStateMachine {
    package enum Refusal: Error, Hashable, Sendable {
        case notTracked
        case protected(InboxProtection)
    }

    private var tracked: Set<InboxEntry> = []
    private var awake: Set<InboxEntry> = []
    /// Inboxes that were woken to deliver and have not finished; the time of some may be over.
    private var delivering: Set<InboxEntry> = []
    /// The number of awake inboxes to aim at.
    package private(set) var capacity: Int

    package init(capacity: Int = Limits.inboxCapacity) { self.capacity = Self.clamped(capacity) }

    private static func clamped(_ capacity: Int) -> Int { min(max(capacity, 1), Limits.inboxCapacityMaximum) }

    /// From this number on, inboxes that still stay may be put to sleep too.
    package var stayLimit: Int { 2 * capacity }
    package var awakeCount: Int { awake.count }
    package var sleepingCount: Int { tracked.count - awake.count }
    package var isOverCapacity: Bool { awake.count > capacity }

    package func isAwake(_ inbox: InboxEntry) -> Bool { inbox.activity?.stay != nil }
    package func isTracked(_ inbox: InboxEntry) -> Bool { inbox.activity != nil }
    package func lastActivity(_ inbox: InboxEntry) -> Timestamp? { inbox.activity?.lastActivity }
    package func wakeReason(_ inbox: InboxEntry) -> WakeReason? { inbox.activity?.stay?.reason }

    /// It is still in its stay after a wake or a user's request.
    package func isStaying(_ inbox: InboxEntry, now: Timestamp) -> Bool {
        inbox.activity?.stay.map { now < $0.until } ?? false
    }

    private func since(_ inbox: InboxEntry) -> Timestamp { inbox.activity?.stay?.since ?? Timestamp(milliseconds: 0) }

    package func isDelivering(_ inbox: InboxEntry) -> Bool { delivering.contains(inbox) }

    /// A user's request may be pending.
    package func awaitsService(_ inbox: InboxEntry) -> Bool {
        wakeReason(inbox) == .userInteraction && since(inbox).milliseconds > 0
    }

    /// Awake inboxes that deliver and still have time, and when the first of them has none left.
    package mutating func deliveries(now: Timestamp) -> (count: Int, until: Timestamp?) {
        delivering = delivering.filter { isStaying($0, now: now) }
        let ends = delivering.map { $0.activity?.stay?.until ?? now }
        return (ends.count, ends.min())
    }

    /// How many inboxes may deliver at a time: half of the capacity, or a quarter where the last delivery failed, so
    /// absent nodes do not delay others. At most half of the dials: an inbox that does not get to dial counts as
    /// failed.
    package func deliveryPlaces(hasFailed: Bool) -> Int {
        let quarter = max(1, min(capacity, Limits.dialsUnderWay) / 4)
        return hasFailed ? quarter : 2 * quarter
    }

    package mutating func setCapacity(_ capacity: Int) { self.capacity = Self.clamped(capacity) }

    /// An inbox from the disk. It sleeps until ``launch(pending:)`` chooses it.
    package mutating func track(_ inbox: InboxEntry, lastActivity: Timestamp?) {
        guard inbox.activity == nil else { return }
        inbox.activity = InboxActivity(lastActivity: lastActivity)
        tracked.insert(inbox)
    }

    /// Wakes an inbox, or registers a new one, which is awake.
    /// - Parameters:
    ///   - stay: how long it is not put to sleep to make room, unless more than ``stayLimit`` would be awake.
    ///   - protection: of another inbox; empty when it may be put to sleep.
    /// - Returns: the inboxes to put to sleep for it, in order.
    package mutating func wake(
        _ inbox: InboxEntry, _ reason: WakeReason, now: Timestamp, stay: Milliseconds,
        protection: (InboxEntry) -> InboxProtection
    ) -> [InboxEntry] {
        defer { if reason == .userInteraction { inbox.activity?.touchedAt = now } }
        if let known = inbox.activity?.stay {
            inbox.activity?.stay?.since = now
            inbox.activity?.stay?.until = max(known.until, now + stay)
            return []
        }
        let victims = room(for: reason, now: now, protection: protection)
        for victim in victims { fallAsleep(victim, now: now) }
        track(inbox, lastActivity: nil)
        inbox.activity?.stay = InboxActivity.Stay(reason: reason, since: now, until: now + stay)
        awake.insert(inbox)
        if reason == .activityRanking, stay > 0 { delivering.insert(inbox) }
        return victims
    }

    package mutating func active(_ inbox: InboxEntry, at now: Timestamp) {
        // The message that the token announced.
        serve(inbox, .pushNotification)
        let last = lastActivity(inbox) ?? now
        inbox.activity?.lastActivity = max(last, now)
    }

    /// The request that woke it is served.
    package mutating func serve(_ inbox: InboxEntry, _ reason: WakeReason) {
        if wakeReason(inbox) == reason { inbox.activity?.stay?.since = Timestamp(milliseconds: 0) }
    }

    /// An inbox that was woken to deliver need not stay any longer.
    package mutating func endDelivery(_ inbox: InboxEntry) {
        if delivering.remove(inbox) != nil { inbox.activity?.stay?.until = Timestamp(milliseconds: 0) }
    }

    /// Puts an inbox to sleep at the user's command.
    /// - Returns: whether it was awake.
    package mutating func sleep(_ inbox: InboxEntry, now: Timestamp, protection: (InboxEntry) -> InboxProtection)
        throws(Refusal) -> Bool
    {
        guard inbox.activity != nil else { throw .notTracked }
        guard isAwake(inbox) else { return false }
        let reasons = protection(inbox)
        guard reasons.isEmpty else { throw .protected(reasons) }
        fallAsleep(inbox, now: now)
        // Delays its retry: the user wants it to sleep, even with undelivered messages.
        inbox.retries = max(inbox.retries, 1)
        return true
    }

    package mutating func remove(_ inbox: InboxEntry) {
        inbox.activity = nil
        tracked.remove(inbox)
        awake.remove(inbox)
        delivering.remove(inbox)
    }

    private mutating func fallAsleep(_ inbox: InboxEntry, now: Timestamp) {
        // Put to sleep during its stay, it has not had its time, so this is no failed try.
        if !isStaying(inbox, now: now) { inbox.retries += 1 }
        awake.remove(inbox)
        delivering.remove(inbox)
        inbox.activity?.stay = nil
    }

    /// Puts unprotected inboxes beyond the capacity to sleep.
    package mutating func trim(now: Timestamp, protection: (InboxEntry) -> InboxProtection) -> [InboxEntry] {
        guard isOverCapacity else { return [] }
        let free = awake.filter { !isStaying($0, now: now) && protection($0).isEmpty }
        let victims = Self.first(awake.count - capacity, of: free, by: precedes)
        for victim in victims { fallAsleep(victim, now: now) }
        return victims
    }

    /// The order of eviction: never active first, then the least recently active.
    private func precedes(_ one: InboxEntry, _ other: InboxEntry) -> Bool {
        let never = Timestamp(milliseconds: .min)
        let activity = (one.activity?.lastActivity ?? never, other.activity?.lastActivity ?? never)
        if activity.0 != activity.1 { return activity.0 < activity.1 }
        let touched = (one.activity?.touchedAt ?? never, other.activity?.touchedAt ?? never)
        if touched.0 != touched.1 { return touched.0 < touched.1 }
        return one.client < other.client
    }

    private static func first(
        _ count: Int, of inboxes: some Collection<InboxEntry>, by precedes: (InboxEntry, InboxEntry) -> Bool
    ) -> [InboxEntry] {
        // The usual case needs no sort.
        if count == 1 { return inboxes.min(by: precedes).map { [$0] } ?? [] }
        return count <= 0 ? [] : Array(inboxes.sorted(by: precedes).prefix(count))
    }

    private func room(for reason: WakeReason, now: Timestamp, protection: (InboxEntry) -> InboxProtection)
        -> [InboxEntry]
    {
        let excess = awake.count + 1 - capacity
        guard excess > 0 else { return [] }
        let resting = awake.filter { !isStaying($0, now: now) }
        var victims: [InboxEntry] = []
        if excess == 1 {
            // The usual case computes few protections.
            var first: InboxEntry?
            for inbox in resting where first.map({ precedes(inbox, $0) }) ?? true && protection(inbox).isEmpty {
                first = inbox
            }
            victims = first.map { [$0] } ?? []
        } else {
            victims = Self.first(excess, of: resting.filter { protection($0).isEmpty }, by: precedes)
        }
        // A delivery can wait for the others.
        guard awake.count + 1 - victims.count > stayLimit, reason != .activityRanking else { return victims }
        let free = awake.filter { protection($0).isEmpty }
        let over = free.count + 1 - victims.count - stayLimit
        guard over > 0 else { return victims }
        // Evicts the inboxes that woke first. An inbox that woke just now keeps its time: otherwise many dials at once
        // would evict every inbox before its member is served.
        let served = free.filter { isStaying($0, now: now) && now - since($0) >= Limits.inboxStayForToken }
        return victims
            + Self.first(over, of: served) { one, other in
                let since = (since(one), since(other))
                return since.0 != since.1 ? since.0 < since.1 : precedes(one, other)
            }
    }

    /// Keeps protected inboxes and those in their stay, and fills the other places with the most recently active ones.
    /// - Returns: the inboxes to put to sleep and to wake, in the order of execution.
    package mutating func rebalance(now: Timestamp, protection: (InboxEntry) -> InboxProtection) -> (
        sleep: [InboxEntry], wake: [InboxEntry]
    ) {
        let kept = awake.filter { isStaying($0, now: now) || !protection($0).isEmpty }
        let places = max(0, capacity - kept.count)
        let chosen = Set(ranked().lazy.filter { !kept.contains($0) }.prefix(places))
        let sleep = awake.filter { !kept.contains($0) && !chosen.contains($0) }.sorted(by: precedes)
        let wake = chosen.filter { !awake.contains($0) }.sorted { precedes($1, $0) }
        for inbox in sleep { fallAsleep(inbox, now: now) }
        return (sleep, wake)
    }

    /// The order of a start: pending joins first, even beyond the capacity, then the most recently active.
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
            return (activity?.lastActivity?.milliseconds ?? never, activity?.touchedAt?.milliseconds ?? never, inbox)
        }
        entries.sort { one, other in
            if one.0 != other.0 { return one.0 > other.0 }
            if one.1 != other.1 { return one.1 > other.1 }
            return other.2.client < one.2.client
        }
        return entries.map(\.2)
    }
}
