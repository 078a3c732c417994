/// Sending and reading.
package enum MessageMethods {
    package static let all: [any ControlMethod.Type] = [
        SendMethod.self, ReadMethod.self, ReactMethod.self, ConversationSetMethod.self,
    ]
}

/// How far a message of one's own has come.
package enum DeliveryStage: String, JSONChoice, Hashable, Sendable {
    case queued
    case sent
    /// In the mailboxes of all members that have not acknowledged it.
    case mailed
    case delivered
}

/// The file of a message.
package struct MessageFile: JSONRecord, Hashable, Sendable {
    /// As a file may be named here: without a path.
    package var name = ""
    /// A guess, such as `image/png`.
    package var mediaType = ""
    package var byteCount: Int64 = 0
    /// `receiving`, `complete` or `failed`.
    package var state = ""
    /// How much of it is here, in percent.
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

/// A sign of a member at a message.
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

/// How far a message has come to one member.
package struct MessageDelivery: JSONRecord, Hashable, Sendable {
    /// What it is called, as in ``Message/from``.
    package var member = ""
    /// `queued`, `sent`, `mailed`, `delivered`, `read`, `expiredUndelivered` or `failed`.
    package var state = ""
    /// Since when, where that is known.
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

/// A message in a conversation.
package struct Message: JSONRecord, Hashable, Sendable {
    /// Id, in hex.
    package var message = HexID()
    /// Id, in hex.
    package var conversation = HexID()
    /// The name that the member has chosen, `name (id)` where that could be taken for somebody else's, or its id if it has
    /// none; `me` for one's own, `system` for the node's. Names are for people: scripts compare `member`.
    package var from = ""
    /// The beginning of the member's id; null for one's own and the node's.
    package var member: String?
    /// `mayfly/text:1.0` and so on.
    package var type = ""
    /// Null when it has none.
    package var text: String?
    /// By the sender's clock.
    package var sentAt: Timestamp = Timestamp(milliseconds: 0)
    /// Null while it is ephemeral.
    package var expiresAt: Timestamp?
    /// On disk, or only in RAM.
    package var stored = false
    /// One of ``states``.
    package var state = ""
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

/// A message of one's own, as `send` answers.
package struct SentMessage: JSONRecord, Hashable, Sendable {
    /// Id, in hex.
    package var message = HexID()
    package var state: DeliveryStage = .queued
    /// On disk, or only in RAM.
    package var stored = false
    /// Null while it is ephemeral.
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

/// What became of one of several texts.
package struct TextOutcome: JSONRecord, Hashable, Sendable {
    /// Present unless the text was refused; after a timeout the message stays in the outbox.
    package var message: HexID?
    /// Present unless there is an error.
    package var state: DeliveryStage?
    package var stored: Bool?
    /// Null while it is ephemeral; absent after an error.
    package var expiresAt: Timestamp?
    /// Why it was not sent, or did not come as far as asked in time.
    package var error: Failure?

    /// A failure, as the command line reports it.
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
        // In the order of their names: then the writer need not sort them.
        try fields.field("error", &error)
        if error == nil { try fields.nullable("expiresAt", &expiresAt) }
        try fields.field("message", &message)
        try fields.field("state", &state)
        try fields.field("stored", &stored)
    }
}

/// `send`: sends a message, or several.
package enum SendMethod: ControlMethod {
    package static let name = "send"
    package static let summary = "Sends a message, or several texts in one request."

    package static func waits(_ params: Params) -> Bool { params.wait != nil }

    /// What `send` is asked.
    package struct Params: JSONRecord, Hashable, Sendable {
        /// Id, alias, unambiguous prefix of an id, or unambiguous name.
        package var conversation = ""
        /// Absent for several texts and for a content of another type.
        package var text: String?
        /// Several texts, each a message of its own, in this order; the answer has one result for each.
        package var texts: [String]?
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

    /// What `send` answers: the message, or for `texts` one result for each, in their order.
    package struct Result: JSONRecord, Hashable, Sendable {
        /// The message; without a meaning when there are ``results``.
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

/// `read`: reads messages, oldest first.
package enum ReadMethod: ControlMethod {
    package static let name = "read"
    package static let summary = "Reads messages, oldest first."

    /// What `read` is asked.
    package struct Params: JSONRecord, Hashable, Sendable {
        /// Id, alias, unambiguous prefix of an id, or unambiguous name.
        package var conversation = ""
        /// At most this many, the newest.
        package var last: Int?
        /// Only those after this message.
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

    /// What `read` answers.
    package struct Result: JSONRecord, Hashable, Sendable {
        package var messages: [Message] = []
        /// True when the answer was cut: ask again since the last message.
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
