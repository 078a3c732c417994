import Messaging
import Store

/// What all inboxes together hold of messages in memory: each archive counts what is its own here, so that the bounds are
/// those of the node.
final class MessageMemory {
    /// Most message ids that are remembered of members.
    let knownLimit: Int
    /// So many of them an inbox may remember whatever others do.
    let knownOwnCount: Int
    var knownCount = 0
    /// Bytes of our own messages that were stored a moment ago.
    var outgoingByteCount = 0
    /// Bytes of chunks of files without an agreement.
    var chunkByteCount: Int64 = 0
    /// Inboxes of which something waits for the disk, perhaps more.
    var waiting: Set<RowID> = []
    /// Inboxes whose saved state does not have their mark of what was read.
    var unsavedMarks: Set<RowID> = []
    /// When messages in memory expire, and when reactions are forgotten.
    var expiries = DeadlineQueue<RowID>()
    var reactionExpiries = DeadlineQueue<RowID>()
    /// Inboxes of which something in memory may have expired. ``MessageArchive/expire(now:)`` queues them anew.
    func takeExpired(until now: Timestamp) -> Set<RowID> {
        Set((expiries.take(until: now) + reactionExpiries.take(until: now)).map(\.key))
    }

    /// Files that their users are handing over: their chunks have no message yet.
    var uploading: Set<MessageID> = []

    init(knownLimit: Int = 65_536, knownOwnCount: Int = 64) {
        self.knownLimit = knownLimit
        self.knownOwnCount = knownOwnCount
    }
}
