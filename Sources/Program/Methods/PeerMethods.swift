import Control
import Messaging

struct Peer: CodableRecord {
    var name = ""
    /// `tcp://host:port`; the same port serves UDP.
    var endpoints: [String] = []
    /// Card of the contact inbox; null when only endpoints are known.
    @OrNull var contact: String?
    var blocked = false
    /// Policy for the peer's invitations: `ask`, `accept` or `refuse`.
    var invitations = ""
    /// A link is open: to the peer's contact inbox, or to a member that joined by an invite sent to the peer.
    var online = false
    /// The present time while a link is open.
    @OrNull var lastSeen: Timestamp?
    /// The path of the last contact: `lan`, `direct`, `relayed` or `punched`.
    @OrNull var path: String?
    /// Last measured round trip, in milliseconds.
    @OrNull var rttMs: Double?
    /// The link of the last contact.
    @OrNull var link: Link?
    /// Whether this node uses the peer as a rendezvous node.
    var rendezvous = false
    /// Whether this node uses the peer as its mailbox.
    var mailbox = false
}

struct PeerAddParams: CodableRecord {
    var name = ""
    /// Contact card, as `peer card` prints it.
    var card: String?
    var endpoints: [String]?
}

struct PeerListResult: CodableRecord { var peers: [Peer] = [] }

struct PeerPingParams: CodableRecord {
    var name = ""
    var timeout: Interval?
}

struct PeerSetParams: CodableRecord {
    var name = ""
    /// `invitations`, `endpoints`, `rendezvous` or `mailbox`.
    var key = ""
    var value = ""
}

struct PeerCardResult: CodableRecord {
    var name: String?
    var endpoints: [String] = []
    var contact = ""
}

struct PeerImportParams: CodableRecord {
    /// Content of a peers.json file.
    var document: JSONValue = .null
}

struct PeerExportResult: CodableRecord {
    /// Content of a peers.json file.
    var document: JSONValue = .null
}

/// State of our mailbox.
enum MailboxStanding: String, JSONChoice, Hashable, Sendable {
    /// The mailbox accepts contents for us.
    case granted
    case asking
    case unreachable
    /// `reason` says why.
    case refused
    /// No conversation has agreed to a mailbox.
    case unused
}

/// The peer that keeps contents for this node while it is offline.
struct OwnMailboxStatus: CodableRecord {
    /// Name in `peers.json`.
    var peer = ""
    var state: MailboxStanding = .unused
    /// `notServing`, `unknownPeer`, `full`, `unavailable` or `other`; only with `refused`.
    var reason: String?
    /// Describes `state`.
    var message = ""
    /// Advice; absent when no action is needed.
    var hint: String?
    /// Number of conversations that need a box.
    var boxes: Int = 0
    /// Grant: maximum number of boxes, slots and bytes per box, and the longest lifetime. Absent without a grant.
    var boxesMax: Int?
    var slotsPerBox: Int?
    var bytesPerBox: Int64?
    var longest: Interval?
    /// Slots fetched since the start.
    var taken: Int64 = 0
}

/// A box kept for another node.
struct KeptBox: CodableRecord {
    /// Owner; absent when it is no longer a named peer.
    var peer: String?
    /// Used slots and bytes; absent until a first request for the box since the start.
    var slots: Int?
    var bytes: Int64?
    /// The owner's last visit.
    var lastSeen = Timestamp(milliseconds: 0)
}

/// The boxes kept for other nodes, with the limits.
struct MailboxServiceStatus: CodableRecord {
    /// False stops new contents; kept ones stay.
    var serving = false
    /// Number of nodes with boxes here.
    var owners: Int = 0
    var boxes: Int = 0
    var boxesMax: Int = 0
    /// Boxes without a request since the start; the figures below do not count their slots.
    var boxesUnread: Int = 0
    /// Used slots in all other boxes, and the maximum per box.
    var slots: Int = 0
    var slotsPerBox: Int = 0
    /// Bytes on disk, and the maximum per box including bytes in memory.
    var bytes: Int64 = 0
    var bytesPerBox: Int64 = 0
    /// Bytes in memory, and the maximum over all boxes.
    var memoryBytes: Int64 = 0
    var memoryBytesMax: Int64 = 0
    /// Longest lifetime in a box; explosion notices may stay longer.
    var longest = Interval(milliseconds: 0)
    /// Slots since the start.
    var put: Int64 = 0
    var taken: Int64 = 0
    var discarded: Int64 = 0
    var expired: Int64 = 0
    /// Requests refused since the start.
    var refused: Int64 = 0
    /// Only in `mailbox.status`.
    var kept: [KeptBox]?
}

struct MailboxStatus: CodableRecord {
    /// Null when no peer is our mailbox.
    @OrNull var own: OwnMailboxStatus?
    /// Null when this node is not a mailbox and keeps no boxes.
    @OrNull var service: MailboxServiceStatus?
}
