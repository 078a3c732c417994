import Control

enum MailboxMethods { static let all: [any ControlMethod.Type] = [MailboxStatusMethod.self] }

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
struct OwnMailboxStatus: JSONRecord, Hashable, Sendable {
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

    mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
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
struct KeptBox: JSONRecord, Hashable, Sendable {
    /// Owner; absent when it is no longer a named peer.
    var peer: String?
    /// Used slots and bytes; absent until a first request for the box since the start.
    var slots: Int?
    var bytes: Int64?
    /// The owner's last visit.
    var lastSeen = Timestamp(milliseconds: 0)

    mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
        try fields.field("peer", &peer)
        try fields.field("slots", &slots)
        try fields.field("bytes", &bytes)
        try fields.field("lastSeen", &lastSeen)
    }
}

/// The boxes kept for other nodes, with the limits.
struct MailboxServiceStatus: JSONRecord, Hashable, Sendable {
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

    mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
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

struct MailboxStatus: JSONRecord, Hashable, Sendable {
    /// Null when no peer is our mailbox.
    var own: OwnMailboxStatus?
    /// Null when this node is not a mailbox and keeps no boxes.
    var service: MailboxServiceStatus?

    mutating func visit<Fields: FieldVisitor>(_ fields: inout Fields) throws(Fields.Failure) {
        try fields.nullable("own", &own)
        try fields.nullable("service", &service)
    }
}

enum MailboxStatusMethod: ControlMethod {
    static let name = "mailbox.status"
    static let summary = "Shows the state of this node's mailbox, and of the boxes kept for others."
    typealias Params = Nothing
    typealias Result = MailboxStatus
}
