/// Conversations and their members.
package enum ConversationMethods {
    package static let all: [any ControlMethod.Type] = [
        ConversationCreateMethod.self, ConversationListMethod.self, ConversationShowMethod.self,
        ConversationMembersMethod.self, ConversationLeaveMethod.self, ConversationLockMethod.self,
        ConversationUnlockMethod.self, ConversationCloseMethod.self, ConversationRenameMethod.self,
        ConversationRemoveMethod.self, ConversationProfileMethod.self, ConversationAliasMethod.self,
    ]
}

/// Whether what is sent to a member while it is away goes to its mailbox.
package enum MemberMailbox: String, JSONChoice, Hashable, Sendable {
    case yes
    /// It has named one; the keys to which contents are sealed have not come from it yet.
    case named
}

/// A member of a conversation.
package struct Member: JSONRecord, Hashable, Sendable {
    /// Short name within the conversation.
    package var member = ""
    /// The name it chose for this conversation.
    package var profile: String?
    /// The named peer to which its invite was sent; known to the inviting node alone.
    package var peer: String?
    package var online = false
    /// How it is reached now: `lan`, `direct`, `relayed` or `punched`; null while there is no link.
    package var path: String?
    package var link: Link?
    /// How the last link was lost, if that was in the last 10 minutes and by no node's will.
    package var lost: LostLink?
    /// Absent when it has no mailbox, or the members have not agreed to one, and in a list while the inbox sleeps.
    package var mailbox: MemberMailbox?
    /// Two copies of its home run at once; absent otherwise.
    package var copied: Bool?
    /// It reports that two copies of our home run at once; absent otherwise.
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

/// A conversation as its owner sees it.
package struct Conversation: JSONRecord, Hashable, Sendable {
    /// Id, in hex.
    package var conversation = ""
    /// What it is called on this node, and nowhere else; unique here.
    package var alias: String?
    /// What its creator calls it.
    package var name: String?
    /// `creator` or `member`.
    package var role = ""
    package var members: [Member] = []
    /// The lifetime in force.
    package var lifetime: LifetimeValue = .ephemeral
    /// What all have agreed about mailboxes; absent for nothing, and in a list while its inbox sleeps.
    package var mailbox: LifetimeMailbox?
    /// When the whole conversation explodes; null when nothing is scheduled.
    package var expiresAt: Timestamp?
    /// No one can join.
    package var locked = false
    /// `ready`, `scheduled` (it explodes at `expiresAt`), `removed` (the creator has removed us) or, in the answer to
    /// `conversation.leave`, `left`.
    package var state = ""
    /// Messages of others that nobody has read here; 1000 for as many or more.
    package var unread = 0
    /// Our own name in it; absent when we have none, and in a list while its inbox sleeps.
    package var profile: String?
    /// Whether others are told which of their messages we have read; absent in a list while its inbox sleeps.
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

/// `conversation.create`: starts a conversation with an inbox of its own.
package enum ConversationCreateMethod: ControlMethod {
    package static let name = "conversation.create"
    package static let summary = "Starts a conversation with an inbox of its own."

    /// What `conversation.create` is asked.
    package struct Params: JSONRecord, Hashable, Sendable {
        package var name: String?
        /// The name to show to its members.
        package var profile: String?
        /// Named nodes to invite.
        package var peers: [String]?
        /// What to call it on this node; its name when absent. Refused when another conversation has it.
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

    /// What `conversation.create` answers.
    package struct Result: JSONRecord, Hashable, Sendable {
        /// Id, in hex.
        package var conversation = ""
        /// The client id of its inbox.
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

/// `conversation.list`: lists the conversations.
package enum ConversationListMethod: ControlMethod {
    package static let name = "conversation.list"
    package static let summary = "Lists the conversations."
    package typealias Params = Nothing

    /// What `conversation.list` answers.
    package struct Result: JSONRecord, Hashable, Sendable {
        package var conversations: [Conversation] = []

        package init(conversations: [Conversation]) { self.conversations = conversations }

        package init() {}

        package mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
            try fields.field("conversations", &conversations)
        }
    }
}

/// `conversation.show`: shows one conversation.
package enum ConversationShowMethod: ControlMethod {
    package static let name = "conversation.show"
    package static let summary = "Shows one conversation."
    package typealias Result = Conversation
    package typealias Params = ConversationParams
}

/// `conversation.members`: shows who is in a conversation.
package enum ConversationMembersMethod: ControlMethod {
    package static let name = "conversation.members"
    package static let summary = "Shows who is in a conversation."
    package typealias Result = Conversation
    package typealias Params = ConversationParams
}

/// `conversation.leave`: leaves a conversation and destroys the copy here.
package enum ConversationLeaveMethod: ControlMethod {
    package static let name = "conversation.leave"
    package static let summary = "Leaves a conversation and destroys the copy here."
    package typealias Result = Conversation
    package typealias Params = ConversationParams
}

/// `conversation.lock`: lets nobody join any more and revokes all invitations.
package enum ConversationLockMethod: ControlMethod {
    package static let name = "conversation.lock"
    package static let summary = "Lets nobody join any more and revokes all invitations."
    package typealias Result = Conversation
    package typealias Params = ConversationParams
}

/// `conversation.unlock`: lets new invitations admit again.
package enum ConversationUnlockMethod: ControlMethod {
    package static let name = "conversation.unlock"
    package static let summary = "Lets new invitations admit again."
    package typealias Result = Conversation
    package typealias Params = ConversationParams
}

/// `conversation.close`: closes a conversation here and forgets its ephemeral messages.
package enum ConversationCloseMethod: ControlMethod {
    package static let name = "conversation.close"
    package static let summary = "Closes a conversation here and forgets its ephemeral messages."
    package typealias Result = Conversation
    package typealias Params = ConversationParams
}

/// `conversation.rename`: renames a conversation.
package enum ConversationRenameMethod: ControlMethod {
    package static let name = "conversation.rename"
    package static let summary = "Renames a conversation."
    package typealias Result = Conversation

    /// What `conversation.rename` is asked.
    package struct Params: JSONRecord, Hashable, Sendable {
        /// Id, alias, unambiguous prefix of an id, or unambiguous name.
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

/// `conversation.profile`: sets one's own name in a conversation.
package enum ConversationProfileMethod: ControlMethod {
    package static let name = "conversation.profile"
    package static let summary = "Sets one's own name in a conversation."
    package typealias Result = Conversation

    /// What `conversation.profile` is asked.
    package struct Params: JSONRecord, Hashable, Sendable {
        /// Id, alias, unambiguous prefix of an id, or unambiguous name.
        package var conversation = ""
        /// Empty for none.
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

/// `conversation.remove`: removes a member.
package enum ConversationRemoveMethod: ControlMethod {
    package static let name = "conversation.remove"
    package static let summary = "Removes a member."
    package typealias Result = Conversation

    /// What `conversation.remove` is asked.
    package struct Params: JSONRecord, Hashable, Sendable {
        /// Id, alias, unambiguous prefix of an id, or unambiguous name.
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

/// `conversation.alias`: calls a conversation otherwise on this node.
package enum ConversationAliasMethod: ControlMethod {
    package static let name = "conversation.alias"
    package static let summary = "Gives a conversation an alias on this node, or takes it away."
    package typealias Result = Conversation

    /// What `conversation.alias` is asked.
    package struct Params: JSONRecord, Hashable, Sendable {
        /// Id, alias, unambiguous prefix of an id, or unambiguous name.
        package var conversation = ""
        /// Absent for none.
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
