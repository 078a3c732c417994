import Discovery

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

    /// What is stored under the first half of a token, in 8 bytes: with thousands of sleeping inboxes the table is most
    /// of what they take. The second half is made again from the secret when a first half matches.
    private struct Entry: Sendable {
        /// route number (32) ‖ 0 ‖ is for knocks (1) ‖ day modulo 4 (2) ‖ counter modulo 64 (6). Of three days
        /// in a row and 32 counters in a row that says which.
        private let bits: UInt64
        private static let knock: UInt64 = 1 << 8

        init(slot: UInt32, day: UInt32, counter: UInt32) {
            bits =
                UInt64(slot) << 32 | (counter == 0 ? Self.knock : 0) | UInt64(day & 3) << 6 | UInt64(counter & 63)
        }

        var slot: UInt32 { UInt32(bits >> 32) }
        var isKnock: Bool { bits & Self.knock != 0 }
        func isOf(day: UInt32) -> Bool { UInt64(day & 3) == bits >> 6 & 3 }
        func isOf(counter: UInt32) -> Bool { UInt64(counter & 63) == bits & 63 }
    }

    private struct Holder: Sendable {
        let route: Route
        /// `nil` where no link may be opened.
        let secret: RoutingSecret?
        /// Where knocks are all there is.
        let knock: KnockSecret?
        /// The lowest counter of each day that is not used up.
        var next: [UInt32: UInt32]
        /// The day around which its tokens are in the table.
        var day: UInt32
    }

    private var entries: [UInt64: Entry] = [:]
    private var holders: [UInt32: Holder] = [:]
    private var slots: [Route: UInt32] = [:]
    private var freeSlots: [UInt32] = []
    private var nextSlot: UInt32 = 0
    /// Routes that still have the tokens of another day.
    private var rolling: [UInt32] = []
    /// Days since the start of 1970, UTC.
    package private(set) var day: UInt32

    package init(day: UInt32) { self.day = day }

    /// Tokens in the table.
    package var count: Int { entries.count }

    // MARK: Routes

    /// Lets a member dial. Replaces what was there under the same id.
    /// - Parameter counters: where the counters stood at the last ``counters(ofMember:)``; other days start at 1.
    package mutating func addMember(_ id: UInt64, secret: RoutingSecret, counters: [RoutingCounter] = []) {
        var next: [UInt32: UInt32] = [:]
        let days = Self.days(around: day)
        for counter in counters where days.contains(counter.day) { next[counter.day] = counter.next }
        add(.member(id), secret, nil, next)
    }

    /// Lets whoever holds a card or an invite dial.
    package mutating func addShared(_ id: UInt64, secret: RoutingSecret) { add(.shared(id), secret, nil, [:]) }

    /// Lets somebody knock at what is gone: a late member of a conversation, or whoever holds an invite to it.
    package mutating func addKnockOnly(_ id: UInt64, secret: KnockSecret) { add(.knockOnly(id), nil, secret, [:]) }

    private mutating func add(
        _ route: Route,
        _ secret: RoutingSecret?,
        _ knock: KnockSecret?,
        _ next: [UInt32: UInt32]
    ) {
        remove(route)
        let slot = takeSlot(route)
        let holder = Holder(route: route, secret: secret, knock: knock, next: next, day: day)
        holders[slot] = holder
        for day in Self.days(around: day) { insert(holder, slot, day) }
    }

    private mutating func takeSlot(_ route: Route) -> UInt32 {
        let slot: UInt32
        if let free = freeSlots.popLast() {
            slot = free
        } else {
            slot = nextSlot
            nextSlot += 1
        }
        slots[route] = slot
        return slot
    }

    package mutating func remove(_ route: Route) {
        guard let slot = slots.removeValue(forKey: route) else { return }
        if let holder = holders.removeValue(forKey: slot) {
            for day in Self.days(around: holder.day) { evict(holder, slot, day) }
        }
        freeSlots.append(slot)
    }

    // MARK: Tokens

    /// Where `token` leads; `nil` if nowhere.
    package func match(_ token: RoutingToken) -> Match? {
        find(token).map { Match(route: $0.route, isKnock: $0.counter == 0) }
    }

    private func find(_ token: RoutingToken) -> (route: Route, slot: UInt32, day: UInt32, counter: UInt32)? {
        guard let entry = entries[token.head] else { return nil }
        guard let holder = holders[entry.slot],
            let day = Self.days(around: holder.day).first(where: { entry.isOf(day: $0) }),
            let counter = entry.isKnock ? 0 : Self.window(holder, day).first(where: { entry.isOf(counter: $0) }),
            Self.token(holder, day, counter) == token
        else { return nil }
        return (holder.route, entry.slot, day, counter)
    }

    /// A handshake under `token` is complete: a member's counter is used up, and those before it, and its window moves
    /// on. Other tokens stay as they are.
    /// - Returns: whether counters have changed, so that they want to be saved.
    @discardableResult
    package mutating func use(_ token: RoutingToken) -> Bool {
        guard let (route, slot, day, counter) = find(token), counter > 0, case .member = route,
            let before = holders[slot]
        else { return false }
        var after = before
        after.next[day] = counter == .max ? counter : counter + 1
        holders[slot] = after
        let old = Self.window(before, day)
        let new = Self.window(after, day)
        for counter in old where !new.contains(counter) { evict(before, slot, day, counter) }
        for counter in new where !old.contains(counter) { insert(after, slot, day, counter) }
        return true
    }

    /// Moves to another day at once; see ``beginRoll(to:)``.
    package mutating func roll(to newDay: UInt32) {
        beginRoll(to: newDay)
        continueRoll(routes: .max)
    }

    /// Moves to another day: of each route the tokens of days that are no longer within one day of it go, and those of new
    /// days come, some routes at a time. Until its turn has come a route has the tokens that it had.
    package mutating func beginRoll(to newDay: UInt32) {
        guard newDay != day else { return }
        day = newDay
        rolling = holders.keys.sorted()
    }

    /// Whether routes wait for the tokens of the new day.
    package var isRolling: Bool { !rolling.isEmpty }

    /// - Parameter count: how many routes get their new tokens now, each at the cost of some 33 of them.
    package mutating func continueRoll(routes count: Int) {
        for _ in 0..<min(count, rolling.count) {
            guard let slot = rolling.popLast() else { return }
            guard let before = holders[slot], before.day != day else { continue }
            let old = Self.days(around: before.day)
            let new = Self.days(around: day)
            for day in old where !new.contains(day) { evict(before, slot, day) }
            var after = before
            after.day = day
            after.next = before.next.filter { new.contains($0.key) }
            holders[slot] = after
            for day in new where !old.contains(day) { insert(after, slot, day) }
        }
    }

    /// Where the counters of a member stand, by day; days that no handshake has used are left out.
    package func counters(ofMember id: UInt64) -> [RoutingCounter] {
        let next = slots[.member(id)].flatMap { holders[$0] }?.next ?? [:]
        return next.keys.sorted().compactMap { day in next[day].map { RoutingCounter(day: day, next: $0) } }
    }

    /// What a member's tokens are made from, to be kept for a start without its key; wiped by whoever asks.
    package func secretBytes(ofMember id: UInt64) -> [UInt8]? {
        slots[.member(id)].flatMap { holders[$0] }.flatMap { $0.secret?.withBytes { Array($0) } }
    }

    /// What a member announces itself by on a LAN.
    package func lan(ofMember id: UInt64) -> LanSecret? {
        slots[.member(id)].flatMap { holders[$0] }.flatMap { $0.secret?.lan }
    }

    // MARK: Windows

    /// Yesterday, today and tomorrow, for clocks that differ.
    private static func days(around day: UInt32) -> ClosedRange<UInt32> {
        (day == 0 ? 0 : day - 1)...(day == .max ? .max : day + 1)
    }

    private static func window(_ holder: Holder, _ day: UInt32) -> ClosedRange<UInt32> {
        // A counter would have to move by 32 per handshake for a whole day to come near the end; it stops there.
        let first = min(holder.next[day] ?? 1, .max - windowCount)
        return first...(first + windowCount - 1)
    }

    /// `nil` where there is none: nobody knocks at a card or an invite.
    private static func token(_ holder: Holder, _ day: UInt32, _ counter: UInt32) -> RoutingToken? {
        switch (holder.route, counter) {
        case (.knockOnly, 0): holder.knock?.token(day: day)
        case (.member, 0): holder.secret?.knock.token(day: day)
        case (.shared, 0), (.knockOnly, _): nil
        case (.member, _), (.shared, _): holder.secret?.token(day: day, counter: counter)
        }
    }

    private mutating func insert(_ holder: Holder, _ slot: UInt32, _ day: UInt32) {
        insert(holder, slot, day, 0)
        guard holder.secret != nil else { return }
        for counter in Self.window(holder, day) { insert(holder, slot, day, counter) }
    }

    private mutating func evict(_ holder: Holder, _ slot: UInt32, _ day: UInt32) {
        evict(holder, slot, day, 0)
        guard holder.secret != nil else { return }
        for counter in Self.window(holder, day) { evict(holder, slot, day, counter) }
    }

    private mutating func insert(_ holder: Holder, _ slot: UInt32, _ day: UInt32, _ counter: UInt32) {
        // Two tokens with one head: the first stays. The other route has 31 more.
        guard let head = Self.token(holder, day, counter)?.head, entries[head] == nil else { return }
        entries[head] = Entry(slot: slot, day: day, counter: counter)
    }

    private mutating func evict(_ holder: Holder, _ slot: UInt32, _ day: UInt32, _ counter: UInt32) {
        guard let head = Self.token(holder, day, counter)?.head, let entry = entries[head], entry.slot == slot,
            entry.isKnock == (counter == 0), entry.isOf(day: day), entry.isOf(counter: counter)
        else { return }
        entries[head] = nil
    }
}
