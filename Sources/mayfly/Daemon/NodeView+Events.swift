import Control
import Messaging
import NodeRuntime

/// What is told to whoever watches.
extension NodeView {
    static func event(_ entry: EventLog.Entry, _ node: isolated Node) -> Control.Event {
        let (kind, details) = describe(entry.event, node)
        var all = details
        if let client = entry.event.client { all["inbox"] = .string(client.description) }
        return Control.Event(
            cursor: entry.cursor,
            event: kind,
            conversation: entry.event.conversation?.description,
            at: timestamp(entry.event.at),
            details: all
        )
    }

    private static func describe(
        _ event: Messaging.Event,
        _ node: isolated Node
    ) -> (EventKind, [String: JSONValue]) {
        func text(_ value: some CustomStringConvertible) -> JSONValue { .string(value.description) }
        switch event.kind {
        case .message(let id):
            // What cannot be read any more is not shown here either.
            guard let client = event.client, let read = node.message(id, client: client),
                let conversation = try? node.conversation(client.description),
                case .object(let details)? = try? JSONValue(encoding: message(read, conversation, node))
            else { return (.message, ["message": text(id)]) }
            return (.message, details)
        case .messageState(let id, let state, let stored):
            var details: [String: JSONValue] = ["message": text(id), "state": .string(state.rawValue)]
            if let stored { details["stored"] = .bool(stored) }
            return (.messageState, details)
        case .messageExpired(let id): return (.messageExpired, ["message": text(id)])
        case .lifetimeProposed(let terms, let ours, let id):
            return (
                .lifetimeProposed,
                details(terms).merging(["ours": .bool(ours), "proposal": text(id)]) { $1 }
            )
        case .lifetimeAgreed(let terms, let id, let automatic):
            return (
                .lifetimeAgreed,
                details(terms).merging(["agreement": text(id), "automatic": .bool(automatic)]) { $1 }
            )
        case .lifetimeRejected(let id, let reason):
            return (.lifetimeRejected, ["proposal": text(id), "reason": .string(reason.rawValue)])
        case .lifetimeWithdrawn(let id): return (.lifetimeWithdrawn, ["proposal": text(id)])
        case .lifetimeExpired(let id): return (.lifetimeExpired, ["proposal": text(id)])
        case .lifetimeReset(let previous): return (.lifetimeReset, ["previous": .string(previous.rawValue)])
        case .memberJoined(let key, let profile):
            return (.memberJoined, ["member": .string(member(key)), "profile": profile.map { .string($0) } ?? .null])
        case .memberLeft(let key): return (.memberLeft, ["member": .string(member(key))])
        case .joinRequested(let key): return (.joinRequested, ["member": .string(member(key))])
        case .joined: return (.joined, [:])
        case .joinFailed(let type, let tag):
            return (
                .joinFailed,
                [
                    "errorType": .string(type.rawValue), "inviteTag": text(tag),
                    "title": .string(type.userFacingTitle),
                    "message": .string(type.userFacingMessage),
                ]
            )
        case .invited(let id, _):
            let from = node.invitations().first { $0.id == id }?.from
            return (.invited, ["join": text(id), "from": from.map { .string($0) } ?? .null])
        case .exploded: return (.exploded, [:])
        case .explosionScheduled(let at):
            return (.explosionScheduled, ["expiresAt": .string(timestamp(at).iso8601)])
        case .explosionReminder(let at):
            return (.explosionReminder, ["expiresAt": .string(timestamp(at).iso8601)])
        case .deletionReceipt(let key): return (.deletionReceipt, ["member": .string(member(key))])
        case .peerOnline(let key): return (.peerOnline, ["member": .string(member(key))])
        case .peerOffline(let key): return (.peerOffline, ["member": .string(member(key))])
        case .locked: return (.locked, [:])
        case .unlocked: return (.unlocked, [:])
        case .messageDelivery(let id, let key, let state):
            return (
                .messageDelivery,
                ["message": text(id), "member": .string(member(key)), "state": .string(state.rawValue)]
            )
        case .attachmentProgress(let id, let key, let count, let total):
            let percent = total == 0 ? 100 : count * 100 / total
            return (
                .attachmentProgress,
                ["message": text(id), "member": .string(member(key)), "percent": .integer(Int64(percent))]
            )
        case .conversationUpdated(let name, let isLocked):
            return (.conversationUpdated, ["name": name.map { .string($0) } ?? .null, "locked": .bool(isLocked)])
        case .groupConflict(let version):
            return (.groupConflict, ["version": .integer(Int64(clamping: version))])
        case .memberRemoved(let key): return (.memberRemoved, ["member": .string(member(key))])
        case .removed: return (.removed, [:])
        case .profileChanged(let key, let profile):
            return (.profileChanged, ["member": .string(member(key)), "profile": profile.map { .string($0) } ?? .null])
        case .messagesMissed(let key, let count):
            return (.messagesMissed, ["member": .string(member(key)), "count": .integer(Int64(clamping: count))])
        case .inboxAwake(let reason): return (.inboxAwake, ["wakeReason": .string(reason.rawValue)])
        case .inboxAsleep: return (.inboxAsleep, [:])
        case .lifetimeSuspended(let previous):
            return (.lifetimeSuspended, ["previous": .string(previous.rawValue)])
        }
    }
}
