import Control
import Messaging

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

struct InviteCreateParams: CodableRecord {
    var conversation = ""
    /// Absent means 24 h.
    var expiresIn: Interval?
    var singleUse: Bool?
}

struct InviteListResult: CodableRecord {
    var invites: [Invite] = []
    var codes: [OpenInviteCode] = []
}

/// A spoken code that is still open.
struct OpenInviteCode: CodableRecord {
    var code = ""
    var expiresAt: Timestamp = Timestamp(milliseconds: 0)
}

struct InviteRevokeParams: CodableRecord {
    var conversation = ""
    /// Invite link, or a prefix of the id. Absent means all.
    var invite: String?
}

struct InviteRevokeResult: CodableRecord {
    var ok = false
    var conversation = ""
    /// The tag of future invitations; new when all were revoked.
    var tag = ""
}

struct InviteInspectParams: CodableRecord { var slug = "" }
