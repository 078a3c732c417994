import Crypto
import Messaging
import Store
import Transport

/// The endpoints and knock secrets by which the members of an exploded conversation are told. Sealed under a seven-day
/// column: the inbox's own keys are gone.
struct FanOut: Codable {
    struct Target: Codable {
        var remote: PublicKey
        var endpoints: [Messaging.Endpoint]
        /// In hexadecimal.
        var knock: String
    }

    var conversation: ConversationID
    /// When the list goes.
    var until: Timestamp
    var targets: [Target]
}

/// What the shell holds of one conversation that has exploded, or that is to explode at a time.
struct Ending {
    /// Whose conversation it was, since the start of the node: the tombstone does not know.
    var client: ClientID?
    /// Its tombstone on the disk.
    var tombstone: TombstoneID?
    /// The tombstone is not on the disk as it is now: the storage was locked, or full.
    var isTombstoneUnsaved = false
    /// The prepared tombstone of an explosion to come.
    var armed: ExplodeStateMachine.Record?
    /// The list by which the members are told, once it was asked for.
    var fanOut: FanOut?
    /// The list is not on the disk, or no commit has said so.
    var isFanOutUnsaved = false
    /// By which our receipt is brought to the creator of a conversation that has just exploded.
    var report: KnockSecret?
    /// Why its key page could not be overwritten yet.
    var failure: StoreError?
    /// The routing table's numbers of those who may knock at the tombstone.
    var routes: [Knocker: UInt64] = [:]

    fileprivate var isEmpty: Bool {
        client == nil && tombstone == nil && !isTombstoneUnsaved && armed == nil && fanOut == nil && !isFanOutUnsaved
            && report == nil && failure == nil && routes.isEmpty
    }
}

/// The endings of a node's conversations. An ending of which nothing is held takes no room. On the node's loop alone.
final class EndingTable {
    private var endings: [ConversationID: Ending] = [:]
    private var unsavedTombstoneIDs: Set<ConversationID> = []
    private var unsavedFanOutIDs: Set<ConversationID> = []
    private var failedIDs: Set<ConversationID> = []
    private var ends = DeadlineQueue<ConversationID>()
    private var queuedEnds: [ConversationID: Timestamp] = [:]

    subscript(conversation: ConversationID) -> Ending {
        get { endings[conversation] ?? Ending() }
        set {
            endings[conversation] = newValue.isEmpty ? nil : newValue
            list(conversation, newValue.isTombstoneUnsaved, in: &unsavedTombstoneIDs)
            list(conversation, newValue.isFanOutUnsaved, in: &unsavedFanOutIDs)
            list(conversation, newValue.failure != nil, in: &failedIDs)
            ends.set(conversation, newValue.armed?.explodedAt, queued: &queuedEnds[conversation])
        }
    }

    private func list(_ conversation: ConversationID, _ isListed: Bool, in list: inout Set<ConversationID>) {
        if isListed { list.insert(conversation) } else { list.remove(conversation) }
    }

    func remove(_ conversation: ConversationID) { self[conversation] = Ending() }

    // Each list is in the order of the ids.

    var unsavedTombstones: [ConversationID] { unsavedTombstoneIDs.sorted() }
    var unsavedFanOuts: [ConversationID] { unsavedFanOutIDs.sorted() }

    /// Those that are prepared for a time.
    var armed: [ConversationID] { endings.filter { $0.value.armed != nil }.keys.sorted() }

    /// Those that are prepared for a time that has come.
    func overdue(now: Timestamp) -> [ConversationID] {
        var result: [ConversationID] = []
        for (conversation, at) in ends.take(until: now) where queuedEnds[conversation] == at {
            queuedEnds[conversation] = nil
            guard let end = endings[conversation]?.armed?.explodedAt else { continue }
            // It is listed until it is carried out.
            ends.set(conversation, end, queued: &queuedEnds[conversation])
            if end <= now { result.append(conversation) }
        }
        return result.sorted()
    }

    /// No key page waits to be overwritten any more.
    func clearFailures() { for conversation in failedIDs.sorted() { self[conversation].failure = nil } }
}
