import Messaging
import Store

/// Totals and indexes over all archives' messages in memory, for bounds per node.
final class MessageMemory {
    /// Limit of remembered message ids of members.
    let knownLimit: Int
    /// Ids that each inbox may remember regardless of the limit.
    let knownOwnCount: Int
    var knownCount = 0
    /// Bytes of recently stored messages of ours.
    var outgoingByteCount = 0
    var chunkByteCount: Int64 = 0
    var waiting: Set<RowID> = []
    /// Inboxes whose read position is not saved.
    var unsavedMarks: Set<RowID> = []
    /// Expiries of messages in memory and of reactions.
    var expiries = DeadlineQueue<RowID>()
    var reactionExpiries = DeadlineQueue<RowID>()
    /// Inboxes with possibly expired content in memory. ``MessageArchive/expire(now:)`` queues them again.
    func takeExpired(until now: Timestamp) -> Set<RowID> {
        Set((expiries.take(until: now) + reactionExpiries.take(until: now)).map(\.key))
    }

    /// Running uploads: their chunks have no message yet.
    var uploading: Set<MessageID> = []

    init(knownLimit: Int = 65_536, knownOwnCount: Int = 64) {
        self.knownLimit = knownLimit
        self.knownOwnCount = knownOwnCount
    }
}
