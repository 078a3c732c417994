import Control
import Cryptography
import Messaging
import NodeRuntime

/// The fields of each event kind, as they are written and as `mayfly schema` lists them.
extension EventKind {
    /// Present in every event, except `inbox`, which only inbox events have.
    static let commonFields = ["cursor", "event", "conversation", "at", "inbox"]

    /// Fields beyond the common ones.
    var fields: [String] {
        switch self {
        case .message: FieldSchema.fields(of: Message.self).map(\.name).filter { !Self.commonFields.contains($0) }
        case .lifetimeProposed, .lifetimeAgreed: LifetimeTermsRecord.fieldNames + ownFields
        default: ownFields
        }
    }

    /// The names of ``Event/values``.
    fileprivate var ownFields: [String] {
        switch self {
        case .message, .messageExpired: ["message"]
        case .messageState: ["message", "state", "stored"]
        case .messageDelivery: ["message", "member", "state"]
        case .attachmentProgress: ["message", "member", "percent"]
        case .lifetimeProposed: ["ours", "proposal"]
        case .lifetimeAgreed: ["agreement", "automatic"]
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

/// One event as subscribers see it: one flat object.
struct Event: JSONWritable {
    /// Increases by one with each event of a node. A subscriber resumes after the last cursor it saw.
    let cursor: Int64
    let event: EventKind
    let at: Timestamp
    var conversation: HexID?
    /// Client id; in inbox events only.
    var inbox: String?
    /// In the order of the kind's own fields; a field beyond the last value is omitted.
    var values: [any JSONWritable] = []
    /// A message, which names its conversation itself, or lifetime terms.
    var record: (any JSONRecord)?

    func write(to writer: inout JSONWriter) {
        writer.object { fields in
            fields.member("cursor", cursor)
            fields.member("event", event)
            fields.member("at", at)
            if let inbox { fields.member("inbox", inbox) }
            if !(record is Message) { fields.member("conversation", OrNull(wrappedValue: conversation)) }
            if var record { record.visit(&fields) }
            for (name, value) in zip(event.ownFields, values) { fields.member(name, value) }
        }
    }
}

extension Event {
    init(_ entry: EventLog.Entry, _ node: isolated Node) {
        let event = entry.event
        var values: [any JSONWritable]? = []
        let kind = Self.describe(event, &values)
        self.init(
            cursor: entry.cursor, event: kind, at: event.at, conversation: event.conversation.map { HexID($0) },
            inbox: event.client?.description, values: values ?? [])
        switch event.kind {
        case .message(let id):
            // An unreadable message is reported by its id only.
            if let client = event.client, let read = node.message(id, client: client),
                let conversation = try? node.conversation(client.description)
            {
                record = Message(read, conversation, node)
                self.values = []
            }
        case .lifetimeProposed(let terms, _, _), .lifetimeAgreed(let terms, _, _): record = LifetimeTermsRecord(terms)
        case .invited(let id, _):
            self.values.append(OrNull(wrappedValue: node.peers.invitations().first { $0.id == id }?.from))
        default: break
        }
    }

    /// - Parameter values: replaced by the event's, unless it is `nil`.
    fileprivate static func describe(_ event: Messaging.Event, _ values: inout [any JSONWritable]?) -> EventKind {
        func row(_ kind: EventKind, _ make: @autoclosure () -> [any JSONWritable] = []) -> EventKind {
            if values != nil { values = make() }
            return kind
        }
        func text(_ value: some CustomStringConvertible) -> String { value.description }
        func name(_ name: String?) -> OrNull<String> { OrNull(wrappedValue: name) }
        func member(_ key: PublicKey) -> String { MemberName.id(key) }
        return switch event.kind {
        case .message(let id): row(.message, [HexID(id)])
        case .messageState(let id, let state, let stored):
            row(.messageState, [HexID(id), state.rawValue] + (stored.map { [$0] } ?? []))
        case .messageExpired(let id): row(.messageExpired, [text(id)])
        case .lifetimeProposed(_, let ours, let id): row(.lifetimeProposed, [ours, text(id)])
        case .lifetimeAgreed(_, let id, let automatic): row(.lifetimeAgreed, [text(id), automatic])
        case .lifetimeSigned(let id, let key): row(.lifetimeSigned, [text(id), member(key)])
        case .lifetimeRejected(let id, let reason): row(.lifetimeRejected, [text(id), reason.rawValue])
        case .lifetimeWithdrawn(let id): row(.lifetimeWithdrawn, [text(id)])
        case .lifetimeExpired(let id): row(.lifetimeExpired, [text(id)])
        case .lifetimeReset(let previous): row(.lifetimeReset, [previous])
        case .lifetimeSuspended(let previous): row(.lifetimeSuspended, [previous])
        case .memberJoined(let key, let profile): row(.memberJoined, [member(key), name(profile)])
        case .memberLeft(let key): row(.memberLeft, [member(key)])
        case .memberRemoved(let key): row(.memberRemoved, [member(key)])
        case .removed: row(.removed)
        case .profileChanged(let key, let profile): row(.profileChanged, [member(key), name(profile)])
        case .joinRequested(let key): row(.joinRequested, [member(key)])
        case .joined: row(.joined)
        case .joinValidated: row(.joinValidated)
        case .joinFailed(let type, let tag):
            row(.joinFailed, [type.rawValue, text(tag), type.userFacingTitle, type.userFacingMessage])
        case .invited(let id, _): row(.invited, [text(id)])
        case .exploded: row(.exploded)
        case .explosionScheduled(let at): row(.explosionScheduled, [at])
        case .explosionReminder(let at): row(.explosionReminder, [at])
        case .deletionReceipt(let key): row(.deletionReceipt, [member(key)])
        case .peerOnline(let key): row(.peerOnline, [member(key)])
        case .peerOffline(let key): row(.peerOffline, [member(key)])
        case .locked: row(.locked)
        case .unlocked: row(.unlocked)
        case .messageDelivery(let id, let key, let state):
            row(.messageDelivery, [text(id), member(key), state.rawValue])
        case .attachmentProgress(let id, let key, let count, let total):
            row(.attachmentProgress, [text(id), member(key), total == 0 ? 100 : count * 100 / total])
        case .conversationUpdated(let title, let isLocked): row(.conversationUpdated, [name(title), isLocked])
        case .groupConflict(let version): row(.groupConflict, [Int64(clamping: version)])
        case .messagesMissed(let key, let count): row(.messagesMissed, [member(key), Int64(clamping: count)])
        case .twoCopies(let key, let ours): row(.twoCopies, [member(key), ours])
        case .inboxAwake(let reason): row(.inboxAwake, [reason.rawValue])
        case .inboxAsleep: row(.inboxAsleep)
        case .codeEnded(let number, let outcome): row(.codeEnded, [Int64(number.value), outcome.rawValue])
        }
    }
}

extension EventKind {
    /// Does not read the message or the conversation: most events have no subscriber.
    init(_ event: Messaging.Event) {
        var none: [any JSONWritable]?
        self = Event.describe(event, &none)
    }
}
