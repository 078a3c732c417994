import Messaging
import Primitives
import Transport

/// What is saved of one inbox: the core's record, and how far the counters of its routing tokens have moved.
struct InboxSnapshot: Codable {
    struct Counter: Codable {
        var day: UInt32
        var next: UInt32

        init(_ counter: RoutingCounter) {
            day = counter.day
            next = counter.next
        }

        var routing: RoutingCounter { RoutingCounter(day: day, next: next) }
    }

    /// Of the link to one member.
    struct Counters: Codable {
        var remote: PublicKey
        var dial: [Counter]
        var accept: [Counter]
    }

    var record: InboxRecord
    var counters: [Counters]
    /// When a message last came or went, as of this state.
    var lastActivity: Timestamp?
    /// Messages that were not acknowledged when it was saved, and have been none since without another state; `nil`: the
    /// messages themselves must be asked.
    var outboxCount: Int?
    var notes: InboxNotes
}
