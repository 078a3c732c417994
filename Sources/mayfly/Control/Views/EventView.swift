import Control
import Messaging
import NodeRuntime

/// What is told to whoever watches.
enum EventView {
    static func event(_ entry: EventLog.Entry, _ node: isolated Node) -> Control.Event {
        let (kind, details) = describe(entry.event, node)
        return Control.Event(
            cursor: entry.cursor,
            event: kind,
            conversation: entry.event.conversation.map { HexID($0) },
            at: Control.Timestamp(entry.event.at),
            inbox: entry.event.client?.description,
            details: details
        )
    }

    private static func describe(
        _ event: Messaging.Event,
        _ node: isolated Node
    ) -> (EventKind, Control.Event.Details) {
        func text(_ value: some CustomStringConvertible) -> Control.Event.Value { .text(value.description) }
        func id(_ value: Messaging.MessageID) -> Control.Event.Value { .id(HexID(value)) }
        switch event.kind {
        case .message(let id):
            // What cannot be read any more is not shown here either.
            guard let client = event.client, let read = node.message(id, client: client),
                let conversation = try? node.conversation(client.description)
            else { return (.message, ["message": .id(HexID(id))]) }
            return (.message, .message(MessageView.message(read, conversation, node)))
        case .messageState(let message, let state, let stored):
            var details: [Control.Event.Field] = [
                .init("message", id(message)), .init("state", .text(state.rawValue)),
            ]
            if let stored { details.append(.init("stored", .flag(stored))) }
            return (.messageState, .fields(details))
        case .messageExpired(let id): return (.messageExpired, ["message": text(id)])
        case .lifetimeProposed(let terms, let ours, let id):
            return (
                .lifetimeProposed,
                .fields(LifetimeView.details(terms) + [.init("ours", .flag(ours)), .init("proposal", text(id))])
            )
        case .lifetimeAgreed(let terms, let id, let automatic):
            return (
                .lifetimeAgreed,
                .fields(
                    LifetimeView.details(terms) + [.init("agreement", text(id)), .init("automatic", .flag(automatic))]
                )
            )
        case .lifetimeRejected(let id, let reason):
            return (.lifetimeRejected, ["proposal": text(id), "reason": .text(reason.rawValue)])
        case .lifetimeWithdrawn(let id): return (.lifetimeWithdrawn, ["proposal": text(id)])
        case .lifetimeExpired(let id): return (.lifetimeExpired, ["proposal": text(id)])
        case .lifetimeReset(let previous): return (.lifetimeReset, ["previous": .text(previous.rawValue)])
        case .memberJoined(let key, let profile):
            return (
                .memberJoined, ["member": .text(MemberName.id(key)), "profile": profile.map { .text($0) } ?? .null]
            )
        case .memberLeft(let key): return (.memberLeft, ["member": .text(MemberName.id(key))])
        case .joinRequested(let key): return (.joinRequested, ["member": .text(MemberName.id(key))])
        case .joined: return (.joined, [:])
        case .joinFailed(let type, let tag):
            return (
                .joinFailed,
                [
                    "errorType": .text(type.rawValue), "inviteTag": text(tag),
                    "title": .text(type.userFacingTitle),
                    "message": .text(type.userFacingMessage),
                ]
            )
        case .invited(let id, _):
            let from = node.invitations().first { $0.id == id }?.from
            return (.invited, ["join": text(id), "from": from.map { .text($0) } ?? .null])
        case .exploded: return (.exploded, [:])
        case .explosionScheduled(let at):
            return (.explosionScheduled, ["expiresAt": .text(Control.Timestamp(at).iso8601)])
        case .explosionReminder(let at):
            return (.explosionReminder, ["expiresAt": .text(Control.Timestamp(at).iso8601)])
        case .deletionReceipt(let key): return (.deletionReceipt, ["member": .text(MemberName.id(key))])
        case .peerOnline(let key): return (.peerOnline, ["member": .text(MemberName.id(key))])
        case .peerOffline(let key): return (.peerOffline, ["member": .text(MemberName.id(key))])
        case .locked: return (.locked, [:])
        case .unlocked: return (.unlocked, [:])
        case .messageDelivery(let id, let key, let state):
            return (
                .messageDelivery,
                ["message": text(id), "member": .text(MemberName.id(key)), "state": .text(state.rawValue)]
            )
        case .attachmentProgress(let id, let key, let count, let total):
            let percent = total == 0 ? 100 : count * 100 / total
            return (
                .attachmentProgress,
                ["message": text(id), "member": .text(MemberName.id(key)), "percent": .number(Int64(percent))]
            )
        case .conversationUpdated(let name, let isLocked):
            return (.conversationUpdated, ["name": name.map { .text($0) } ?? .null, "locked": .flag(isLocked)])
        case .groupConflict(let version):
            return (.groupConflict, ["version": .number(Int64(clamping: version))])
        case .memberRemoved(let key): return (.memberRemoved, ["member": .text(MemberName.id(key))])
        case .removed: return (.removed, [:])
        case .profileChanged(let key, let profile):
            return (
                .profileChanged, ["member": .text(MemberName.id(key)), "profile": profile.map { .text($0) } ?? .null]
            )
        case .messagesMissed(let key, let count):
            return (.messagesMissed, ["member": .text(MemberName.id(key)), "count": .number(Int64(clamping: count))])
        case .inboxAwake(let reason): return (.inboxAwake, ["wakeReason": .text(reason.rawValue)])
        case .inboxAsleep: return (.inboxAsleep, [:])
        case .lifetimeSuspended(let previous):
            return (.lifetimeSuspended, ["previous": .text(previous.rawValue)])
        case .codeEnded(let slot, let outcome):
            return (.codeEnded, ["slot": .number(Int64(slot)), "outcome": .text(outcome.rawValue)])
        }
    }
}
