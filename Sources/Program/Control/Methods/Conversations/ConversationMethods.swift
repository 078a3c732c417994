import Control
import Messaging

enum ConversationMethods {
    static let all: [any ControlMethod.Type] = [
        ConversationCreateMethod.self, ConversationListMethod.self, ConversationShowMethod.self,
        ConversationMembersMethod.self, ConversationLeaveMethod.self, ConversationLockMethod.self,
        ConversationUnlockMethod.self, ConversationCloseMethod.self, ConversationRenameMethod.self,
        ConversationRemoveMethod.self, ConversationProfileMethod.self, ConversationAliasMethod.self,
    ]
}

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

enum ConversationCreateMethod: ControlMethod {
    static let name = "conversation.create"
    static let summary = "Creates a conversation with its own inbox."

    struct Params: CodableRecord {
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

    struct Result: CodableRecord {
        var conversation = ""
        /// The inbox's client id.
        var inbox = ""
        @OrNull var alias: String?
        @OrNull var name: String?
        var inviteTag = ""
    }
}

enum ConversationListMethod: ControlMethod {
    static let name = "conversation.list"
    static let summary = "Lists the conversations."
    typealias Params = Nothing

    struct Result: CodableRecord { var conversations: [Conversation] = [] }
}

enum ConversationShowMethod: ControlMethod {
    static let name = "conversation.show"
    static let summary = "Shows one conversation."
    typealias Result = Conversation
    typealias Params = ConversationParams
}

enum ConversationMembersMethod: ControlMethod {
    static let name = "conversation.members"
    static let summary = "Lists the members of a conversation."
    typealias Result = Conversation
    typealias Params = ConversationParams
}

enum ConversationLeaveMethod: ControlMethod {
    static let name = "conversation.leave"
    static let summary = "Leaves a conversation and destroys the local copy."
    typealias Result = Conversation
    typealias Params = ConversationParams
}

enum ConversationLockMethod: ControlMethod {
    static let name = "conversation.lock"
    static let summary = "Stops new members from joining and revokes all invitations."
    typealias Result = Conversation
    typealias Params = ConversationParams
}

enum ConversationUnlockMethod: ControlMethod {
    static let name = "conversation.unlock"
    static let summary = "Allows joining by new invitations again."
    typealias Result = Conversation
    typealias Params = ConversationParams
}

enum ConversationCloseMethod: ControlMethod {
    static let name = "conversation.close"
    static let summary = "Closes a conversation on this node and discards its ephemeral messages."
    typealias Result = Conversation
    typealias Params = ConversationParams
}

enum ConversationRenameMethod: ControlMethod {
    static let name = "conversation.rename"
    static let summary = "Renames a conversation."
    typealias Result = Conversation

    struct Params: CodableRecord {
        var conversation = ""
        var name = ""
    }
}

enum ConversationProfileMethod: ControlMethod {
    static let name = "conversation.profile"
    static let summary = "Sets your own name in a conversation."
    typealias Result = Conversation

    struct Params: CodableRecord {
        var conversation = ""
        /// Empty removes the name.
        var profile = ""
    }
}

enum ConversationRemoveMethod: ControlMethod {
    static let name = "conversation.remove"
    static let summary = "Removes a member and revokes all invitations."
    typealias Result = Conversation

    struct Params: CodableRecord {
        var conversation = ""
        var member = ""
    }
}

enum ConversationAliasMethod: ControlMethod {
    static let name = "conversation.alias"
    static let summary = "Sets or removes the local alias of a conversation."
    typealias Result = Conversation

    struct Params: CodableRecord {
        var conversation = ""
        /// Absent removes the alias.
        var alias: String?
    }
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
