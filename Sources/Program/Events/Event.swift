import Control
import Cryptography
import Messaging
import NodeRuntime

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

extension Event {
    init(_ entry: EventLog.Entry, _ node: isolated Node) {
        let event = entry.event
        var details: Event.Details? = [:]
        let kind = Self.describe(event, &details)
        switch event.kind {
        case .message(let id):
            // An unreadable message is reported by its id only.
            if let client = event.client, let read = node.message(id, client: client),
                let conversation = try? node.conversation(client.description)
            {
                details = .message(Message(read, conversation, node))
            } else {
                details = ["message": .id(HexID(id))]
            }
        case .invited(let id, _):
            let from = node.peers.invitations().first { $0.id == id }?.from
            details = ["join": .text(id.description), "from": from.map { .text($0) } ?? .null]
        default: break
        }
        self.init(
            cursor: entry.cursor, event: kind, conversation: event.conversation.map { HexID($0) }, at: event.at,
            inbox: event.client?.description, details: details ?? [:])
    }

    /// - Parameter details: replaced by the event's, unless it is `nil`.
    fileprivate static func describe(_ event: Messaging.Event, _ details: inout Event.Details?) -> EventKind {
        func row(_ kind: EventKind, _ make: @autoclosure () -> Event.Details = [:]) -> EventKind {
            if details != nil { details = make() }
            return kind
        }
        func text(_ value: some CustomStringConvertible) -> Event.Value { .text(value.description) }
        func name(_ name: String?) -> Event.Value { name.map { .text($0) } ?? .null }
        func number(_ value: some BinaryInteger) -> Event.Value { .number(Int64(clamping: value)) }
        func member(_ key: PublicKey) -> Event.Value { .text(MemberName.id(key)) }
        return switch event.kind {
        case .message: row(.message)
        case .messageState(let id, let state, let stored):
            row(
                .messageState,
                .fields(
                    [.init("message", .id(HexID(id))), .init("state", .text(state.rawValue))]
                        + (stored.map { [.init("stored", .flag($0))] } ?? [])))
        case .messageExpired(let id): row(.messageExpired, ["message": text(id)])
        case .lifetimeProposed(let terms, let ours, let id):
            row(.lifetimeProposed, .terms(.init(terms), [.init("ours", .flag(ours)), .init("proposal", text(id))]))
        case .lifetimeAgreed(let terms, let id, let automatic):
            row(
                .lifetimeAgreed,
                .terms(.init(terms), [.init("agreement", text(id)), .init("automatic", .flag(automatic))]))
        case .lifetimeSigned(let id, let key): row(.lifetimeSigned, ["proposal": text(id), "member": member(key)])
        case .lifetimeRejected(let id, let reason):
            row(.lifetimeRejected, ["proposal": text(id), "reason": .text(reason.rawValue)])
        case .lifetimeWithdrawn(let id): row(.lifetimeWithdrawn, ["proposal": text(id)])
        case .lifetimeExpired(let id): row(.lifetimeExpired, ["proposal": text(id)])
        case .lifetimeReset(let previous): row(.lifetimeReset, ["previous": .text(previous.rawValue)])
        case .lifetimeSuspended(let previous): row(.lifetimeSuspended, ["previous": .text(previous.rawValue)])
        case .memberJoined(let key, let profile): row(.memberJoined, ["member": member(key), "profile": name(profile)])
        case .memberLeft(let key): row(.memberLeft, ["member": member(key)])
        case .memberRemoved(let key): row(.memberRemoved, ["member": member(key)])
        case .removed: row(.removed)
        case .profileChanged(let key, let profile):
            row(.profileChanged, ["member": member(key), "profile": name(profile)])
        case .joinRequested(let key): row(.joinRequested, ["member": member(key)])
        case .joined: row(.joined)
        case .joinValidated: row(.joinValidated)
        case .joinFailed(let type, let tag):
            row(
                .joinFailed,
                [
                    "errorType": .text(type.rawValue), "inviteTag": text(tag), "title": .text(type.userFacingTitle),
                    "message": .text(type.userFacingMessage),
                ])
        case .invited: row(.invited)
        case .exploded: row(.exploded)
        case .explosionScheduled(let at): row(.explosionScheduled, ["expiresAt": .text(at.exactISO8601)])
        case .explosionReminder(let at): row(.explosionReminder, ["expiresAt": .text(at.exactISO8601)])
        case .deletionReceipt(let key): row(.deletionReceipt, ["member": member(key)])
        case .peerOnline(let key): row(.peerOnline, ["member": member(key)])
        case .peerOffline(let key): row(.peerOffline, ["member": member(key)])
        case .locked: row(.locked)
        case .unlocked: row(.unlocked)
        case .messageDelivery(let id, let key, let state):
            row(.messageDelivery, ["message": text(id), "member": member(key), "state": .text(state.rawValue)])
        case .attachmentProgress(let id, let key, let count, let total):
            row(
                .attachmentProgress,
                ["message": text(id), "member": member(key), "percent": number(total == 0 ? 100 : count * 100 / total)])
        case .conversationUpdated(let title, let isLocked):
            row(.conversationUpdated, ["name": name(title), "locked": .flag(isLocked)])
        case .groupConflict(let version): row(.groupConflict, ["version": number(version)])
        case .messagesMissed(let key, let count): row(.messagesMissed, ["member": member(key), "count": number(count)])
        case .twoCopies(let key, let ours): row(.twoCopies, ["member": member(key), "ours": .flag(ours)])
        case .inboxAwake(let reason): row(.inboxAwake, ["wakeReason": .text(reason.rawValue)])
        case .inboxAsleep: row(.inboxAsleep)
        case .codeEnded(let number, let outcome):
            row(.codeEnded, ["number": .number(Int64(number.value)), "outcome": .text(outcome.rawValue)])
        }
    }
}

extension EventKind {
    /// Does not read the message or the conversation: most events have no subscriber.
    init(_ event: Messaging.Event) {
        var none: Event.Details?
        self = Event.describe(event, &none)
    }
}
