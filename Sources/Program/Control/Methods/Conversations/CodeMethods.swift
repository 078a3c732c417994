import Control

/// How a spoken code ended.
enum CodeEnd: String, JSONChoice, Hashable, Sendable {
    /// The joiner proved knowledge of the code and received the invite.
    case taken
    /// The joiner's proof was wrong.
    case wrongGuess
    /// The joiner opened an attempt and sent no proof.
    case unproven
    /// No joiner came in time.
    case expired
    /// The user revoked the code.
    case revoked
    /// The node or the conversation was locked.
    case locked
    /// The conversation is gone, or the node stopped.
    case gone
    /// The joiner proved knowledge of the code, but the invite did not reach it.
    case failed
}

enum InviteCodeMethod: ControlMethod {
    static let name = "invite.code"
    static let summary = "Creates a code to say aloud, which admits one member."

    static func waits(_ params: Params) -> Bool { params.wait ?? false }

    struct Params: JSONRecord, Hashable, Sendable {
        var conversation = ""
        /// True revokes the code when this connection ends. Absent means false.
        var wait: Bool?

        mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
            try fields.field("conversation", &conversation)
            try fields.field("wait", &wait)
        }
    }

    struct Result: JSONRecord, Hashable, Sendable {
        /// A number and two words.
        var code = ""
        /// Parameter of `invite.outcome`.
        var number: Int64 = 0
        var conversation = ""
        var expiresAt: Timestamp?
        /// Addresses of this node, for `mayfly join CODE --at`.
        var endpoints: [String] = []

        mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
            try fields.field("code", &code)
            try fields.field("number", &number)
            try fields.field("conversation", &conversation)
            try fields.field("expiresAt", &expiresAt)
            try fields.field("endpoints", &endpoints)
        }
    }
}

enum InviteOutcomeMethod: ControlMethod {
    static let name = "invite.outcome"
    static let summary = "Waits until a code is used or void, and returns the outcome."

    static func waits(_ params: Params) -> Bool { true }

    struct Params: JSONRecord, Hashable, Sendable {
        /// The `number` that `invite.code` returned.
        var number: Int64 = 0

        mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
            try fields.field("number", &number)
        }
    }

    struct Result: JSONRecord, Hashable, Sendable {
        var number: Int64 = 0
        var outcome: CodeEnd = .taken

        mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
            try fields.field("number", &number)
            try fields.field("outcome", &outcome)
        }
    }
}
