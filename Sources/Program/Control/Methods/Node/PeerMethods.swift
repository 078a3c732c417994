import Control

enum PeerMethods {
    static let all: [any ControlMethod.Type] = [
        PeerAddMethod.self, PeerListMethod.self, PeerShowMethod.self, PeerRemoveMethod.self, PeerPingMethod.self,
        PeerBlockMethod.self, PeerUnblockMethod.self, PeerSetMethod.self, PeerCardMethod.self, PeerImportMethod.self,
        PeerExportMethod.self,
    ]
}

struct Peer: JSONRecord, Hashable, Sendable {
    var name = ""
    /// `tcp://host:port`; the same port serves UDP.
    var endpoints: [String] = []
    /// Card of the contact inbox; null when only endpoints are known.
    var contact: String?
    var blocked = false
    /// Policy for the peer's invitations: `ask`, `accept` or `refuse`.
    var invitations = ""
    /// A link is open: to the peer's contact inbox, or to a member that joined by an invite sent to the peer.
    var online = false
    /// The present time while a link is open.
    var lastSeen: Timestamp?
    /// The path of the last contact: `lan`, `direct`, `relayed` or `punched`.
    var path: String?
    /// Last measured round trip, in milliseconds.
    var rttMs: Double?
    /// The link of the last contact.
    var link: Link?
    /// Whether this node uses the peer as a rendezvous node.
    var rendezvous = false
    /// Whether this node uses the peer as its mailbox.
    var mailbox = false

    mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
        try fields.field("name", &name)
        try fields.field("endpoints", &endpoints)
        try fields.nullable("contact", &contact)
        try fields.field("blocked", &blocked)
        try fields.field("invitations", &invitations)
        try fields.field("online", &online)
        try fields.nullable("lastSeen", &lastSeen)
        try fields.nullable("path", &path)
        try fields.nullable("rttMs", &rttMs)
        try fields.nullable("link", &link)
        try fields.field("rendezvous", &rendezvous)
        try fields.field("mailbox", &mailbox)
    }
}

enum PeerAddMethod: ControlMethod {
    static let name = "peer.add"
    static let summary = "Adds a named node by its card or endpoints."
    typealias Result = Peer

    struct Params: JSONRecord, Hashable, Sendable {
        var name = ""
        /// Contact card, as `peer card` prints it.
        var card: String?
        var endpoints: [String]?

        mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
            try fields.field("name", &name)
            try fields.field("card", &card)
            try fields.field("endpoints", &endpoints)
        }
    }
}

enum PeerListMethod: ControlMethod {
    static let name = "peer.list"
    static let summary = "Lists the named nodes."
    typealias Params = Nothing

    struct Result: JSONRecord, Hashable, Sendable {
        var peers: [Peer] = []

        mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
            try fields.field("peers", &peers)
        }
    }
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

    struct Params: JSONRecord, Hashable, Sendable {
        var name = ""
        var timeout: Interval?

        mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
            try fields.field("name", &name)
            try fields.field("timeout", &timeout)
        }
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

    struct Params: JSONRecord, Hashable, Sendable {
        var name = ""
        /// `invitations`, `endpoints`, `rendezvous` or `mailbox`.
        var key = ""
        var value = ""

        mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
            try fields.field("name", &name)
            try fields.field("key", &key)
            try fields.field("value", &value)
        }
    }
}

enum PeerCardMethod: ControlMethod {
    static let name = "peer.card"
    static let summary = "Shows this node's contact card."
    typealias Params = Nothing

    struct Result: JSONRecord, Hashable, Sendable {
        var name: String?
        var endpoints: [String] = []
        var contact = ""

        mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
            try fields.field("name", &name)
            try fields.field("endpoints", &endpoints)
            try fields.field("contact", &contact)
        }
    }
}

enum PeerImportMethod: ControlMethod {
    static let name = "peer.import"
    static let summary = "Adds the nodes of a peers file."

    struct Params: JSONRecord, Hashable, Sendable {
        /// Content of a peers.json file.
        var document: JSONValue = .null

        mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
            try fields.field("document", &document)
        }
    }

    struct Result: JSONRecord, Hashable, Sendable {
        /// The peers added or changed.
        var peers: [Peer] = []

        mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
            try fields.field("peers", &peers)
        }
    }
}

enum PeerExportMethod: ControlMethod {
    static let name = "peer.export"
    static let summary = "Returns the named nodes as a peers file."
    typealias Params = Nothing

    struct Result: JSONRecord, Hashable, Sendable {
        /// Content of a peers.json file.
        var document: JSONValue = .null

        mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
            try fields.field("document", &document)
        }
    }
}
