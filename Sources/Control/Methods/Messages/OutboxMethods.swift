package enum OutboxMethods {
    package static let all: [any ControlMethod.Type] = [
        OutboxListMethod.self, OutboxCancelMethod.self, OutboxRetryMethod.self,
    ]
}

/// An unacknowledged message to one member.
package struct OutboxEntry: JSONRecord, Hashable, Sendable {
    package var message = ""
    package var conversation = ""
    /// Name as in ``Message/from``.
    package var to = ""
    /// Prefix of the member's id.
    package var member: String?
    package var attempts: Int = 0
    package var nextAttempt: Timestamp?
    package var expiresAt: Timestamp?
    package var state = ""

    package init(
        message: String, conversation: String, to: String, member: String? = nil, attempts: Int,
        nextAttempt: Timestamp? = nil, expiresAt: Timestamp? = nil, state: String
    ) {
        self.message = message
        self.conversation = conversation
        self.to = to
        self.member = member
        self.attempts = attempts
        self.nextAttempt = nextAttempt
        self.expiresAt = expiresAt
        self.state = state
    }

    package init() {}

    package mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
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

package enum OutboxListMethod: ControlMethod {
    package static let name = "outbox.list"
    package static let summary = "Lists messages that are not acknowledged yet."

    package struct Params: JSONRecord, Hashable, Sendable {
        package var conversation: String?
        /// The `next` of the previous answer.
        package var from: String?

        package init(conversation: String? = nil, from: String? = nil) {
            self.conversation = conversation
            self.from = from
        }

        package init() {}

        package mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
            try fields.field("conversation", &conversation)
            try fields.field("from", &from)
        }
    }

    package struct Result: JSONRecord, Hashable, Sendable {
        package var messages: [OutboxEntry] = []
        /// Present when the answer was cut; pass it as `from`.
        package var next: String?

        package init(messages: [OutboxEntry], next: String? = nil) {
            self.messages = messages
            self.next = next
        }

        package init() {}

        package mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
            try fields.field("messages", &messages)
            try fields.field("next", &next)
        }
    }
}

package enum OutboxCancelMethod: ControlMethod {
    package static let name = "outbox.cancel"
    package static let summary = "Gives up sending a message."
    package typealias Result = OutboxEntry
    package typealias Params = MessageParams
}

package enum OutboxRetryMethod: ControlMethod {
    package static let name = "outbox.retry"
    package static let summary = "Tries to send a message now."
    package typealias Result = OutboxEntry
    package typealias Params = MessageParams
}
