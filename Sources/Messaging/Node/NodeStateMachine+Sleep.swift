import Cryptography
import DequeModule

/// Sleep and waking (Delivery.md): turns the lifecycle's decisions into actions, and wakes inboxes that are due.
extension NodeStateMachine {
    package var capacity: Int { lifecycle.capacity }
    package var awakeCount: Int { lifecycle.awakeCount }
    package var sleepingCount: Int { inboxes.sleepingCount }
    package var visits: InboxVisits { inboxes.visits }
    package var directory: InboxDirectory { inboxes.directory }

    package func contains(_ client: ClientID) -> Bool { inboxes[client] != nil }
    package func isUnused(_ client: ClientID) -> Bool {
        if case .unused? = inboxes[client]?.role { true } else { false }
    }
    package func isSleeping(_ client: ClientID) -> Bool { inboxes[client]?.isSleeping ?? false }
    package func summary(_ client: ClientID) -> InboxSummary? { inboxes[client]?.asleep?.summary }
    package var sleepers: [InboxSummary] { inboxes.sleeping.compactMap { $0.asleep?.summary } }
    /// Sleeping inboxes with an own deadline that has passed, such as an explosion.
    package func sleepersDue(now: Timestamp) -> [ClientID] {
        inboxes.due(until: now).filter { $0.asleep?.summary.deadline.map { $0 <= now } ?? false }.map(\.client).sorted()
    }

    package func wakeReason(_ client: ClientID) -> WakeReason? { inboxes[client].flatMap(lifecycle.wakeReason) }
    package func lastActivity(_ client: ClientID) -> Timestamp? { inboxes[client].flatMap(lifecycle.lastActivity) }

    package var outboxCount: Int { inboxes.outboxCount }

    /// Conversations whose members have all agreed to a mailbox.
    package var mailboxCount: Int { inboxes.mailboxCount }

    /// Empty when the inbox may be put to sleep.
    package func protection(_ client: ClientID) -> InboxProtection { inboxes[client].map(protection(of:)) ?? .active }

    private func protection(of inbox: InboxEntry) -> InboxProtection {
        var result: InboxProtection = inbox.watcherCount == 0 ? [] : .active
        switch inbox.role {
        case .gone, .sleeping: result.insert(.active)
        case .unused, .contact: break
        case .joining: result.insert(.pendingInvite)
        case .conversation:
            // Each wake asks this of every awake inbox, so it reads the table's copies.
            if inbox.figures.heldByteCount > 0 { result.insert(.unread) }
            if inbox.figures.isBusy { result.insert(.undelivered) }
        }
        if !guests.isEmpty, inbox.links.contains(where: guests.contains) { result.insert(.pendingInvite) }
        return result
    }

    package func load(sleeping summary: InboxSummary, _ turn: inout Turn) {
        var inbox = SleepingInbox(summary: summary)
        inbox.hasMoved = summary.isElsewhere(turn)
        if summary.hasNews || inbox.hasMoved {
            let wait = Milliseconds(turn.random.next(upperBound: UInt64(Limits.sleepingRetry.first)))
            inbox.retryAt = turn.now + Limits.sleepingRetry.first + wait
        }
        let entry = inboxes.enter(summary.client, createdAt: summary.createdAt, as: .sleeping(inbox))
        lifecycle.track(entry, lastActivity: summary.lastActivity)
    }

    /// Loads a conversation from its full record, leaves it asleep, and adds its routes.
    package func load(
        sleeping record: InboxRecord, key: IdentityKey, undelivered: [Message], lastActivity: Timestamp?,
        _ turn: inout Turn
    ) {
        guard case .conversation(let known) = record.role else { return }
        if explosions[known.genesis.conversation] != nil { return turn.add(.destroy(record.client)) }
        let conversation = Conversation(
            client: record.client, key: key, record: known, session: nil, undelivered: undelivered, dials: false,
            now: turn.now)
        _ = turn.apart { conversation.prepareToSleep(&$0) }
        load(sleeping: InboxSummary(conversation, createdAt: record.createdAt, lastActivity: lastActivity), &turn)
        addRoutes(of: conversation, &turn)
    }

    /// Call after the last inbox is loaded: decides which inboxes wake, and in which order.
    package func launch(_ turn: inout Turn) {
        for entry in inboxes.sleeping.inOrderOfClient() {
            // Unknown while inboxes were loaded: the contact inbox with its reservations may have been the last.
            guard var inbox = entry.asleep, inbox.hasMoved, !inbox.summary.isElsewhere(turn) else { continue }
            inbox.hasMoved = false
            if !inbox.summary.hasNews { inbox.retryAt = nil }
            inboxes.set(entry, to: .sleeping(inbox))
        }
        let now = turn.now
        let pending = inboxes.joining.filter { lifecycle.isTracked($0) }.inOrderOfClient()
        let order = lifecycle.launch(pending: pending)
        pendingWakes = Deque(order.filter { $0.0.isSleeping }.map { (inbox: $0.0, reason: $0.1) })
        if !pendingWakes.isEmpty { wakesAt = now }
    }

    /// An inbox that was loaded awake. It displaces no other inbox.
    func takeNote(of inbox: InboxEntry, _ reason: WakeReason, lastActivity: Timestamp?, _ turn: Turn) {
        lifecycle.track(inbox, lastActivity: lastActivity)
        _ = lifecycle.wake(inbox, reason, now: turn.now, stay: 0) { _ in .active }
    }

    /// Wakes a sleeping inbox that was read from the disk; others may have to sleep for it. Does nothing if it is
    /// awake.
    /// - Parameter undelivered: its own unacknowledged messages, oldest first.
    package func wake(
        _ record: InboxRecord, key: IdentityKey, undelivered: [Message], _ reason: WakeReason, _ turn: inout Turn
    ) {
        let client = record.client
        guard let inbox = inboxes[client], let asleep = inbox.asleep, case .conversation(let known) = record.role,
            !turn.isLocked
        else { return }
        let isDue = asleep.summary.deadline.map { $0 <= turn.now } ?? false
        let isRetry = asleep.retryAt.map { $0 <= turn.now } ?? false
        let stay: Milliseconds =
            switch reason {
            case .userInteraction: Limits.inboxStayForUser
            case .pushNotification: Limits.inboxStayForToken
            case .activityRanking: isRetry ? Limits.inboxStayForDelivery : 0
            case .pendingInvite, .appLaunch: 0
            }
        makeRoom(for: inbox, reason, stay: stay, &turn)
        let conversation = Conversation(
            client: client, key: key, record: known, session: asleep.session, undelivered: undelivered,
            // An inbox woken by a token has an incoming dial; a deadline of its own needs no peer.
            dials: asleep.hasMoved || reason != .pushNotification && !isDue && !isRetry, now: turn.now)
        // A user does not wait for the member to dial first.
        if reason == .userInteraction { conversation.hurry(now: turn.now) }
        conversation.endpointsChanged(&turn)
        inboxes.set(inbox, to: .conversation(conversation))
        addRoutes(of: conversation, &turn)
        conversation.tell(.inboxAwake(reason), &turn)
        advance(inbox, &turn)
    }

    /// Members of sleeping conversations must learn our new endpoints: each inbox wakes for that in its turn.
    func sleepersMoved(_ turn: inout Turn) {
        for inbox in inboxes.sleeping.inOrderOfClient() where inbox.asleep?.summary.isElsewhere(turn) == true {
            let wait = Milliseconds(turn.random.next(upperBound: UInt64(Limits.sleepingRetry.first)))
            inboxes.setMoved(inbox, retryAt: turn.now + wait)
        }
    }

    func addRoutes(of conversation: Conversation, _ turn: inout Turn) {
        let client = conversation.client
        for member in conversation.reachableBy { turn.add(.register(client, .member(member))) }
        for invite in conversation.record.issuer?.open(now: turn.now) ?? [] {
            turn.add(.register(client, .invite(invite.id)))
        }
    }

    func makeRoom(
        for inbox: InboxEntry, _ reason: WakeReason, stay: Milliseconds = Limits.inboxStayForUser, _ turn: inout Turn
    ) {
        for victim in lifecycle.wake(inbox, reason, now: turn.now, stay: stay, protection: protection(of:)) {
            rest(victim, &turn)
        }
    }

    /// A sleeping conversation as it would wake; read-only.
    package func preview(_ record: InboxRecord, key: IdentityKey, undelivered: [Message], now: Timestamp)
        -> Conversation?
    {
        guard let asleep = inboxes[record.client]?.asleep, case .conversation(let known) = record.role else {
            return nil
        }
        return Conversation(
            client: record.client, key: key, record: known, session: asleep.session, undelivered: undelivered,
            dials: false, now: now)
    }

    package func touch(_ client: ClientID, now: Timestamp) {
        guard let inbox = inboxes[client], lifecycle.isAwake(inbox) else { return }
        _ = lifecycle.wake(inbox, .userInteraction, now: now, stay: Limits.inboxStayForUser) { _ in .active }
    }

    /// A client has opened or closed a view of this conversation.
    package func setWatched(_ client: ClientID, _ isWatched: Bool) {
        guard let inbox = inboxes[client] else { return }
        inbox.watcherCount = max(0, inbox.watcherCount + (isWatched ? 1 : -1))
    }

    package func watchers(of client: ClientID) -> Int { inboxes[client]?.watcherCount ?? 0 }

    /// Puts an inbox to sleep at the user's command; does nothing if it is asleep.
    /// - Throws: ``CommandError/inboxProtected(_:)``; ``CommandError/unknownConversation`` if it is no conversation.
    package func sleep(_ client: ClientID, _ turn: inout Turn) throws(CommandError) {
        guard let inbox = inboxes[client] else { throw .unknownConversation }
        do throws(InboxLifecycleStateMachine.Refusal) {
            guard try lifecycle.sleep(inbox, now: turn.now, protection: protection(of:)) else { return }
        } catch {
            switch error {
            case .protected(let reasons): throw .inboxProtected(reasons)
            case .notTracked: throw .unknownConversation
            }
        }
        rest(inbox, &turn)
    }

    /// Closes the links of an inbox. The shell then saves the inbox and calls ``fallAsleep(_:_:)``.
    private func rest(_ inbox: InboxEntry, _ turn: inout Turn) {
        guard let conversation = inbox.conversation else { return }
        callLine(now: turn.now)
        conversation.prepareToSleep(&turn)
        inboxes.reindex(inbox)
        for link in inbox.links.sorted() {
            if guests.contains(link) { turn.close(link) }
            forgetLink(link)
        }
        turn.add(.sleep(inbox.client))
        conversation.tell(.inboxAsleep, &turn)
    }

    /// The record is being written: drops the machine and keeps the summary.
    package func fallAsleep(_ client: ClientID, _ turn: inout Turn) {
        guard let inbox = inboxes[client], let conversation = inbox.conversation, !lifecycle.isAwake(inbox) else {
            return
        }
        var asleep = SleepingInbox(
            summary: InboxSummary(
                conversation, createdAt: inbox.createdAt, lastActivity: lifecycle.lastActivity(inbox)),
            session: conversation.session)
        asleep.hasMoved = !conversation.isFound
        if !conversation.hasNews {
            inbox.retries = 0
        } else if inbox.retries == 0 {
            asleep.retryAt = turn.now
        } else {
            let wait = Limits.sleepingRetry.wait(after: inbox.retries - 1)
            asleep.retryAt = turn.now + wait - Milliseconds(turn.random.next(upperBound: UInt64(wait / 4)))
        }
        inboxes.set(inbox, to: .sleeping(asleep))
    }

    /// Call after a frame to an inbox or a failed dial of it. An inbox woken to deliver ends its delivery when all is
    /// delivered or no member can be reached; then the next in line wakes.
    func settleDelivery(_ inbox: InboxEntry, now: Timestamp) {
        let isDelivering = lifecycle.isDelivering(inbox)
        guard isDelivering || lifecycle.awaitsService(inbox), let conversation = inbox.conversation else { return }
        guard isDelivering else {
            // The answer to our proposal may follow at once.
            let isAnswered = conversation.pendingProposal.map { !$0.isOurs } ?? true
            if !conversation.hasNews, isAnswered { lifecycle.serve(inbox, .userInteraction) }
            return
        }
        if !conversation.hasNews { inbox.retries = 0 } else if conversation.isDelivering(now: now) { return }
        lifecycle.endDelivery(inbox)
        callLine(now: now)
    }

    /// - Returns: how many are put to sleep now, and how many are woken in the turns that follow.
    @discardableResult package func rebalance(_ turn: inout Turn) -> (slept: Int, woken: Int) {
        guard !turn.isLocked else { return (0, 0) }
        rebalanceAt = nil
        let plan = lifecycle.rebalance(now: turn.now, protection: protection(of:))
        pendingWakes = Deque(plan.wake.map { (inbox: $0, reason: .activityRanking) })
        if !pendingWakes.isEmpty { wakesAt = turn.now }
        for inbox in plan.sleep { rest(inbox, &turn) }
        return (plan.sleep.count, plan.wake.count)
    }

    package func setCapacity(_ capacity: Int, now: Timestamp) {
        lifecycle.setCapacity(capacity)
        rebalanceAt = now
    }

    func advanceInboxes(_ turn: inout Turn) {
        for inbox in inboxes.takeDue(until: turn.now) {
            if let asleep = inbox.asleep { due(inbox, asleep, &turn) } else { advance(inbox, &turn) }
        }
        guard !turn.isLocked else {
            // While locked nothing can be read or made durable.
            let later = turn.now + .second
            if let at = wakesAt, at < later { wakesAt = later }
            if let at = rebalanceAt, at < later { rebalanceAt = later }
            if let at = lineAt, at < later { lineAt = later }
            trimAt = later
            return
        }
        if let at = lineAt, at <= turn.now { serveLine(&turn) }
        if let at = rebalanceAt, at <= turn.now { rebalance(&turn) }
        if lifecycle.isOverCapacity, (trimAt ?? turn.now) <= turn.now {
            trimAt = turn.now + Limits.inboxTrimInterval
            for victim in lifecycle.trim(now: turn.now, protection: protection(of:)) { rest(victim, &turn) }
        }
        if let at = wakesAt, at <= turn.now {
            for _ in 0..<Limits.wakeBatchCount {
                guard let (planned, reason) = pendingWakes.popFirst() else { break }
                // The shell may have loaded the inbox anew, with another entry.
                if let inbox = inboxes[planned.client], inbox.isSleeping { turn.add(.wake(inbox.client, reason)) }
            }
            wakesAt = pendingWakes.isEmpty ? nil : turn.now + Limits.wakePause
        }
    }

    private func due(_ inbox: InboxEntry, _ asleep: SleepingInbox, _ turn: inout Turn) {
        let isDue = asleep.summary.deadline.map { $0 <= turn.now } ?? false
        let isRetry = asleep.retryAt.map { $0 <= turn.now } ?? false
        guard isDue || isRetry else { return inboxes.setDeadline(inbox, asleep.wakeAt) }
        guard !turn.isLocked else { return inboxes.setDeadline(inbox, turn.now + .second) }
        guard isDue else {
            if !inbox.isInLine {
                inbox.isInLine = true
                if inbox.retries == 0 { line.first.append(inbox) } else { line.later.append(inbox) }
                callLine(now: turn.now)
            }
            // Its own deadline may pass while it is in line.
            return inboxes.setDeadline(inbox, asleep.summary.deadline)
        }
        // Tries again if the wake fails.
        inboxes.setDeadline(inbox, turn.now + .second)
        turn.add(.wake(inbox.client, .activityRanking))
    }

    func callLine(now: Timestamp) { if !line.isEmpty { lineAt = earliest(lineAt, now) } }

    private func serveLine(_ turn: inout Turn) {
        let now = turn.now
        var wakeCount = 0
        var (count, until) = lifecycle.deliveries(now: now)
        // Each wake takes disk access and some of the loop's time.
        while wakeCount < Limits.wakeBatchCount, let inbox = line.next(count, lifecycle) {
            inbox.isInLine = false
            // The inbox may have woken or gone since it was put in line.
            guard inboxes[inbox.client] === inbox, let at = inbox.asleep?.retryAt else { continue }
            guard at <= now else {
                inboxes.setDeadline(inbox, inbox.asleep?.wakeAt)
                continue
            }
            (count, wakeCount) = (count + 1, wakeCount + 1)
            inboxes.setDeadline(inbox, now + .second)
            turn.add(.wake(inbox.client, .activityRanking))
        }
        let next = wakeCount == Limits.wakeBatchCount ? now : until ?? now + .second
        lineAt = line.isEmpty ? nil : next
    }
}

/// Sleeping inboxes with undelivered items, in the order in which they wake to deliver.
struct DeliveryLine {
    /// Inboxes without a failed try since their last delivery come first.
    var first: Deque<InboxEntry> = []
    var later: Deque<InboxEntry> = []

    var isEmpty: Bool { first.isEmpty && later.isEmpty }

    /// - Parameter count: how many inboxes deliver already.
    mutating func next(_ count: Int, _ lifecycle: InboxLifecycleStateMachine) -> InboxEntry? {
        if count < lifecycle.deliveryPlaces(hasFailed: false), let inbox = first.popFirst() { return inbox }
        return count < lifecycle.deliveryPlaces(hasFailed: true) ? later.popFirst() : nil
    }
}
