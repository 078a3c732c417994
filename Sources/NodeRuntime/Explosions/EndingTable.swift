import Crypto
import Messaging
import Store
import Transport

/// The fan-out list: endpoints and knock secrets for telling the members of an exploded conversation. Sealed under a
/// seven-day column, since the inbox's own keys are gone.
struct FanOut: Codable {
    struct Target: Codable {
        var remote: PublicKey
        var endpoints: [Messaging.Endpoint]
        /// Hexadecimal.
        var knock: String
    }

    var conversation: ConversationID
    /// When the list is deleted.
    var until: Timestamp
    var targets: [Target]
}

/// The shell's state of a conversation that has exploded or has a scheduled explosion.
struct Ending {
    /// The conversation's inbox, known since the start of the node; the tombstone does not store it.
    var client: ClientID?
    var tombstone: TombstoneID?
    /// The prepared tombstone of a scheduled explosion.
    var armed: ExplosionRecord?
    var fanOut: FanOut?
    /// Delivers our receipt to the creator of a conversation that has just exploded.
    var report: KnockSecret?
    var failure: StoreError?
    /// Routing numbers of the peers that may knock at the tombstone.
    var routes: [Knocker: UInt64] = [:]

    fileprivate var isEmpty: Bool {
        client == nil && tombstone == nil && armed == nil && fanOut == nil && report == nil && failure == nil
            && routes.isEmpty
    }
}

/// The endings of the conversations; an empty ending is not stored. On the node's loop alone.
final class EndingTable {
    private var endings: [ConversationID: Ending] = [:]
    private var failedIDs: Set<ConversationID> = []
    private var ends = DeadlineQueue<ConversationID>()
    private var queuedEnds: [ConversationID: Timestamp] = [:]

    subscript(conversation: ConversationID) -> Ending {
        get { endings[conversation] ?? Ending() }
        set {
            endings[conversation] = newValue.isEmpty ? nil : newValue
            if newValue.failure != nil { failedIDs.insert(conversation) } else { failedIDs.remove(conversation) }
            ends.set(conversation, newValue.armed?.explodedAt, queued: &queuedEnds[conversation])
        }
    }

    func remove(_ conversation: ConversationID) { self[conversation] = Ending() }

    /// Sorted.
    var armed: [ConversationID] { endings.filter { $0.value.armed != nil }.keys.sorted() }

    func overdue(now: Timestamp) -> [ConversationID] {
        var result: [ConversationID] = []
        for (conversation, at) in ends.take(until: now) where queuedEnds[conversation] == at {
            queuedEnds[conversation] = nil
            guard let end = endings[conversation]?.armed?.explodedAt else { continue }
            // Stays queued until the explosion is performed.
            ends.set(conversation, end, queued: &queuedEnds[conversation])
            if end <= now { result.append(conversation) }
        }
        return result.sorted()
    }

    /// Call this when no key page waits to be overwritten.
    func clearFailures() { for conversation in failedIDs.sorted() { self[conversation].failure = nil } }
}
