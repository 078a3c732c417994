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

    subscript(conversation: ConversationID) -> Ending {
        get { endings[conversation] ?? Ending() }
        set { endings[conversation] = newValue.isEmpty ? nil : newValue }
    }

    func remove(_ conversation: ConversationID) { endings[conversation] = nil }

    /// In the order of their ids.
    func conversations(where isMeant: (Ending) -> Bool) -> [ConversationID] {
        endings.filter { isMeant($0.value) }.keys.sorted()
    }

    /// No key page waits to be overwritten any more.
    func clearFailures() {
        for conversation in conversations(where: { $0.failure != nil }) { self[conversation].failure = nil }
    }
}
