import Cryptography

/// Maps routing tokens to routes (Links.md, "Routing tokens"). Time is an argument: a day number.
package struct RoutingTable: Sendable {
    package enum Route: Hashable, Sendable {
        /// The link between two members.
        case member(UInt64)
        /// A contact card or an invite.
        case shared(UInt64)
        /// A tombstone that admits knocks.
        case knockOnly(UInt64)
    }

    package struct Match: Hashable, Sendable {
        package let route: Route
        /// The token admits knocks only; no link may be opened with it.
        package let isKnock: Bool
    }

    private struct Name: Hashable, Sendable {
        enum Kind: UInt64 {
            /// A member's current generation, and the next one.
            case counter, next
            /// A member or a shared secret, on a day.
            case day
            /// A shared secret, on any day.
            case anyDay
            case knockOfDay, knock
        }

        var kind: Kind
        var day: UInt32 = 0
        var counter: UInt32 = 0

        var isKnock: Bool { kind == .knockOfDay || kind == .knock }
    }

    /// The value under a token's first half, 8 bytes: with thousands of sleeping inboxes the table is most of their
    /// memory. When a first half matches, the second one is computed from the secret.
    private struct Entry: Sendable {
        /// route number (32) ‖ 0 ‖ kind (3) ‖ day modulo 4 (2) ‖ counter modulo 64 (6). Unambiguous, because a route
        /// has three consecutive days and at most 40 consecutive counters.
        private let bits: UInt64

        init(slot: UInt32, _ name: Name) { bits = UInt64(slot) << 32 | Self.bits(name) }

        private static func bits(_ name: Name) -> UInt64 {
            name.kind.rawValue << 8 | UInt64(name.day & 3) << 6 | UInt64(name.counter & 63)
        }

        var slot: UInt32 { UInt32(bits >> 32) }
        func stands(for name: Name) -> Bool { bits & 0xffff_ffff == Self.bits(name) }
    }

    private struct Holder: Sendable {
        let route: Route
        /// `nil` if no link may be opened.
        let secret: RoutingSecret?
        /// `nil` if it admits no knocks.
        let knock: KnockSecret?
        /// The day around which its tokens are in the table.
        var day: UInt32
        var counters = ListenerCounters()

        func window(of day: UInt32) -> TokenWindow { counters.days.first { $0.day == day }?.window ?? TokenWindow() }
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

    package var count: Int { entries.count }

    /// Admits a member's dials, with the saved ``counters(ofMember:)``. Replaces an earlier route with this id.
    package mutating func addMember(
        _ id: UInt64, secret: RoutingSecret, counters: ListenerCounters = ListenerCounters()
    ) {
        var holder = Holder(route: .member(id), secret: secret, knock: secret.knock, day: day)
        holder.counters = counters
        let days = Self.days(around: day)
        holder.counters.days.removeAll { !days.contains($0.day) }
        add(holder)
    }

    /// Admits dials by holders of a card or an invite.
    package mutating func addShared(_ id: UInt64, secret: RoutingSecret) {
        add(Holder(route: .shared(id), secret: secret, knock: nil, day: day))
    }

    /// Admits knocks at a tombstone by a late member of the conversation or a holder of its invite.
    package mutating func addKnockOnly(_ id: UInt64, secret: KnockSecret) {
        add(Holder(route: .knockOnly(id), secret: nil, knock: secret, day: day))
    }

    private mutating func add(_ holder: Holder) {
        remove(holder.route)
        let slot = freeSlots.popLast() ?? nextSlot
        if slot == nextSlot { nextSlot += 1 }
        slots[holder.route] = slot
        holders[slot] = holder
        for name in Self.names(holder) { insert(holder, slot, name) }
    }

    package mutating func remove(_ route: Route) {
        guard let slot = slots.removeValue(forKey: route) else { return }
        if let holder = holders.removeValue(forKey: slot) {
            for name in Self.names(holder) { evict(holder, slot, name) }
        }
        freeSlots.append(slot)
    }

    package func match(_ token: RoutingToken) -> Match? {
        find(token).map { Match(route: $0.holder.route, isKnock: $0.name.isKnock) }
    }

    private func find(_ token: RoutingToken) -> (holder: Holder, slot: UInt32, name: Name)? {
        guard let entry = entries[token.head], let holder = holders[entry.slot],
            let name = Self.names(holder).first(where: { entry.stands(for: $0) }), Self.token(holder, name) == token
        else { return nil }
        return (holder, entry.slot, name)
    }

    /// A dialer has shown `token` for a link, and we are about to continue.
    /// - Returns: whether the counters must be saved now.
    @discardableResult package mutating func show(_ token: RoutingToken) -> Bool { move(token, isCompleted: false) }

    /// A handshake under `token` is complete: a member's counter and all lower ones are used up. Other tokens stay
    /// valid.
    /// - Returns: whether the counters have changed and must be saved.
    @discardableResult package mutating func use(_ token: RoutingToken) -> Bool { move(token, isCompleted: true) }

    private mutating func move(_ token: RoutingToken, isCompleted: Bool) -> Bool {
        guard let (before, slot, name) = find(token), case .member = before.route, !name.isKnock else { return false }
        var after = before
        if name.kind == .next, let next = before.counters.next {
            // The dialer has switched to the next generation and shows no more tokens of the current one.
            after.counters = ListenerCounters(generation: next, days: before.counters.days)
        }
        func moved(_ window: TokenWindow) -> TokenWindow {
            var window = window
            if isCompleted { window.complete(name.counter) } else { window.show(name.counter) }
            return window
        }
        switch name.kind {
        case .counter, .next: after.counters.window = moved(after.counters.window)
        case .day:
            after.counters.days.removeAll { $0.day == name.day }
            after.counters.days.append(ListenerCounters.Day(day: name.day, window: moved(before.window(of: name.day))))
            after.counters.days.sort { $0.day < $1.day }
            // The dialer switches to it once a frame from us arrives over this link.
            if isCompleted { after.counters.next = TokenGeneration(day: name.day, counter: name.counter) }
        case .anyDay, .knockOfDay, .knock: return false
        }
        guard replace(slot, before, after) else { return false }
        return isCompleted || name.kind != .counter
            || isUnsaved(before.counters.window.shown, after.counters.window.shown)
    }

    @discardableResult private mutating func replace(_ slot: UInt32, _ before: Holder, _ after: Holder) -> Bool {
        holders[slot] = after
        guard before.counters != after.counters || before.day != after.day else { return false }
        // Names do not contain the generation.
        let (old, new) = (Self.names(before), Self.names(after))
        let hasBegunAnew =
            before.counters.generation != after.counters.generation || before.counters.next != after.counters.next
        let (known, kept) = (Set(old), Set(new))
        for name in old where !kept.contains(name) || hasBegunAnew { evict(before, slot, name) }
        for name in new where !known.contains(name) || hasBegunAnew { insert(after, slot, name) }
        return true
    }

    /// Moves to another day at once; see ``beginRoll(to:)``.
    package mutating func roll(to newDay: UInt32) {
        beginRoll(to: newDay)
        continueRoll(routes: .max)
    }

    /// Moves to another day, some routes at a time: removes tokens of days more than one day away, and adds those of
    /// new days. Until its turn a route keeps its old tokens.
    package mutating func beginRoll(to newDay: UInt32) {
        guard newDay != day else { return }
        day = newDay
        rolling = holders.keys.sorted()
    }

    package var isRolling: Bool { !rolling.isEmpty }

    /// - Parameter count: routes to update now, each at the cost of some 7 or 17 tokens.
    package mutating func continueRoll(routes count: Int) {
        for _ in 0..<min(count, rolling.count) {
            guard let slot = rolling.popLast() else { return }
            guard let before = holders[slot], before.day != day else { continue }
            let days = Self.days(around: day)
            var after = before
            after.day = day
            after.counters.days.removeAll { !days.contains($0.day) }
            replace(slot, before, after)
        }
    }

    package func counters(ofMember id: UInt64) -> ListenerCounters { member(id)?.counters ?? ListenerCounters() }

    /// A member's routing secret, to be kept for a start without the home's key. The caller must wipe it.
    package func secretBytes(ofMember id: UInt64) -> [UInt8]? { member(id)?.secret?.withBytes { Array($0) } }

    package func knock(ofMember id: UInt64) -> KnockSecret? { member(id)?.knock }

    package func lan(ofMember id: UInt64) -> LanSecret? { member(id)?.secret?.lan }

    private func member(_ id: UInt64) -> Holder? { slots[.member(id)].flatMap { holders[$0] } }

    /// Yesterday, today and tomorrow, because clocks differ.
    private static func days(around day: UInt32) -> ClosedRange<UInt32> {
        (day == 0 ? 0 : day - 1)...(day == .max ? .max : day + 1)
    }

    private static func names(_ holder: Holder) -> [Name] {
        var result: [Name] = []
        func add(_ kind: Name.Kind, day: UInt32 = 0, _ counters: ClosedRange<UInt32>) {
            for counter in counters { result.append(Name(kind: kind, day: day, counter: counter)) }
        }
        let days = days(around: holder.day)
        switch holder.route {
        case .member:
            add(.counter, holder.counters.window.accepted(reach: TokenLimits.reach, ahead: TokenLimits.ahead))
            if holder.counters.next != nil { add(.next, 1...TokenLimits.reach) }
            for day in days {
                let window = holder.window(of: day)
                add(.day, day: day, window.accepted(reach: TokenLimits.dayReach, ahead: TokenLimits.dayAhead))
            }
        case .shared:
            for day in days { add(.day, day: day, 1...TokenLimits.shared) }
            add(.anyDay, 1...TokenLimits.shared)
            // Cards and invites admit no knocks.
            return result
        case .knockOnly: break
        }
        for day in days { result.append(Name(kind: .knockOfDay, day: day)) }
        result.append(Name(kind: .knock))
        return result
    }

    private static func token(_ holder: Holder, _ name: Name) -> RoutingToken? {
        switch name.kind {
        case .counter: holder.secret?.token(holder.counters.generation, counter: name.counter)
        case .next: holder.counters.next.flatMap { holder.secret?.token($0, counter: name.counter) }
        case .day: holder.secret?.token(day: name.day, counter: name.counter)
        case .anyDay: holder.secret?.token(counter: name.counter)
        case .knockOfDay: holder.knock?.token(day: name.day)
        case .knock: holder.knock?.token
        }
    }

    private mutating func insert(_ holder: Holder, _ slot: UInt32, _ name: Name) {
        // Two tokens with one head: the first stays. The other route has more tokens.
        guard let head = Self.token(holder, name)?.head, entries[head] == nil else { return }
        entries[head] = Entry(slot: slot, name)
    }

    private mutating func evict(_ holder: Holder, _ slot: UInt32, _ name: Name) {
        guard let head = Self.token(holder, name)?.head, let entry = entries[head], entry.slot == slot,
            entry.stands(for: name)
        else { return }
        entries[head] = nil
    }
}

package struct RouteMatch: Sendable {
    package let identity: IdentityKey
    /// The owner's identifier of the route, returned with the link.
    package let route: UInt64
    /// The expected peer; `nil` accepts any key that act 3 proves (joiners, holders of a card).
    package let remote: PublicKey?

    package init(identity: IdentityKey, route: UInt64, remote: PublicKey?) {
        self.identity = identity
        self.route = route
        self.remote = remote
    }
}
