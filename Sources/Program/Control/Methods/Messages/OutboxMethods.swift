import Control

enum OutboxMethods {
    static let all: [any ControlMethod.Type] = [OutboxListMethod.self, OutboxCancelMethod.self, OutboxRetryMethod.self]
}

/// An unacknowledged message to one member.
struct OutboxEntry: JSONRecord, Hashable, Sendable {
    var message = ""
    var conversation = ""
    /// Name as in ``Message/from``.
    var to = ""
    /// Prefix of the member's id.
    var member: String?
    var attempts: Int = 0
    var nextAttempt: Timestamp?
    var expiresAt: Timestamp?
    var state = ""

    mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
        try fields.field("message", &message)
        try fields.field("conversation", &conversation)
        try fields.field("to", &to)
        try fields.field("member", &member)
        try fields.field("attempts", &attempts)
        try fields.nullable("nextAttempt", &nextAttempt)
        try fields.nullable("expiresAt", &expiresAt)
        try fields.field("state", &state)
    }
}

enum OutboxListMethod: ControlMethod {
    static let name = "outbox.list"
    static let summary = "Lists messages that are not acknowledged yet."

    struct Params: JSONRecord, Hashable, Sendable {
        var conversation: String?
        /// The `next` of the previous answer.
        var from: String?

        mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
            try fields.field("conversation", &conversation)
            try fields.field("from", &from)
        }
    }

    struct Result: JSONRecord, Hashable, Sendable {
        var messages: [OutboxEntry] = []
        /// Present when the answer was cut; pass it as `from`.
        var next: String?

        mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
            try fields.field("messages", &messages)
            try fields.field("next", &next)
        }
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
