import Control

/// An unacknowledged message to one member.
struct OutboxEntry: CodableRecord {
    var message = ""
    var conversation = ""
    /// Name as in ``Message/from``.
    var to = ""
    /// Prefix of the member's id.
    var member: String?
    var attempts: Int = 0
    @OrNull var nextAttempt: Timestamp?
    @OrNull var expiresAt: Timestamp?
    var state = ""
}

struct OutboxListParams: CodableRecord {
    var conversation: String?
    /// The `next` of the previous answer.
    var from: String?
}

struct OutboxListResult: CodableRecord {
    var messages: [OutboxEntry] = []
    /// Present when the answer was cut; pass it as `from`.
    var next: String?
}
