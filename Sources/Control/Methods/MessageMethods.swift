/// Sending and reading.
package enum MessageMethods {
    package static let all: [any ControlMethod.Type] = [
        SendMethod.self, ReadMethod.self, ReactMethod.self, ConversationSetMethod.self,
    ]
}

/// How far a message of one's own has come.
package enum DeliveryStage: String, Codable, Hashable, Sendable, CaseIterable {
    case queued
    case sent
    case delivered
}

/// The file of a message.
package struct MessageFile: Codable, Hashable, Sendable {
    /// As a file may be named here: without a path.
    package var name: String
    /// A guess, such as `image/png`.
    package var mediaType: String
    package var byteCount: Int64
    /// `receiving`, `complete` or `failed`.
    package var state: String
    /// How much of it is here, in percent.
    package var percent: Int

    package init(name: String, mediaType: String, byteCount: Int64, state: String, percent: Int) {
        self.name = name
        self.mediaType = mediaType
        self.byteCount = byteCount
        self.state = state
        self.percent = percent
    }
}

/// A sign of a member at a message.
package struct MessageReaction: Codable, Hashable, Sendable {
    /// As ``Message/from``.
    package var from: String
    /// As ``Message/member``.
    @Nullable package var member: String?
    package var reaction: String

    package init(from: String, member: String? = nil, reaction: String) {
        self.from = from
        self.member = member
        self.reaction = reaction
    }
}

/// How far a message has come to one member.
package struct MessageDelivery: Codable, Hashable, Sendable {
    /// What it is called, as in ``Message/from``.
    package var member: String
    /// `queued`, `sent`, `delivered`, `read` or `failed`.
    package var state: String
    /// Since when, where that is known.
    package var at: Timestamp?

    package init(member: String, state: String, at: Timestamp? = nil) {
        self.member = member
        self.state = state
        self.at = at
    }
}

/// A message in a conversation.
package struct Message: Codable, Hashable, Sendable {
    /// Id, in hex.
    package var message: String
    /// Id, in hex.
    package var conversation: String
    /// The name that the member has chosen, `name (id)` where that could be taken for somebody else's, or its id if it has
    /// none; `me` for one's own, `system` for the node's. Names are for people: scripts compare `member`.
    package var from: String
    /// The beginning of the member's id; null for one's own and the node's.
    @Nullable package var member: String?
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
    /// One of ``states``.
    package var state: String
    package var replyTo: String?
    /// The agreement under which it was sent, in hex; absent when ephemeral.
    package var agreement: String?
    package var file: MessageFile?
    /// Absent when there are none.
    package var reactions: [MessageReaction]?
    /// Of one's own message.
    package var deliveries: [MessageDelivery]?
    /// Base64; of a type that this program does not know.
    package var payload: String?
    /// Of a reaction: the message that it is at, and whether it is taken back.
    package var reactsTo: String?
    package var removed: Bool?

    /// How far a message may have come.
    package static let states = [
        "received", "receiving", "queued", "sent", "delivered", "read", "failed", "cancelled", "expiredUndelivered",
    ]

    package init(
        message: String,
        conversation: String,
        from: String,
        member: String? = nil,
        type: String,
        text: String? = nil,
        sentAt: Timestamp,
        expiresAt: Timestamp? = nil,
        stored: Bool,
        state: String,
        replyTo: String? = nil,
        agreement: String? = nil,
        file: MessageFile? = nil,
        reactions: [MessageReaction]? = nil,
        deliveries: [MessageDelivery]? = nil,
        payload: String? = nil,
        reactsTo: String? = nil,
        removed: Bool? = nil
    ) {
        self.message = message
        self.conversation = conversation
        self.from = from
        self.member = member
        self.type = type
        self.text = text
        self.sentAt = sentAt
        self.expiresAt = expiresAt
        self.stored = stored
        self.state = state
        self.replyTo = replyTo
        self.agreement = agreement
        self.file = file
        self.reactions = reactions
        self.deliveries = deliveries
        self.payload = payload
        self.reactsTo = reactsTo
        self.removed = removed
    }
}

/// `send`: sends a message.
package enum SendMethod: ControlMethod {
    package static let name = "send"
    package static let summary = "Sends a message."

    /// What `send` is asked.
    package struct Params: Codable, Hashable, Sendable {
        /// Id, alias, unambiguous prefix of an id, or unambiguous name.
        package var conversation: String
        /// Absent for a content of another type.
        package var text: String?
        /// Answer only when it has come this far.
        package var wait: DeliveryStage?
        /// How long to wait.
        package var timeout: Interval?
        /// The message it answers.
        package var replyTo: String?
        /// `authority/type:major.minor`, for a content that this program does not make itself.
        package var type: String?
        /// Base64; with `type`.
        package var payload: String?
        /// What receivers that don't know the type show.
        package var fallback: String?

        package init(
            conversation: String,
            text: String?,
            wait: DeliveryStage? = nil,
            timeout: Interval? = nil,
            replyTo: String? = nil,
            type: String? = nil,
            payload: String? = nil,
            fallback: String? = nil
        ) {
            self.conversation = conversation
            self.text = text
            self.wait = wait
            self.timeout = timeout
            self.replyTo = replyTo
            self.type = type
            self.payload = payload
            self.fallback = fallback
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
        /// Id, alias, unambiguous prefix of an id, or unambiguous name.
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
