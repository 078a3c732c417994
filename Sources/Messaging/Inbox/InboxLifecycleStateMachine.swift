import Primitives

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
package struct InboxLifecycleStateMachine: Sendable {
    private enum State: Hashable, Sendable {
        /// Entered at start and when it was put to sleep. May go to `awake`, and be removed.
        case sleeping
        /// Entered when woken. May go to `sleeping`, and be removed.
        /// `stayUntil`: until then it gives way only to a user or a token, and only at the hard limit.
        case awake(WakeReason, stayUntil: Timestamp)
    }

    private struct Tracked: Sendable {
        var state: State
        /// When a message last came or went here; `nil`: never.
        var lastActivity: Timestamp?
        /// When a user last asked for something here.
        var touchedAt: Timestamp?
    }

    /// Why an inbox cannot be woken or put to sleep.
    package enum Refusal: Error, Hashable, Sendable {
        case notTracked
        /// As many as may be are awake, and each is protected.
        case full(limit: Int)
        case protected(InboxProtection)
    }

    /// What a rebalance comes to, in the order in which it is to be done.
    package struct Plan: Hashable, Sendable {
        package var sleep: [ClientID] = []
        package var wake: [ClientID] = []

        package init() {}
    }

    private var tracked: [ClientID: Tracked] = [:]
    private var awake: Set<ClientID> = []
    /// How many inboxes are to be awake.
    package private(set) var capacity: Int

    package init(capacity: Int = Limits.inboxCapacity) {
        self.capacity = Self.clamped(capacity)
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

    package func isAwake(_ client: ClientID) -> Bool { awake.contains(client) }
    package func isTracked(_ client: ClientID) -> Bool { tracked[client] != nil }
    package func lastActivity(_ client: ClientID) -> Timestamp? { tracked[client]?.lastActivity }

    /// Why it was woken; `nil` unless it is awake.
    package func wakeReason(_ client: ClientID) -> WakeReason? {
        if case .awake(let reason, _)? = tracked[client]?.state { reason } else { nil }
    }

    /// It was woken, or asked for something by a user, a moment ago.
    package func isStaying(_ client: ClientID, now: Timestamp) -> Bool {
        if case .awake(_, let until)? = tracked[client]?.state { now < until } else { false }
    }

    /// Awake inboxes that were woken to deliver and have had no time for it yet.
    package func deliveryCount(now: Timestamp) -> Int {
        awake.count { wakeReason($0) == .activityRanking && isStaying($0, now: now) }
    }

    // MARK: Events

    package mutating func setCapacity(_ capacity: Int) { self.capacity = Self.clamped(capacity) }

    /// An inbox from the disk: it sleeps until ``launch(pending:)`` has chosen.
    package mutating func track(_ client: ClientID, lastActivity: Timestamp?) {
        guard tracked[client] == nil else { return }
        tracked[client] = Tracked(state: .sleeping, lastActivity: lastActivity, touchedAt: nil)
    }

    /// Wakes an inbox, or takes note of a new one, which is awake.
    /// - Parameters:
    ///   - stay: for how long it is left alone.
    ///   - mayExceed: pending joins at launch and what is due at a time are never refused.
    ///   - protection: of another inbox; empty when it may be put to sleep.
    /// - Returns: which inboxes are put to sleep for it, in order.
    package mutating func wake(
        _ client: ClientID,
        _ reason: WakeReason,
        now: Timestamp,
        stay: Milliseconds,
        mayExceed: Bool = false,
        excluding excluded: Set<ClientID> = [],
        protection: (ClientID) -> InboxProtection
    ) throws(Refusal) -> [ClientID] {
        if isAwake(client) {
            touch(client, reason, now: now, stay: stay)
            return []
        }
        let victims = try room(
            for: reason,
            now: now,
            mayExceed: mayExceed,
            excluding: excluded.union([client]),
            protection: protection
        )
        for victim in victims { fallAsleep(victim) }
        var entry = tracked[client] ?? Tracked(state: .sleeping, lastActivity: nil, touchedAt: nil)
        entry.state = .awake(reason, stayUntil: now + stay)
        if reason == .userInteraction { entry.touchedAt = now }
        tracked[client] = entry
        awake.insert(client)
        return victims
    }

    /// A user, or a token, asks for an inbox that is awake.
    private mutating func touch(_ client: ClientID, _ reason: WakeReason, now: Timestamp, stay: Milliseconds) {
        guard case .awake(let first, let until)? = tracked[client]?.state else { return }
        tracked[client]?.state = .awake(first, stayUntil: max(until, now + stay))
        if reason == .userInteraction { tracked[client]?.touchedAt = now }
    }

    /// A message has come or gone.
    package mutating func active(_ client: ClientID, at now: Timestamp) {
        guard let last = tracked[client]?.lastActivity else {
            tracked[client]?.lastActivity = now
            return
        }
        tracked[client]?.lastActivity = max(last, now)
    }

    /// An inbox that was woken to deliver has delivered: it need not stay.
    package mutating func endDelivery(_ client: ClientID) {
        guard case .awake(.activityRanking, _)? = tracked[client]?.state else { return }
        tracked[client]?.state = .awake(.activityRanking, stayUntil: Timestamp(milliseconds: 0))
    }

    /// Puts an inbox to sleep that its user names.
    /// - Returns: whether it was awake.
    package mutating func sleep(_ client: ClientID, protection: (ClientID) -> InboxProtection) throws(Refusal) -> Bool {
        guard tracked[client] != nil else { throw .notTracked }
        guard isAwake(client) else { return false }
        let reasons = protection(client)
        guard reasons.isEmpty else { throw .protected(reasons) }
        fallAsleep(client)
        return true
    }

    /// Its keys are gone.
    package mutating func remove(_ client: ClientID) {
        tracked[client] = nil
        awake.remove(client)
    }

    private mutating func fallAsleep(_ client: ClientID) {
        awake.remove(client)
        tracked[client]?.state = .sleeping
    }

    /// Puts to sleep what is awake beyond the capacity and protected no longer.
    package mutating func trim(now: Timestamp, protection: (ClientID) -> InboxProtection) -> [ClientID] {
        guard isOverCapacity else { return [] }
        let victims = evictable(now: now, excluding: [], protection: protection).prefix(awake.count - capacity)
        for victim in victims { fallAsleep(victim) }
        return Array(victims)
    }

    // MARK: Choosing

    /// The order in which inboxes give way: never active first, then the least recently active.
    private func precedes(_ one: ClientID, _ other: ClientID) -> Bool {
        let first = tracked[one]
        let second = tracked[other]
        let never = Timestamp(milliseconds: .min)
        let activity = (first?.lastActivity ?? never, second?.lastActivity ?? never)
        if activity.0 != activity.1 { return activity.0 < activity.1 }
        let touched = (first?.touchedAt ?? never, second?.touchedAt ?? never)
        if touched.0 != touched.1 { return touched.0 < touched.1 }
        return one < other
    }

    private func evictable(
        now: Timestamp,
        excluding excluded: Set<ClientID>,
        protection: (ClientID) -> InboxProtection
    ) -> [ClientID] {
        awake.filter { !excluded.contains($0) && !isStaying($0, now: now) && protection($0).isEmpty }
            .sorted(by: precedes)
    }

    private func room(
        for reason: WakeReason,
        now: Timestamp,
        mayExceed: Bool,
        excluding excluded: Set<ClientID>,
        protection: (ClientID) -> InboxProtection
    ) throws(Refusal) -> [ClientID] {
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
    package func rebalance(now: Timestamp, protection: (ClientID) -> InboxProtection) -> Plan {
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
        for client in plan.sleep { fallAsleep(client) }
    }

    /// The order of a start: pending joins first, which may exceed the capacity, then the most recently active.
    package func launch(pending: [ClientID]) -> [(ClientID, WakeReason)] {
        let joins = Set(pending)
        let rest = ranked().lazy.filter { !joins.contains($0) }.prefix(capacity)
        return pending.map { ($0, .pendingInvite) } + rest.map { ($0, .appLaunch) }
    }

    /// The most recently active first: one sort over plain values.
    private func ranked() -> [ClientID] {
        let never = Int64.min
        var entries = tracked.map { client, entry in
            (entry.lastActivity?.milliseconds ?? never, entry.touchedAt?.milliseconds ?? never, client)
        }
        entries.sort { one, other in
            if one.0 != other.0 { return one.0 > other.0 }
            if one.1 != other.1 { return one.1 > other.1 }
            return other.2 < one.2
        }
        return entries.map(\.2)
    }
}

/// Why an inbox was woken (seed 001).
package enum WakeReason: String, Hashable, Sendable, Codable, CaseIterable {
    /// A user asked for something in it.
    case userInteraction
    /// A token came in: a member has something for it.
    case pushNotification
    /// It is among the most recently active, or its outbox is due.
    case activityRanking
    /// A join is under way in it.
    case pendingInvite
    /// It was chosen when the node started.
    case appLaunch
}

/// What keeps an inbox awake.
package struct InboxProtection: OptionSet, Hashable, Sendable, CustomStringConvertible {
    package let rawValue: UInt8
    package init(rawValue: UInt8) { self.rawValue = rawValue }

    /// Someone watches the conversation: it is open.
    package static let active = InboxProtection(rawValue: 1)
    /// A join is under way in it, or somebody is joining it now.
    package static let pendingInvite = InboxProtection(rawValue: 2)
    /// It holds contents in memory only that nobody has read.
    package static let unread = InboxProtection(rawValue: 4)
    /// It holds messages of ours in memory only that are not delivered.
    package static let undelivered = InboxProtection(rawValue: 8)

    package var description: String {
        var words: [String] = []
        if contains(.active) { words.append("it is being watched") }
        if contains(.pendingInvite) { words.append("a join is under way") }
        if contains(.unread) { words.append("it holds unread messages that are in memory only") }
        if contains(.undelivered) { words.append("it holds undelivered messages that are in memory only") }
        return words.isEmpty ? "nothing" : words.joined(separator: ", ")
    }
}
