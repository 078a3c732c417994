/// Sending and reading.
package enum MessageMethods {
    package static let all: [any ControlMethod.Type] = [SendMethod.self, ReadMethod.self]
}

/// How far a message of one's own has come.
package enum DeliveryStage: String, Codable, Hashable, Sendable, CaseIterable {
    case queued
    case sent
    case delivered
}

/// A file that travels in a message.
package struct MessageFile: Codable, Hashable, Sendable {
    /// Without a path.
    package var name: String
    /// Base64.
    package var data: String

    package init(name: String, data: String) {
        self.name = name
        self.data = data
    }
}

/// A message in a conversation.
package struct Message: Codable, Hashable, Sendable {
    /// Id, in hex.
    package var message: String
    /// Id, in hex.
    package var conversation: String
    /// The member's name; `me` for one's own.
    package var from: String
    /// `mayfly/text:1.0` and so on.
    package var type: String
    /// Null when it has none.
    @Nullable package var text: String?
    /// By the sender's clock.
    package var sentAt: Timestamp
    /// Null while it is ephemeral.
    @Nullable package var expiresAt: Timestamp?
    /// On disk, or only in RAM.
    package var stored: Bool
    /// `received`, `queued`, `sent`, `delivered`, `read` or `expiredUndelivered`.
    package var state: String
    package var replyTo: String?
    /// The agreement under which it was sent, in hex; absent when ephemeral.
    package var agreement: String?
    package var file: MessageFile?

    package init(
        message: String,
        conversation: String,
        from: String,
        type: String,
        text: String? = nil,
        sentAt: Timestamp,
        expiresAt: Timestamp? = nil,
        stored: Bool,
        state: String,
        replyTo: String? = nil,
        agreement: String? = nil,
        file: MessageFile? = nil
    ) {
        self.message = message
        self.conversation = conversation
        self.from = from
        self.type = type
        self.text = text
        self.sentAt = sentAt
        self.expiresAt = expiresAt
        self.stored = stored
        self.state = state
        self.replyTo = replyTo
        self.agreement = agreement
        self.file = file
    }
}

/// `send`: sends a message.
package enum SendMethod: ControlMethod {
    package static let name = "send"
    package static let summary = "Sends a message."

    /// What `send` is asked.
    package struct Params: Codable, Hashable, Sendable {
        /// Id, unambiguous prefix of an id, or unambiguous name.
        package var conversation: String
        package var text: String
        /// Answer only when it has come this far.
        package var wait: DeliveryStage?
        /// How long to wait.
        package var timeout: Interval?
        /// The message it answers.
        package var replyTo: String?
        package var file: MessageFile?

        package init(
            conversation: String,
            text: String,
            wait: DeliveryStage? = nil,
            timeout: Interval? = nil,
            replyTo: String? = nil,
            file: MessageFile? = nil
        ) {
            self.conversation = conversation
            self.text = text
            self.wait = wait
            self.timeout = timeout
            self.replyTo = replyTo
            self.file = file
        }
    }

    /// What `send` answers.
    package struct Result: Codable, Hashable, Sendable {
        package var message: String
        package var state: DeliveryStage
        package var stored: Bool
        @Nullable package var expiresAt: Timestamp?

        package init(message: String, state: DeliveryStage, stored: Bool, expiresAt: Timestamp? = nil) {
            self.message = message
            self.state = state
            self.stored = stored
            self.expiresAt = expiresAt
        }
    }
}

/// `read`: reads messages, oldest first.
package enum ReadMethod: ControlMethod {
    package static let name = "read"
    package static let summary = "Reads messages, oldest first."

    /// What `read` is asked.
    package struct Params: Codable, Hashable, Sendable {
        /// Id, unambiguous prefix of an id, or unambiguous name.
        package var conversation: String
        /// At most this many, the newest.
        package var last: Int?
        /// Only those after this message.
        package var since: String?

        package init(conversation: String, last: Int? = nil, since: String? = nil) {
            self.conversation = conversation
            self.last = last
            self.since = since
        }
    }

    /// What `read` answers.
    package struct Result: Codable, Hashable, Sendable {
        package var messages: [Message]
        /// True when the answer was cut: ask again since the last message.
        package var more: Bool?

        package init(messages: [Message], more: Bool? = nil) {
            self.messages = messages
            self.more = more
        }
    }
}
