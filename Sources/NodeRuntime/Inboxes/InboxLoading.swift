import Cryptography
import Logging
import Messaging
import Store
import Transport

extension StoreError {
    /// Whether a retry may help: the disk or the system refused, and nothing is known to be damaged.
    fileprivate var mayPass: Bool {
        switch kind {
        case .io, .full, .resources: true
        case .passphrase, .locked, .busy, .missing, .exists, .permission, .readOnly, .damaged, .misuse: false
        }
    }
}

/// Loads inboxes into the core: at the start, and again after a disk failure. Makes new inboxes.
final class InboxLoading: Part {
    private static let batchCount = 64

    private(set) var hasLoaded = false

    func load() throws {
        let tombstones = try store.tombstones()
        hasLoaded = true
        var begun = core.makeTurn()
        for tombstone in tombstones {
            guard let record = try? StoredCodec.decodeTombstone(tombstone.payload) else { continue }
            shell.endings[record.conversation].tombstone = tombstone.id
            core.machine.load(record, &begun)
            if core.machine.tombstone(record.conversation) == nil {
                shell.endings[record.conversation].armed = record
            } else {
                shell.routes.register(tombstone: record)
            }
        }
        let entries = shell.summaries.read()
        for row in store.liveRows() {
            do {
                if let entry = entries[row], shell.summaries.load(entry, row) { continue }
                try load(row)
            } catch { skip(row, error) }
        }
        // Needs the contact inbox, which records the reservations.
        shell.peerServices.use()
        core.turn { core.machine.launch(&$0) }
        core.perform(begun.actions)
        // The inbox was left, but the node stopped before it was destroyed.
        if shell.unread.damage.isEmpty {
            for conversation in shell.endings.armed where core.machine.client(of: conversation) == nil {
                shell.explosions.removeTombstone(conversation)
            }
        }
        for damage in store.damage { log.warning("the store is damaged", metadata: ["what": "\(damage)"]) }
        try ensureContact()
        ensureUnused()
    }

    /// Unreadable inboxes are retried; damaged ones stay damaged.
    private func skip(_ row: RowID, _ error: any Error, of lost: (inbox: Inbox, conversation: ConversationID?)? = nil) {
        let before = shell.unread.remove(row)
        let inbox = lost?.inbox ?? before?.inbox
        switch error {
        case StoreError.unknownRow: if let inbox { shell.removal.letGo(inbox) }
        case let error as StoreError where error.mayPass, NodeError.store(let error) where error.mayPass:
            say("an inbox could not be read; trying again", of: error)
            let retryAt = now + InboxWriter.troublePause
            shell.unread.add(
                UnreadInbox(
                    inbox: inbox, conversation: lost?.conversation ?? before?.conversation, error: error,
                    retryAt: retryAt), at: row)
        default:
            log.error("an inbox could not be loaded and is skipped", metadata: ["error": "\(error)"])
            shell.unread.skip(error)
        }
    }

    /// The next retry of an unreadable inbox; `nil` while locked, since the unlock retries all of them.
    var retryAt: Messaging.Timestamp? { shell.unread.isEmpty || store.isLocked ? nil : shell.unread.retryAt }

    func loadUnread() {
        guard !shell.unread.isEmpty, !store.isLocked else { return }
        for row in shell.unread.takeDue(now: now, count: Self.batchCount) {
            do {
                try load(row)
                shell.unread.remove(row)
                guard let inbox = inboxes.inbox(at: row) else { continue }
                log.notice("an inbox could be read again", metadata: ["client": "\(inbox.client)"])
                shell.writer.listStatuses(inbox)
                shell.commits.scheduleLate()
                shell.sleep.watchAgain(inbox)
                if inbox.watcherCount > 0 { shell.sleep.wakeIfPossible(inbox.client, .userInteraction) }
            } catch { skip(row, error) }
        }
    }

    private func load(_ row: RowID) throws {
        guard let bytes = try store.loadState(row) else {
            // Made but never saved, so unknown to any peer. A used inbox without a state is damaged; keep its keys.
            if try store.isUsed(row) { throw NodeError.store(.damaged(what: "the state of inbox \(row)")) }
            return try store.destroyRow(row)
        }
        let snapshot: InboxSnapshot
        do { snapshot = try StoredCodec.decode(InboxSnapshot.self, bytes) } catch {
            // A mailbox's box is no inbox of ours.
            guard let box = try? StoredCodec.decode(KeptBoxes.Snapshot.self, bytes) else { throw error }
            return shell.keptBoxes.adopt(box, row)
        }
        let client = snapshot.record.client
        // Two inboxes with one clientId: refuse the second.
        guard inboxes[client] == nil else { throw NodeError.clientIDMismatch(client) }
        let inbox = shell.unread[row]?.inbox ?? Inbox(client: client, row: row, store: store, memory: memory)
        let key = try inbox.deriveKey(in: store)
        inbox.key = key
        inboxes.add(inbox)
        if case .conversation(let record) = snapshot.record.role,
            let tombstone = core.machine.tombstone(record.genesis.conversation)
        {
            // The node stopped between tombstone and key destruction: continue the explosion.
            let others = record.current + record.members.filter { record.former.contains($0.key) }
            let tells = tombstone.role == .creator && !tombstone.isTraceless
            shell.explosions.explode(client, tombstone, fanOut: tells ? others : [])
            shell.endings[tombstone.conversation].report = nil
            return
        }
        // Conversations start asleep; the core decides later which to wake.
        enter(snapshot, inbox, key: key, isAsleep: snapshot.isConversation)
    }

    private func enter(
        _ snapshot: InboxSnapshot, _ inbox: Inbox, key: IdentityKey, isAsleep: Bool, sessionGoesOn: Bool = false
    ) {
        inboxes.note(snapshot.notes, of: inbox)
        inbox.archive.load(shownPlace: snapshot.notes.shownPlace)
        inbox.take(snapshot)
        defer { inbox.savedCounters = [] }
        guard isAsleep else {
            core.turn {
                core.machine.load(
                    snapshot.record, key: key, sessionGoesOn: sessionGoesOn, lastActivity: snapshot.lastActivity, &$0)
            }
            return shell.sleep.restoreOutbox(inbox)
        }
        let undelivered = shell.sleep.undelivered(inbox, from: inbox.outboxFrom)
        core.turn {
            core.machine.load(
                sleeping: snapshot.record, key: key, undelivered: undelivered,
                lastActivity: [snapshot.lastActivity, newestMessageTime(inbox.row)].compactMap { $0 }.max(), &$0)
        }
        inbox.key = nil
        store.release(inbox.row)
    }

    /// After a crash the newest message may be later than the saved last activity: messages do not save the state.
    private func newestMessageTime(_ row: RowID) -> Messaging.Timestamp? {
        let now = now
        var time: Messaging.Timestamp?
        do throws(StoreError) {
            try store.visitBack(row, now: now.milliseconds) { _, stored in
                time = stored.flatMap { try? StoredCodec.decodeMessage($0.payload) }?.arrivedAt
                return false
            }
        } catch { log.warning("an inbox's newest message could not be read", metadata: ["error": "\(error)"]) }
        return time
    }

    /// Reloads an inbox after a storage failure: all changes since the last durable state are void.
    func reload(_ inbox: Inbox) {
        let client = inbox.client
        shell.commits.drop(inbox, isDurable: false)
        // The disk may differ from memory, also for files that are being uploaded.
        inbox.archive.forgetOutgoing()
        shell.uploads.cancelAll(into: client)
        inbox.verifications = [:]
        guard !isStopped, inboxes[client] === inbox else { return }
        guard !store.isLocked else {
            retries.add(.reload(client))
            for link in inbox.links { link.connection.abort() }
            return
        }
        let wasAsleep = core.machine.isSleeping(client)
        shell.linkEvents.abandonLinks(of: inbox)
        // The failure is local, so the peer's session continues.
        let sessionGoesOn = core.machine.conversation(client)?.sessionGoesOn ?? false
        shell.routes.unregisterAll(inbox)
        let conversation = core.machine.conversationID(client)
        core.machine.remove(client)
        // A full disk stays full for a while: do not redial the member at once.
        inbox.troubledUntil = now + InboxWriter.troublePause
        let snapshot: InboxSnapshot
        let key: IdentityKey
        do {
            guard let bytes = try store.loadState(inbox.row) else {
                if try store.isUsed(inbox.row) {
                    throw NodeError.store(.damaged(what: "the state of inbox \(inbox.row)"))
                }
                // Made but never saved, so unknown to any peer.
                shell.removal.destroy(client)
                return
            }
            snapshot = try StoredCodec.decode(InboxSnapshot.self, bytes)
            key = try inbox.key ?? inbox.deriveKey(in: store)
        } catch {
            inboxes.remove(inbox)
            inbox.key = nil
            return skip(inbox.row, error, of: (inbox, conversation))
        }
        inbox.key = key
        inbox.archive.isHiddenKnown = false
        inbox.archive.forgetStored()
        enter(snapshot, inbox, key: key, isAsleep: wasAsleep && snapshot.isConversation, sessionGoesOn: sessionGoesOn)
        shell.sleep.watchAgain(inbox)
    }

    /// Makes an inbox: a row of the key grid, and the identity derived from it.
    private func make() throws -> ClientID {
        guard !store.isLocked else { throw NodeError.locked }
        let row = try store.createRow()
        let client = ClientID.generate(&random)
        let inbox = Inbox(client: client, row: row, store: store, memory: memory)
        let key = try inbox.deriveKey(in: store)
        inbox.key = key
        inbox.archive.isHiddenKnown = true
        inboxes.add(inbox)
        core.turn { core.machine.addUnused(client, key: key, &$0) }
        return client
    }

    func take() throws(NodeError) -> ClientID {
        do { return try core.machine.unused ?? make() } catch {
            switch error {
            case let error as NodeError: throw error
            case let error as StoreError: throw .store(error)
            default: throw .stopping
            }
        }
    }

    /// Refills the pool after the user's request is done.
    func ensureUnused() {
        guard !store.isLocked, core.machine.unused == nil else { return }
        execute {
            guard !self.isStopped, !self.store.isLocked, self.core.machine.unused == nil else { return }
            do { _ = try self.make() } catch {
                self.log.warning("no inbox could be made ahead of time", metadata: ["error": "\(error)"])
            }
        }
    }

    func ensureContact() throws {
        // An unreadable inbox may be the contact inbox.
        guard core.machine.contact == nil, shell.unread.isEmpty else { return }
        let client = try make()
        core.turn { core.machine.makeContact(client, &$0) }
    }

    /// At each tick: makes the contact inbox again if the store refused its first state.
    func remakeContact() {
        guard hasLoaded, !store.isLocked, !store.isReadOnly, core.machine.contact == nil else { return }
        do { try ensureContact() } catch { say("the contact inbox could not be made", of: error) }
    }
}

/// Work that the storage did not take, because it was locked, full or failing. Tried again at the unlock and at each
/// tick.
final class RetryList: Part {
    enum Work: Hashable {
        /// A commit with changes of the inbox has failed after the lock.
        case reload(ClientID)
        /// The inbox's key is wiped.
        case register(ClientID, NodeAction.Route)
        /// A change of a stored message.
        case change(ClientID, NodeAction)
        case save(ClientID)
        case fuse(ClientID)
        case tombstone(ConversationID)
        /// Saves the list, or removes it if there is none in memory.
        case fanOut(ConversationID)
        case mailNotices(ConversationID)
    }

    /// With numbers in the order of arrival.
    private var work: [Work: UInt64] = [:]
    private var next: UInt64 = 1

    func add(_ one: Work) {
        if work[one] == nil { work[one] = next }
        next += 1
    }

    func remove(_ one: Work) { work[one] = nil }

    func removeRoutes(of client: ClientID) {
        for case .register(client, let route) in work.keys { remove(.register(client, route)) }
    }

    func contains(_ one: Work) -> Bool { work[one] != nil }

    /// Work that is refused again is added again.
    func run() {
        guard !store.isLocked, !work.isEmpty else { return }
        let due = work.sorted { $0.value < $1.value }.map(\.key)
        // A reload registers the routes of its inbox anew; its other work follows.
        for case .reload(let client) in due where work.removeValue(forKey: .reload(client)) != nil {
            if let inbox = inboxes[client] { shell.loading.reload(inbox) }
        }
        for one in due where work.removeValue(forKey: one) != nil { perform(one) }
    }

    private func perform(_ one: Work) {
        switch one {
        case .reload: break
        case .register(let client, let route): shell.routes.register(client, route)
        case .change(let client, _) where inboxes[client] == nil, .fuse(let client) where inboxes[client] == nil:
            // An unreadable inbox is changed once it can be read.
            if shell.unread.inbox(of: client) != nil { add(one) }
        case .change(_, let action): core.perform([action])
        case .save(let client): shell.writer.save(client)
        case .fuse(let client): shell.explosions.lightFuse(client)
        case .tombstone(let conversation): shell.explosions.saveTombstone(conversation)
        case .fanOut(let conversation): shell.explosions.saveFanOut(conversation)
        case .mailNotices(let conversation): shell.mailNotices.save(conversation)
        }
    }
}
