package enum PeerMethods {
    package static let all: [any ControlMethod.Type] = [
        PeerAddMethod.self, PeerListMethod.self, PeerShowMethod.self, PeerRemoveMethod.self, PeerPingMethod.self,
        PeerBlockMethod.self, PeerUnblockMethod.self, PeerSetMethod.self, PeerCardMethod.self, PeerImportMethod.self,
        PeerExportMethod.self,
    ]
}

package struct Peer: JSONRecord, Hashable, Sendable {
    package var name = ""
    /// `tcp://host:port`; the same port serves UDP.
    package var endpoints: [String] = []
    /// Card of the contact inbox; null when only endpoints are known.
    package var contact: String?
    package var blocked = false
    /// Policy for the peer's invitations: `ask`, `accept` or `refuse`.
    package var invitations = ""
    /// A link is open: to the peer's contact inbox, or to a member that joined by an invite sent to the peer.
    package var online = false
    /// The present time while a link is open.
    package var lastSeen: Timestamp?
    /// The path of the last contact: `lan`, `direct`, `relayed` or `punched`.
    package var path: String?
    /// Last measured round trip, in milliseconds.
    package var rttMs: Double?
    /// The link of the last contact.
    package var link: Link?
    /// Whether this node uses the peer as a rendezvous node.
    package var rendezvous = false
    /// Whether this node uses the peer as its mailbox.
    package var mailbox = false

    package init(
        name: String, endpoints: [String], contact: String? = nil, blocked: Bool, invitations: String,
        online: Bool = false, lastSeen: Timestamp? = nil, path: String? = nil, rttMs: Double? = nil, link: Link? = nil,
        rendezvous: Bool = false, mailbox: Bool = false
    ) {
        self.name = name
        self.endpoints = endpoints
        self.contact = contact
        self.blocked = blocked
        self.invitations = invitations
        self.online = online
        self.lastSeen = lastSeen
        self.path = path
        self.rttMs = rttMs
        self.link = link
        self.rendezvous = rendezvous
        self.mailbox = mailbox
    }

    package init() {}

    package mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
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

package enum PeerAddMethod: ControlMethod {
    package static let name = "peer.add"
    package static let summary = "Names a node, by its card or its endpoints."
    package typealias Result = Peer

    package struct Params: JSONRecord, Hashable, Sendable {
        package var name = ""
        /// Contact card, as `peer card` prints it.
        package var card: String?
        package var endpoints: [String]?

        package init(name: String, card: String? = nil, endpoints: [String]? = nil) {
            self.name = name
            self.card = card
            self.endpoints = endpoints
        }

        package init() {}

        package mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
            try fields.field("name", &name)
            try fields.field("card", &card)
            try fields.field("endpoints", &endpoints)
        }
    }
}

package enum PeerListMethod: ControlMethod {
    package static let name = "peer.list"
    package static let summary = "Lists the named nodes."
    package typealias Params = Nothing

    package struct Result: JSONRecord, Hashable, Sendable {
        package var peers: [Peer] = []

        package init(peers: [Peer]) { self.peers = peers }

        package init() {}

        package mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
            try fields.field("peers", &peers)
        }
    }
}

package enum PeerShowMethod: ControlMethod {
    package static let name = "peer.show"
    package static let summary = "Shows one named node."
    package typealias Result = Peer
    package typealias Params = PeerParams
}

package enum PeerRemoveMethod: ControlMethod {
    package static let name = "peer.remove"
    package static let summary = "Forgets a named node."
    package typealias Result = Acknowledged
    package typealias Params = PeerParams
}

package enum PeerPingMethod: ControlMethod {
    package static let name = "peer.ping"
    package static let summary = "Reaches a named node and measures the round trip."
    package typealias Result = Peer

    package static func waits(_ params: Params) -> Bool { true }

    package struct Params: JSONRecord, Hashable, Sendable {
        package var name = ""
        package var timeout: Interval?

        package init(name: String, timeout: Interval? = nil) {
            self.name = name
            self.timeout = timeout
        }

        package init() {}

        package mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
            try fields.field("name", &name)
            try fields.field("timeout", &timeout)
        }
    }
}

package enum PeerBlockMethod: ControlMethod {
    package static let name = "peer.block"
    package static let summary = "Refuses pings and invitations of a named node."
    package typealias Result = Peer
    package typealias Params = PeerParams
}

package enum PeerUnblockMethod: ControlMethod {
    package static let name = "peer.unblock"
    package static let summary = "Accepts pings and invitations of a named node again."
    package typealias Result = Peer
    package typealias Params = PeerParams
}

package enum PeerSetMethod: ControlMethod {
    package static let name = "peer.set"
    package static let summary = "Changes one property of a named node."
    package typealias Result = Peer

    package struct Params: JSONRecord, Hashable, Sendable {
        package var name = ""
        /// `invitations`, `endpoints`, `rendezvous` or `mailbox`.
        package var key = ""
        package var value = ""

        package init(name: String, key: String, value: String) {
            self.name = name
            self.key = key
            self.value = value
        }

        package init() {}

        package mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
            try fields.field("name", &name)
            try fields.field("key", &key)
            try fields.field("value", &value)
        }
    }
}

package enum PeerCardMethod: ControlMethod {
    package static let name = "peer.card"
    package static let summary = "Shows the card by which others can name this node."
    package typealias Params = Nothing

    package struct Result: JSONRecord, Hashable, Sendable {
        package var name: String?
        package var endpoints: [String] = []
        package var contact = ""

        package init(name: String? = nil, endpoints: [String], contact: String) {
            self.name = name
            self.endpoints = endpoints
            self.contact = contact
        }

        package init() {}

        package mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
            try fields.field("name", &name)
            try fields.field("endpoints", &endpoints)
            try fields.field("contact", &contact)
        }
    }
}

package enum PeerImportMethod: ControlMethod {
    package static let name = "peer.import"
    package static let summary = "Adds the nodes of a peers file."

    package struct Params: JSONRecord, Hashable, Sendable {
        /// Content of a peers.json file.
        package var document: JSONValue = .null

        package init(document: JSONValue) { self.document = document }

        package init() {}

        package mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
            try fields.field("document", &document)
        }
    }

    package struct Result: JSONRecord, Hashable, Sendable {
        /// The peers added or changed.
        package var peers: [Peer] = []

        package init(peers: [Peer]) { self.peers = peers }

        package init() {}

        package mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
            try fields.field("peers", &peers)
        }
    }
}

package enum PeerExportMethod: ControlMethod {
    package static let name = "peer.export"
    package static let summary = "Writes the named nodes as a peers file."
    package typealias Params = Nothing

    package struct Result: JSONRecord, Hashable, Sendable {
        /// Content of a peers.json file.
        package var document: JSONValue = .null

        package init(document: JSONValue) { self.document = document }

        package init() {}

        package mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
            try fields.field("document", &document)
        }
    }
}
