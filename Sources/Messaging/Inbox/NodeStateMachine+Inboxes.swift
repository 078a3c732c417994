import DequeModule
import Primitives

/// Sleep and waking (section 10): what the lifecycle decides becomes actions, and what sleeps is woken when it is due.
extension NodeStateMachine {
    // MARK: What there is

    /// Inboxes that hold their state in memory, in the order in which they were made.
    var awakeClients: [ClientID] {
        inboxes.keys.sorted { (records[$0] ?? .latest, $0) < (records[$1] ?? .latest, $1) }
    }

    package var capacity: Int { lifecycle.capacity }
    package var awakeCount: Int { lifecycle.awakeCount }
    package var sleepingCount: Int { inboxes.sleeping.count }
    package var directory: InboxDirectory { inboxes.directory }

    package func contains(_ client: ClientID) -> Bool { records[client] != nil }
    package func isUnused(_ client: ClientID) -> Bool { if case .unused? = inboxes[client] { true } else { false } }
    package func isSleeping(_ client: ClientID) -> Bool { inboxes.sleeping[client] != nil }
    /// Of an inbox that sleeps.
    package func summary(_ client: ClientID) -> InboxSummary? { inboxes.sleeping[client]?.summary }
    /// Of all that sleep, in no order.
    package var sleepers: [InboxSummary] { inboxes.sleeping.values.map(\.summary) }
    /// Those that have something to do by themselves now, such as to explode.
    package func sleepersDue(now: Timestamp) -> [ClientID] {
        guard let next = inboxes.nextDeadline, next <= now else { return [] }
        return sleepers.filter { $0.deadline.map { $0 <= now } ?? false }.map(\.client).sorted()
    }

    package func wakeReason(_ client: ClientID) -> WakeReason? { lifecycle.wakeReason(client) }
    package func lastActivity(_ client: ClientID) -> Timestamp? { lifecycle.lastActivity(client) }

    /// Messages that are not acknowledged, of all inboxes.
    package var outboxCount: Int {
        var count = 0
        for client in inboxes.keys {
            if case .conversation(let machine)? = inboxes[client] { count += machine.outboxCount }
        }
        return inboxes.sleeping.values.reduce(count) { $0 + $1.summary.outboxCount }
    }

    /// What keeps it awake; empty when it may be put to sleep.
    package func protection(_ client: ClientID) -> InboxProtection {
        var result: InboxProtection = watched[client] == nil ? [] : .active
        switch inboxes[client] {
        // One that is being changed in this very turn is in use.
        case nil: result.insert(.active)
        case .unused, .contact: break
        case .joining: result.insert(.pendingInvite)
        case .conversation(let machine):
            if machine.heldByteCount > 0 { result.insert(.unread) }
            if machine.holdsUndelivered || machine.isTransferring { result.insert(.undelivered) }
        }
        if !guests.isEmpty, links.contains(where: { $0.value.client == client && guests.contains($0.key) }) {
            result.insert(.pendingInvite)
        }
        return result
    }

    // MARK: Loading

    /// A conversation from the disk that sleeps on.
    package mutating func load(sleeping summary: InboxSummary, _ turn: inout Turn) {
        records[summary.client] = summary.createdAt
        lifecycle.track(summary.client, lastActivity: summary.lastActivity)
        var inbox = SleepingInbox(summary: summary)
        // Its members must learn where we are now, each in its turn.
        inbox.hasMoved = summary.isElsewhere(turn)
        if summary.outboxCount > 0 || inbox.hasMoved {
            let wait = Milliseconds(turn.random.next(upperBound: UInt64(Limits.sleepingRetryFirst)))
            inbox.retryAt = turn.now + Limits.sleepingRetryFirst + wait
        }
        inboxes.sleep(inbox)
    }

    /// A conversation from its state on the disk, which sleeps on.
    /// - Returns: the routes by which it is reached.
    package mutating func load(
        sleeping record: InboxRecord,
        key: IdentityKey,
        undelivered: [Message],
        lastActivity: Timestamp?,
        _ turn: inout Turn
    ) -> [NodeAction] {
        guard case .conversation(let conversation) = record.role else { return [] }
        if explosions[conversation.genesis.conversation] != nil { return [.destroy(record.client)] }
        var machine = ConversationStateMachine(
            client: record.client,
            key: key,
            record: conversation,
            session: nil,
            undelivered: undelivered,
            dials: false,
            now: turn.now
        )
        _ = machine.prepareToSleep(turn)
        load(
            sleeping: InboxSummary(machine, createdAt: record.createdAt, lastActivity: lastActivity),
            &turn
        )
        return routes(of: machine, now: turn.now)
    }

    /// After the last inbox has been loaded: which of them are woken, in order.
    package mutating func launch(_ turn: inout Turn) {
        for client in inboxes.sleeping.keys.sorted() { settle(launched: client, &turn) }
        let now = turn.now
        let order = lifecycle.launch(pending: inboxes.joins.filter { lifecycle.isTracked($0) })
        pendingWakes = Deque(order.filter { isSleeping($0.0) }.map { (client: $0.0, reason: $0.1) })
        if !pendingWakes.isEmpty { wakesAt = now }
    }

    /// Whether its members know where a sleeping inbox is, could not be told while inboxes were loaded: the contact inbox,
    /// and with it what is reserved at rendezvous nodes, may have been the last.
    private mutating func settle(launched client: ClientID, _ turn: inout Turn) {
        guard var inbox = inboxes.sleeping[client], inbox.hasMoved, !inbox.summary.isElsewhere(turn) else { return }
        inbox.hasMoved = false
        if inbox.summary.outboxCount == 0 { inbox.retryAt = nil }
        inboxes.sleep(inbox)
    }

    /// An inbox that was loaded awake; nobody has to give way.
    mutating func takeNote(of client: ClientID, _ reason: WakeReason, lastActivity: Timestamp?, _ turn: Turn) {
        lifecycle.track(client, lastActivity: lastActivity)
        _ = try? lifecycle.wake(client, reason, now: turn.now, stay: 0, mayExceed: true) { _ in .active }
    }

    // MARK: Waking

    /// A sleeping inbox, read from the disk, wakes; others may have to sleep for it. Nothing happens when it is awake.
    /// - Parameter undelivered: its own messages that are not acknowledged, oldest first.
    /// - Throws: ``CommandError/inboxesInUse(limit:)``.
    package mutating func wake(
        _ record: InboxRecord,
        key: IdentityKey,
        undelivered: [Message],
        _ reason: WakeReason,
        _ turn: inout Turn
    ) throws(CommandError) -> [NodeAction] {
        let client = record.client
        guard let asleep = inboxes.sleeping[client], case .conversation(let conversation) = record.role,
            !turn.isLocked
        else { return [] }
        let isDue = asleep.summary.deadline.map { $0 <= turn.now } ?? false
        let isRetry = asleep.retryAt.map { $0 <= turn.now } ?? false
        let stay: Milliseconds =
            switch reason {
            case .userInteraction: Limits.inboxStayForUser
            case .pushNotification: Limits.inboxStayForToken
            case .activityRanking: isRetry ? Limits.inboxStayForDelivery : 0
            case .pendingInvite, .appLaunch: 0
            }
        let victims = try makeRoom(
            for: client,
            reason,
            stay: stay,
            // The owner is never kept from reading, leaving or exploding; what it wakes is not protected for long.
            mayExceed: isDue || reason == .userInteraction,
            &turn
        )
        _ = inboxes.takeSleeping(client)
        var machine = ConversationStateMachine(
            client: client,
            key: key,
            record: conversation,
            session: asleep.session,
            undelivered: undelivered,
            // Who came by a token is dialling us; what is due by itself needs nobody.
            dials: asleep.hasMoved || reason != .pushNotification && !isDue && !isRetry,
            now: turn.now
        )
        let moved = machine.endpointsChanged(&turn)
        inboxes[client] = .conversation(machine)
        if !undelivered.isEmpty || asleep.hasMoved { retries[client] = asleep.retries + 1 }
        let event = Event(
            client: client,
            conversation: machine.conversation,
            at: turn.now,
            kind: .inboxAwake(reason)
        )
        return victims + moved + routes(of: machine, now: turn.now) + [.notify(event)] + advance(client, &turn)
    }

    /// Sleeping members' nodes must learn where we are now: each inbox is woken for it in its turn.
    mutating func sleepersMoved(_ turn: inout Turn) {
        for client in inboxes.sleeping.keys.sorted() {
            guard inboxes.sleeping[client]?.summary.isElsewhere(turn) == true else { continue }
            let wait = Milliseconds(turn.random.next(upperBound: UInt64(Limits.sleepingRetryFirst)))
            inboxes.setMoved(client, retryAt: turn.now + wait)
        }
    }

    func routes(of machine: ConversationStateMachine, now: Timestamp) -> [NodeAction] {
        machine.reachableBy.map { .register(machine.client, .member($0)) }
            + (machine.issuer?.open(now: now) ?? []).map { .register(machine.client, .invite($0.id)) }
    }

    mutating func makeRoom(
        for client: ClientID,
        _ reason: WakeReason,
        stay: Milliseconds = Limits.inboxStayForUser,
        mayExceed: Bool = false,
        _ turn: inout Turn
    ) throws(CommandError) -> [NodeAction] {
        let victims: [ClientID]
        let now = turn.now
        do throws(InboxLifecycleStateMachine.Refusal) {
            victims = try decide { machine, protection throws(InboxLifecycleStateMachine.Refusal) in
                try machine.wake(client, reason, now: now, stay: stay, mayExceed: mayExceed, protection: protection)
            }
        } catch {
            throw .inboxesInUse(limit: lifecycle.hardLimit)
        }
        return victims.flatMap { rest($0, turn) }
    }

    /// Lets the lifecycle change while it asks what protects an inbox; taken out meanwhile, so that nothing is copied.
    private mutating func decide<Result>(
        _ body: (inout InboxLifecycleStateMachine, (ClientID) -> InboxProtection)
            throws(InboxLifecycleStateMachine.Refusal) -> Result
    ) throws(InboxLifecycleStateMachine.Refusal) -> Result {
        var machine = lifecycle
        lifecycle = InboxLifecycleStateMachine()
        defer { lifecycle = machine }
        return try body(&machine) { protection($0) }
    }

    /// A sleeping conversation as it would wake, to be looked at only.
    package func preview(
        _ record: InboxRecord,
        key: IdentityKey,
        undelivered: [Message],
        now: Timestamp
    ) -> ConversationStateMachine? {
        guard let asleep = inboxes.sleeping[record.client], case .conversation(let conversation) = record.role else {
            return nil
        }
        return ConversationStateMachine(
            client: record.client,
            key: key,
            record: conversation,
            session: asleep.session,
            undelivered: undelivered,
            dials: false,
            now: now
        )
    }

    /// Dials the members of a conversation that have no link.
    package mutating func reach(_ client: ClientID, _ turn: inout Turn) -> [NodeAction] {
        guard case .conversation? = inboxes[client], case .conversation(var machine)? = take(client) else { return [] }
        defer { inboxes[client] = .conversation(machine) }
        return machine.reach(&turn)
    }

    /// A user has asked for something in an inbox that is awake.
    package mutating func touch(_ client: ClientID, now: Timestamp) {
        guard lifecycle.isAwake(client) else { return }
        _ = try? lifecycle.wake(client, .userInteraction, now: now, stay: Limits.inboxStayForUser) { _ in .active }
    }

    /// A conversation is open in front of somebody, or is not any more.
    package mutating func setWatched(_ client: ClientID, _ isWatched: Bool) {
        let count = (watched[client] ?? 0) + (isWatched ? 1 : -1)
        watched[client] = count > 0 ? count : nil
    }

    /// By how many it is open.
    package func watchers(of client: ClientID) -> Int { watched[client] ?? 0 }

    // MARK: Sleep

    /// Puts an inbox to sleep that the user names; one that sleeps already sleeps on.
    /// - Throws: ``CommandError/inboxProtected(_:)``; ``CommandError/unknownConversation`` for one that is no
    ///   conversation.
    package mutating func sleep(_ client: ClientID, _ turn: inout Turn) throws(CommandError) -> [NodeAction] {
        do throws(InboxLifecycleStateMachine.Refusal) {
            let wasAwake = try decide { machine, protection throws(InboxLifecycleStateMachine.Refusal) in
                try machine.sleep(client, protection: protection)
            }
            guard wasAwake else { return [] }
        } catch {
            switch error {
            case .protected(let reasons): throw .inboxProtected(reasons)
            case .notTracked, .full: throw .unknownConversation
            }
        }
        return rest(client, turn)
    }

    /// The links of an inbox that is to sleep are closed; the shell makes it durable and calls ``fallAsleep(_:_:)``.
    mutating func rest(_ client: ClientID, _ turn: Turn) -> [NodeAction] {
        guard case .conversation(var machine)? = take(client) else { return [] }
        var actions = machine.prepareToSleep(turn)
        inboxes[client] = .conversation(machine)
        for link in links.keys.sorted() where links[link]?.client == client {
            if guests.contains(link) { actions.append(.close(link)) }
            guests.leave(link)
            links[link] = nil
        }
        let event = Event(client: client, conversation: machine.conversation, at: turn.now, kind: .inboxAsleep)
        return actions + [.sleep(client), .notify(event)]
    }

    /// The record of this inbox is on its way to the disk: its machine goes, and its summary stays.
    package mutating func fallAsleep(_ client: ClientID, _ turn: inout Turn) {
        guard case .conversation(let machine)? = inboxes[client], !lifecycle.isAwake(client),
            let createdAt = records[client]
        else { return }
        var inbox = SleepingInbox(
            summary: InboxSummary(machine, createdAt: createdAt, lastActivity: lifecycle.lastActivity(client)),
            session: machine.session
        )
        inbox.hasMoved = !machine.isFound
        if inbox.summary.outboxCount > 0 || inbox.hasMoved {
            inbox.retries = retries[client] ?? 0
            let wait = min(
                Limits.sleepingRetryFirst << Milliseconds(min(inbox.retries, 20)),
                Limits.sleepingRetryLongest
            )
            inbox.retryAt = turn.now + wait - Milliseconds(turn.random.next(upperBound: UInt64(wait / 4)))
        }
        retries[client] = nil
        inboxes.sleep(inbox)
    }

    /// A message was acknowledged: whoever was woken to deliver it has done so.
    mutating func delivered(_ client: ClientID) {
        retries[client] = nil
        lifecycle.endDelivery(client)
    }

    /// Lets go of an inbox that is gone, awake or asleep.
    mutating func forget(_ client: ClientID) {
        inboxes[client] = nil
        records[client] = nil
        lifecycle.remove(client)
        watched[client] = nil
        retries[client] = nil
    }

    // MARK: The set as a whole

    /// - Returns: how many are put to sleep now, and how many are woken in the turns that follow.
    package mutating func rebalance(_ turn: inout Turn) -> (slept: Int, woken: Int, actions: [NodeAction]) {
        guard !turn.isLocked else { return (0, 0, []) }
        rebalanceAt = nil
        let plan = lifecycle.rebalance(now: turn.now) { protection($0) }
        lifecycle.apply(plan)
        pendingWakes = Deque(plan.wake.map { (client: $0, reason: .activityRanking) })
        if !pendingWakes.isEmpty { wakesAt = turn.now }
        return (plan.sleep.count, plan.wake.count, plan.sleep.flatMap { rest($0, turn) })
    }

    /// How many inboxes are to be awake from now on.
    package mutating func setCapacity(_ capacity: Int, now: Timestamp) {
        lifecycle.setCapacity(capacity)
        rebalanceAt = now
    }

    // MARK: Time

    /// What is due in inboxes, awake and asleep.
    mutating func advanceInboxes(_ turn: inout Turn) -> [NodeAction] {
        var result: [NodeAction] = []
        // At most a quarter of those that are awake deliver what nobody takes.
        var places = max(1, lifecycle.capacity / 4) - lifecycle.deliveryCount(now: turn.now)
        for client in inboxes.takeDue(until: turn.now) {
            if let asleep = inboxes.sleeping[client] {
                result += due(asleep, places: &places, turn)
            } else {
                result += advance(client, &turn)
            }
        }
        guard !turn.isLocked else {
            // Nothing can be read, or made durable.
            let later = turn.now + .second
            if let at = wakesAt, at < later { wakesAt = later }
            if let at = rebalanceAt, at < later { rebalanceAt = later }
            trimAt = later
            return result
        }
        if let at = rebalanceAt, at <= turn.now { result += rebalance(&turn).actions }
        if lifecycle.isOverCapacity, (trimAt ?? turn.now) <= turn.now {
            trimAt = turn.now + Limits.inboxTrimInterval
            let now = turn.now
            let trimmed = try? decide { machine, protection throws(InboxLifecycleStateMachine.Refusal) in
                machine.trim(now: now, protection: protection)
            }
            let victims = trimmed ?? []
            result += victims.flatMap { rest($0, turn) }
        }
        if let at = wakesAt, at <= turn.now {
            for _ in 0..<Limits.wakeBatchCount {
                guard let (client, reason) = pendingWakes.popFirst() else { break }
                if isSleeping(client) { result.append(.wake(client, reason)) }
            }
            wakesAt = pendingWakes.isEmpty ? nil : turn.now
        }
        return result
    }

    private mutating func due(_ asleep: SleepingInbox, places: inout Int, _ turn: Turn) -> [NodeAction] {
        let client = asleep.summary.client
        let isDue = asleep.summary.deadline.map { $0 <= turn.now } ?? false
        let isRetry = asleep.retryAt.map { $0 <= turn.now } ?? false
        guard isDue || isRetry else {
            inboxes.setDeadline(client, asleep.wakeAt)
            return []
        }
        if turn.isLocked || !isDue && places <= 0 {
            inboxes.setDeadline(client, turn.now + (turn.isLocked ? .second : Limits.sleepingRetryPause))
            return []
        }
        if !isDue { places -= 1 }
        // Should it not be possible now.
        inboxes.setDeadline(client, turn.now + .second)
        return [.wake(client, .activityRanking)]
    }
}
