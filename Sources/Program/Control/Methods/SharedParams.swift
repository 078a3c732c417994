import Control

struct ConversationParams: JSONRecord, Hashable, Sendable {
    var conversation = ""

    mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
        try fields.field("conversation", &conversation)
    }
}

struct PeerParams: JSONRecord, Hashable, Sendable {
    /// As in `peers.json`.
    var name = ""

    mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
        try fields.field("name", &name)
    }
}

struct MessageParams: JSONRecord, Hashable, Sendable {
    /// Id, or a prefix of it.
    var message = ""

    mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
        try fields.field("message", &message)
    }
}

struct JoinParams: JSONRecord, Hashable, Sendable {
    /// Id, or a prefix of it.
    var join = ""

    mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
        try fields.field("join", &join)
    }
}

struct InboxParams: JSONRecord, Hashable, Sendable {
    /// Client id, or a prefix of it.
    var inbox = ""

    mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
        try fields.field("inbox", &inbox)
    }
}
