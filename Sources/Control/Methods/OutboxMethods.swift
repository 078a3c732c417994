/// Messages that are not acknowledged yet.
package enum OutboxMethods {
    package static let all: [any ControlMethod.Type] = [
        OutboxListMethod.self, OutboxCancelMethod.self, OutboxRetryMethod.self,
    ]
}

/// A message on its way to one member.
package struct OutboxEntry: Codable, Hashable, Sendable {
    package var message: String
    /// Id, in hex.
    package var conversation: String
    /// What the member is called, as in ``Message/from``.
    package var to: String
    /// The beginning of its id.
    package var member: String?
    package var attempts: Int
    @Nullable package var nextAttempt: Timestamp?
    @Nullable package var expiresAt: Timestamp?
    package var state: String

    package init(
        message: String,
        conversation: String,
        to: String,
        member: String? = nil,
        attempts: Int,
        nextAttempt: Timestamp? = nil,
        expiresAt: Timestamp? = nil,
        state: String
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
}

/// `outbox.list`: lists messages that are not acknowledged yet.
package enum OutboxListMethod: ControlMethod {
    package static let name = "outbox.list"
    package static let summary = "Lists messages that are not acknowledged yet."

    /// What `outbox.list` is asked.
    package struct Params: Codable, Hashable, Sendable {
        package var conversation: String?
        /// The `next` of the answer that this one goes on from.
        package var from: String?

        package init(conversation: String? = nil, from: String? = nil) {
            self.conversation = conversation
            self.from = from
        }
    }

    /// What `outbox.list` answers.
    package struct Result: Codable, Hashable, Sendable {
        package var messages: [OutboxEntry]
        /// Present when the answer was cut: ask again from it.
        package var next: String?

        package init(messages: [OutboxEntry], next: String? = nil) {
            self.messages = messages
            self.next = next
        }
    }
}

/// `outbox.cancel`: gives up sending a message.
package enum OutboxCancelMethod: ControlMethod {
    package static let name = "outbox.cancel"
    package static let summary = "Gives up sending a message."
    package typealias Result = OutboxEntry

    /// What `outbox.cancel` is asked.
    package struct Params: Codable, Hashable, Sendable {
        package var message: String

        package init(message: String) {
            self.message = message
        }
    }
}

/// `outbox.retry`: tries to send a message now.
package enum OutboxRetryMethod: ControlMethod {
    package static let name = "outbox.retry"
    package static let summary = "Tries to send a message now."
    package typealias Result = OutboxEntry

    /// What `outbox.retry` is asked.
    package struct Params: Codable, Hashable, Sendable {
        package var message: String

        package init(message: String) {
            self.message = message
        }
    }
}
