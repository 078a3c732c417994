import Control
import Messaging

/// Whether messages to an offline member go to its mailbox.
enum MemberMailbox: String, JSONChoice, Hashable, Sendable {
    case yes
    /// The member has named a mailbox, but its keys for sealing contents have not arrived.
    case named
}

struct Member: CodableRecord {
    /// Short name within the conversation.
    var member = ""
    /// The name the member chose for this conversation.
    @OrNull var profile: String?
    /// The named peer that received the member's invite; known to the inviting node alone.
    var peer: String?
    var online = false
    /// `lan`, `direct`, `relayed` or `punched`; null without a link.
    @OrNull var path: String?
    @OrNull var link: Link?
    /// How the last link was lost. Absent after 10 minutes, or when a node closed the link on purpose.
    var lost: LostLink?
    /// Absent without a mailbox, without an agreement on mailboxes, and in a list while the inbox sleeps.
    var mailbox: MemberMailbox?
    /// True when two copies of the member's home run at once; otherwise absent.
    var copied: Bool?
    /// True when the member reports two running copies of our home; otherwise absent.
    var reportsCopies: Bool?
}

struct Conversation: CodableRecord {
    var conversation = ""
    /// Name on this node alone; unique here.
    @OrNull var alias: String?
    /// Name that the creator chose.
    @OrNull var name: String?
    /// `creator` or `member`.
    var role = ""
    var members: [Member] = []
    /// The lifetime in force.
    var lifetime: Lifetime = .ephemeral
    /// The mailbox term of the agreement; absent for none, and in a list while the inbox sleeps.
    var mailbox: MailboxConsent?
    /// When the conversation explodes; null when nothing is scheduled.
    @OrNull var expiresAt: Timestamp?
    var locked = false
    /// `ready`, `scheduled` (explodes at `expiresAt`) or `removed` (the creator removed us). The answer to
    /// `conversation.leave` says `left`.
    var state = ""
    /// Unread messages of other members, at most 1000.
    var unread = 0
    /// Our name in this conversation; absent without one, and in a list while the inbox sleeps.
    var profile: String?
    /// Whether this node sends read receipts; absent in a list while the inbox sleeps.
    var readReceipts: Bool?
    var inbox: String?
}

struct ConversationCreateParams: CodableRecord {
    var name: String?
    /// Our name, as the members see it.
    var profile: String?
    /// Named peers to invite.
    var peers: [String]?
    /// Alias on this node; defaults to `name`. An alias in use is refused.
    var alias: String?

    enum CodingKeys: String, CodingKey {
        case name
        case profile = "as"
        case peers = "with"
        case alias
    }
}

struct ConversationCreateResult: CodableRecord {
    var conversation = ""
    /// The inbox's client id.
    var inbox = ""
    @OrNull var alias: String?
    @OrNull var name: String?
    var inviteTag = ""
}

struct ConversationListResult: CodableRecord { var conversations: [Conversation] = [] }

struct ConversationRenameParams: CodableRecord {
    var conversation = ""
    var name = ""
}

struct ConversationProfileParams: CodableRecord {
    var conversation = ""
    /// Empty removes the name.
    var profile = ""
}

struct ConversationRemoveParams: CodableRecord {
    var conversation = ""
    var member = ""
}

struct ConversationAliasParams: CodableRecord {
    var conversation = ""
    /// Absent removes the alias.
    var alias: String?
}

struct Link: CodableRecord {
    /// `tcp` or `udp`; for a relayed link, the transport to the rendezvous node.
    var transport = ""
    /// `ipv4` or `ipv6`.
    var family = ""
    /// The remote address as this node sees it.
    var address = ""
    /// End of the handshake.
    var since: Timestamp = Timestamp(milliseconds: 0)
    /// Round trip measured by the transport, in milliseconds; null before the first measurement.
    @OrNull var rttMs: Double?
    /// Sealed bytes since the handshake, in each direction.
    var bytesIn: Int64 = 0
    var bytesOut: Int64 = 0
}

/// How the last link to a member was lost.
struct LostLink: CodableRecord {
    /// `tcp` or `udp`.
    var transport = ""
    /// `unacknowledged` (no acknowledgement for half a minute on an open connection) or `connectionLost`.
    var reason = ""

    var words: String {
        guard reason == "unacknowledged" else { return "the connection broke" }
        return "sent data was not acknowledged: the member is gone, or the path drops large packets"
    }
}
