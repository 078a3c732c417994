import Control

enum ExplodeMethods {
    static let all: [any ControlMethod.Type] = [ExplodeMethod.self, ExplodeStatusMethod.self, ExplodeListMethod.self]
}

/// The members that destroyed their copy.
struct ExplosionStatus: JSONRecord, Hashable, Sendable {
    var conversation = ""
    /// When every member destroys its copy; null without an explosion.
    var expiresAt: Timestamp?
    /// `none`, `scheduled`, `exploding`, `exploded` or `error`.
    var state = ""
    /// Members that signed a deletion receipt; while scheduled, members that acknowledged the schedule.
    var confirmed: [String] = []
    /// Members that have not confirmed.
    var waiting: [String] = []
    /// Names as in ``Message/from``; present while the conversation exists.
    var names: [Name]?
    /// Destruction times by the members' own clocks.
    var receipts: [Receipt]?
    /// False when the node keeps no list of members to notify.
    var trace: Bool?
    /// The error in state `error`; the node retries.
    var error: String?
    /// Alias on this node; kept sealed for 45 days after the explosion.
    var name: String?

    struct Receipt: JSONRecord, Hashable, Sendable {
        var member = ""
        var destroyedAt: Timestamp = Timestamp(milliseconds: 0)

        mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
            try fields.field("member", &member)
            try fields.field("destroyedAt", &destroyedAt)
        }
    }

    struct Name: JSONRecord, Hashable, Sendable {
        var member = ""
        var name = ""

        mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
            try fields.field("member", &member)
            try fields.field("name", &name)
        }
    }

    mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
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

enum ExplodeMethod: ControlMethod {
    static let name = "explode"
    static let summary = "Destroys a conversation for all members, now or at a set time."
    typealias Result = ExplosionStatus

    struct Params: JSONRecord, Hashable, Sendable {
        var conversation = ""
        /// The default is now, without `at` and `in`.
        var at: Timestamp?
        var delay: Interval?
        /// Keep no list of members to notify: offline members learn of the explosion from other members, or never.
        var noTrace: Bool?

        mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
            try fields.field("conversation", &conversation)
            try fields.field("at", &at)
            try fields.field("in", &delay)
            try fields.field("noTrace", &noTrace)
        }
    }
}

enum ExplodeStatusMethod: ControlMethod {
    static let name = "explode.status"
    static let summary = "Shows which members have confirmed an explosion."
    typealias Result = ExplosionStatus
    typealias Params = ConversationParams
}

enum ExplodeListMethod: ControlMethod {
    static let name = "explode.list"
    static let summary = "Lists the explosions of the last 45 days, and scheduled ones."

    struct Params: JSONRecord, Hashable, Sendable {
        /// The `next` of the previous answer.
        var from: String?

        mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
            try fields.field("from", &from)
        }
    }

    struct Result: JSONRecord, Hashable, Sendable {
        /// Ascending by time.
        var explosions: [ExplosionStatus] = []
        /// Present when the answer was cut; pass it as `from`.
        var next: String?

        mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
            try fields.field("explosions", &explosions)
            try fields.field("next", &next)
        }
    }
}
