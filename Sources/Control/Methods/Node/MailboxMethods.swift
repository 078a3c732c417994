/// Contents that a third node keeps for a member that is away.
package enum MailboxMethods { package static let all: [any ControlMethod.Type] = [MailboxStatusMethod.self] }

/// How our mailbox stands.
package enum MailboxStanding: String, JSONChoice, Hashable, Sendable {
    /// It keeps what comes for us.
    case granted
    case asking
    case unreachable
    /// `reason` says why.
    case refused
    /// No conversation has agreed to a mailbox.
    case unused
}

/// The peer that keeps what comes for this node while it is away.
package struct OwnMailboxStatus: JSONRecord, Hashable, Sendable {
    /// Its name in `peers.json`.
    package var peer = ""
    package var state: MailboxStanding = .unused
    /// Of a refusal: `notServing`, `unknownPeer`, `full`, `unavailable` or `other`.
    package var reason: String?
    /// `state` in a phrase.
    package var message = ""
    /// What to do about it; absent when there is nothing to do.
    package var hint: String?
    /// Conversations for which a box is wanted.
    package var boxes: Int = 0
    /// What it grants: boxes, of each slots and bytes, and for how long it keeps anything; absent unless it does.
    package var boxesMax: Int?
    package var slotsPerBox: Int?
    package var bytesPerBox: Int64?
    package var longest: Interval?
    /// Slots that were taken since the start.
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

/// A box that is kept for another node.
package struct KeptBox: JSONRecord, Hashable, Sendable {
    /// Its owner; absent when it is not a named peer any more.
    package var peer: String?
    /// Slots that are used; absent until somebody has asked for the box since the start.
    package var slots: Int?
    package var bytes: Int64?
    /// When the owner last came.
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

/// What this node keeps for others as a mailbox, and what it may keep at most.
package struct MailboxServiceStatus: JSONRecord, Hashable, Sendable {
    /// Whether it takes anything; if not, it keeps what it has.
    package var serving = false
    /// Nodes for which it keeps boxes, now.
    package var owners: Int = 0
    package var boxes: Int = 0
    package var boxesMax: Int = 0
    /// Boxes for which nobody has asked since the start: what is in them is not counted.
    package var boxesUnread: Int = 0
    /// Slots that are used, of all boxes but those, and of one box at most.
    package var slots: Int = 0
    package var slotsPerBox: Int = 0
    /// Bytes on the disk, and of one box at most, in memory included.
    package var bytes: Int64 = 0
    package var bytesPerBox: Int64 = 0
    /// Bytes in memory alone, and of all boxes at most.
    package var memoryBytes: Int64 = 0
    package var memoryBytesMax: Int64 = 0
    /// Nothing is kept for longer, but notices of explosions.
    package var longest = Interval(milliseconds: 0)
    /// Slots since the start.
    package var put: Int64 = 0
    package var taken: Int64 = 0
    package var discarded: Int64 = 0
    package var expired: Int64 = 0
    /// Requests that were refused since the start.
    package var refused: Int64 = 0
    /// Each box; in `mailbox.status` alone.
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

/// Mailboxes, from both sides.
package struct MailboxStatus: JSONRecord, Hashable, Sendable {
    /// Null when no peer is our mailbox.
    package var own: OwnMailboxStatus?
    /// Null when this node serves nobody as a mailbox and keeps nothing for others.
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

/// `mailbox.status`: tells how our mailbox stands, and what is kept here for others.
package enum MailboxStatusMethod: ControlMethod {
    package static let name = "mailbox.status"
    package static let summary = "Tells how our mailbox stands, and what is kept here for others."
    package typealias Params = Nothing
    package typealias Result = MailboxStatus
}
