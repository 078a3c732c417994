import Control

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

struct InboxListResult: CodableRecord { var inboxes: [Inbox] = [] }

struct InboxRebalanceResult: CodableRecord {
    /// Inboxes being woken.
    var woken: Int = 0
    /// Inboxes put to sleep.
    var slept: Int = 0
    /// Target number of awake inboxes.
    var capacity: Int = 0
}
