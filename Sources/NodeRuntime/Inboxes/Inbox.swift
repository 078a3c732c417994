import Crypto
import Messaging
import Store
import Transport

/// One inbox as the shell holds it: all that is of this inbox and of no other. It outlives its sleep, and goes with its
/// keys.
final class Inbox {
    let client: ClientID
    let row: RowID
    /// `nil` while it sleeps; wiped while the storage is locked.
    var key: IdentityKey?
    /// What this node knows of the conversation that no member has said. Set by ``InboxTable/note(_:of:)``.
    var notes = InboxNotes()

    /// The notes of an awake inbox, as they are saved.
    var savedNotes: InboxNotes {
        var notes = notes
        notes.shownPlace = archive.shownPlace
        notes.unreadCount = nil
        return notes
    }

    // What is kept
    let archive: MessageArchive
    /// Files on their way to it, as far as they are hashed.
    var verifications: [Messaging.MessageID: Verification] = [:]
    /// What leaves the node waits here for the disk.
    let effects: EffectQueue
    /// It is awake, and its saved state says that none of its messages waits.
    var isSettled = false
    /// None of its messages that waits has a lower place on the disk; see ``InboxSnapshot/outboxPlace``.
    var outboxPlace: UInt64 = 0
    /// A state with a place that holds was saved since the store last read the inbox from the disk. Until then the saved
    /// place may be above the store's next one: the records that had the highest places may have ended.
    var isPlaceSaved = false
    /// The disk has refused to read its outbox at the last load or wake: a message that the core does not know may wait.
    var hasUnreadOutbox = false
    /// It is among those whose statuses are written with the next commit.
    var owesStatuses = false
    /// Its record changed while the storage was locked.
    var isUnsaved = false
    /// Its newest changes were refused when the storage was locked already: it goes on from what is durable at the unlock.
    var isVoided = false
    /// What has become of messages on the disk while the storage was locked; in order.
    var deferred: [NodeAction] = []
    /// What the last saved state says of when a message last came or went.
    var activitySaved: Messaging.Timestamp?
    /// When its conversation is to be destroyed, while the store has refused to note that.
    var unarmedEnd: Timestamp?
    /// Its storage has just failed: no links until then.
    var troubledUntil: Timestamp?

    // How it is reached
    /// The routing table's numbers of its routes.
    var routes: [NodeAction.Route: UInt64] = [:]
    /// Routes that were asked for while the keys were wiped.
    var owedRoutes: [NodeAction.Route] = []
    /// By which it dials its members; empty until it is awake for the first time.
    var dialTokens: [PublicKey: DialTokens] = [:]
    /// Counters of its tokens, while it is being loaded.
    var savedCounters: [InboxSnapshot.Counters] = []
    /// A write of its counters waits for the next tick.
    var owesCounters = false
    /// How many users follow the inbox. The core has the number, too, and loses it when the inbox is loaded anew.
    var watcherCount = 0
    /// In the order in which they were opened.
    private(set) var links: [ActiveLink] = []

    /// Acknowledgements since the log was last told of them.
    var acknowledgements = AcknowledgementCounts()

    /// Nothing of the bytes of files on their way stays in memory; see ``forgetHash(of:)``.
    func forgetHashes() { for id in verifications.keys { forgetHash(of: id) } }

    /// Drops what was hashed of a file. One that is being compared begins again, and finds out what has become of it.
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

    /// The secp256k1 key of the inbox: derived from its row, so that it dies with it.
    func deriveKey(in store: Store) throws -> IdentityKey {
        for attempt in 0..<4 {
            // One derivation in 2^127 is not a valid key.
            if let key = try? SecretKey(try store.secret(row, label: "identity key \(attempt)")) {
                return IdentityKey(key)
            }
        }
        throw NodeError.store(.damaged(what: "the identity of inbox \(row)"))
    }

    func isTroubled(now: Timestamp) -> Bool { troubledUntil.map { now < $0 } ?? false }

    func add(_ link: ActiveLink) { links.append(link) }
    func remove(_ link: ActiveLink) { links.removeAll { $0 === link } }
}
