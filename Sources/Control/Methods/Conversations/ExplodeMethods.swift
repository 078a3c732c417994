/// Destroying a conversation everywhere.
package enum ExplodeMethods {
    package static let all: [any ControlMethod.Type] = [
        ExplodeMethod.self, ExplodeStatusMethod.self, ExplodeListMethod.self,
    ]
}

/// Who has destroyed their copy.
package struct ExplosionStatus: JSONRecord, Hashable, Sendable {
    /// Id, in hex.
    package var conversation = ""
    /// Alias on this node; kept sealed for 45 days after the explosion.
    package var name: String?
    /// When everybody destroys it; null when no explosion was ordered.
    package var expiresAt: Timestamp?
    /// `none`, `scheduled`, `exploding`, `exploded` or `error`.
    package var state = ""
    /// Members that signed a deletion receipt; while it is scheduled, members that have shown that they know.
    package var confirmed: [String] = []
    /// Members that have not.
    package var waiting: [String] = []
    /// What the members are called, as in ``Message/from``; present while the conversation is there.
    package var names: [Name]?
    /// When those that have confirmed destroyed their copy, by their own clocks.
    package var receipts: [Receipt]?
    /// False when no list is kept of whom to tell.
    package var trace: Bool?
    /// What goes wrong, in state `error`; it is tried again.
    package var error: String?

    /// A member's word that its copy is gone.
    package struct Receipt: JSONRecord, Hashable, Sendable {
        package var member = ""
        package var destroyedAt: Timestamp = Timestamp(milliseconds: 0)

        package init(member: String, destroyedAt: Timestamp) {
            self.member = member
            self.destroyedAt = destroyedAt
        }

        package init() {}

        package mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
            try fields.field("member", &member)
            try fields.field("destroyedAt", &destroyedAt)
        }
    }

    /// A member's id and its name.
    package struct Name: JSONRecord, Hashable, Sendable {
        package var member = ""
        package var name = ""

        package init(member: String, name: String) {
            self.member = member
            self.name = name
        }

        package init() {}

        package mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
            try fields.field("member", &member)
            try fields.field("name", &name)
        }
    }

    package init(
        conversation: String, expiresAt: Timestamp? = nil, state: String, confirmed: [String], waiting: [String],
        names: [Name]? = nil, receipts: [Receipt]? = nil, trace: Bool? = nil, error: String? = nil, name: String? = nil
    ) {
        self.conversation = conversation
        self.name = name
        self.expiresAt = expiresAt
        self.state = state
        self.confirmed = confirmed
        self.waiting = waiting
        self.names = names
        self.receipts = receipts
        self.trace = trace
        self.error = error
    }

    package init() {}

    package mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
        try fields.field("conversation", &conversation)
        try fields.field("name", &name)
        try fields.nullable("expiresAt", &expiresAt)
        try fields.field("state", &state)
        try fields.field("confirmed", &confirmed)
        try fields.field("waiting", &waiting)
        try fields.field("names", &names)
        try fields.field("receipts", &receipts)
        try fields.field("trace", &trace)
        try fields.field("error", &error)
    }
}

/// `explode`: destroys a conversation for everybody, now or at a time.
package enum ExplodeMethod: ControlMethod {
    package static let name = "explode"
    package static let summary = "Destroys a conversation for everybody, now or at a time."
    package typealias Result = ExplosionStatus

    /// What `explode` is asked.
    package struct Params: JSONRecord, Hashable, Sendable {
        /// Id, alias, unambiguous prefix of an id, or unambiguous name.
        package var conversation = ""
        /// Now when both are absent.
        package var at: Timestamp?
        package var delay: Interval?
        /// Keep no list of whom to tell: members that are offline learn it from others, or never.
        package var noTrace: Bool?

        package init(conversation: String, at: Timestamp? = nil, delay: Interval? = nil, noTrace: Bool? = nil) {
            self.conversation = conversation
            self.at = at
            self.delay = delay
            self.noTrace = noTrace
        }

        package init() {}

        package mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
            try fields.field("conversation", &conversation)
            try fields.field("at", &at)
            try fields.field("in", &delay)
            try fields.field("noTrace", &noTrace)
        }
    }
}

/// `explode.status`: tells who has destroyed their copy.
package enum ExplodeStatusMethod: ControlMethod {
    package static let name = "explode.status"
    package static let summary = "Tells who has destroyed their copy."
    package typealias Result = ExplosionStatus
    package typealias Params = ConversationParams
}

/// `explode.list`: lists the conversations that have exploded, as long as the node remembers them, and the scheduled
/// explosions.
package enum ExplodeListMethod: ControlMethod {
    package static let name = "explode.list"
    package static let summary = "Lists what has exploded in the last 45 days, and scheduled explosions."

    /// What `explode.list` is asked.
    package struct Params: JSONRecord, Hashable, Sendable {
        /// The `next` of the answer that this one goes on from.
        package var from: String?

        package init(from: String? = nil) { self.from = from }

        package init() {}

        package mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
            try fields.field("from", &from)
        }
    }

    /// What `explode.list` answers.
    package struct Result: JSONRecord, Hashable, Sendable {
        /// By their time, the earliest first.
        package var explosions: [ExplosionStatus] = []
        /// Present when the answer was cut: ask again from it.
        package var next: String?

        package init(explosions: [ExplosionStatus], next: String? = nil) {
            self.explosions = explosions
            self.next = next
        }

        package init() {}

        package mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
            try fields.field("explosions", &explosions)
            try fields.field("next", &next)
        }
    }
}
