import Control

enum OutboxMethods {
    static let all: [any ControlMethod.Type] = [OutboxListMethod.self, OutboxCancelMethod.self, OutboxRetryMethod.self]
}

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

enum OutboxListMethod: ControlMethod {
    static let name = "outbox.list"
    static let summary = "Lists messages that are not acknowledged yet."

    struct Params: CodableRecord {
        var conversation: String?
        /// The `next` of the previous answer.
        var from: String?
    }

    struct Result: CodableRecord {
        var messages: [OutboxEntry] = []
        /// Present when the answer was cut; pass it as `from`.
        var next: String?
    }
}

enum OutboxCancelMethod: ControlMethod {
    static let name = "outbox.cancel"
    static let summary = "Cancels an unacknowledged message."
    typealias Result = OutboxEntry
    typealias Params = MessageParams
}

enum OutboxRetryMethod: ControlMethod {
    static let name = "outbox.retry"
    static let summary = "Retries an unacknowledged message now."
    typealias Result = OutboxEntry
    typealias Params = MessageParams
}
