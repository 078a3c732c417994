import Crypto
import Messaging
import Transport

/// What is saved of one inbox: the core's record, and where the counters of its routing tokens stand.
struct InboxSnapshot: Codable {
    /// Of the link to one member.
    struct Counters: Codable {
        var remote: PublicKey
        var dial: DialCounters
        var accept: ListenerCounters
    }

    var record: InboxRecord
    var counters: [Counters]
    /// When a message last came or went, as of this state.
    var lastActivity: Timestamp?
    /// Messages that were not acknowledged when it was saved, and have been none since without another state; `nil`: the
    /// messages themselves must be asked.
    var outboxCount: Int?
    /// Where to look for them: none that waits, and no chunk of a file that was being handed over, has a lower place.
    var outboxPlace: UInt64
    var notes: InboxNotes
}
