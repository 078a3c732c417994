import Control
import Messaging

enum EventKind: String, JSONChoice, Hashable, Sendable {
    case message
    case messageState
    case messageExpired
    case lifetimeProposed
    /// A member signed the proposal; other signatures are missing.
    case lifetimeSigned
    case lifetimeAgreed
    case lifetimeRejected
    case lifetimeWithdrawn
    case lifetimeExpired
    case lifetimeReset
    case memberJoined
    case memberLeft
    case joinRequested
    case joined
    case joinFailed
    case joinValidated
    case invited
    case exploded
    case explosionScheduled
    case deletionReceipt
    case peerOnline
    case peerOffline
    case inboxAwake
    case inboxAsleep
    case locked
    case unlocked
    case messageDelivery
    case attachmentProgress
    /// The name or the lock state changed.
    case conversationUpdated
    /// The creator signed two different states of one version.
    case groupConflict
    case memberRemoved
    case removed
    case profileChanged
    /// A member gave up messages to us.
    case messagesMissed
    /// Two copies of one home run at once: the member's, or, by the member's report, ours.
    case twoCopies
    case explosionReminder
    /// Events between the requested cursor and this one are no longer kept. `lost` is their number. It is null when
    /// some belong to a run that crashed, or when the cursor belongs to another home.
    case gap
    case lifetimeSuspended
    /// A spoken code was taken or became void.
    case codeEnded
}

struct SubscribeParams: CodableRecord {
    /// Absent for all conversations.
    var conversation: String?
    /// Replay all events after this cursor: 0 from the oldest kept, absent for new events only.
    var since: Int64?
    /// Absent for all kinds.
    var events: [EventKind]?
    /// False does not mark the messages as read, because no user sees them. Absent means true.
    var marksRead: Bool?
}

struct SubscribeResult: CodableRecord {
    /// The newest event so far; the stream continues after it.
    var cursor: Int64 = 0
    /// True when events after `since` are lost or may be. The stream then begins with a `gap`.
    var missed: Bool?
    /// Number of replayed events after `since`; absent for none.
    var replayed: Int?
}

/// The fields of each event kind, for `mayfly schema`.
extension EventKind {
    /// Present in every event, except `inbox`, which only inbox events have.
    static let commonFields = ["cursor", "event", "conversation", "at", "inbox"]

    /// Fields beyond the common ones.
    var fields: [String] {
        switch self {
        case .message: FieldSchema.fields(of: Message.self).map(\.name).filter { !Self.commonFields.contains($0) }
        case .messageState: ["message", "state", "stored"]
        case .messageDelivery: ["message", "member", "state"]
        case .attachmentProgress: ["message", "member", "percent"]
        case .messageExpired: ["message"]
        case .lifetimeProposed: LifetimeTermsRecord.fieldNames + ["ours", "proposal"]
        case .lifetimeAgreed: LifetimeTermsRecord.fieldNames + ["agreement", "automatic"]
        case .lifetimeSigned: ["proposal", "member"]
        case .lifetimeRejected: ["proposal", "reason"]
        case .lifetimeWithdrawn, .lifetimeExpired: ["proposal"]
        case .lifetimeReset, .lifetimeSuspended: ["previous"]
        case .memberJoined, .profileChanged: ["member", "profile"]
        case .memberLeft, .memberRemoved, .joinRequested, .deletionReceipt, .peerOnline, .peerOffline: ["member"]
        case .joinFailed: ["errorType", "inviteTag", "title", "message"]
        case .invited: ["join", "from"]
        case .explosionScheduled, .explosionReminder: ["expiresAt"]
        case .inboxAwake: ["wakeReason"]
        case .joined, .joinValidated, .exploded, .inboxAsleep, .locked, .unlocked, .removed: []
        case .gap: ["lost"]
        case .conversationUpdated: ["name", "locked"]
        case .groupConflict: ["version"]
        case .messagesMissed: ["member", "count"]
        case .twoCopies: ["member", "ours"]
        case .codeEnded: ["number", "outcome"]
        }
    }

    /// The possible values of a field; empty when they are not enumerable.
    static func values(of field: String) -> [String] {
        switch field {
        case "state": Message.states
        case "lifetime", "attachments", "previous": Lifetime.allCases.map(\.rawValue)
        case "outcome": CodeOutcome.allCases.map(\.rawValue)
        case "timer": LifetimeTimer.allCases.map(\.rawValue)
        case "mailbox": MailboxConsent.allCases.filter { $0 != .no }.map(\.rawValue)
        case "stored", "ours", "automatic", "locked", "removed": ["true", "false"]
        default: []
        }
    }
}

/// One event as subscribers see it: the common fields and the fields of its kind.
struct Event: Hashable, Sendable {
    /// Increases by one with each event of a node. A subscriber resumes after the last cursor it saw.
    var cursor: Int64
    var event: EventKind
    var conversation: HexID?
    var at: Timestamp
    /// Client id; in inbox events only.
    var inbox: String?
    var details: Details = .fields([])

    enum Details: Hashable, Sendable {
        case fields([Field])
        case message(Message)
        case terms(LifetimeTermsRecord, [Field])

        fileprivate var others: [Field] {
            switch self {
            case .fields(let fields), .terms(_, let fields): fields
            case .message: []
            }
        }
    }

    struct Field: Hashable, Sendable {
        let name: String
        let value: Value

        init(_ name: String, _ value: Value) {
            self.name = name
            self.value = value
        }
    }

    enum Value: Hashable, Sendable {
        case id(HexID)
        case text(String)
        case number(Int64)
        case flag(Bool)
        case null
    }

    var jsonValue: JSONValue { JSONValue(of: self) }
}

extension Event: JSONWritable {
    /// Writes one flat object; a detail never replaces a common field.
    func write(to writer: inout JSONWriter) {
        writer.object { fields in
            fields.member("cursor", cursor)
            fields.member("event", event)
            fields.member("at", at)
            if let inbox { fields.member("inbox", inbox) }
            // A message names its conversation itself.
            if case .message(var message) = details { return message.visit(&fields) }
            fields.member("conversation", OrNull(wrappedValue: conversation))
            if case .terms(var terms, _) = details { terms.visit(&fields) }
            for detail in details.others where !EventKind.commonFields.contains(detail.name) {
                fields.member(detail.name, detail.value)
            }
        }
    }
}

extension Event.Value: JSONWritable {
    func write(to writer: inout JSONWriter) {
        switch self {
        case .id(let value): value.write(to: &writer)
        case .text(let value): writer.string(value)
        case .number(let value): writer.integer(value)
        case .flag(let value): value.write(to: &writer)
        case .null: writer.literal("null")
        }
    }
}

extension Event.Details: ExpressibleByDictionaryLiteral {
    init(dictionaryLiteral elements: (String, Event.Value)...) { self = .fields(elements.map { Event.Field($0, $1) }) }
}
