package enum InboxMethods {
    package static let all: [any ControlMethod.Type] = [
        InboxListMethod.self, InboxWakeMethod.self, InboxSleepMethod.self, InboxRebalanceMethod.self,
    ]
}

package struct Inbox: JSONRecord, Hashable, Sendable {
    /// Client id.
    package var inbox = ""
    /// `awake`, `sleeping` or `unused`.
    package var state = ""
    package var wakeReason: String?
    package var lastActivity: Timestamp?
    /// Never put to sleep to make room.
    package var protected = false
    package var conversation: String?

    package init(
        inbox: String, state: String, wakeReason: String? = nil, lastActivity: Timestamp? = nil, protected: Bool,
        conversation: String? = nil
    ) {
        self.inbox = inbox
        self.state = state
        self.wakeReason = wakeReason
        self.lastActivity = lastActivity
        self.protected = protected
        self.conversation = conversation
    }

    package init() {}

    package mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
        try fields.field("inbox", &inbox)
        try fields.field("state", &state)
        try fields.nullable("wakeReason", &wakeReason)
        try fields.nullable("lastActivity", &lastActivity)
        try fields.field("protected", &protected)
        try fields.field("conversation", &conversation)
    }
}

package enum InboxListMethod: ControlMethod {
    package static let name = "inbox.list"
    package static let summary = "Lists the inboxes."
    package typealias Params = Nothing

    package struct Result: JSONRecord, Hashable, Sendable {
        package var inboxes: [Inbox] = []

        package init(inboxes: [Inbox]) { self.inboxes = inboxes }

        package init() {}

        package mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
            try fields.field("inboxes", &inboxes)
        }
    }
}

package enum InboxWakeMethod: ControlMethod {
    package static let name = "inbox.wake"
    package static let summary = "Wakes an inbox."
    package typealias Result = Inbox
    package typealias Params = InboxParams
}

package enum InboxSleepMethod: ControlMethod {
    package static let name = "inbox.sleep"
    package static let summary = "Puts an inbox to sleep."
    package typealias Result = Inbox
    package typealias Params = InboxParams
}

package enum InboxRebalanceMethod: ControlMethod {
    package static let name = "inbox.rebalance"
    package static let summary = "Wakes the most recently active inboxes and puts the others to sleep."
    package typealias Params = Nothing

    package struct Result: JSONRecord, Hashable, Sendable {
        /// Inboxes being woken.
        package var woken: Int = 0
        /// Inboxes put to sleep.
        package var slept: Int = 0
        /// Target number of awake inboxes.
        package var capacity: Int = 0

        package init(woken: Int, slept: Int, capacity: Int) {
            self.woken = woken
            self.slept = slept
            self.capacity = capacity
        }

        package init() {}

        package mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
            try fields.field("woken", &woken)
            try fields.field("slept", &slept)
            try fields.field("capacity", &capacity)
        }
    }
}
