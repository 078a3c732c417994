import Crypto
import Messaging
import Transport

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
    /// The number of unacknowledged messages. A new one saves the state again first. `nil`: unknown, scan the messages.
    var outboxCount: Int?
    /// A lower bound for the positions of waiting messages, and of chunks of unfinished uploads.
    var outboxPlace: UInt64
    var notes: InboxNotes
}
