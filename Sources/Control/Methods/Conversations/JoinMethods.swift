/// Joining by invitation.
package enum JoinMethods {
    package static let all: [any ControlMethod.Type] = [
        JoinMethod.self, JoinListMethod.self, JoinCancelMethod.self, JoinRetryMethod.self,
    ]
}

/// Where a join is (protocol, section 5).
package enum JoinStage: String, JSONChoice, Hashable, Sendable {
    /// A peer has sent an invitation; `mayfly join` accepts it.
    case invited
    /// Of the specification, as the next, and never answered: checking an invite takes no waiting.
    case validating
    case validated
    case joining
    case ready
    case joinFailed
    case cancelled
}

/// A join, under way or ended.
package struct JoinStatus: JSONRecord, Hashable, Sendable {
    package var join = ""
    package var state: JoinStage = .invited
    /// Present when ready.
    package var conversation: String?
    /// Present when ready, unless it has none: what the conversation is called on this node.
    package var alias: String?
    /// What the conversation is called by its creator; present when ready or invited, unless it has no name.
    package var name: String?
    /// Present when invited by a named peer: its name.
    package var from: String?
    package var inviteTag: String?
    /// Present when failed: `conversation_expired`, `single_use_consumed` or `generic_failure`.
    package var errorType: String?
    /// Present when failed: a few words for a person.
    package var title: String?
    /// Present when failed: a sentence for a person.
    package var message: String?
    package var startedAt: Timestamp?
    /// When it gives up.
    package var expiresAt: Timestamp?
    /// While joining: how often the creator was dialled since the node has started.
    package var attempts: Int?
    /// While joining: when the creator is dialled next; absent while it is.
    package var nextAttempt: Timestamp?

    package init(
        join: String, state: JoinStage, conversation: String? = nil, alias: String? = nil, name: String? = nil,
        from: String? = nil, inviteTag: String? = nil, errorType: String? = nil, title: String? = nil,
        message: String? = nil, startedAt: Timestamp? = nil, expiresAt: Timestamp? = nil, attempts: Int? = nil,
        nextAttempt: Timestamp? = nil
    ) {
        self.join = join
        self.state = state
        self.conversation = conversation
        self.alias = alias
        self.name = name
        self.from = from
        self.inviteTag = inviteTag
        self.errorType = errorType
        self.title = title
        self.message = message
        self.startedAt = startedAt
        self.expiresAt = expiresAt
        self.attempts = attempts
        self.nextAttempt = nextAttempt
    }

    package init() {}

    package mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
        try fields.field("join", &join)
        try fields.field("state", &state)
        try fields.field("conversation", &conversation)
        try fields.field("alias", &alias)
        try fields.field("name", &name)
        try fields.field("from", &from)
        try fields.field("inviteTag", &inviteTag)
        try fields.field("errorType", &errorType)
        try fields.field("title", &title)
        try fields.field("message", &message)
        try fields.field("startedAt", &startedAt)
        try fields.field("expiresAt", &expiresAt)
        try fields.field("attempts", &attempts)
        try fields.field("nextAttempt", &nextAttempt)
    }
}

/// `join`: joins a conversation by invitation.
package enum JoinMethod: ControlMethod {
    package static let name = "join"
    package static let summary = "Joins a conversation by invitation."
    package typealias Result = JoinStatus

    package static func waits(_ params: Params) -> Bool { params.wait ?? true }

    /// What `join` is asked.
    package struct Params: JSONRecord, Hashable, Sendable {
        /// An invitation with or without `mayfly:join/`, the id of one that was received, or a code.
        package var slug = ""
        /// Of a code, where it was made: HOST, HOST:PORT or tcp://HOST:PORT; on this network when absent.
        package var at: String?
        /// The name to show to its members.
        package var profile: String?
        /// How long to wait for the answer; 60 s when absent.
        package var timeout: Interval?
        /// False answers at once; true when absent.
        package var wait: Bool?
        /// What to call the conversation on this node; its name when absent, with a number behind it if that is taken.
        package var alias: String?

        package init(
            slug: String, profile: String? = nil, timeout: Interval? = nil, wait: Bool? = nil, alias: String? = nil,
            at: String? = nil
        ) {
            self.slug = slug
            self.at = at
            self.profile = profile
            self.timeout = timeout
            self.wait = wait
            self.alias = alias
        }

        package init() {}

        package mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
            try fields.field("slug", &slug)
            try fields.field("as", &profile)
            try fields.field("timeout", &timeout)
            try fields.field("wait", &wait)
            try fields.field("alias", &alias)
            try fields.field("at", &at)
        }
    }
}

/// `join.list`: lists the joins under way.
package enum JoinListMethod: ControlMethod {
    package static let name = "join.list"
    package static let summary = "Lists the joins under way."
    package typealias Params = Nothing

    /// What `join.list` answers.
    package struct Result: JSONRecord, Hashable, Sendable {
        package var joins: [JoinStatus] = []

        package init(joins: [JoinStatus]) { self.joins = joins }

        package init() {}

        package mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
            try fields.field("joins", &joins)
        }
    }
}

/// `join.cancel`: gives up a join.
package enum JoinCancelMethod: ControlMethod {
    package static let name = "join.cancel"
    package static let summary = "Gives up a join."
    package typealias Result = JoinStatus
    package typealias Params = JoinParams
}

/// `join.retry`: dials the creator of a join under way now.
package enum JoinRetryMethod: ControlMethod {
    package static let name = "join.retry"
    package static let summary = "Dials the creator of a join under way now."
    package typealias Result = JoinStatus
    package typealias Params = JoinParams
}
