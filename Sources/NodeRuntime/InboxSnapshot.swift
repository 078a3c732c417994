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
}

/// The endpoints and tokens by which the members of an exploded conversation are told. Sealed under a seven-day column:
/// the inbox's own keys are gone.
struct FanOut: Codable {
    struct Target: Codable {
        var remote: PublicKey
        var endpoints: [Messaging.Endpoint]
        /// Knock tokens of the coming days, in hexadecimal; the first is for `firstDay`.
        var tokens: [String]
    }

    var conversation: ConversationID
    var firstDay: UInt32
    var targets: [Target]
}
