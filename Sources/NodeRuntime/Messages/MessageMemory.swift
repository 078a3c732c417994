import Messaging

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
    /// Archives with something that waits for the disk, perhaps more.
    var waitingCount = 0
    /// Files that their users are handing over: their chunks have no message yet.
    var uploading: Set<MessageID> = []

    init(knownLimit: Int = 65_536, knownOwnCount: Int = 64) {
        self.knownLimit = knownLimit
        self.knownOwnCount = knownOwnCount
    }
}
