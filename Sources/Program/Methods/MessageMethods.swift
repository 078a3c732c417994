import Control
import Messaging

struct MessageFile: CodableRecord {
    /// Sanitized for use as a local file name, without a path.
    var name = ""
    /// A guess, such as `image/png`.
    var mediaType = ""
    var byteCount: Int64 = 0
    /// `receiving`, `complete` or `failed`.
    var state = ""
    /// Received part, in percent.
    var percent: Int = 0
}

struct MessageReaction: CodableRecord {
    /// As ``Message/from``.
    var from = ""
    /// As ``Message/member``.
    @OrNull var member: String?
    var reaction = ""
}

/// The delivery of a message to one member.
struct MessageDelivery: JSONRecord, Hashable, Sendable {
    /// As ``Message/member``.
    var member = ""
    /// As ``Message/from``.
    var name = ""
    /// `queued`, `sent`, `mailed`, `delivered`, `read`, `expiredUndelivered` or `failed`.
    var state = ""
    /// Time of the last change of state; absent when unknown.
    var at: Timestamp?

    mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
        try fields.field("member", &member)
        try fields.field("name", &name)
        try fields.field("state", &state)
        try fields.field("at", &at)
    }
}

struct Message: JSONRecord, JSONScalar, Hashable, Sendable {
    var message = HexID()
    var conversation = HexID()
    /// The member's chosen name. `name (id)` where the name is ambiguous, the id without a name, `me` for our own
    /// messages, `system` for the node's. Names are for people: scripts compare `member`.
    var from = ""
    /// Prefix of the member's id; null for our own messages and the node's.
    @OrNull var member: String?
    /// Content type, such as `mayfly/text:1.0`.
    var type = ""
    /// Null for contents without a text.
    @OrNull var text: String?
    /// Sender's clock.
    var sentAt: Timestamp = Timestamp(milliseconds: 0)
    /// Null for ephemeral messages.
    @OrNull var expiresAt: Timestamp?
    /// True on disk, false in memory only.
    var stored = false
    /// One of ``states``.
    var state = ""
    var replyTo: String?
    /// Id of the agreement in force at sending, in hex; absent for ephemeral messages.
    var agreement: String?
    var file: MessageFile?
    /// Absent when there are none.
    var reactions: [MessageReaction]?
    /// Only for our own messages.
    var deliveries: [MessageDelivery]?
    /// Base64; only for types unknown to this program.
    var payload: String?
    /// In a reaction: id of the message, and whether the reaction was removed.
    var reactsTo: String?
    var removed: Bool?

    static let states = [
        "received", "receiving", "queued", "sent", "mailed", "delivered", "read", "failed", "cancelled",
        "expiredUndelivered",
    ]

    mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
        try fields.field("message", &message)
        try fields.field("conversation", &conversation)
        try fields.field("from", &from)
        try fields.field("member", &_member)
        try fields.field("type", &type)
        try fields.field("text", &_text)
        try fields.field("sentAt", &sentAt)
        try fields.field("expiresAt", &_expiresAt)
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

struct ReadParams: CodableRecord {
    var conversation = ""
    /// Only the newest messages, up to this count.
    var last: Int?
    /// Only the oldest messages, up to this count; not with `last` or `before`.
    var first: Int?
    /// Only messages after the one with this id.
    var since: String?
    /// Only messages before the one with this id.
    var before: String?
    /// Begin at the first unread message; not with `last`, `since` or `before`.
    var unread: Bool?
    /// False does not mark the messages as read, because no user sees them. Absent means true.
    var marksRead: Bool?
    /// Only messages with these words, in any case, in their text or file name; not with `first` or `unread`. The
    /// search goes back, and marks nothing as read.
    var containing: String?
}

struct ReadResult: CodableRecord {
    var messages: [Message] = []
    /// With `containing`, when older messages were not searched: ask again with it as `before`.
    var next: String?
    /// True when the answer was cut by its size. With `last` or `before` it has the newest messages: ask again with its
    /// first message as `before`. Otherwise ask again with its last message as `since`.
    var more: Bool?
}

protocol WaitingParams {
    var wait: DeliveryStage? { get }
    var timeout: Interval? { get }
}

extension SendParams: WaitingParams {}

struct ReactParams: CodableRecord, WaitingParams {
    var conversation = ""
    /// Id of the message, or a prefix of it.
    var message = ""
    /// An emoji, or a short text.
    var reaction = ""
    var remove: Bool?
    /// Answer only after this delivery stage.
    var wait: DeliveryStage?
    var timeout: Interval?
}

struct ConversationSetParams: CodableRecord {
    /// Absent for the default.
    var conversation: String?
    /// `read-receipts`
    var key = ""
    /// `on` or `off`. Absent reads the setting.
    var value: String?
}

struct ConversationSetResult: CodableRecord {
    var conversation: String?
    var key = ""
    var value = ""
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

struct AttachmentBeginParams: CodableRecord {
    var conversation = ""
    /// File name; the node removes a leading path.
    var name = ""
    /// Absent when unknown.
    var byteCount: Int64?
    /// Caption.
    var text: String?
    var replyTo: String?
}

struct AttachmentBeginResult: CodableRecord {
    /// Upload id, valid on this connection; also the id of the message.
    var upload = ""
}

struct UploadParams: CodableRecord { var upload = "" }

struct AttachmentAppendResult: CodableRecord { var byteCount: Int64 = 0 }

struct AttachmentCommitParams: CodableRecord, WaitingParams {
    var upload = ""
    /// Answer only after this delivery stage.
    var wait: DeliveryStage?
    var timeout: Interval?
}

struct AttachmentReadParams: CodableRecord {
    var conversation = ""
    var message = ""
    /// Index of the first piece: 0, then `next` of the previous answer.
    var from: Int?
}

struct AttachmentReadResult: CodableRecord {
    var message = ""
    /// Sanitized for use as a local file name.
    var name = ""
    var mediaType = ""
    var byteCount: Int64 = 0
    /// Base64.
    var data = ""
    /// Index of the next piece; absent at the end.
    var next: Int?
}
