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
    /// Unacknowledged messages at the time of the save. None is added without another save, so zero can be trusted.
    /// `nil`: unknown, scan the messages.
    var outboxCount: Int?
    /// A lower bound for the positions of waiting messages, and of chunks of unfinished uploads.
    var outboxPlace: UInt64
    var notes: InboxNotes
}
