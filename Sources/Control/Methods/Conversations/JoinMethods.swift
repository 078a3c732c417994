package enum JoinMethods {
    package static let all: [any ControlMethod.Type] = [
        JoinMethod.self, JoinListMethod.self, JoinCancelMethod.self, JoinRetryMethod.self,
    ]
}

package enum JoinStage: String, JSONChoice, Hashable, Sendable {
    /// A peer sent an invitation; `mayfly join` accepts it.
    case invited
    /// The creator of a known conversation is being asked whether we are still a member.
    case validating
    /// Defined by the protocol; this node never answers it.
    case validated
    case joining
    case ready
    case joinFailed
    case cancelled
}

package struct JoinStatus: JSONRecord, Hashable, Sendable {
    package var join = ""
    package var state: JoinStage = .invited
    /// Present when ready.
    package var conversation: String?
    /// Alias on this node; present when ready, unless there is none.
    package var alias: String?
    /// The creator's name for the conversation; present when ready or invited, unless it has no name.
    package var name: String?
    /// The named peer that sent the invitation; present when invited by one.
    package var from: String?
    package var inviteTag: String?
    /// Present when failed: `conversation_expired`, `single_use_consumed` or `generic_failure`.
    package var errorType: String?
    /// Short text for a person; present when failed.
    package var title: String?
    /// Sentence for a person; present when failed.
    package var message: String?
    package var startedAt: Timestamp?
    /// When the join gives up.
    package var expiresAt: Timestamp?
    /// Dials to the creator since the node started; present while joining.
    package var attempts: Int?
    /// When the node next dials the creator; present while joining, absent during a dial.
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

package enum JoinMethod: ControlMethod {
    package static let name = "join"
    package static let summary = "Joins a conversation by invitation."
    package typealias Result = JoinStatus

    package static func waits(_ params: Params) -> Bool { params.wait ?? true }

    package struct Params: JSONRecord, Hashable, Sendable {
        /// An invite link with or without `mayfly:join/`, the id of a received invitation, or a spoken code.
        package var slug = ""
        /// Address of the code's issuer: HOST, HOST:PORT or tcp://HOST:PORT. Absent means this network.
        package var at: String?
        /// Our name, as the members see it.
        package var profile: String?
        /// Absent means 60 s.
        package var timeout: Interval?
        /// False answers at once. Absent means true.
        package var wait: Bool?
        /// Alias on this node. Absent means the conversation's name, with a number appended if it is in use.
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

package enum JoinListMethod: ControlMethod {
    package static let name = "join.list"
    package static let summary = "Lists the joins under way."
    package typealias Params = Nothing

    package struct Result: JSONRecord, Hashable, Sendable {
        package var joins: [JoinStatus] = []

        package init(joins: [JoinStatus]) { self.joins = joins }

        package init() {}

        package mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
            try fields.field("joins", &joins)
        }
    }
}

package enum JoinCancelMethod: ControlMethod {
    package static let name = "join.cancel"
    package static let summary = "Gives up a join."
    package typealias Result = JoinStatus
    package typealias Params = JoinParams
}

package enum JoinRetryMethod: ControlMethod {
    package static let name = "join.retry"
    package static let summary = "Dials the creator of a join under way now."
    package typealias Result = JoinStatus
    package typealias Params = JoinParams
}
