/// Inboxes: one for each conversation.
package enum InboxMethods {
    package static let all: [any ControlMethod.Type] = [
        InboxListMethod.self, InboxWakeMethod.self, InboxSleepMethod.self, InboxRebalanceMethod.self,
    ]
}

/// An inbox.
package struct Inbox: Codable, Hashable, Sendable {
    /// Its client id.
    package var inbox: String
    /// `awake`, `sleeping` or `unused`.
    package var state: String
    @Nullable package var wakeReason: String?
    @Nullable package var lastActivity: Timestamp?
    /// It is not put to sleep to make room.
    package var protected: Bool
    package var conversation: String?

    package init(
        inbox: String,
        state: String,
        wakeReason: String? = nil,
        lastActivity: Timestamp? = nil,
        protected: Bool,
        conversation: String? = nil
    ) {
        self.inbox = inbox
        self.state = state
        self.wakeReason = wakeReason
        self.lastActivity = lastActivity
        self.protected = protected
        self.conversation = conversation
    }
}

/// `inbox.list`: lists the inboxes.
package enum InboxListMethod: ControlMethod {
    package static let name = "inbox.list"
    package static let summary = "Lists the inboxes."
    package typealias Params = Nothing

    /// What `inbox.list` answers.
    package struct Result: Codable, Hashable, Sendable {
        package var inboxes: [Inbox]

        package init(inboxes: [Inbox]) {
            self.inboxes = inboxes
        }
    }
}

/// `inbox.wake`: wakes an inbox.
package enum InboxWakeMethod: ControlMethod {
    package static let name = "inbox.wake"
    package static let summary = "Wakes an inbox."
    package typealias Result = Inbox

    /// What `inbox.wake` is asked.
    package struct Params: Codable, Hashable, Sendable {
        package var inbox: String

        package init(inbox: String) {
            self.inbox = inbox
        }
    }
}

/// `inbox.sleep`: puts an inbox to sleep.
package enum InboxSleepMethod: ControlMethod {
    package static let name = "inbox.sleep"
    package static let summary = "Puts an inbox to sleep."
    package typealias Result = Inbox

    /// What `inbox.sleep` is asked.
    package struct Params: Codable, Hashable, Sendable {
        package var inbox: String

        package init(inbox: String) {
            self.inbox = inbox
        }
    }
}

/// `inbox.rebalance`: wakes the most recently active inboxes and puts the others to sleep.
package enum InboxRebalanceMethod: ControlMethod {
    package static let name = "inbox.rebalance"
    package static let summary = "Wakes the most recently active inboxes and puts the others to sleep."
    package typealias Params = Nothing

    /// What `inbox.rebalance` answers.
    package struct Result: Codable, Hashable, Sendable {
        /// Inboxes that are woken for it.
        package var woken: Int
        /// Inboxes that were put to sleep for it.
        package var slept: Int
        /// How many are to be awake.
        package var capacity: Int

        package init(woken: Int, slept: Int, capacity: Int) {
            self.woken = woken
            self.slept = slept
            self.capacity = capacity
        }
    }
}
