/// Which token leads where (protocol, section 2). Time is an argument: a day number.
///
/// One dictionary probe answers for a token, whatever its kind:
///
/// | route        | tokens that are valid on days −1…+1                                     | used up |
/// |--------------|-------------------------------------------------------------------------|---------|
/// | `member`     | a window of 32 counters from that day's next (used up), and one to knock | yes     |
/// | `shared`     | 32 slots, counters 1…32                                                 | no      |
/// | `knockOnly`  | one to knock                                                            | no      |
package struct RoutingTable: Sendable {
    /// Counters in a window, and slots of a shared secret.
    package static let windowCount: UInt32 = 32

    package enum Route: Hashable, Sendable {
        /// The link between two members.
        case member(UInt64)
        /// A contact card or an invite.
        case shared(UInt64)
        /// Who may knock at a tombstone.
        case knockOnly(UInt64)
    }

    package struct Match: Hashable, Sendable {
        package let route: Route
        /// Whether this token is for knocks alone; no link may be opened with it.
        package let isKnock: Bool

        package init(route: Route, isKnock: Bool) {
            self.route = route
            self.isKnock = isKnock
        }
    }

    /// What is stored under the first half of a token.
    private struct Entry: Sendable {
        let route: Route
        let tail: UInt64
        let day: UInt32
        /// 0 for a knock.
        let counter: UInt32
    }

    private struct Holder: Sendable {
        /// `nil` where no link may be opened.
        let secret: RoutingSecret?
        /// Where knocks are all there is.
        let knock: KnockSecret?
        /// The lowest counter of each day that is not used up.
        var next: [UInt32: UInt32]
    }

    private var entries: [UInt64: Entry] = [:]
    private var holders: [Route: Holder] = [:]
    /// Days since the start of 1970, UTC.
    package private(set) var day: UInt32

    package init(day: UInt32) { self.day = day }

    /// Tokens in the table.
    package var count: Int { entries.count }

    // MARK: Routes

    /// Lets a member dial. Replaces what was there under the same id.
    /// - Parameter counters: where the counters stood at the last ``counters(ofMember:)``; other days start at 1.
    package mutating func addMember(_ id: UInt64, secret: RoutingSecret, counters: [RoutingCounter] = []) {
        remove(.member(id))
        var next: [UInt32: UInt32] = [:]
        for counter in counters where days.contains(counter.day) { next[counter.day] = counter.next }
        holders[.member(id)] = Holder(secret: secret, knock: nil, next: next)
        for day in days { insert(.member(id), day) }
    }

    /// Lets whoever holds a card or an invite dial.
    package mutating func addShared(_ id: UInt64, secret: RoutingSecret) {
        remove(.shared(id))
        holders[.shared(id)] = Holder(secret: secret, knock: nil, next: [:])
        for day in days { insert(.shared(id), day) }
    }

    /// Lets somebody knock at what is gone: a late member of a conversation, or whoever holds an invite to it.
    package mutating func addKnockOnly(_ id: UInt64, secret: KnockSecret) {
        remove(.knockOnly(id))
        holders[.knockOnly(id)] = Holder(secret: nil, knock: secret, next: [:])
        for day in days { insert(.knockOnly(id), day) }
    }

    package mutating func remove(_ route: Route) {
        guard holders[route] != nil else { return }
        for day in days { evict(route, day) }
        holders[route] = nil
    }

    // MARK: Tokens

    /// Where `token` leads; `nil` if nowhere.
    package func match(_ token: RoutingToken) -> Match? {
        guard let entry = entries[token.head], entry.tail == token.tail else { return nil }
        return Match(route: entry.route, isKnock: entry.counter == 0)
    }

    /// A handshake under `token` is complete: a member's counter is used up, and those before it, and its window moves
    /// on. Other tokens stay as they are.
    /// - Returns: whether counters have changed, so that they want to be saved.
    @discardableResult
    package mutating func use(_ token: RoutingToken) -> Bool {
        guard let entry = entries[token.head], entry.tail == token.tail, entry.counter > 0 else { return false }
        switch entry.route {
        case .shared, .knockOnly:
            return false
        case .member:
            let old = window(entry.route, entry.day)
            holders[entry.route]?.next[entry.day] = entry.counter + 1
            let new = window(entry.route, entry.day)
            for counter in old where !new.contains(counter) { evict(entry.route, entry.day, counter) }
            for counter in new where !old.contains(counter) { insert(entry.route, entry.day, counter) }
            return true
        }
    }

    /// Moves to another day: the tokens of days that are no longer within one day of it go, those of new days come.
    package mutating func roll(to newDay: UInt32) {
        guard newDay != day else { return }
        let old = days
        let new = Self.days(around: newDay)
        entries = entries.filter { new.contains($0.value.day) }
        day = newDay
        for route in holders.keys {
            let next = holders[route]?.next ?? [:]
            holders[route]?.next = next.filter { new.contains($0.key) }
            for day in new where !old.contains(day) { insert(route, day) }
        }
    }

    /// Where the counters of a member stand, by day; days that no handshake has used are left out.
    package func counters(ofMember id: UInt64) -> [RoutingCounter] {
        let next = holders[.member(id)]?.next ?? [:]
        return next.keys.sorted().compactMap { day in next[day].map { RoutingCounter(day: day, next: $0) } }
    }

    // MARK: Windows

    private var days: ClosedRange<UInt32> { Self.days(around: day) }

    /// Yesterday, today and tomorrow, for clocks that differ.
    private static func days(around day: UInt32) -> ClosedRange<UInt32> {
        (day == 0 ? 0 : day - 1)...(day == .max ? .max : day + 1)
    }

    private func window(_ route: Route, _ day: UInt32) -> ClosedRange<UInt32> {
        // A counter would have to move by 32 per handshake for a whole day to come near the end; it stops there.
        let first = min(holders[route]?.next[day] ?? 1, .max - Self.windowCount)
        return first...(first + Self.windowCount - 1)
    }

    private mutating func insert(_ route: Route, _ day: UInt32) {
        insert(route, day, 0)
        guard holders[route]?.secret != nil else { return }
        for counter in window(route, day) { insert(route, day, counter) }
    }

    private mutating func evict(_ route: Route, _ day: UInt32) {
        evict(route, day, 0)
        guard holders[route]?.secret != nil else { return }
        for counter in window(route, day) { evict(route, day, counter) }
    }

    private func token(_ route: Route, _ day: UInt32, _ counter: UInt32) -> RoutingToken? {
        guard let holder = holders[route] else { return nil }
        switch (route, counter) {
        case (.knockOnly, _): return holder.knock?.token(day: day)
        case (.member, 0): return holder.secret?.knock.token(day: day)
        case (.shared, 0): return nil
        case (.member, _), (.shared, _): return holder.secret?.token(day: day, counter: counter)
        }
    }

    private mutating func insert(_ route: Route, _ day: UInt32, _ counter: UInt32) {
        guard let token = token(route, day, counter) else { return }
        // Two tokens with one head: the first stays. The other route has 31 more.
        guard entries[token.head] == nil else { return }
        entries[token.head] = Entry(route: route, tail: token.tail, day: day, counter: counter)
    }

    private mutating func evict(_ route: Route, _ day: UInt32, _ counter: UInt32) {
        guard let token = token(route, day, counter) else { return }
        if let entry = entries[token.head], entry.route == route, entry.tail == token.tail { entries[token.head] = nil }
    }
}
