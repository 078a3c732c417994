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
    var inbox = ""
    @OrNull var alias: String?
    @OrNull var name: String?
    var inviteTag = ""
}

struct ConversationListResult: CodableRecord {
    /// Ascending by the time of joining.
    var conversations: [Conversation] = []
    /// Present when the answer was cut; pass it as `from`.
    var next: String?
}

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
    /// The keys come from ML-KEM, too: a quantum computer alone does not read a recorded link.
    var postQuantum = false
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

/// Whether the inbox named in the invitation signed it.
enum InviteSignature: String, JSONChoice, Hashable, Sendable {
    case valid
    case invalid
}

struct Invite: CodableRecord {
    /// Invite link, `mayfly:join/…`; null in a list, because the creator keeps only a hash of the secret.
    @OrNull var slug: String?
    /// Hash of the secret, in hex; `mayfly invite revoke` takes a prefix of it.
    var id: String?
    /// Invitations with the same tag are revoked together.
    var tag = ""
    @OrNull var expiresAt: Timestamp?
    var singleUse = false
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

enum JoinStage: String, JSONChoice, Hashable, Sendable {
    /// A peer sent an invitation; `mayfly join` accepts it.
    case invited
    /// The creator is asked whether we are still a member.
    case validating
    /// The creator has admitted us to a conversation that keeps messages as `agreement` says. `mayfly join ID` agrees.
    case validated
    case joining
    case ready
    case joinFailed
    case cancelled
}

struct JoinStatus: CodableRecord {
    var join = ""
    var state: JoinStage = .invited
    /// Present when ready.
    var conversation: String?
    /// Alias on this node; present when ready, unless there is none.
    var alias: String?
    /// The creator's name for the conversation; present when ready or invited, unless it has no name.
    var name: String?
    /// The agreement of the conversation; present when ready or validated, unless it keeps nothing.
    var agreement: LifetimeAgreement?
    /// The named peer that sent the invitation; present when invited by one.
    var from: String?
    var inviteTag: String?
    /// Present when failed: `conversation_expired`, `single_use_consumed` or `generic_failure`.
    var errorType: String?
    /// Short text for a person; present when failed.
    var title: String?
    /// Sentence for a person; present when failed.
    var message: String?
    var startedAt: Timestamp?
    /// When the join gives up.
    var expiresAt: Timestamp?
    /// Dials to the creator since the node started; present while joining.
    var attempts: Int?
    /// When the node next dials the creator; present while joining, absent during a dial.
    var nextAttempt: Timestamp?
}

struct JoinParams: CodableRecord {
    /// An invite link with or without `mayfly:join/`, the id of a received invitation or of a `validated` join, or a
    /// spoken code.
    var slug = ""
    /// Our name, as the members see it.
    var profile: String?
    /// Absent means 60 s.
    var timeout: Interval?
    /// False answers at once. Absent means true.
    var wait: Bool?
    /// False asks with state `validated` if the conversation keeps what the default policy does not accept. Absent
    /// means true.
    var accept: Bool?
    /// Alias on this node. Absent means the conversation's name, with a number appended if it is in use.
    var alias: String?
    /// Address of the code's issuer: HOST, HOST:PORT or tcp://HOST:PORT. Absent means this network.
    var at: String?

    enum CodingKeys: String, CodingKey {
        case slug
        case profile = "as"
        case timeout, wait, accept, alias, at
    }
}

struct JoinListResult: CodableRecord { var joins: [JoinStatus] = [] }
