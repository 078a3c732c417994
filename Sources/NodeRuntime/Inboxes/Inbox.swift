import Crypto
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
    /// In the order of opening.
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

    /// The inbox is loaded or woken from its saved state. Clear ``savedCounters`` once the core has registered the routes.
    func take(_ snapshot: InboxSnapshot) {
        savedCounters = snapshot.counters
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
    var counters: [Counters]
    var lastActivity: Timestamp?
    /// Zero: no message of ours waits. `nil`: unknown, scan the messages.
    var outboxCount: Int?
    var outboxPlace: UInt64
    var notes: InboxNotes

    /// A lower bound for the positions of our waiting messages and of chunks of unfinished uploads. `nil`: there are
    /// none; none is added without another save.
    var outboxFrom: UInt64? { outboxCount == 0 ? nil : outboxPlace }

    var isConversation: Bool { if case .conversation = record.role { true } else { false } }
}
