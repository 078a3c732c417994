/// Which token leads where (Links.md, "Routing tokens"). Time is an argument: a day number.
///
/// One dictionary probe answers for a token, whatever its kind:
///
/// | route        | tokens                                                                                       |
/// |--------------|----------------------------------------------------------------------------------------------|
/// | `member`     | 24 to 40 counters, 16 of a generation to come, 6 to 10 of each of three days, and to knock    |
/// | `shared`     | 16 of each of three days and 16 of any day                                                   |
/// | `knockOnly`  | to knock: one of each of three days and one of any day                                       |
package struct RoutingTable: Sendable {
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

    /// Which of its route's tokens one is.
    private struct Name: Hashable, Sendable {
        enum Kind: UInt64 {
            /// Of a member's present generation, and of the one to come.
            case counter, next
            /// Of a member or a shared secret, on a day.
            case day
            /// Of a shared secret, on any day.
            case anyDay
            case knockOfDay, knock
        }

        var kind: Kind
        var day: UInt32 = 0
        var counter: UInt32 = 0

        var isKnock: Bool { kind == .knockOfDay || kind == .knock }
    }

    /// What is stored under the first half of a token, in 8 bytes: with thousands of sleeping inboxes the table is most
    /// of what they take. The second half is made again from the secret when a first half matches.
    private struct Entry: Sendable {
        /// route number (32) ‖ 0 ‖ kind (3) ‖ day modulo 4 (2) ‖ counter modulo 64 (6). Of three days in a row and 40
        /// counters in a row that says which.
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
        /// `nil` where no link may be opened.
        let secret: RoutingSecret?
        /// Where knocks are all there is.
        let knock: KnockSecret?
        /// The day around which its tokens are in the table.
        var day: UInt32
        var generation = TokenGeneration.first
        var window = TokenWindow()
        var next: TokenGeneration?
        /// Of the days that were used.
        var days: [UInt32: TokenWindow] = [:]
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
    /// - Parameter counters: where the counters stood at the last ``counters(ofMember:)``.
    package mutating func addMember(
        _ id: UInt64, secret: RoutingSecret, counters: ListenerCounters = ListenerCounters()
    ) {
        var holder = Holder(route: .member(id), secret: secret, knock: nil, day: day)
        holder.generation = counters.generation
        holder.window = counters.window
        holder.next = counters.next
        let days = Self.days(around: day)
        for used in counters.days where days.contains(used.day) { holder.days[used.day] = used.window }
        add(holder)
    }

    /// Lets whoever holds a card or an invite dial.
    package mutating func addShared(_ id: UInt64, secret: RoutingSecret) {
        add(Holder(route: .shared(id), secret: secret, knock: nil, day: day))
    }

    /// Lets somebody knock at what is gone: a late member of a conversation, or whoever holds an invite to it.
    package mutating func addKnockOnly(_ id: UInt64, secret: KnockSecret) {
        add(Holder(route: .knockOnly(id), secret: nil, knock: secret, day: day))
    }

    private mutating func add(_ holder: Holder) {
        remove(holder.route)
        let slot = takeSlot(holder.route)
        holders[slot] = holder
        for name in Self.names(holder) { insert(holder, slot, name) }
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
            for name in Self.names(holder) { evict(holder, slot, name) }
        }
        freeSlots.append(slot)
    }

    // MARK: Tokens

    /// Where `token` leads; `nil` if nowhere.
    package func match(_ token: RoutingToken) -> Match? {
        find(token).map { Match(route: $0.holder.route, isKnock: $0.name.isKnock) }
    }

    private func find(_ token: RoutingToken) -> (holder: Holder, slot: UInt32, name: Name)? {
        guard let entry = entries[token.head], let holder = holders[entry.slot],
            let name = Self.names(holder).first(where: { entry.stands(for: $0) }), Self.token(holder, name) == token
        else { return nil }
        return (holder, entry.slot, name)
    }

    /// A dialer has shown `token` for a link, and we are about to go on with it. The window follows what a dialer shows,
    /// whatever comes of it: all that it may show next is then in the table.
    /// - Returns: whether counters have moved so far that they want to be saved now.
    @discardableResult package mutating func show(_ token: RoutingToken) -> Bool { move(token, isCompleted: false) }

    /// A handshake under `token` is complete: a member's counter is used up, and those before it. Other tokens stay as
    /// they are.
    /// - Returns: whether counters have changed, so that they want to be saved.
    @discardableResult package mutating func use(_ token: RoutingToken) -> Bool { move(token, isCompleted: true) }

    private mutating func move(_ token: RoutingToken, isCompleted: Bool) -> Bool {
        guard let (before, slot, name) = find(token), case .member = before.route, !name.isKnock else { return false }
        var after = before
        if name.kind == .next, let next = before.next {
            // The dialer has gone on to it and shows nothing of the present one any more.
            after.generation = next
            after.window = TokenWindow()
            after.next = nil
        }
        switch name.kind {
        case .counter, .next:
            if isCompleted { after.window.complete(name.counter) } else { after.window.show(name.counter) }
        case .day:
            var window = before.days[name.day] ?? TokenWindow()
            if isCompleted { window.complete(name.counter) } else { window.show(name.counter) }
            after.days[name.day] = window
            // Which the dialer takes up when it has heard from us over this link, and not before.
            if isCompleted { after.next = TokenGeneration(day: name.day, counter: name.counter) }
        case .anyDay, .knockOfDay, .knock: return false
        }
        guard replace(slot, before, after) else { return false }
        return isCompleted || name.kind != .counter || isUnsaved(before.window.shown, after.window.shown)
    }

    /// - Returns: whether anything is different.
    @discardableResult private mutating func replace(_ slot: UInt32, _ before: Holder, _ after: Holder) -> Bool {
        holders[slot] = after
        let isSame =
            before.generation == after.generation && before.next == after.next && before.window == after.window
            && before.days == after.days && before.day == after.day
        guard !isSame else { return false }
        // A name says nothing of its generation.
        let (old, new) = (Self.names(before), Self.names(after))
        let hasBegunAnew = before.generation != after.generation || before.next != after.next
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

    /// Moves to another day: of each route the tokens of days that are no longer within one day of it go, and those of new
    /// days come, some routes at a time. Until its turn has come a route has the tokens that it had.
    package mutating func beginRoll(to newDay: UInt32) {
        guard newDay != day else { return }
        day = newDay
        rolling = holders.keys.sorted()
    }

    /// Whether routes wait for the tokens of the new day.
    package var isRolling: Bool { !rolling.isEmpty }

    /// - Parameter count: how many routes get their new tokens now, each at the cost of some 7 or 17 of them.
    package mutating func continueRoll(routes count: Int) {
        for _ in 0..<min(count, rolling.count) {
            guard let slot = rolling.popLast() else { return }
            guard let before = holders[slot], before.day != day else { continue }
            let days = Self.days(around: day)
            var after = before
            after.day = day
            after.days = before.days.filter { days.contains($0.key) }
            replace(slot, before, after)
        }
    }

    /// Where the counters of a member stand.
    package func counters(ofMember id: UInt64) -> ListenerCounters {
        guard let holder = slots[.member(id)].flatMap({ holders[$0] }) else { return ListenerCounters() }
        return ListenerCounters(
            generation: holder.generation, window: holder.window, next: holder.next,
            days: holder.days.keys.sorted().compactMap { day in
                holder.days[day].map { ListenerCounters.Day(day: day, window: $0) }
            })
    }

    /// What a member's tokens are made from, to be kept for a start without its key; wiped by whoever asks.
    package func secretBytes(ofMember id: UInt64) -> [UInt8]? {
        slots[.member(id)].flatMap { holders[$0] }.flatMap { $0.secret?.withBytes { Array($0) } }
    }

    /// By which a member knocks here.
    package func knock(ofMember id: UInt64) -> KnockSecret? {
        slots[.member(id)].flatMap { holders[$0] }.flatMap { $0.secret?.knock }
    }

    /// What a member announces itself by on a LAN.
    package func lan(ofMember id: UInt64) -> LanSecret? {
        slots[.member(id)].flatMap { holders[$0] }.flatMap { $0.secret?.lan }
    }

    // MARK: Names

    /// Yesterday, today and tomorrow, for clocks that differ.
    private static func days(around day: UInt32) -> ClosedRange<UInt32> {
        (day == 0 ? 0 : day - 1)...(day == .max ? .max : day + 1)
    }

    /// All tokens of a route.
    private static func names(_ holder: Holder) -> [Name] {
        var result: [Name] = []
        func add(_ kind: Name.Kind, day: UInt32 = 0, _ counters: ClosedRange<UInt32>) {
            for counter in counters { result.append(Name(kind: kind, day: day, counter: counter)) }
        }
        let days = days(around: holder.day)
        switch holder.route {
        case .member:
            add(.counter, holder.window.accepted(reach: TokenLimits.reach, ahead: TokenLimits.ahead))
            if holder.next != nil { add(.next, 1...TokenLimits.reach) }
            for day in days {
                let window = holder.days[day] ?? TokenWindow()
                add(.day, day: day, window.accepted(reach: TokenLimits.dayReach, ahead: TokenLimits.dayAhead))
            }
        case .shared:
            for day in days { add(.day, day: day, 1...TokenLimits.shared) }
            add(.anyDay, 1...TokenLimits.shared)
            // Nobody knocks at a card or an invite.
            return result
        case .knockOnly: break
        }
        for day in days { result.append(Name(kind: .knockOfDay, day: day)) }
        result.append(Name(kind: .knock))
        return result
    }

    private static func token(_ holder: Holder, _ name: Name) -> RoutingToken? {
        switch name.kind {
        case .counter: holder.secret?.token(holder.generation, counter: name.counter)
        case .next: holder.next.flatMap { holder.secret?.token($0, counter: name.counter) }
        case .day: holder.secret?.token(day: name.day, counter: name.counter)
        case .anyDay: holder.secret?.token(counter: name.counter)
        case .knockOfDay: (holder.knock ?? holder.secret?.knock)?.token(day: name.day)
        case .knock: (holder.knock ?? holder.secret?.knock)?.token
        }
    }

    private mutating func insert(_ holder: Holder, _ slot: UInt32, _ name: Name) {
        // Two tokens with one head: the first stays. The other route has more.
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
