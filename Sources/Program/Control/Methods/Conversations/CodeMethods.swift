import Control
import Messaging

enum InviteCodeMethod: ControlMethod {
    static let name = "invite.code"
    static let summary = "Creates a code to say aloud, which admits one member."

    static func waits(_ params: Params) -> Bool { params.wait ?? false }

    struct Params: CodableRecord {
        var conversation = ""
        /// True revokes the code when this connection ends. Absent means false.
        var wait: Bool?
    }

    struct Result: CodableRecord {
        /// A number and two words.
        var code = ""
        /// Parameter of `invite.outcome`.
        var number: Int64 = 0
        var conversation = ""
        var expiresAt: Timestamp?
        /// Addresses of this node, for `mayfly join CODE --at`.
        var endpoints: [String] = []
    }
}

enum InviteOutcomeMethod: ControlMethod {
    static let name = "invite.outcome"
    static let summary = "Waits until a code is used or void, and returns the outcome."

    static func waits(_ params: Params) -> Bool { true }

    struct Params: CodableRecord {
        /// The `number` that `invite.code` returned.
        var number: Int64 = 0
    }

    struct Result: CodableRecord {
        var number: Int64 = 0
        var outcome: CodeOutcome = .taken
    }
}
