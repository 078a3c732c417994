import Logging
import Messaging
import NIOCore
import Primitives
import Store
import Transport
import Wire

/// Sleep and waking of inboxes (section 10): what the core asks for, with the store.
extension Node {
    // MARK: Waking

    /// Wakes an inbox if it sleeps; one that is awake takes note that a user wants something of it.
    /// - Throws: ``NodeError/locked``, ``NodeError/command(_:)`` when too many are in use, ``NodeError/store(_:)``.
    func wake(_ client: ClientID, _ reason: WakeReason) throws(NodeError) {
        guard core.isSleeping(client) else {
            if reason == .userInteraction { core.touch(client, now: now) }
            return
        }
        if store.isLocked { throw .locked }
        guard let inbox = inboxes[client] else { throw .unknownConversation(client.description) }
        let (snapshot, key) = try sleepingState(inbox)
        inbox.key = key
        inbox.outboxPlace = outboxPlace(snapshot, inbox)
        let undelivered = snapshot.outboxCount == 0 ? [] : self.undelivered(inbox, from: inbox.outboxPlace)
        if snapshot.outboxCount == 0 { inbox.isSettled = true }
        inbox.savedCounters = snapshot.counters
        defer { inbox.savedCounters = [] }
        do throws(NodeError) {
            try request { turn throws(CommandError) in
                ((), try core.wake(snapshot.record, key: key, undelivered: undelivered, reason, &turn))
            }
            inboxes.noteWaking(inbox)
            // Reactions of ours that wait are hidden records; what is being handed over is not to be looked through.
            if snapshot.outboxCount != 0, memory.uploading.isEmpty { inbox.archive.isHiddenKnown = false }
            restoreHidden(inbox)
        } catch {
            if core.isSleeping(client) {
                inbox.key = nil
                inbox.isSettled = false
            }
            throw error
        }
    }

    /// Wakes an inbox for the core, which will ask again if it cannot be done now.
    func wakeIfPossible(_ client: ClientID, _ reason: WakeReason) {
        do throws(NodeError) { try wake(client, reason) } catch {
            log.debug("an inbox could not be woken", metadata: ["client": "\(client)", "error": "\(error)"])
        }
    }

    /// What the disk has of an inbox that sleeps, and its key, which follows from its row.
    private func sleepingState(_ inbox: Inbox) throws(NodeError) -> (InboxSnapshot, IdentityKey) {
        let client = inbox.client
        do {
            guard let bytes = try store.loadState(inbox.row) else {
                throw NodeError.store(.damaged(what: "the state of inbox \(client)"))
            }
            let snapshot = try StoredCodec.decode(InboxSnapshot.self, bytes)
            guard snapshot.record.client == client else { throw NodeError.clientIDMismatch(client) }
            return (snapshot, try Self.identityKey(inbox.row, in: store))
        } catch let error as NodeError {
            throw error
        } catch let error as StoreError {
            throw .store(error)
        } catch {
            throw .store(.damaged(what: "the state of inbox \(client)"))
        }
    }

    /// A conversation as it is, without waking it: for lists and for what is only shown.
    func peek(_ client: ClientID) -> ConversationStateMachine? {
        if let machine = core.conversation(client) { return machine }
        guard core.isSleeping(client), !store.isLocked, let inbox = inboxes[client],
            let (snapshot, key) = try? sleepingState(inbox)
        else { return nil }
        let undelivered =
            snapshot.outboxCount == 0 ? [] : self.undelivered(inbox, from: outboxPlace(snapshot, inbox))
        return core.preview(snapshot.record, key: key, undelivered: undelivered, now: now)
    }

    /// The saved place, but not above the store's next one: the store gives the highest places again once the records that
    /// had them are gone.
    func outboxPlace(_ snapshot: InboxSnapshot, _ inbox: Inbox) -> UInt64 {
        min(snapshot.outboxPlace, (try? store.nextPlace(inbox.row)) ?? 0)
    }

    /// Our own messages on the disk that are not acknowledged, oldest first; without what they say, for which the disk is
    /// asked when they are sent.
    /// - Parameter place: none of them has a lower one.
    func undelivered(_ inbox: Inbox, from place: UInt64) -> [Message] {
        var found: [Message] = []
        do throws(StoreError) {
            try inbox.archive.visitStored(from: place, now: now) { _, message, _ in
                guard message.sender == nil, message.content.type != .systemMessage,
                    message.state == .queued || message.state == .sent
                else { return true }
                var current = message
                current.content.payload = []
                current.content.fallback = ""
                current.content.body = .opaque
                found.append(current)
                return true
            }
        } catch {
            log.error("an outbox could not be read", metadata: ["client": "\(inbox.client)", "error": "\(error)"])
        }
        return found
    }

    // MARK: Sleep

    /// The core has closed the links of an inbox: its record is saved, and nothing of it stays in memory but its row, its
    /// summary, its routes, and contents that are in memory only.
    func putToSleep(_ client: ClientID) {
        guard let inbox = inboxes[client], let conversation = core.conversation(client) else { return }
        inbox.isSettled = false
        saveSleeping(inbox, outboxCount: conversation.outboxCount)
        var turn = makeTurn()
        core.fallAsleep(client, &turn)
        inbox.key = nil
        inbox.troubledUntil = nil
        inbox.dialTokens = [:]
        for number in inbox.routes.values { lan?.silence(number) }
        inboxes.noteSleep(inbox)
        store.release(inbox.row)
    }

    private func saveSleeping(_ inbox: Inbox, outboxCount: Int) {
        guard let record = core.record(inbox.client), !store.isLocked else { return }
        inbox.isUnsaved = false
        let isTold = writeStatuses(inbox)
        if isTold, outboxCount == 0, memory.uploading.isEmpty { settleOutboxPlace(inbox) }
        let snapshot = InboxSnapshot(
            record: record,
            counters: counters(of: inbox),
            lastActivity: core.lastActivity(inbox.client),
            // A message in a segment that the disk refuses now may wait, too.
            outboxCount: isTold && store.isWhole(inbox.row) ? outboxCount : nil,
            outboxPlace: inbox.outboxPlace,
            notes: inbox.notes
        )
        do throws(StoreError) {
            try store.saveState(inbox.row, StoredCodec.encode(record: snapshot))
        } catch {
            return storageFailed(inbox.client, error)
        }
        commits.changed(inbox.effects)
        commits.schedule()
    }

    /// At a stop: states that say when a message last came or went, of inboxes that are awake. Others said so when they
    /// fell asleep.
    func saveActivity() {
        guard !store.isLocked, !store.isReadOnly else { return }
        for inbox in inboxes.all {
            guard core.conversation(inbox.client) != nil, let activity = core.lastActivity(inbox.client),
                activity != inbox.activitySaved, let record = core.record(inbox.client)
            else { continue }
            do throws(StoreError) {
                try store.saveState(inbox.row, StoredCodec.encode(record: snapshot(record, inbox)))
            } catch {
                log.warning("the next start will not know what was active", metadata: ["error": "\(error)"])
            }
        }
    }

    // MARK: Summaries

    /// What the last run left of inboxes that slept, as far as it still holds.
    func loadSummaries() -> [RowID: InboxTableEntry] {
        summarizedAt = now
        return store.loadSummaries().compactMapValues { InboxTableEntry($0) }
    }

    /// Takes up an inbox without reading it.
    /// - Returns: `false` when it has to be read after all.
    func load(_ entry: InboxTableEntry, _ row: RowID) -> Bool {
        let client = entry.summary.client
        guard inboxes[client] == nil, core.tombstone(entry.summary.conversation) == nil else { return false }
        let inbox = Inbox(client: client, row: row, store: store, memory: memory)
        inboxes.add(inbox)
        inboxes.note(entry.notes, of: inbox)
        var turn = makeTurn()
        core.load(sleeping: entry.summary, &turn)
        for route in entry.routes {
            let number = takeRouteNumber(inbox, .member(route.remote))
            routing.addMember(
                number,
                secret: RoutingSecret(SecretBytes(copying: route.secret)),
                counters: route.counters
            )
            listen(for: number)
        }
        for invite in entry.invites {
            let number = takeRouteNumber(inbox, .invite(invite))
            routing.addShared(number, secret: .derive(shared: SecretBytes(copying: invite.bytes), purpose: "invite"))
            listen(for: number)
        }
        return true
    }

    /// Writes the summaries of the inboxes that sleep and have no outbox, for the next start.
    func saveSummaries() {
        guard !store.isLocked, !store.isReadOnly, hasLoaded else { return }
        summarizedAt = now
        var entries: [(row: RowID, payload: [UInt8])] = []
        for summary in core.sleepers where summary.outboxCount == 0 {
            guard let inbox = inboxes[summary.client] else { continue }
            var routes: [InboxTableEntry.Route] = []
            var invites: [InviteID] = []
            for (route, number) in inbox.routes {
                switch route {
                case .member(let remote):
                    guard let secret = routing.secretBytes(ofMember: number) else { continue }
                    let counters = routing.counters(ofMember: number)
                    routes.append(InboxTableEntry.Route(remote: remote, secret: secret, counters: counters))
                case .invite(let id): invites.append(id)
                case .contact: break
                }
            }
            let entry = InboxTableEntry(
                summary: summary,
                routes: routes,
                invites: invites,
                notes: inbox.notes
            )
            entries.append((inbox.row, entry.encoded))
        }
        do throws(StoreError) { try store.saveSummaries(entries) } catch {
            log.warning("the next start will take longer", metadata: ["error": "\(error)"])
        }
    }

    // MARK: What there is

    /// An inbox as `inbox list` shows it.
    package struct InboxState {
        package enum State: String {
            case unused
            case awake
            case sleeping
        }

        package var client: ClientID
        package var state: State
        /// Why it was woken; `nil` unless it is awake.
        package var wakeReason: WakeReason?
        package var lastActivity: Messaging.Timestamp?
        package var conversation: ConversationID?
        /// What keeps it awake.
        package var protection: InboxProtection
    }

    /// - Throws: ``NodeError/locked``.
    package func inboxStates() throws(NodeError) -> [InboxState] {
        try unlocked()
        return core.clients.map(inboxState)
    }

    private func inboxState(_ client: ClientID) -> InboxState {
        let state: InboxState.State =
            core.isUnused(client) ? .unused : core.isSleeping(client) ? .sleeping : .awake
        return InboxState(
            client: client,
            state: state,
            wakeReason: core.wakeReason(client),
            lastActivity: core.lastActivity(client),
            conversation: core.conversationID(client),
            protection: state == .awake ? core.protection(client) : []
        )
    }

    /// - Parameter text: a clientId or the beginning of one, or what names its conversation.
    private func resolveInbox(_ text: String) throws(NodeError) -> ClientID {
        let lowered = text.lowercased()
        if let whole = ClientID(hex: lowered), core.contains(whole) { return whole }
        if let client = try aliased(text) { return client }
        let matches = lowered.isEmpty ? [] : core.clients.filter { $0.description.hasPrefix(lowered) }
        if matches.count == 1 { return matches[0] }
        do throws(NodeError) { return try resolve(text) } catch {
            if matches.count > 1 { throw .ambiguous(text, matches: matches.map(\.description)) }
            if case .unknownConversation = error { throw .unknownInbox(text) }
            throw error
        }
    }

    /// - Throws: ``NodeError/unknownInbox(_:)``, ``NodeError/ambiguous(_:matches:)``, ``NodeError/command(_:)`` when too
    ///   many are in use.
    package func wakeInbox(_ text: String) throws(NodeError) -> InboxState {
        try unlocked()
        let client = try resolveInbox(text)
        try wake(client, .userInteraction)
        return inboxState(client)
    }

    /// - Throws: ``NodeError/unknownInbox(_:)``, ``NodeError/ambiguous(_:matches:)``, ``NodeError/command(_:)`` when it is
    ///   protected or is no conversation's.
    package func sleepInbox(_ text: String) throws(NodeError) -> InboxState {
        try unlocked()
        let client = try resolveInbox(text)
        guard core.conversationID(client) != nil else {
            if core.joins.contains(where: { $0.client == client }) { throw .command(.inboxProtected(.pendingInvite)) }
            throw .notAConversation(client)
        }
        try request { turn throws(CommandError) in ((), try core.sleep(client, &turn)) }
        return inboxState(client)
    }

    /// Puts the set of awake inboxes in order: the most recently active.
    /// - Returns: how many were put to sleep, and how many are woken now.
    package func rebalance() throws(NodeError) -> (slept: Int, woken: Int) {
        try unlocked()
        return try request { turn throws(CommandError) in
            let (slept, woken, actions) = core.rebalance(&turn)
            return ((slept, woken), actions)
        }
    }

    /// How many inboxes are to be awake.
    package var capacity: Int { core.capacity }

    /// The inbox of a conversation, awake or asleep.
    package func client(of conversation: ConversationID) -> ClientID? { core.client(of: conversation) }

    /// Somebody has this conversation open, until ``stoppedWatching(_:)``. It is woken if that is possible.
    package func watching(_ client: ClientID) {
        if let inbox = knownInbox(client) { inbox.watcherCount += 1 }
        core.setWatched(client, true)
        wakeIfPossible(client, .userInteraction)
    }

    package func stoppedWatching(_ client: ClientID) {
        if let inbox = knownInbox(client) { inbox.watcherCount = max(0, inbox.watcherCount - 1) }
        core.setWatched(client, false)
    }

    /// An inbox that is loaded, or one that the disk refuses now.
    private func knownInbox(_ client: ClientID) -> Inbox? {
        inboxes[client] ?? unread.values.lazy.compactMap(\.inbox).first { $0.client == client }
    }

    /// Tells the core how many users follow an inbox that it has just been given anew.
    func watchAgain(_ inbox: Inbox) {
        let missing = inbox.watcherCount - core.watchers(of: inbox.client)
        for _ in 0..<max(0, missing) { core.setWatched(inbox.client, true) }
    }

    // MARK: Reaching members

    /// Wakes a conversation and waits, a few seconds at most, until its members have a link: for what can only be said
    /// over one. Ends at once when they are linked, or when nobody is being dialled.
    package func whenReached(_ text: String) -> EventLoopFuture<Void> {
        guard let client = try? resolve(text), (try? wake(client, .userInteraction)) != nil else {
            return loop.makeSucceededVoidFuture()
        }
        turn { core.reach(client, &$0) }
        let promise = loop.makePromise(of: Void.self)
        awaitLinks(of: client, since: loop.now, promise)
        return promise.futureResult
    }

    private func awaitLinks(of client: ClientID, since start: NIODeadline, _ promise: EventLoopPromise<Void>) {
        guard let machine = core.conversation(client), !isStopped, !machine.isReached else {
            return promise.succeed(())
        }
        let patience = machine.isReaching(now: now) ? Self.reachTime : Self.retryTime
        guard loop.now - start < patience else { return promise.succeed(()) }
        loop.assumeIsolated().scheduleTask(in: .milliseconds(5)) {
            self.assumeIsolated { $0.awaitLinks(of: client, since: start, promise) }
        }
    }

    /// A node on the other side of the world that sleeps has answered by then.
    private static let reachTime: TimeAmount = .seconds(3)
    /// A node that has refused, because as many as may be are awake there, has been asked again by then.
    private static let retryTime: TimeAmount = .milliseconds(1_500)
}
