import Control
import Messaging
import NodeRuntime

enum EventView {
    static func event(_ entry: EventLog.Entry, _ node: isolated Node) -> Event {
        Event(
            cursor: entry.cursor, event: kind(of: entry.event),
            conversation: entry.event.conversation.map { HexID($0) }, at: entry.event.at,
            inbox: entry.event.client?.description, details: details(of: entry.event, node))
    }

    /// Does not read the message or the conversation: most events have no subscriber.
    static func kind(of event: Messaging.Event) -> EventKind {
        switch event.kind {
        case .message: .message
        case .messageState: .messageState
        case .messageExpired: .messageExpired
        case .lifetimeProposed: .lifetimeProposed
        case .lifetimeSigned: .lifetimeSigned
        case .lifetimeAgreed: .lifetimeAgreed
        case .lifetimeRejected: .lifetimeRejected
        case .lifetimeWithdrawn: .lifetimeWithdrawn
        case .lifetimeExpired: .lifetimeExpired
        case .lifetimeReset: .lifetimeReset
        case .memberJoined: .memberJoined
        case .memberLeft: .memberLeft
        case .joinRequested: .joinRequested
        case .joined: .joined
        case .joinFailed: .joinFailed
        case .invited: .invited
        case .exploded: .exploded
        case .explosionScheduled: .explosionScheduled
        case .explosionReminder: .explosionReminder
        case .deletionReceipt: .deletionReceipt
        case .peerOnline: .peerOnline
        case .peerOffline: .peerOffline
        case .locked: .locked
        case .unlocked: .unlocked
        case .messageDelivery: .messageDelivery
        case .attachmentProgress: .attachmentProgress
        case .conversationUpdated: .conversationUpdated
        case .groupConflict: .groupConflict
        case .memberRemoved: .memberRemoved
        case .removed: .removed
        case .profileChanged: .profileChanged
        case .messagesMissed: .messagesMissed
        case .twoCopies: .twoCopies
        case .inboxAwake: .inboxAwake
        case .inboxAsleep: .inboxAsleep
        case .lifetimeSuspended: .lifetimeSuspended
        case .codeEnded: .codeEnded
        }
    }

    private static func details(of event: Messaging.Event, _ node: isolated Node) -> Event.Details {
        func text(_ value: some CustomStringConvertible) -> Event.Value { .text(value.description) }
        func id(_ value: Messaging.MessageID) -> Event.Value { .id(HexID(value)) }
        switch event.kind {
        case .message(let id):
            // An unreadable message is reported by its id only.
            guard let client = event.client, let read = node.message(id, client: client),
                let conversation = try? node.conversation(client.description)
            else { return ["message": .id(HexID(id))] }
            return .message(MessageView.message(read, conversation, node))
        case .messageState(let message, let state, let stored):
            var details: [Event.Field] = [.init("message", id(message)), .init("state", .text(state.rawValue))]
            if let stored { details.append(.init("stored", .flag(stored))) }
            return .fields(details)
        case .messageExpired(let id): return ["message": text(id)]
        case .lifetimeProposed(let terms, let ours, let id):
            return .fields(LifetimeView.details(terms) + [.init("ours", .flag(ours)), .init("proposal", text(id))])
        case .lifetimeAgreed(let terms, let id, let automatic):
            return .fields(
                LifetimeView.details(terms) + [.init("agreement", text(id)), .init("automatic", .flag(automatic))])
        case .lifetimeSigned(let id, let key): return ["proposal": text(id), "member": .text(MemberName.id(key))]
        case .lifetimeRejected(let id, let reason): return ["proposal": text(id), "reason": .text(reason.rawValue)]
        case .lifetimeWithdrawn(let id): return ["proposal": text(id)]
        case .lifetimeExpired(let id): return ["proposal": text(id)]
        case .lifetimeReset(let previous): return ["previous": .text(previous.rawValue)]
        case .memberJoined(let key, let profile):
            return ["member": .text(MemberName.id(key)), "profile": profile.map { .text($0) } ?? .null]
        case .memberLeft(let key): return ["member": .text(MemberName.id(key))]
        case .joinRequested(let key): return ["member": .text(MemberName.id(key))]
        case .joined: return [:]
        case .joinFailed(let type, let tag):
            return [
                "errorType": .text(type.rawValue), "inviteTag": text(tag), "title": .text(type.userFacingTitle),
                "message": .text(type.userFacingMessage),
            ]
        case .invited(let id, _):
            let from = node.peers.invitations().first { $0.id == id }?.from
            return ["join": text(id), "from": from.map { .text($0) } ?? .null]
        case .exploded: return [:]
        case .explosionScheduled(let at): return ["expiresAt": .text(at.exactISO8601)]
        case .explosionReminder(let at): return ["expiresAt": .text(at.exactISO8601)]
        case .deletionReceipt(let key): return ["member": .text(MemberName.id(key))]
        case .peerOnline(let key): return ["member": .text(MemberName.id(key))]
        case .peerOffline(let key): return ["member": .text(MemberName.id(key))]
        case .locked: return [:]
        case .unlocked: return [:]
        case .messageDelivery(let id, let key, let state):
            return ["message": text(id), "member": .text(MemberName.id(key)), "state": .text(state.rawValue)]
        case .attachmentProgress(let id, let key, let count, let total):
            let percent = total == 0 ? 100 : count * 100 / total
            return ["message": text(id), "member": .text(MemberName.id(key)), "percent": .number(Int64(percent))]
        case .conversationUpdated(let name, let isLocked):
            return ["name": name.map { .text($0) } ?? .null, "locked": .flag(isLocked)]
        case .groupConflict(let version): return ["version": .number(Int64(clamping: version))]
        case .memberRemoved(let key): return ["member": .text(MemberName.id(key))]
        case .removed: return [:]
        case .profileChanged(let key, let profile):
            return ["member": .text(MemberName.id(key)), "profile": profile.map { .text($0) } ?? .null]
        case .messagesMissed(let key, let count):
            return ["member": .text(MemberName.id(key)), "count": .number(Int64(clamping: count))]
        case .twoCopies(let key, let ours): return ["member": .text(MemberName.id(key)), "ours": .flag(ours)]
        case .inboxAwake(let reason): return ["wakeReason": .text(reason.rawValue)]
        case .inboxAsleep: return [:]
        case .lifetimeSuspended(let previous): return ["previous": .text(previous.rawValue)]
        case .codeEnded(let number, let outcome):
            return ["number": .number(Int64(number.value)), "outcome": .text(outcome.rawValue)]
        }
    }
}
