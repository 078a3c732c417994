/// How a spoken code ended.
package enum CodeEnd: String, JSONChoice, Hashable, Sendable {
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

package enum InviteCodeMethod: ControlMethod {
    package static let name = "invite.code"
    package static let summary = "Makes a code to say aloud, which leads to an invitation once."

    package static func waits(_ params: Params) -> Bool { params.wait ?? false }

    package struct Params: JSONRecord, Hashable, Sendable {
        package var conversation = ""
        /// True revokes the code when this connection ends. Absent means false.
        package var wait: Bool?

        package init(conversation: String, wait: Bool? = nil) {
            self.conversation = conversation
            self.wait = wait
        }

        package init() {}

        package mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
            try fields.field("conversation", &conversation)
            try fields.field("wait", &wait)
        }
    }

    package struct Result: JSONRecord, Hashable, Sendable {
        /// A number and two words.
        package var code = ""
        /// Parameter of `invite.outcome`.
        package var number: Int64 = 0
        package var conversation = ""
        package var expiresAt: Timestamp?
        /// Addresses of this node, for `mayfly join CODE --at`.
        package var endpoints: [String] = []

        package init(code: String, number: Int64, conversation: String, expiresAt: Timestamp, endpoints: [String]) {
            self.code = code
            self.number = number
            self.conversation = conversation
            self.expiresAt = expiresAt
            self.endpoints = endpoints
        }

        package init() {}

        package mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
            try fields.field("code", &code)
            try fields.field("number", &number)
            try fields.field("conversation", &conversation)
            try fields.field("expiresAt", &expiresAt)
            try fields.field("endpoints", &endpoints)
        }
    }
}

package enum InviteOutcomeMethod: ControlMethod {
    package static let name = "invite.outcome"
    package static let summary = "Waits until a code is taken or void, and says which."

    package static func waits(_ params: Params) -> Bool { true }

    package struct Params: JSONRecord, Hashable, Sendable {
        /// The `number` that `invite.code` returned.
        package var number: Int64 = 0

        package init(number: Int64) { self.number = number }

        package init() {}

        package mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
            try fields.field("number", &number)
        }
    }

    package struct Result: JSONRecord, Hashable, Sendable {
        package var number: Int64 = 0
        package var outcome: CodeEnd = .taken

        package init(number: Int64, outcome: CodeEnd) {
            self.number = number
            self.outcome = outcome
        }

        package init() {}

        package mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
            try fields.field("number", &number)
            try fields.field("outcome", &outcome)
        }
    }
}
