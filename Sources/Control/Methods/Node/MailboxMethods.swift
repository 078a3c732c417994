package enum MailboxMethods { package static let all: [any ControlMethod.Type] = [MailboxStatusMethod.self] }

/// State of our mailbox.
package enum MailboxStanding: String, JSONChoice, Hashable, Sendable {
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
package struct OwnMailboxStatus: JSONRecord, Hashable, Sendable {
    /// Name in `peers.json`.
    package var peer = ""
    package var state: MailboxStanding = .unused
    /// `notServing`, `unknownPeer`, `full`, `unavailable` or `other`; only with `refused`.
    package var reason: String?
    /// Describes `state`.
    package var message = ""
    /// Advice; absent when no action is needed.
    package var hint: String?
    /// Number of conversations that need a box.
    package var boxes: Int = 0
    /// Grant: maximum number of boxes, slots and bytes per box, and the longest lifetime. Absent without a grant.
    package var boxesMax: Int?
    package var slotsPerBox: Int?
    package var bytesPerBox: Int64?
    package var longest: Interval?
    /// Slots fetched since the start.
    package var taken: Int64 = 0

    package init(peer: String, state: MailboxStanding, reason: String? = nil, message: String, hint: String? = nil) {
        self.peer = peer
        self.state = state
        self.reason = reason
        self.message = message
        self.hint = hint
    }

    package init() {}

    package mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
        try fields.field("peer", &peer)
        try fields.field("state", &state)
        try fields.field("reason", &reason)
        try fields.field("message", &message)
        try fields.field("hint", &hint)
        try fields.field("boxes", &boxes)
        try fields.field("boxesMax", &boxesMax)
        try fields.field("slotsPerBox", &slotsPerBox)
        try fields.field("bytesPerBox", &bytesPerBox)
        try fields.field("longest", &longest)
        try fields.field("taken", &taken)
    }
}

/// A box kept for another node.
package struct KeptBox: JSONRecord, Hashable, Sendable {
    /// Owner; absent when it is no longer a named peer.
    package var peer: String?
    /// Used slots and bytes; absent until a first request for the box since the start.
    package var slots: Int?
    package var bytes: Int64?
    /// The owner's last visit.
    package var lastSeen = Timestamp(milliseconds: 0)

    package init(peer: String?, slots: Int?, bytes: Int64?, lastSeen: Timestamp) {
        self.peer = peer
        self.slots = slots
        self.bytes = bytes
        self.lastSeen = lastSeen
    }

    package init() {}

    package mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
        try fields.field("peer", &peer)
        try fields.field("slots", &slots)
        try fields.field("bytes", &bytes)
        try fields.field("lastSeen", &lastSeen)
    }
}

/// The boxes kept for other nodes, with the limits.
package struct MailboxServiceStatus: JSONRecord, Hashable, Sendable {
    /// False stops new contents; kept ones stay.
    package var serving = false
    /// Number of nodes with boxes here.
    package var owners: Int = 0
    package var boxes: Int = 0
    package var boxesMax: Int = 0
    /// Boxes without a request since the start; the figures below do not count their slots.
    package var boxesUnread: Int = 0
    /// Used slots in all other boxes, and the maximum per box.
    package var slots: Int = 0
    package var slotsPerBox: Int = 0
    /// Bytes on disk, and the maximum per box including bytes in memory.
    package var bytes: Int64 = 0
    package var bytesPerBox: Int64 = 0
    /// Bytes in memory, and the maximum over all boxes.
    package var memoryBytes: Int64 = 0
    package var memoryBytesMax: Int64 = 0
    /// Longest lifetime in a box; explosion notices may stay longer.
    package var longest = Interval(milliseconds: 0)
    /// Slots since the start.
    package var put: Int64 = 0
    package var taken: Int64 = 0
    package var discarded: Int64 = 0
    package var expired: Int64 = 0
    /// Requests refused since the start.
    package var refused: Int64 = 0
    /// Only in `mailbox.status`.
    package var kept: [KeptBox]?

    package init() {}

    package mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
        try fields.field("serving", &serving)
        try fields.field("owners", &owners)
        try fields.field("boxes", &boxes)
        try fields.field("boxesMax", &boxesMax)
        try fields.field("boxesUnread", &boxesUnread)
        try fields.field("slots", &slots)
        try fields.field("slotsPerBox", &slotsPerBox)
        try fields.field("bytes", &bytes)
        try fields.field("bytesPerBox", &bytesPerBox)
        try fields.field("memoryBytes", &memoryBytes)
        try fields.field("memoryBytesMax", &memoryBytesMax)
        try fields.field("longest", &longest)
        try fields.field("put", &put)
        try fields.field("taken", &taken)
        try fields.field("discarded", &discarded)
        try fields.field("expired", &expired)
        try fields.field("refused", &refused)
        try fields.field("kept", &kept)
    }
}

package struct MailboxStatus: JSONRecord, Hashable, Sendable {
    /// Null when no peer is our mailbox.
    package var own: OwnMailboxStatus?
    /// Null when this node is not a mailbox and keeps no boxes.
    package var service: MailboxServiceStatus?

    package init(own: OwnMailboxStatus?, service: MailboxServiceStatus?) {
        self.own = own
        self.service = service
    }

    package init() {}

    package mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
        try fields.nullable("own", &own)
        try fields.nullable("service", &service)
    }
}

package enum MailboxStatusMethod: ControlMethod {
    package static let name = "mailbox.status"
    package static let summary = "Tells how our mailbox stands, and what is kept here for others."
    package typealias Params = Nothing
    package typealias Result = MailboxStatus
}
