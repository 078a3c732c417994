// The one method that programs call thousands of times a second. Its records stand beside the JSON reader and writer,
// because the compiler specialises generic code for types of the same module: elsewhere a text costs a fifth more
// memory blocks (`make allocations`).

/// How far one of our own messages was delivered.
package enum DeliveryStage: String, JSONChoice, Hashable, Sendable {
    case queued
    case sent
    /// In the mailbox of every member that has not acknowledged it.
    case mailed
    case delivered
}

/// One of our own messages, as `send` answers.
package struct SentMessage: JSONRecord, Hashable, Sendable {
    package var message = HexID()
    package var state: DeliveryStage = .queued
    /// True on disk, false in memory only.
    package var stored = false
    /// Null for ephemeral messages.
    @OrNull package var expiresAt: Timestamp?

    package init(message: HexID, state: DeliveryStage, stored: Bool, expiresAt: Timestamp? = nil) {
        self.message = message
        self.state = state
        self.stored = stored
        self.expiresAt = expiresAt
    }

    package init() {}

    package mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
        // Sorted by name, so the writer need not sort them.
        try fields.field("expiresAt", &_expiresAt)
        try fields.field("message", &message)
        try fields.field("state", &state)
        try fields.field("stored", &stored)
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
    @OrNull package var expiresAt: Timestamp?
    /// Why the text was not sent, or did not reach the requested stage in time.
    package var error: ControlError?

    package init() {}

    package init(_ sent: SentMessage) {
        message = sent.message
        state = sent.state
        stored = sent.stored
        expiresAt = sent.expiresAt
    }

    package init(_ failure: ControlError, message: HexID? = nil) {
        self.message = message
        error = failure
    }

    package mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
        // Sorted by name, so the writer need not sort them.
        try fields.field("error", &error)
        if error == nil { try fields.field("expiresAt", &_expiresAt) }
        try fields.field("message", &message)
        try fields.field("state", &state)
        try fields.field("stored", &stored)
    }
}

package struct SendParams: JSONRecord, Hashable, Sendable {
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
        conversation: String, text: String? = nil, texts: [String]? = nil, wait: DeliveryStage? = nil,
        timeout: Interval? = nil, replyTo: String? = nil, type: String? = nil, payload: String? = nil,
        fallback: String? = nil
    ) {
        self.conversation = conversation
        self.text = text
        self.texts = texts
        self.wait = wait
        self.timeout = timeout
        self.replyTo = replyTo
        self.type = type
        self.payload = payload
        self.fallback = fallback
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
package struct SendResult: JSONRecord, Hashable, Sendable {
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

extension RPCMethod where Params == SendParams, Result == SendResult {
    package static var send: Self { Self("send", "Send a message.", waits: { $0.wait != nil }) }
}
