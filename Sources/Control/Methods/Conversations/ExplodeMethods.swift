package enum ExplodeMethods {
    package static let all: [any ControlMethod.Type] = [
        ExplodeMethod.self, ExplodeStatusMethod.self, ExplodeListMethod.self,
    ]
}

/// The members that destroyed their copy.
package struct ExplosionStatus: JSONRecord, Hashable, Sendable {
    package var conversation = ""
    /// Alias on this node; kept sealed for 45 days after the explosion.
    package var name: String?
    /// When every member destroys its copy; null without an explosion.
    package var expiresAt: Timestamp?
    /// `none`, `scheduled`, `exploding`, `exploded` or `error`.
    package var state = ""
    /// Members that signed a deletion receipt; while scheduled, members that acknowledged the schedule.
    package var confirmed: [String] = []
    /// Members that have not confirmed.
    package var waiting: [String] = []
    /// Names as in ``Message/from``; present while the conversation exists.
    package var names: [Name]?
    /// Destruction times by the members' own clocks.
    package var receipts: [Receipt]?
    /// False when the node keeps no list of members to notify.
    package var trace: Bool?
    /// The error in state `error`; the node retries.
    package var error: String?

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

package enum ExplodeMethod: ControlMethod {
    package static let name = "explode"
    package static let summary = "Destroys a conversation for everybody, now or at a time."
    package typealias Result = ExplosionStatus

    package struct Params: JSONRecord, Hashable, Sendable {
        package var conversation = ""
        /// The default is now, without `at` and `in`.
        package var at: Timestamp?
        package var delay: Interval?
        /// Keep no list of members to notify: offline members learn of the explosion from other members, or never.
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

package enum ExplodeStatusMethod: ControlMethod {
    package static let name = "explode.status"
    package static let summary = "Tells who has destroyed their copy."
    package typealias Result = ExplosionStatus
    package typealias Params = ConversationParams
}

package enum ExplodeListMethod: ControlMethod {
    package static let name = "explode.list"
    package static let summary = "Lists what has exploded in the last 45 days, and scheduled explosions."

    package struct Params: JSONRecord, Hashable, Sendable {
        /// The `next` of the previous answer.
        package var from: String?

        package init(from: String? = nil) { self.from = from }

        package init() {}

        package mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
            try fields.field("from", &from)
        }
    }

    package struct Result: JSONRecord, Hashable, Sendable {
        /// Ascending by time.
        package var explosions: [ExplosionStatus] = []
        /// Present when the answer was cut; pass it as `from`.
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
