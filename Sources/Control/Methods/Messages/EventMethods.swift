/// Following what happens.
package enum EventMethods {
    package static let all: [any ControlMethod.Type] = [SubscribeMethod.self, UnsubscribeMethod.self]
}

/// What can happen.
package enum EventKind: String, JSONChoice, Hashable, Sendable {
    case message
    case messageState
    case messageExpired
    case lifetimeProposed
    /// A member has signed the proposal; others have yet to.
    case lifetimeSigned
    case lifetimeAgreed
    case lifetimeRejected
    case lifetimeWithdrawn
    case lifetimeExpired
    case lifetimeReset
    case memberJoined
    case memberLeft
    case joinRequested
    case joined
    case joinFailed
    case invited
    case exploded
    case explosionScheduled
    case deletionReceipt
    case peerOnline
    case peerOffline
    case inboxAwake
    case inboxAsleep
    case locked
    case unlocked
    case messageDelivery
    case attachmentProgress
    /// Name or lock state.
    case conversationUpdated
    /// The creator has signed two different states of one version.
    case groupConflict
    case memberRemoved
    /// We were removed.
    case removed
    case profileChanged
    /// A member gave up messages that were for us.
    case messagesMissed
    /// Two copies of one home run at once: the member's, or, as it reports, ours.
    case twoCopies
    case explosionReminder
    /// Not something that happened: events between the cursor asked for and this one are no longer kept. `lost` is how
    /// many, null when some are of a run that ended in a crash, or when the cursor is of another home.
    case gap
    case lifetimeSuspended
    /// A code to say aloud was taken, or is void.
    case codeEnded
}

/// `subscribe`: turns this connection into a stream of events.
package enum SubscribeMethod: ControlMethod {
    package static let name = "subscribe"
    package static let summary = "Turns this connection into a stream of events."

    package static func waits(_ params: Params) -> Bool { true }

    /// What `subscribe` is asked.
    package struct Params: JSONRecord, Hashable, Sendable {
        /// Only its events.
        package var conversation: String?
        /// Replay everything after this cursor; 0 from the oldest kept; absent for new events only.
        package var since: Int64?
        /// Only these.
        package var events: [EventKind]?
        /// False when nobody is shown the messages: they do not count as read. Absent means true.
        package var marksRead: Bool?

        package init(
            conversation: String? = nil, since: Int64? = nil, events: [EventKind]? = nil, marksRead: Bool? = nil
        ) {
            self.conversation = conversation
            self.since = since
            self.events = events
            self.marksRead = marksRead
        }

        package init() {}

        package mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
            try fields.field("conversation", &conversation)
            try fields.field("since", &since)
            try fields.field("events", &events)
            try fields.field("marksRead", &marksRead)
        }
    }

    /// What `subscribe` answers.
    package struct Result: JSONRecord, Hashable, Sendable {
        /// The newest event so far: nothing after it is missed.
        package var cursor: Int64 = 0
        /// True when events after `since` were no longer kept, or may be missing; the stream then begins with a `gap`.
        package var missed: Bool?
        /// How many events follow at once, because they happened after `since`; absent for none.
        package var replayed: Int?

        package init(cursor: Int64, missed: Bool? = nil, replayed: Int? = nil) {
            self.cursor = cursor
            self.missed = missed
            self.replayed = replayed
        }

        package init() {}

        package mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
            try fields.field("cursor", &cursor)
            try fields.field("missed", &missed)
            try fields.field("replayed", &replayed)
        }
    }
}

/// `unsubscribe`: ends the stream of events of this connection.
package enum UnsubscribeMethod: ControlMethod {
    package static let name = "unsubscribe"
    package static let summary = "Ends the stream of events of this connection."
    package typealias Params = Nothing
    package typealias Result = Acknowledged
}
