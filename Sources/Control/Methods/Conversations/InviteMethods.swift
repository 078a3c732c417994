package enum InviteMethods {
    package static let all: [any ControlMethod.Type] = [
        InviteCreateMethod.self, InviteListMethod.self, InviteRevokeMethod.self, InviteInspectMethod.self,
        InviteCodeMethod.self, InviteOutcomeMethod.self,
    ]
}

/// Whether the inbox named in the invitation signed it.
package enum InviteSignature: String, JSONChoice, Hashable, Sendable {
    case valid
    case invalid
}

package struct Invite: JSONRecord, Hashable, Sendable {
    /// Invite link, `mayfly:join/…`; null in a list, because the creator keeps only a hash of the secret.
    package var slug: String?
    /// Same value as `slug`.
    package var url: String?
    /// Hash of the secret, in hex.
    package var invite: String?
    /// Invitations with the same tag are revoked together.
    package var tag = ""
    package var expiresAt: Timestamp?
    package var singleUse = false
    /// The creator's inbox id.
    package var creator = ""
    /// The lifetime in force when the invitation was made.
    package var lifetime: LifetimeValue = .ephemeral
    package var signature: InviteSignature = .valid
    package var conversationExpiresAt: Timestamp?
    package var name: String?
    package var about: String?
    /// Number of members admitted; only in a list.
    package var admitted: Int?

    package init(
        slug: String?, url: String?, invite: String? = nil, tag: String, expiresAt: Timestamp? = nil, singleUse: Bool,
        creator: String, lifetime: LifetimeValue, signature: InviteSignature, conversationExpiresAt: Timestamp? = nil,
        name: String? = nil, about: String? = nil, admitted: Int? = nil
    ) {
        self.slug = slug
        self.url = url
        self.invite = invite
        self.tag = tag
        self.expiresAt = expiresAt
        self.singleUse = singleUse
        self.creator = creator
        self.lifetime = lifetime
        self.signature = signature
        self.conversationExpiresAt = conversationExpiresAt
        self.name = name
        self.about = about
        self.admitted = admitted
    }

    package init() {}

    package mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
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

package enum InviteCreateMethod: ControlMethod {
    package static let name = "invite.create"
    package static let summary = "Makes an invitation."
    package typealias Result = Invite

    package struct Params: JSONRecord, Hashable, Sendable {
        package var conversation = ""
        /// Absent means 24 h.
        package var expiresIn: Interval?
        package var singleUse: Bool?

        package init(conversation: String, expiresIn: Interval? = nil, singleUse: Bool? = nil) {
            self.conversation = conversation
            self.expiresIn = expiresIn
            self.singleUse = singleUse
        }

        package init() {}

        package mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
            try fields.field("conversation", &conversation)
            try fields.field("expiresIn", &expiresIn)
            try fields.field("singleUse", &singleUse)
        }
    }
}

package enum InviteListMethod: ControlMethod {
    package static let name = "invite.list"
    package static let summary = "Lists the valid invitations of a conversation."
    package typealias Params = ConversationParams

    package struct Result: JSONRecord, Hashable, Sendable {
        package var invites: [Invite] = []
        package var codes: [OpenCode] = []

        package init(invites: [Invite], codes: [OpenCode]) {
            self.invites = invites
            self.codes = codes
        }

        package init() {}

        package mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
            try fields.field("invites", &invites)
            try fields.field("codes", &codes)
        }
    }

    /// A spoken code that is still open.
    package struct OpenCode: JSONRecord, Hashable, Sendable {
        package var code = ""
        package var expiresAt: Timestamp = Timestamp(milliseconds: 0)

        package init(code: String, expiresAt: Timestamp) {
            self.code = code
            self.expiresAt = expiresAt
        }

        package init() {}

        package mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
            try fields.field("code", &code)
            try fields.field("expiresAt", &expiresAt)
        }
    }
}

package enum InviteRevokeMethod: ControlMethod {
    package static let name = "invite.revoke"
    package static let summary = "Revokes one invitation of a conversation, or all of them."

    package struct Params: JSONRecord, Hashable, Sendable {
        package var conversation = ""
        /// Invite link, or a prefix of the id. Absent means all.
        package var invite: String?

        package init(conversation: String, invite: String? = nil) {
            self.conversation = conversation
            self.invite = invite
        }

        package init() {}

        package mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
            try fields.field("conversation", &conversation)
            try fields.field("invite", &invite)
        }
    }

    package struct Result: JSONRecord, Hashable, Sendable {
        package var ok = false
        package var conversation = ""
        /// The tag of future invitations; new when all were revoked.
        package var tag = ""

        package init(ok: Bool, conversation: String, tag: String) {
            self.ok = ok
            self.conversation = conversation
            self.tag = tag
        }

        package init() {}

        package mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
            try fields.field("ok", &ok)
            try fields.field("conversation", &conversation)
            try fields.field("tag", &tag)
        }
    }
}

package enum InviteInspectMethod: ControlMethod {
    package static let name = "invite.inspect"
    package static let summary = "Reads an invitation without using it."
    package typealias Result = Invite

    package struct Params: JSONRecord, Hashable, Sendable {
        package var slug = ""

        package init(slug: String) { self.slug = slug }

        package init() {}

        package mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
            try fields.field("slug", &slug)
        }
    }
}
