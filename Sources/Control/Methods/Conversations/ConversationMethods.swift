package enum ConversationMethods {
    package static let all: [any ControlMethod.Type] = [
        ConversationCreateMethod.self, ConversationListMethod.self, ConversationShowMethod.self,
        ConversationMembersMethod.self, ConversationLeaveMethod.self, ConversationLockMethod.self,
        ConversationUnlockMethod.self, ConversationCloseMethod.self, ConversationRenameMethod.self,
        ConversationRemoveMethod.self, ConversationProfileMethod.self, ConversationAliasMethod.self,
    ]
}

/// Whether messages to an offline member go to its mailbox.
package enum MemberMailbox: String, JSONChoice, Hashable, Sendable {
    case yes
    /// The member has named a mailbox, but its keys for sealing contents have not arrived.
    case named
}

package struct Member: JSONRecord, Hashable, Sendable {
    /// Short name within the conversation.
    package var member = ""
    /// The name the member chose for this conversation.
    package var profile: String?
    /// The named peer that received the member's invite; known to the inviting node alone.
    package var peer: String?
    package var online = false
    /// `lan`, `direct`, `relayed` or `punched`; null without a link.
    package var path: String?
    package var link: Link?
    /// How the last link was lost. Absent after 10 minutes, or when a node closed the link on purpose.
    package var lost: LostLink?
    /// Absent without a mailbox, without an agreement on mailboxes, and in a list while the inbox sleeps.
    package var mailbox: MemberMailbox?
    /// True when two copies of the member's home run at once; otherwise absent.
    package var copied: Bool?
    /// True when the member reports two running copies of our home; otherwise absent.
    package var reportsCopies: Bool?

    package init(
        member: String, profile: String? = nil, peer: String? = nil, online: Bool, path: String? = nil,
        link: Link? = nil, lost: LostLink? = nil, mailbox: MemberMailbox? = nil, copied: Bool? = nil,
        reportsCopies: Bool? = nil
    ) {
        self.member = member
        self.profile = profile
        self.peer = peer
        self.online = online
        self.path = path
        self.link = link
        self.lost = lost
        self.mailbox = mailbox
        self.copied = copied
        self.reportsCopies = reportsCopies
    }

    package init() {}

    package mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
        try fields.field("member", &member)
        try fields.nullable("profile", &profile)
        try fields.field("peer", &peer)
        try fields.field("online", &online)
        try fields.nullable("path", &path)
        try fields.nullable("link", &link)
        try fields.field("lost", &lost)
        try fields.field("mailbox", &mailbox)
        try fields.field("copied", &copied)
        try fields.field("reportsCopies", &reportsCopies)
    }
}

package struct Conversation: JSONRecord, Hashable, Sendable {
    package var conversation = ""
    /// Name on this node alone; unique here.
    package var alias: String?
    /// Name that the creator chose.
    package var name: String?
    /// `creator` or `member`.
    package var role = ""
    package var members: [Member] = []
    /// The lifetime in force.
    package var lifetime: LifetimeValue = .ephemeral
    /// The mailbox term of the agreement; absent for none, and in a list while the inbox sleeps.
    package var mailbox: LifetimeMailbox?
    /// When the conversation explodes; null when nothing is scheduled.
    package var expiresAt: Timestamp?
    package var locked = false
    /// `ready`, `scheduled` (explodes at `expiresAt`) or `removed` (the creator removed us). The answer to
    /// `conversation.leave` says `left`.
    package var state = ""
    /// Unread messages of other members, at most 1000.
    package var unread = 0
    /// Our name in this conversation; absent without one, and in a list while the inbox sleeps.
    package var profile: String?
    /// Whether this node sends read receipts; absent in a list while the inbox sleeps.
    package var readReceipts: Bool?
    package var inbox: String?

    package init(
        conversation: String, alias: String? = nil, name: String? = nil, role: String, members: [Member],
        lifetime: LifetimeValue, expiresAt: Timestamp? = nil, locked: Bool, state: String, unread: Int = 0,
        profile: String? = nil, readReceipts: Bool? = nil, inbox: String? = nil, mailbox: LifetimeMailbox? = nil
    ) {
        self.conversation = conversation
        self.alias = alias
        self.name = name
        self.role = role
        self.members = members
        self.lifetime = lifetime
        self.expiresAt = expiresAt
        self.locked = locked
        self.state = state
        self.unread = unread
        self.profile = profile
        self.readReceipts = readReceipts
        self.inbox = inbox
        self.mailbox = mailbox
    }

    package init() {}

    package mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
        try fields.field("conversation", &conversation)
        try fields.nullable("alias", &alias)
        try fields.nullable("name", &name)
        try fields.field("role", &role)
        try fields.field("members", &members)
        try fields.field("lifetime", &lifetime)
        try fields.field("mailbox", &mailbox)
        try fields.nullable("expiresAt", &expiresAt)
        try fields.field("locked", &locked)
        try fields.field("state", &state)
        try fields.field("unread", &unread)
        try fields.field("profile", &profile)
        try fields.field("readReceipts", &readReceipts)
        try fields.field("inbox", &inbox)
    }
}

package enum ConversationCreateMethod: ControlMethod {
    package static let name = "conversation.create"
    package static let summary = "Starts a conversation with an inbox of its own."

    package struct Params: JSONRecord, Hashable, Sendable {
        package var name: String?
        /// Our name, as the members see it.
        package var profile: String?
        /// Named peers to invite.
        package var peers: [String]?
        /// Alias on this node; defaults to `name`. An alias in use is refused.
        package var alias: String?

        package init(name: String? = nil, profile: String? = nil, peers: [String]? = nil, alias: String? = nil) {
            self.name = name
            self.profile = profile
            self.peers = peers
            self.alias = alias
        }

        package init() {}

        package mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
            try fields.field("name", &name)
            try fields.field("as", &profile)
            try fields.field("with", &peers)
            try fields.field("alias", &alias)
        }
    }

    package struct Result: JSONRecord, Hashable, Sendable {
        package var conversation = ""
        /// The inbox's client id.
        package var inbox = ""
        package var alias: String?
        package var name: String?
        package var inviteTag = ""

        package init(conversation: String, inbox: String, alias: String? = nil, name: String? = nil, inviteTag: String)
        {
            self.conversation = conversation
            self.inbox = inbox
            self.alias = alias
            self.name = name
            self.inviteTag = inviteTag
        }

        package init() {}

        package mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
            try fields.field("conversation", &conversation)
            try fields.field("inbox", &inbox)
            try fields.nullable("alias", &alias)
            try fields.nullable("name", &name)
            try fields.field("inviteTag", &inviteTag)
        }
    }
}

package enum ConversationListMethod: ControlMethod {
    package static let name = "conversation.list"
    package static let summary = "Lists the conversations."
    package typealias Params = Nothing

    package struct Result: JSONRecord, Hashable, Sendable {
        package var conversations: [Conversation] = []

        package init(conversations: [Conversation]) { self.conversations = conversations }

        package init() {}

        package mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
            try fields.field("conversations", &conversations)
        }
    }
}

package enum ConversationShowMethod: ControlMethod {
    package static let name = "conversation.show"
    package static let summary = "Shows one conversation."
    package typealias Result = Conversation
    package typealias Params = ConversationParams
}

package enum ConversationMembersMethod: ControlMethod {
    package static let name = "conversation.members"
    package static let summary = "Shows who is in a conversation."
    package typealias Result = Conversation
    package typealias Params = ConversationParams
}

package enum ConversationLeaveMethod: ControlMethod {
    package static let name = "conversation.leave"
    package static let summary = "Leaves a conversation and destroys the copy here."
    package typealias Result = Conversation
    package typealias Params = ConversationParams
}

package enum ConversationLockMethod: ControlMethod {
    package static let name = "conversation.lock"
    package static let summary = "Lets nobody join any more and revokes all invitations."
    package typealias Result = Conversation
    package typealias Params = ConversationParams
}

package enum ConversationUnlockMethod: ControlMethod {
    package static let name = "conversation.unlock"
    package static let summary = "Lets new invitations admit again."
    package typealias Result = Conversation
    package typealias Params = ConversationParams
}

package enum ConversationCloseMethod: ControlMethod {
    package static let name = "conversation.close"
    package static let summary = "Closes a conversation here and forgets its ephemeral messages."
    package typealias Result = Conversation
    package typealias Params = ConversationParams
}

package enum ConversationRenameMethod: ControlMethod {
    package static let name = "conversation.rename"
    package static let summary = "Renames a conversation."
    package typealias Result = Conversation

    package struct Params: JSONRecord, Hashable, Sendable {
        package var conversation = ""
        package var name = ""

        package init(conversation: String, name: String) {
            self.conversation = conversation
            self.name = name
        }

        package init() {}

        package mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
            try fields.field("conversation", &conversation)
            try fields.field("name", &name)
        }
    }
}

package enum ConversationProfileMethod: ControlMethod {
    package static let name = "conversation.profile"
    package static let summary = "Sets one's own name in a conversation."
    package typealias Result = Conversation

    package struct Params: JSONRecord, Hashable, Sendable {
        package var conversation = ""
        /// Empty removes the name.
        package var profile = ""

        package init(conversation: String, profile: String) {
            self.conversation = conversation
            self.profile = profile
        }

        package init() {}

        package mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
            try fields.field("conversation", &conversation)
            try fields.field("profile", &profile)
        }
    }
}

package enum ConversationRemoveMethod: ControlMethod {
    package static let name = "conversation.remove"
    package static let summary = "Removes a member."
    package typealias Result = Conversation

    package struct Params: JSONRecord, Hashable, Sendable {
        package var conversation = ""
        package var member = ""

        package init(conversation: String, member: String) {
            self.conversation = conversation
            self.member = member
        }

        package init() {}

        package mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
            try fields.field("conversation", &conversation)
            try fields.field("member", &member)
        }
    }
}

package enum ConversationAliasMethod: ControlMethod {
    package static let name = "conversation.alias"
    package static let summary = "Gives a conversation an alias on this node, or takes it away."
    package typealias Result = Conversation

    package struct Params: JSONRecord, Hashable, Sendable {
        package var conversation = ""
        /// Absent removes the alias.
        package var alias: String?

        package init(conversation: String, alias: String? = nil) {
            self.conversation = conversation
            self.alias = alias
        }

        package init() {}

        package mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
            try fields.field("conversation", &conversation)
            try fields.field("alias", &alias)
        }
    }
}
