import Control
import Messaging

enum InviteMethods {
    static let all: [any ControlMethod.Type] = [
        InviteCreateMethod.self, InviteListMethod.self, InviteRevokeMethod.self, InviteInspectMethod.self,
        InviteCodeMethod.self, InviteOutcomeMethod.self,
    ]
}

/// Whether the inbox named in the invitation signed it.
enum InviteSignature: String, JSONChoice, Hashable, Sendable {
    case valid
    case invalid
}

struct Invite: CodableRecord {
    /// Invite link, `mayfly:join/…`; null in a list, because the creator keeps only a hash of the secret.
    @OrNull var slug: String?
    /// Same value as `slug`.
    @OrNull var url: String?
    /// Hash of the secret, in hex.
    var invite: String?
    /// Invitations with the same tag are revoked together.
    var tag = ""
    @OrNull var expiresAt: Timestamp?
    var singleUse = false
    /// The creator's inbox id.
    var creator = ""
    /// The lifetime in force when the invitation was made.
    var lifetime: Lifetime = .ephemeral
    var signature: InviteSignature = .valid
    var conversationExpiresAt: Timestamp?
    var name: String?
    var description: String?
    /// Number of members admitted; only in a list.
    var admitted: Int?
}

enum InviteCreateMethod: ControlMethod {
    static let name = "invite.create"
    static let summary = "Creates an invitation."
    typealias Result = Invite

    struct Params: CodableRecord {
        var conversation = ""
        /// Absent means 24 h.
        var expiresIn: Interval?
        var singleUse: Bool?
    }
}

enum InviteListMethod: ControlMethod {
    static let name = "invite.list"
    static let summary = "Lists the valid invitations of a conversation."
    typealias Params = ConversationParams

    struct Result: CodableRecord {
        var invites: [Invite] = []
        var codes: [OpenCode] = []
    }

    /// A spoken code that is still open.
    struct OpenCode: CodableRecord {
        var code = ""
        var expiresAt: Timestamp = Timestamp(milliseconds: 0)
    }
}

enum InviteRevokeMethod: ControlMethod {
    static let name = "invite.revoke"
    static let summary = "Revokes one invitation or code of a conversation, or all of them."

    struct Params: CodableRecord {
        var conversation = ""
        /// Invite link, or a prefix of the id. Absent means all.
        var invite: String?
    }

    struct Result: CodableRecord {
        var ok = false
        var conversation = ""
        /// The tag of future invitations; new when all were revoked.
        var tag = ""
    }
}

enum InviteInspectMethod: ControlMethod {
    static let name = "invite.inspect"
    static let summary = "Reads an invitation without using it."
    typealias Result = Invite

    struct Params: CodableRecord { var slug = "" }
}
