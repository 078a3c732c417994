/// What has become of a code to say aloud.
package enum CodeEnd: String, JSONChoice, Hashable, Sendable {
    /// Somebody has shown that they know it, and has the invite.
    case taken
    /// Somebody has tried other words.
    case wrongGuess
    /// Somebody has tried it and did not show that they know it.
    case unproven
    /// Nobody came in time.
    case expired
    /// Taken back.
    case revoked
    /// The node or the conversation was locked.
    case locked
    /// The conversation is gone, or the node has stopped.
    case gone
    /// Somebody knew it, and the invite did not reach them.
    case failed
}

/// `invite.code`: makes a code to say aloud.
package enum InviteCodeMethod: ControlMethod {
    package static let name = "invite.code"
    package static let summary = "Makes a code to say aloud, which leads to an invitation once."

    package static func waits(_ params: Params) -> Bool { params.wait ?? false }

    /// What `invite.code` is asked.
    package struct Params: JSONRecord, Hashable, Sendable {
        /// Id, alias, unambiguous prefix of an id, or unambiguous name.
        package var conversation = ""
        /// True takes the code back when this connection ends; false when absent.
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

    /// What `invite.code` answers.
    package struct Result: JSONRecord, Hashable, Sendable {
        /// A number and two words.
        package var code = ""
        /// For `invite.outcome`.
        package var number: Int64 = 0
        /// Id, in hex.
        package var conversation = ""
        package var expiresAt: Timestamp?
        /// Where this node is reached, for `mayfly join CODE --at`.
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

/// `invite.outcome`: waits for the end of a code.
package enum InviteOutcomeMethod: ControlMethod {
    package static let name = "invite.outcome"
    package static let summary = "Waits until a code is taken or void, and says which."

    package static func waits(_ params: Params) -> Bool { true }

    /// What `invite.outcome` is asked.
    package struct Params: JSONRecord, Hashable, Sendable {
        /// Of the code, from `invite.code`.
        package var number: Int64 = 0

        package init(number: Int64) { self.number = number }

        package init() {}

        package mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
            try fields.field("number", &number)
        }
    }

    /// What `invite.outcome` answers.
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
