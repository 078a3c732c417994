import Control

enum InviteMethods {
    static let all: [any ControlMethod.Type] = [
        InviteCreateMethod.self, InviteListMethod.self, InviteRevokeMethod.self, InviteInspectMethod.self,
        InviteCodeMethod.self, InviteOutcomeMethod.self,
    ]
}

/// Whether the inbox named in the invitation signed it.
enum InviteSignature: String, JSONChoice, Hashable, Sendable {
    case valid
    case invalid
}

struct Invite: JSONRecord, Hashable, Sendable {
    /// Invite link, `mayfly:join/…`; null in a list, because the creator keeps only a hash of the secret.
    var slug: String?
    /// Same value as `slug`.
    var url: String?
    /// Hash of the secret, in hex.
    var invite: String?
    /// Invitations with the same tag are revoked together.
    var tag = ""
    var expiresAt: Timestamp?
    var singleUse = false
    /// The creator's inbox id.
    var creator = ""
    /// The lifetime in force when the invitation was made.
    var lifetime: LifetimeValue = .ephemeral
    var signature: InviteSignature = .valid
    var conversationExpiresAt: Timestamp?
    var name: String?
    var about: String?
    /// Number of members admitted; only in a list.
    var admitted: Int?

    mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
        try fields.nullable("slug", &slug)
        try fields.nullable("url", &url)
        try fields.field("invite", &invite)
        try fields.field("tag", &tag)
        try fields.nullable("expiresAt", &expiresAt)
        try fields.field("singleUse", &singleUse)
        try fields.field("creator", &creator)
        try fields.field("lifetime", &lifetime)
        try fields.field("signature", &signature)
        try fields.field("conversationExpiresAt", &conversationExpiresAt)
        try fields.field("name", &name)
        try fields.field("description", &about)
        try fields.field("admitted", &admitted)
    }
}

enum InviteCreateMethod: ControlMethod {
    static let name = "invite.create"
    static let summary = "Creates an invitation."
    typealias Result = Invite

    struct Params: JSONRecord, Hashable, Sendable {
        var conversation = ""
        /// Absent means 24 h.
        var expiresIn: Interval?
        var singleUse: Bool?

        mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
            try fields.field("conversation", &conversation)
            try fields.field("expiresIn", &expiresIn)
            try fields.field("singleUse", &singleUse)
        }
    }
}

enum InviteListMethod: ControlMethod {
    static let name = "invite.list"
    static let summary = "Lists the valid invitations of a conversation."
    typealias Params = ConversationParams

    struct Result: JSONRecord, Hashable, Sendable {
        var invites: [Invite] = []
        var codes: [OpenCode] = []

        mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
            try fields.field("invites", &invites)
            try fields.field("codes", &codes)
        }
    }

    /// A spoken code that is still open.
    struct OpenCode: JSONRecord, Hashable, Sendable {
        var code = ""
        var expiresAt: Timestamp = Timestamp(milliseconds: 0)

        mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
            try fields.field("code", &code)
            try fields.field("expiresAt", &expiresAt)
        }
    }
}

enum InviteRevokeMethod: ControlMethod {
    static let name = "invite.revoke"
    static let summary = "Revokes one invitation or code of a conversation, or all of them."

    struct Params: JSONRecord, Hashable, Sendable {
        var conversation = ""
        /// Invite link, or a prefix of the id. Absent means all.
        var invite: String?

        mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
            try fields.field("conversation", &conversation)
            try fields.field("invite", &invite)
        }
    }

    struct Result: JSONRecord, Hashable, Sendable {
        var ok = false
        var conversation = ""
        /// The tag of future invitations; new when all were revoked.
        var tag = ""

        mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
            try fields.field("ok", &ok)
            try fields.field("conversation", &conversation)
            try fields.field("tag", &tag)
        }
    }
}

enum InviteInspectMethod: ControlMethod {
    static let name = "invite.inspect"
    static let summary = "Reads an invitation without using it."
    typealias Result = Invite

    struct Params: JSONRecord, Hashable, Sendable {
        var slug = ""

        mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
            try fields.field("slug", &slug)
        }
    }
}
