import Control

enum PeerMethods {
    static let all: [any ControlMethod.Type] = [
        PeerAddMethod.self, PeerListMethod.self, PeerShowMethod.self, PeerRemoveMethod.self, PeerPingMethod.self,
        PeerBlockMethod.self, PeerUnblockMethod.self, PeerSetMethod.self, PeerCardMethod.self, PeerImportMethod.self,
        PeerExportMethod.self,
    ]
}

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

enum PeerAddMethod: ControlMethod {
    static let name = "peer.add"
    static let summary = "Adds a named node by its card or endpoints."
    typealias Result = Peer

    struct Params: CodableRecord {
        var name = ""
        /// Contact card, as `peer card` prints it.
        var card: String?
        var endpoints: [String]?
    }
}

enum PeerListMethod: ControlMethod {
    static let name = "peer.list"
    static let summary = "Lists the named nodes."
    typealias Params = Nothing

    struct Result: CodableRecord { var peers: [Peer] = [] }
}

enum PeerShowMethod: ControlMethod {
    static let name = "peer.show"
    static let summary = "Shows one named node."
    typealias Result = Peer
    typealias Params = PeerParams
}

enum PeerRemoveMethod: ControlMethod {
    static let name = "peer.remove"
    static let summary = "Removes a named node."
    typealias Result = Acknowledged
    typealias Params = PeerParams
}

enum PeerPingMethod: ControlMethod {
    static let name = "peer.ping"
    static let summary = "Reaches a named node and measures the round trip."
    typealias Result = Peer

    static func waits(_ params: Params) -> Bool { true }

    struct Params: CodableRecord {
        var name = ""
        var timeout: Interval?
    }
}

enum PeerBlockMethod: ControlMethod {
    static let name = "peer.block"
    static let summary = "Refuses pings and invitations from a named node."
    typealias Result = Peer
    typealias Params = PeerParams
}

enum PeerUnblockMethod: ControlMethod {
    static let name = "peer.unblock"
    static let summary = "Allows pings and invitations from a named node again."
    typealias Result = Peer
    typealias Params = PeerParams
}

enum PeerSetMethod: ControlMethod {
    static let name = "peer.set"
    static let summary = "Changes one property of a named node."
    typealias Result = Peer

    struct Params: CodableRecord {
        var name = ""
        /// `invitations`, `endpoints`, `rendezvous` or `mailbox`.
        var key = ""
        var value = ""
    }
}

enum PeerCardMethod: ControlMethod {
    static let name = "peer.card"
    static let summary = "Shows this node's contact card."
    typealias Params = Nothing

    struct Result: CodableRecord {
        var name: String?
        var endpoints: [String] = []
        var contact = ""
    }
}

enum PeerImportMethod: ControlMethod {
    static let name = "peer.import"
    static let summary = "Adds the nodes of a peers file."

    struct Params: CodableRecord {
        /// Content of a peers.json file.
        var document: JSONValue = .null
    }

    struct Result: CodableRecord {
        /// The peers added or changed.
        var peers: [Peer] = []
    }
}

enum PeerExportMethod: ControlMethod {
    static let name = "peer.export"
    static let summary = "Returns the named nodes as a peers file."
    typealias Params = Nothing

    struct Result: CodableRecord {
        /// Content of a peers.json file.
        var document: JSONValue = .null
    }
}
