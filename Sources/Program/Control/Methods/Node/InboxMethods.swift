import Control

enum InboxMethods {
    static let all: [any ControlMethod.Type] = [
        InboxListMethod.self, InboxWakeMethod.self, InboxSleepMethod.self, InboxRebalanceMethod.self,
    ]
}

struct Inbox: CodableRecord {
    /// Client id.
    var inbox = ""
    /// `awake`, `sleeping` or `unused`.
    var state = ""
    @OrNull var wakeReason: String?
    @OrNull var lastActivity: Timestamp?
    /// Never put to sleep to make room.
    var protected = false
    var conversation: String?
}

enum InboxListMethod: ControlMethod {
    static let name = "inbox.list"
    static let summary = "Lists the inboxes."
    typealias Params = Nothing

    struct Result: CodableRecord { var inboxes: [Inbox] = [] }
}

enum InboxWakeMethod: ControlMethod {
    static let name = "inbox.wake"
    static let summary = "Wakes an inbox."
    typealias Result = Inbox
    typealias Params = InboxParams
}

enum InboxSleepMethod: ControlMethod {
    static let name = "inbox.sleep"
    static let summary = "Puts an inbox to sleep."
    typealias Result = Inbox
    typealias Params = InboxParams
}

enum InboxRebalanceMethod: ControlMethod {
    static let name = "inbox.rebalance"
    static let summary = "Wakes the most recently active inboxes and puts the others to sleep."
    typealias Params = Nothing

    struct Result: CodableRecord {
        /// Inboxes being woken.
        var woken: Int = 0
        /// Inboxes put to sleep.
        var slept: Int = 0
        /// Target number of awake inboxes.
        var capacity: Int = 0
    }
}
