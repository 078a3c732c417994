package enum MessageMethods {
    package static let all: [any ControlMethod.Type] = [
        SendMethod.self, ReadMethod.self, ReactMethod.self, ConversationSetMethod.self,
    ]
}

/// How far one of our own messages was delivered.
package enum DeliveryStage: String, JSONChoice, Hashable, Sendable {
    case queued
    case sent
    /// In the mailbox of every member that has not acknowledged it.
    case mailed
    case delivered
}

package struct MessageFile: JSONRecord, Hashable, Sendable {
    /// Sanitized for use as a local file name, without a path.
    package var name = ""
    /// A guess, such as `image/png`.
    package var mediaType = ""
    package var byteCount: Int64 = 0
    /// `receiving`, `complete` or `failed`.
    package var state = ""
    /// Received part, in percent.
    package var percent: Int = 0

    package init(name: String, mediaType: String, byteCount: Int64, state: String, percent: Int) {
        self.name = name
        self.mediaType = mediaType
        self.byteCount = byteCount
        self.state = state
        self.percent = percent
    }

    package init() {}

    package mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
        try fields.field("name", &name)
        try fields.field("mediaType", &mediaType)
        try fields.field("byteCount", &byteCount)
        try fields.field("state", &state)
        try fields.field("percent", &percent)
    }
}

/// An emoji reaction of a member.
package struct MessageReaction: JSONRecord, Hashable, Sendable {
    /// As ``Message/from``.
    package var from = ""
    /// As ``Message/member``.
    package var member: String?
    package var reaction = ""

    package init(from: String, member: String? = nil, reaction: String) {
        self.from = from
        self.member = member
        self.reaction = reaction
    }

    package init() {}

    package mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
        try fields.field("from", &from)
        try fields.nullable("member", &member)
        try fields.field("reaction", &reaction)
    }
}

/// The delivery of a message to one member.
package struct MessageDelivery: JSONRecord, Hashable, Sendable {
    /// Name as in ``Message/from``.
    package var member = ""
    /// `queued`, `sent`, `mailed`, `delivered`, `read`, `expiredUndelivered` or `failed`.
    package var state = ""
    /// Time of the last change of state; absent when unknown.
    package var at: Timestamp?

    package init(member: String, state: String, at: Timestamp? = nil) {
        self.member = member
        self.state = state
        self.at = at
    }

    package init() {}

    package mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
        try fields.field("member", &member)
        try fields.field("state", &state)
        try fields.field("at", &at)
    }
}

package struct Message: JSONRecord, Hashable, Sendable {
    package var message = HexID()
    package var conversation = HexID()
    /// The member's chosen name. `name (id)` where the name is ambiguous, the id without a name, `me` for our own
    /// messages, `system` for the node's. Names are for people: scripts compare `member`.
    package var from = ""
    /// Prefix of the member's id; null for our own messages and the node's.
    package var member: String?
    /// Content type, such as `mayfly/text:1.0`.
    package var type = ""
    /// Null for contents without a text.
    package var text: String?
    /// Sender's clock.
    package var sentAt: Timestamp = Timestamp(milliseconds: 0)
    /// Null for ephemeral messages.
    package var expiresAt: Timestamp?
    /// True on disk, false in memory only.
    package var stored = false
    /// One of ``states``.
    package var state = ""
    package var replyTo: String?
    /// Id of the agreement in force at sending, in hex; absent for ephemeral messages.
    package var agreement: String?
    package var file: MessageFile?
    /// Absent when there are none.
    package var reactions: [MessageReaction]?
    /// Only for our own messages.
    package var deliveries: [MessageDelivery]?
    /// Base64; only for types unknown to this program.
    package var payload: String?
    /// In a reaction: id of the message, and whether the reaction was removed.
    package var reactsTo: String?
    package var removed: Bool?

    /// All values of ``state``.
    package static let states = [
        "received", "receiving", "queued", "sent", "mailed", "delivered", "read", "failed", "cancelled",
        "expiredUndelivered",
    ]

    package init(
        message: HexID, conversation: HexID, from: String, member: String? = nil, type: String, text: String? = nil,
        sentAt: Timestamp, expiresAt: Timestamp? = nil, stored: Bool, state: String, replyTo: String? = nil,
        agreement: String? = nil, file: MessageFile? = nil, reactions: [MessageReaction]? = nil,
        deliveries: [MessageDelivery]? = nil, payload: String? = nil, reactsTo: String? = nil, removed: Bool? = nil
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

    package init() {}

    package mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
        try fields.field("message", &message)
        try fields.field("conversation", &conversation)
        try fields.field("from", &from)
        try fields.nullable("member", &member)
        try fields.field("type", &type)
        try fields.nullable("text", &text)
        try fields.field("sentAt", &sentAt)
        try fields.nullable("expiresAt", &expiresAt)
        try fields.field("stored", &stored)
        try fields.field("state", &state)
        try fields.field("replyTo", &replyTo)
        try fields.field("agreement", &agreement)
        try fields.field("file", &file)
        try fields.field("reactions", &reactions)
        try fields.field("deliveries", &deliveries)
        try fields.field("payload", &payload)
        try fields.field("reactsTo", &reactsTo)
        try fields.field("removed", &removed)
    }
}

/// One of our own messages, as `send` answers.
package struct SentMessage: JSONRecord, Hashable, Sendable {
    package var message = HexID()
    package var state: DeliveryStage = .queued
    /// True on disk, false in memory only.
    package var stored = false
    /// Null for ephemeral messages.
    package var expiresAt: Timestamp?

    package init(message: HexID, state: DeliveryStage, stored: Bool, expiresAt: Timestamp? = nil) {
        self.message = message
        self.state = state
        self.stored = stored
        self.expiresAt = expiresAt
    }

    package init() {}

    package mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
        try fields.field("message", &message)
        try fields.field("state", &state)
        try fields.field("stored", &stored)
        try fields.nullable("expiresAt", &expiresAt)
    }
}

/// Result for one of several texts.
package struct TextOutcome: JSONRecord, Hashable, Sendable {
    /// Absent when the text was refused. After a timeout the message stays in the outbox.
    package var message: HexID?
    /// Absent after an error.
    package var state: DeliveryStage?
    package var stored: Bool?
    /// Null for ephemeral messages; absent after an error.
    package var expiresAt: Timestamp?
    /// Why the text was not sent, or did not reach the requested stage in time.
    package var error: Failure?

    /// A ``ControlError`` as the command line reports it.
    package struct Failure: JSONRecord, Hashable, Sendable {
        package var kind: FailureKind = .failed
        package var message = ""
        package var hint: String?
        package var field: String?

        package init() {}

        package mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
            try fields.field("kind", &kind)
            try fields.field("message", &message)
            try fields.field("hint", &hint)
            try fields.field("field", &field)
        }
    }

    package init() {}

    package init(_ sent: SentMessage) {
        message = sent.message
        state = sent.state
        stored = sent.stored
        expiresAt = sent.expiresAt
    }

    package init(_ failure: ControlError, message: HexID? = nil) {
        self.message = message
        var error = Failure()
        error.kind = failure.kind
        error.message = failure.message
        error.hint = failure.hint
        error.field = failure.field
        self.error = error
    }

    package mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
        // Sorted by name, so the writer need not sort them.
        try fields.field("error", &error)
        if error == nil { try fields.nullable("expiresAt", &expiresAt) }
        try fields.field("message", &message)
        try fields.field("state", &state)
        try fields.field("stored", &stored)
    }
}

package enum SendMethod: ControlMethod {
    package static let name = "send"
    package static let summary = "Sends a message, or several texts in one request."

    package static func waits(_ params: Params) -> Bool { params.wait != nil }

    package struct Params: JSONRecord, Hashable, Sendable {
        package var conversation = ""
        /// Absent with `texts` and with `payload`.
        package var text: String?
        /// Each text becomes a message, in this order. The answer has one result for each.
        package var texts: [String]?
        /// Answer only after this delivery stage.
        package var wait: DeliveryStage?
        package var timeout: Interval?
        /// Id of the message being answered.
        package var replyTo: String?
        /// `authority/type:major.minor`, for contents of other programs.
        package var type: String?
        /// Base64; with `type`.
        package var payload: String?
        /// Text for receivers that do not know the type.
        package var fallback: String?

        package init() {}

        package init(
            conversation: String, text: String?, wait: DeliveryStage? = nil, timeout: Interval? = nil,
            replyTo: String? = nil, type: String? = nil, payload: String? = nil, fallback: String? = nil
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

        package init(conversation: String, texts: [String], wait: DeliveryStage? = nil, timeout: Interval? = nil) {
            self.conversation = conversation
            self.texts = texts
            self.wait = wait
            self.timeout = timeout
        }

        package mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
            try fields.field("conversation", &conversation)
            try fields.field("text", &text)
            try fields.field("texts", &texts)
            try fields.field("wait", &wait)
            try fields.field("timeout", &timeout)
            try fields.field("replyTo", &replyTo)
            try fields.field("type", &type)
            try fields.field("payload", &payload)
            try fields.field("fallback", &fallback)
        }
    }

    /// The message, or for `texts` one result for each in their order.
    package struct Result: JSONRecord, Hashable, Sendable {
        /// Unused when there are ``results``.
        package var sent = SentMessage()
        package var results: [TextOutcome]?

        package init() {}

        package init(_ sent: SentMessage) { self.sent = sent }

        package init(results: [TextOutcome]) { self.results = results }

        package mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
            try fields.field("results", &results)
            if results == nil { try sent.visit(&fields) }
        }
    }
}

package enum ReadMethod: ControlMethod {
    package static let name = "read"
    package static let summary = "Reads messages, oldest first."

    package struct Params: JSONRecord, Hashable, Sendable {
        package var conversation = ""
        /// Only the newest messages, up to this count.
        package var last: Int?
        /// Only messages after the one with this id.
        package var since: String?

        package init(conversation: String, last: Int? = nil, since: String? = nil) {
            self.conversation = conversation
            self.last = last
            self.since = since
        }

        package init() {}

        package mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
            try fields.field("conversation", &conversation)
            try fields.field("last", &last)
            try fields.field("since", &since)
        }
    }

    package struct Result: JSONRecord, Hashable, Sendable {
        package var messages: [Message] = []
        /// True when the answer was cut. Ask again with the last message as `since`.
        package var more: Bool?

        package init(messages: [Message], more: Bool? = nil) {
            self.messages = messages
            self.more = more
        }

        package init() {}

        package mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
            try fields.field("messages", &messages)
            try fields.field("more", &more)
        }
    }
}
