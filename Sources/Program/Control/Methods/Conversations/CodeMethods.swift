import Control
import Messaging

struct InviteCodeParams: CodableRecord {
    var conversation = ""
    /// True revokes the code when this connection ends. Absent means false.
    var wait: Bool?
}

struct InviteCodeResult: CodableRecord {
    /// A number and two words.
    var code = ""
    /// Parameter of `invite.outcome`.
    var number: Int64 = 0
    var conversation = ""
    var expiresAt: Timestamp?
    /// Addresses of this node, for `mayfly join CODE --at`.
    var endpoints: [String] = []
}

struct InviteOutcomeParams: CodableRecord {
    /// The `number` that `invite.code` returned.
    var number: Int64 = 0
}

struct InviteOutcomeResult: CodableRecord {
    var number: Int64 = 0
    var outcome: CodeOutcome = .taken
}
