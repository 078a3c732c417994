import Logging
import Messaging
import NIOCore
import Noise
import Primitives
import Store
import Transport
import Wire

/// An inbox that the disk did not give when it was to be read.
struct UnreadInbox {
    /// Unless it has not been read since the start.
    var inbox: Inbox?
    var conversation: ConversationID?
    var error: any Error
    var retryAt: Timestamp
}

extension StoreError {
    /// Whether trying again may help: the disk, or the system, has refused, and nothing is known to be damaged.
    fileprivate var mayPass: Bool {
        switch kind {
        case .io, .full, .resources: true
        case .passphrase, .locked, .busy, .missing, .exists, .permission, .readOnly, .damaged, .misuse: false
        }
    }
}

/// Inboxes and their keys: made, loaded, destroyed.
extension Node {
    // MARK: Loading

    /// Takes up everything that is in the unlocked store.
    func load() throws {
        let tombstones = try store.tombstones()
        hasLoaded = true
        var begun: [NodeAction] = []
        for tombstone in tombstones {
            guard let record = try? StoredCodec.decodeTombstone(tombstone.payload) else {
                continue
            }
            endings[record.conversation].tombstone = tombstone.id
            begun += core.load(record, now: now)
            if core.tombstone(record.conversation) == nil {
                endings[record.conversation].armed = record
            } else {
                register(tombstone: record)
            }
        }
        let summaries = loadSummaries()
        for row in store.liveRows() {
            do {
                if let entry = summaries[row], load(entry, row) { continue }
                try load(row)
            } catch {
                skip(row, error)
            }
        }
        // The contact inbox is there now: whose members know where it is, is known with what was reserved for it.
        useRendezvous()
        addresses.forgetRelayPlaces()
        turn {
            core.launch(&$0)
            return []
        }
        perform(begun)
        // Its inbox was left, and we were stopped before it went.
        if skipped.isEmpty, unread.isEmpty {
            for conversation in endings.conversations(where: { $0.armed != nil })
            where core.client(of: conversation) == nil {
                removeTombstone(conversation)
            }
        }
        for damage in store.damage { log.warning("the store is damaged", metadata: ["what": "\(damage)"]) }
        try ensureContact()
        ensureUnused()
    }

    /// What the disk does not give now it may give later; what is damaged stays so.
    private func skip(
        _ row: RowID,
        _ error: any Error,
        of lost: (inbox: Inbox, conversation: ConversationID?)? = nil
    ) {
        let before = unread.removeValue(forKey: row)
        let inbox = lost?.inbox ?? before?.inbox
        switch error {
        case StoreError.unknownRow: if let inbox { letGo(inbox) }
        case let error as StoreError where error.mayPass, NodeError.store(let error) where error.mayPass:
            say("an inbox could not be read; trying again", of: error)
            let retryAt = now + Self.storagePause
            unread[row] = UnreadInbox(
                inbox: inbox,
                conversation: lost?.conversation ?? before?.conversation,
                error: error,
                retryAt: retryAt
            )
        default:
            log.error("an inbox could not be loaded and is skipped", metadata: ["error": "\(error)"])
            skipped.append("\(error)")
        }
    }

    /// Why something that is asked for may be missing; `nil` when the disk has given all there is.
    var unreadError: NodeError? {
        switch unread.min(by: { $0.key < $1.key })?.value.error {
        case let error as StoreError: .store(error)
        case let error as NodeError: error
        default: nil
        }
    }

    /// Reads again what the disk did not give, some at a time.
    func loadUnread() {
        guard !unread.isEmpty, !store.isLocked else { return }
        let now = now
        let due = unread.filter { $0.value.retryAt <= now }.keys.sorted().prefix(Self.rollBatchCount)
        for row in due {
            do {
                try load(row)
                unread[row] = nil
                guard let inbox = inboxes.inbox(at: row) else { continue }
                log.notice("an inbox could be read again", metadata: ["client": "\(inbox.client)"])
                let deferred = inbox.deferred
                inbox.deferred = []
                perform(deferred)
                watchAgain(inbox)
                if inbox.watcherCount > 0 { wakeIfPossible(inbox.client, .userInteraction) }
            } catch {
                skip(row, error)
            }
        }
    }

    private func load(_ row: RowID) throws {
        guard let bytes = try store.loadState(row) else {
            // Made, but never saved: nobody knows of it. Where there was something, it was lost: its keys stay.
            if try store.isUsed(row) { throw NodeError.store(.damaged(what: "the state of inbox \(row)")) }
            return try store.destroyRow(row)
        }
        let snapshot = try StoredCodec.decode(InboxSnapshot.self, bytes)
        let client = snapshot.record.client
        // Two inboxes with one clientId: the second is not taken.
        guard inboxes[client] == nil else { throw NodeError.clientIDMismatch(client) }
        let key = try Self.identityKey(row, in: store)
        let inbox = unread[row]?.inbox ?? Inbox(client: client, row: row, store: store, memory: memory)
        inbox.key = key
        inboxes.add(inbox)
        if case .conversation(let record) = snapshot.record.role,
            let tombstone = core.tombstone(record.genesis.conversation)
        {
            // We were stopped between the tombstone and the end of the keys: go on from there.
            let others = record.current + record.members.filter { record.former.contains($0.key) }
            let tells = tombstone.role == .creator && !tombstone.isTraceless
            explode(client, tombstone, fanOut: tells ? others : [])
            endings[tombstone.conversation].report = nil
            return
        }
        guard case .conversation = snapshot.record.role else {
            return enter(snapshot, inbox, key: key, sessionGoesOn: false)
        }
        // Conversations sleep until it is known which of them are to be awake.
        enterSleeping(snapshot, inbox, key: key)
    }

    private func enterSleeping(_ snapshot: InboxSnapshot, _ inbox: Inbox, key: IdentityKey) {
        inboxes.note(snapshot.notes, of: inbox)
        inbox.savedCounters = snapshot.counters
        // An inbox without waiting messages gets its place at the wake: its segments are not read for it at a start.
        inbox.outboxPlace = snapshot.outboxCount == 0 ? snapshot.outboxPlace : outboxPlace(snapshot, inbox)
        let undelivered = snapshot.outboxCount == 0 ? [] : self.undelivered(inbox, from: inbox.outboxPlace)
        turn {
            core.load(
                sleeping: snapshot.record,
                key: key,
                undelivered: undelivered,
                lastActivity: lastActivity(snapshot, inbox),
                &$0
            )
        }
        inbox.savedCounters = []
        inbox.key = nil
        store.release(inbox.row)
    }

    private func enter(_ snapshot: InboxSnapshot, _ inbox: Inbox, key: IdentityKey, sessionGoesOn: Bool) {
        inboxes.note(snapshot.notes, of: inbox)
        inbox.savedCounters = snapshot.counters
        inbox.outboxPlace = outboxPlace(snapshot, inbox)
        turn {
            core.load(
                snapshot.record,
                key: key,
                sessionGoesOn: sessionGoesOn,
                lastActivity: snapshot.lastActivity,
                $0
            )
        }
        inbox.savedCounters = []
        restoreOutbox(inbox)
    }

    /// When a message last came or went, as far as the disk knows: as of the last state, or by the newest message. No message
    /// is worth a state of its own, so a node that was killed knows it from these.
    private func lastActivity(_ snapshot: InboxSnapshot, _ inbox: Inbox) -> Messaging.Timestamp? {
        [snapshot.lastActivity, newestMessageTime(inbox.row)].compactMap { $0 }.max()
    }

    private func newestMessageTime(_ row: RowID) -> Messaging.Timestamp? {
        let now = now
        var time: Messaging.Timestamp?
        do throws(StoreError) {
            var newest: UInt64?
            try store.visitPlaces(row, now: now.milliseconds) { place in
                newest = place
                return false
            }
            guard let newest else { return nil }
            try store.visit(row, from: newest, now: now.milliseconds) { _, stored in
                time = (try? StoredCodec.decodeMessage(stored.payload))?.arrivedAt
                return false
            }
        } catch {
            log.warning("an inbox's newest message could not be read", metadata: ["error": "\(error)"])
        }
        return time
    }

    private func restoreOutbox(_ inbox: Inbox) {
        guard core.conversation(inbox.client) != nil else { return }
        for message in undelivered(inbox, from: inbox.outboxPlace) { core.restoreOutbox(message, client: inbox.client) }
        restoreHidden(inbox)
    }

    /// An inbox's storage has failed: everything since the last durable state is void.
    func reload(_ inbox: Inbox) {
        let client = inbox.client
        for effect in commits.drop(inbox.effects) { release(effect, isDurable: false) }
        // What the disk has may be other than what was to be written, of a file that is being handed over, too.
        inbox.archive.outgoing.removeAll()
        cancelFiles(of: client)
        guard !isStopped, inboxes[client] === inbox else { return }
        guard !store.isLocked else {
            inbox.isVoided = true
            for link in inbox.links { link.connection.abort() }
            return
        }
        inbox.isVoided = false
        let wasAsleep = core.isSleeping(client)
        inbox.isSettled = false
        for link in inbox.links {
            forget(link)
            link.connection.abort()
            // Its end finds nothing of it here.
            servedLinks.remove(link.id)
            endStreams(on: link.id)
        }
        // The disk's trouble is not the other member's: the session goes on if it did.
        let sessionGoesOn = core.conversation(client)?.sessionGoesOn ?? false
        unregisterAll(inbox)
        let conversation = core.conversationID(client)
        core.remove(client)
        // A disk that is full stays so for a while: the member is not called back at once.
        inbox.troubledUntil = now + Self.storagePause
        let snapshot: InboxSnapshot
        let key: IdentityKey
        do {
            guard let bytes = try store.loadState(inbox.row) else {
                if try store.isUsed(inbox.row) {
                    throw NodeError.store(.damaged(what: "the state of inbox \(inbox.row)"))
                }
                // Made, but never saved: nobody knows of it.
                destroyRow(client)
                return
            }
            snapshot = try StoredCodec.decode(InboxSnapshot.self, bytes)
            key = try inbox.key ?? Self.identityKey(inbox.row, in: store)
        } catch {
            inboxes.remove(inbox)
            inbox.key = nil
            return skip(inbox.row, error, of: (inbox, conversation))
        }
        inbox.key = key
        inbox.archive.isHiddenKnown = false
        inbox.archive.forgetStored()
        if wasAsleep, case .conversation = snapshot.record.role {
            enterSleeping(snapshot, inbox, key: key)
        } else {
            enter(snapshot, inbox, key: key, sessionGoesOn: sessionGoesOn)
        }
        watchAgain(inbox)
    }

    /// The secp256k1 key of an inbox: derived from its row, so that it dies with it.
    static func identityKey(_ row: RowID, in store: Store) throws -> IdentityKey {
        for attempt in 0..<4 {
            // One derivation in 2^127 is not a valid key.
            if let key = try? SecretKey(try store.secret(row, label: "identity key \(attempt)")) {
                return IdentityKey(key)
            }
        }
        throw NodeError.store(.damaged(what: "the identity of inbox \(row)"))
    }

    // MARK: Making

    /// A fresh inbox: a row of the key grid and the identity that follows from it.
    func makeInbox() throws -> ClientID {
        guard !store.isLocked else { throw NodeError.locked }
        let row = try store.createRow()
        let key = try Self.identityKey(row, in: store)
        var random = Randomness.system
        let client = ClientID.generate(&random)
        let inbox = Inbox(client: client, row: row, store: store, memory: memory)
        inbox.key = key
        inbox.isSettled = true
        inbox.archive.isHiddenKnown = true
        inboxes.add(inbox)
        turn { core.addUnused(client, key: key, $0) }
        return client
    }

    /// The pooled inbox, or a new one when the pool is empty.
    func takeInbox() throws -> ClientID { try core.unused ?? makeInbox() }

    /// Fills the pool again, after what the user waits for.
    func ensureUnused() {
        guard !store.isLocked, core.unused == nil else { return }
        loop.assumeIsolated().execute {
            self.assumeIsolated { node in
                guard !node.isStopped, !node.store.isLocked, node.core.unused == nil else { return }
                do { _ = try node.makeInbox() } catch {
                    node.log.warning("no inbox could be made ahead of time", metadata: ["error": "\(error)"])
                }
            }
        }
    }

    func ensureContact() throws {
        // It may be one of those that the disk does not give.
        guard core.contact == nil, unread.isEmpty else { return }
        let client = try makeInbox()
        turn { core.makeContact(client, &$0) }
    }

    // MARK: Destroying

    /// The inbox goes without a trace.
    func destroy(_ client: ClientID) {
        destroyRow(client)
    }

    /// - Returns: why the keys may still be there; the store tries again.
    @discardableResult
    func destroyRow(_ client: ClientID) -> StoreError? {
        guard let inbox = inboxes[client] else {
            if core.contains(client) { core.remove(client) }
            return nil
        }
        var failure: StoreError?
        do throws(StoreError) { try store.destroyRow(inbox.row) } catch {
            failure = error
            storage.refusal = error
            log.critical("an inbox's keys could not be destroyed; trying again", metadata: ["error": "\(error)"])
        }
        letGo(inbox)
        return failure
    }

    /// Wipes what is in memory of an inbox whose keys are gone. Open links stay until they have said why.
    func letGo(_ inbox: Inbox) {
        let client = inbox.client
        inboxes.remove(inbox)
        inboxes.forgetNotes(of: inbox)
        inbox.key = nil
        inbox.deferred = []
        cancelFiles(of: client)
        inbox.archive.forget()
        unregisterAll(inbox)
        // What waited for this inbox's disk has nothing to wait for any more.
        for effect in commits.drop(inbox.effects) { release(effect, isDurable: true) }
        resumeLinks(of: inbox)
        if core.contains(client) { core.remove(client) }
    }
}
