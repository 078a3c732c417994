/// Invitations.
package enum InviteMethods {
    package static let all: [any ControlMethod.Type] = [
        InviteCreateMethod.self, InviteListMethod.self, InviteRevokeMethod.self, InviteInspectMethod.self,
        InviteCodeMethod.self, InviteOutcomeMethod.self,
    ]
}

/// Whether an invitation was signed by the inbox that it names.
package enum InviteSignature: String, JSONChoice, Hashable, Sendable {
    case valid
    case invalid
}

/// An invitation.
package struct Invite: JSONRecord, Hashable, Sendable {
    /// The text to pass on, `mayfly:join/…`; null in a list: the creator keeps only a hash of its secret.
    package var slug: String?
    /// The same.
    package var url: String?
    /// Id: the hash of its secret, in hex.
    package var invite: String?
    /// Shared by all invitations that one revocation ends.
    package var tag = ""
    package var expiresAt: Timestamp?
    package var singleUse = false
    /// Inbox id of the creator.
    package var creator = ""
    /// In force when the invitation was made.
    package var lifetime: LifetimeValue = .ephemeral
    package var signature: InviteSignature = .valid
    package var conversationExpiresAt: Timestamp?
    package var name: String?
    package var about: String?
    /// In a list: how many it has admitted.
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

/// `invite.create`: makes an invitation.
package enum InviteCreateMethod: ControlMethod {
    package static let name = "invite.create"
    package static let summary = "Makes an invitation."
    package typealias Result = Invite

    /// What `invite.create` is asked.
    package struct Params: JSONRecord, Hashable, Sendable {
        /// Id, alias, unambiguous prefix of an id, or unambiguous name.
        package var conversation = ""
        /// 24 h when absent.
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

/// `invite.list`: lists the valid invitations of a conversation.
package enum InviteListMethod: ControlMethod {
    package static let name = "invite.list"
    package static let summary = "Lists the valid invitations of a conversation."
    package typealias Params = ConversationParams

    /// What `invite.list` answers.
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

    /// A code to say aloud that has not been taken.
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

/// `invite.revoke`: revokes one invitation of a conversation, or all of them.
package enum InviteRevokeMethod: ControlMethod {
    package static let name = "invite.revoke"
    package static let summary = "Revokes one invitation of a conversation, or all of them."

    /// What `invite.revoke` is asked.
    package struct Params: JSONRecord, Hashable, Sendable {
        /// Id, alias, unambiguous prefix of an id, or unambiguous name.
        package var conversation = ""
        /// Its text, or the beginning of its id; all when absent.
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

    /// What `invite.revoke` answers.
    package struct Result: JSONRecord, Hashable, Sendable {
        package var ok = false
        /// Id, in hex.
        package var conversation = ""
        /// The tag of invitations made from now on: a new one when all were revoked.
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

/// `invite.inspect`: reads an invitation without using it.
package enum InviteInspectMethod: ControlMethod {
    package static let name = "invite.inspect"
    package static let summary = "Reads an invitation without using it."
    package typealias Result = Invite

    /// What `invite.inspect` is asked.
    package struct Params: JSONRecord, Hashable, Sendable {
        package var slug = ""

        package init(slug: String) { self.slug = slug }

        package init() {}

        package mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
            try fields.field("slug", &slug)
        }
    }
}
