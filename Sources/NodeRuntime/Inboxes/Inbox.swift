import Cryptography
import Messaging
import Store
import Transport

/// The shell's state of one inbox. It survives sleep, and ends with the inbox's keys.
final class Inbox {
    let client: ClientID
    let row: RowID
    /// `nil` while the inbox sleeps; wiped while the storage is locked.
    var key: IdentityKey?
    /// Local data about the conversation. Set by ``InboxTable/note(_:of:)``.
    var notes = InboxNotes()

    var savedNotes: InboxNotes {
        var notes = notes
        notes.shownPlace = archive.shownPlace
        notes.unreadCount = nil
        return notes
    }

    // Stored data
    let archive: MessageArchive
    var verifications: [Messaging.MessageID: Verification] = [:]
    let effects: EffectQueue
    /// ``InboxSnapshot/outboxFrom`` of the last saved state.
    var outboxFrom: UInt64?
    /// False if the last load or wake could not read the outbox: it may contain messages unknown to the core.
    var isOutboxKnown = true
    var owesStatuses = false
    var activitySaved: Messaging.Timestamp?
    /// After a storage failure: no links until then.
    var troubledUntil: Timestamp?

    /// Routing numbers of its routes.
    var routes: [NodeAction.Route: UInt64] = [:]
    /// For dialling members; empty until the inbox is first awake.
    var dialTokens: [PublicKey: DialTokens] = [:]
    var savedCounters: [InboxSnapshot.Counters] = []
    var owesCounters = false
    /// How many users follow the inbox. A reload of the inbox clears the core's own count.
    var watcherCount = 0
    private(set) var links: [ActiveLink] = []

    /// Acknowledgements since the last log line.
    var acknowledgements = AcknowledgementCounts()

    /// Removes bytes of files in transfer from memory; see ``forgetHash(of:)``.
    func forgetHashes() { for id in verifications.keys { forgetHash(of: id) } }

    /// Drops a file's hash. A hash that is being compared restarts, and still completes.
    func forgetHash(of message: Messaging.MessageID) {
        if verifications[message]?.attachment == nil {
            verifications[message] = nil
        } else {
            verifications[message]?.restart()
        }
    }

    init(client: ClientID, row: RowID, store: Store, memory: MessageMemory) {
        self.client = client
        self.row = row
        archive = MessageArchive(store: store, row: row, memory: memory)
        effects = EffectQueue(client: client)
    }

    /// The secp256k1 key of the inbox, derived from its row: destroying the row destroys the key.
    func deriveKey(in store: Store) throws -> IdentityKey {
        for attempt in 0..<4 {
            // One derivation in 2^127 yields an invalid key.
            if let key = try? SecretKey(try store.secret(row, label: "identity key \(attempt)")) {
                return IdentityKey(key)
            }
        }
        throw NodeError.store(.damaged(what: "the identity of inbox \(row)"))
    }

    /// The inbox is loaded or woken from its saved state. Clear ``savedCounters`` once the core has registered the
    /// routes.
    func take(_ snapshot: InboxSnapshot) {
        savedCounters = snapshot.counters ?? []
        outboxFrom = snapshot.outboxFrom
        isOutboxKnown = true
    }

    func isTroubled(now: Timestamp) -> Bool { troubledUntil.map { now < $0 } ?? false }

    func add(_ link: ActiveLink) { links.append(link) }
    func remove(_ link: ActiveLink) { links.removeAll { $0 === link } }
}

/// The saved state of an inbox: the core's record, and the counters of its routing tokens.
struct InboxSnapshot: Codable {
    struct Counters: Codable {
        var remote: PublicKey
        var dial: DialCounters
        var accept: ListenerCounters
    }

    var record: InboxRecord
    var counters: [Counters]?
    var lastActivity: Timestamp?
    /// Zero: no message of ours waits. `nil`: unknown, scan the messages.
    var outboxCount: Int?
    var outboxPlace: UInt64
    var notes: InboxNotes

    /// A lower bound for the positions of our waiting messages and of chunks of unfinished uploads. `nil`: there are
    /// none; none is added without another save.
    var outboxFrom: UInt64? { outboxCount == 0 ? nil : outboxPlace }

    var isConversation: Bool { if case .conversation = record.role { true } else { false } }

    /// JSON whose counters stand last, behind its only line break.
    var encoded: [UInt8] {
        var rest = self
        rest.counters = nil
        return Self.join(StoredCodec.encode(record: rest).dropLast(), counters ?? [])
    }

    /// - Returns: `nil` if the state is of a version that has its counters elsewhere.
    static func replaceCounters(of state: [UInt8], by counters: [Counters]) -> [UInt8]? {
        state.lastIndex(of: UInt8(ascii: "\n")).map { join(state[..<$0], counters) }
    }

    private static func join(_ rest: ArraySlice<UInt8>, _ counters: [Counters]) -> [UInt8] {
        Array(rest) + Array("\n,\"counters\":".utf8) + StoredCodec.encode(record: counters) + Array("}".utf8)
    }
}

/// The inboxes of a node, with indexes that avoid full scans. On the node's loop alone.
final class InboxTable {
    private var inboxes: [ClientID: Inbox] = [:]
    private var clients: [RowID: Inbox] = [:]
    private var aliases = AliasTable()
    /// Sleeping inboxes with contents in memory, longest asleep first.
    private var asleep: [Inbox] = []
    let visits = InboxVisits()

    subscript(client: ClientID) -> Inbox? {
        visits.note(client)
        return inboxes[client]
    }

    func inbox(at row: RowID) -> Inbox? {
        guard let inbox = clients[row] else { return nil }
        visits.note(inbox.client)
        return inbox
    }

    /// Sorted by client: the order of a set must not influence actions.
    func at(_ rows: Set<RowID>) -> [Inbox] { rows.compactMap(inbox).sorted { $0.client < $1.client } }

    /// Sorted by client. Not for turns, ticks or `status`: use lists and queues there.
    var all: [Inbox] {
        visits.note(all: inboxes.keys)
        return inboxes.values.sorted { $0.client < $1.client }
    }

    func add(_ inbox: Inbox) {
        inboxes[inbox.client] = inbox
        clients[inbox.row] = inbox
        inbox.archive.enlist()
    }

    func nextExpiry(in memory: MessageMemory) -> Timestamp? {
        while let time = memory.expiries.next {
            for (row, _) in memory.expiries.take(until: time) { inbox(at: row)?.archive.settleExpiry() }
            if memory.expiries.next == time { return time }
        }
        return nil
    }

    /// Removes an inbox; its alias stays reserved until ``forgetNotes(of:)``.
    func remove(_ inbox: Inbox) {
        noteWaking(inbox)
        guard inboxes[inbox.client] === inbox else { return }
        inboxes[inbox.client] = nil
        clients[inbox.row] = nil
    }

    /// Drops an alias that another inbox holds.
    func note(_ notes: InboxNotes, of inbox: Inbox) {
        var notes = notes
        notes.alias = aliases.replace(inbox.notes.alias, by: notes.alias, of: inbox.client)
        inbox.notes = notes
    }

    func forgetNotes(of inbox: Inbox) { note(InboxNotes(), of: inbox) }

    /// The inbox whose alias reads like this one; it may be unreadable.
    func holder(of alias: String) -> ClientID? { aliases.holder(of: alias) }

    /// Sleeping inboxes keep unsaved contents within a memory bound. Beyond it, the inboxes longest asleep drop read
    /// and delivered contents first.
    func noteSleep(_ inbox: Inbox) {
        inbox.archive.sleep()
        noteWaking(inbox)
        guard !inbox.archive.held.isEmpty else { return }
        asleep.append(inbox)
        var total = asleep.reduce(0) { $0 + $1.archive.heldBytes }
        while total > Limits.memoryTotalByteCount, let oldest = asleep.first {
            asleep.removeFirst()
            total -= oldest.archive.heldBytes
            // Messages that wait for the disk stay: they are unacknowledged, and bounded by their inbox's limit.
            oldest.archive.forgetMemory()
        }
    }

    func noteWaking(_ inbox: Inbox) { if !asleep.isEmpty { asleep.removeAll { $0 === inbox } } }
}

struct UnreadInbox {
    /// `nil` if it has not been read since the start.
    var inbox: Inbox?
    var conversation: ConversationID?
    var error: any Error
    var retryAt: Timestamp
}

/// Unreadable inboxes: those to retry, and damaged ones. On the node's loop alone.
final class UnreadInboxes {
    private var unread: [RowID: UnreadInbox] = [:]
    private var retries = DeadlineQueue<RowID>()
    private(set) var skipped: [String] = []

    var isEmpty: Bool { unread.isEmpty }

    subscript(row: RowID) -> UnreadInbox? { unread[row] }

    func add(_ inbox: UnreadInbox, at row: RowID) {
        unread[row] = inbox
        var queued: Timestamp?
        retries.set(row, inbox.retryAt, queued: &queued)
    }

    @discardableResult func remove(_ row: RowID) -> UnreadInbox? { unread.removeValue(forKey: row) }

    /// The inbox is damaged; there is no retry.
    func skip(_ error: any Error) { skipped.append("\(error)") }

    /// Why a requested item may be missing; `nil` if all inboxes are readable.
    var error: NodeError? {
        switch unread.min(by: { $0.key < $1.key })?.value.error {
        case let error as StoreError: .store(error)
        case let error as NodeError: error
        default: nil
        }
    }

    /// No later than the next retry.
    var retryAt: Timestamp? { retries.next }

    /// Takes at most `count` due retries. The caller removes each, or adds it again.
    func takeDue(now: Timestamp, count: Int) -> [RowID] {
        retries.take(until: now, limit: count).filter { unread[$0.key]?.retryAt == $0.at }.map(\.key)
    }

    func rows(of conversation: ConversationID) -> [RowID] {
        unread.filter { $0.value.conversation == conversation }.keys.sorted()
    }

    func inbox(of client: ClientID) -> Inbox? { unread.values.lazy.compactMap(\.inbox).first { $0.client == client } }

    var damage: [String] { skipped + unread.sorted { $0.key < $1.key }.map { "\($0.value.error)" } }
}
