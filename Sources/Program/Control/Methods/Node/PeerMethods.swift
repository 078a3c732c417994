import Control

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

struct PeerImportResult: CodableRecord {
    /// The peers added or changed.
    var peers: [Peer] = []
}

struct PeerExportResult: CodableRecord {
    /// Content of a peers.json file.
    var document: JSONValue = .null
}
