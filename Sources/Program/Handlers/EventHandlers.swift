import Control
import Cryptography
import Messaging
import NIOCore
import NodeRuntime

/// `subscribe`: streams the node's events on one connection.
enum EventHandlers {
    static func add(to router: inout NodeRouter) {
        router.call(Methods.unsubscribe) { _, call in
            call.session.stopStream()
            call.succeed(Acknowledged())
        }
        router.call(Methods.subscribe) { node, call in
            let params = call.params
            let session = call.session
            let conversation = try params.conversation.map { text throws(NodeError) in try subscribed(text, node) }
            let log = node.eventLog
            let replay = params.since.map { log.since($0) }
            let gap = params.since.flatMap { log.gap(since: $0) }
            let subscription = Subscription(
                session, conversation, params.events.map(Set.init), marksRead: params.marksRead ?? true)
            let replayed = (replay?.entries ?? []).count(where: subscription.wants) + (gap == nil ? 0 : 1)
            // A followed conversation counts as open.
            let client = conversation.flatMap { node.client(of: $0) }
            let bound = NIOLoopBound(subscription, eventLoop: node.loop)
            // Before the stream: for a disconnected client the stream ends at once.
            if let client { node.watching(client) }
            session.startStream { [node] in
                node.assumeIsolated { node in
                    bound.value.end(node)
                    if let client { node.stoppedWatching(client) }
                }
            }
            // Order: the answer, replayed events, new events.
            call.succeed(
                SubscribeResult(
                    cursor: log.cursor, missed: replay?.missed == true ? true : nil,
                    replayed: replayed == 0 ? nil : replayed))
            if let gap { subscription.tell(gap, node) }
            for entry in replay?.entries ?? [] { subscription.show(entry, node) }
            Subscription.begin(bound, node)
        }
    }

    /// The conversation to follow. An exploded one still has its last events.
    private static func subscribed(_ text: String, _ node: isolated Node) throws(NodeError) -> ConversationID {
        do throws(NodeError) { return try node.conversation(text).conversation } catch {
            if case .exploded(let conversation, _) = error { return conversation }
            throw error
        }
    }
}

/// The filter and state of one `subscribe`. It ends with the stream of its connection.
private final class Subscription {
    private let session: ControlSession
    private let conversation: ConversationID?
    private let kinds: Set<EventKind>?
    private let marksRead: Bool
    /// Set after the replay.
    private var watcher: UInt64?
    private var hasEnded = false

    init(_ session: ControlSession, _ conversation: ConversationID?, _ kinds: Set<EventKind>?, marksRead: Bool) {
        self.session = session
        self.conversation = conversation
        self.kinds = kinds
        self.marksRead = marksRead
    }

    /// Decides before the event's message is read and decrypted.
    func wants(_ entry: EventLog.Entry) -> Bool {
        // A lock concerns all conversations. It goes only to clients that request `locked`.
        let isLock = entry.event.kind == .locked && kinds?.contains(.locked) ?? false
        if let conversation, entry.event.conversation != conversation, !isLock { return false }
        return kinds?.contains(EventView.kind(of: entry.event)) ?? true
    }

    func tell(_ gap: EventLog.Gap, _ node: isolated Node) {
        guard !hasEnded else { return }
        let marker = Event(
            cursor: gap.cursor, event: .gap, at: node.currentTime,
            details: .fields([.init("lost", gap.lost.map { .number($0) } ?? .null)]))
        _ = session.notify(ControlSession.line(of: marker))
    }

    func show(_ entry: EventLog.Entry, _ node: isolated Node) {
        guard !hasEnded, wants(entry), session.notify(ControlSession.line(of: EventView.event(entry, node))) == .queued
        else { return }
        if marksRead, case .message(let id) = entry.event.kind, let client = entry.event.client {
            node.markShown(id, client: client)
        }
    }

    static func begin(_ subscription: NIOLoopBound<Subscription>, _ node: isolated Node) {
        guard !subscription.value.hasEnded else { return }
        subscription.value.watcher = node.watch { [node] entry in
            node.assumeIsolated { subscription.value.show(entry, $0) }
        }
    }

    func end(_ node: isolated Node) {
        hasEnded = true
        if let watcher { node.unwatch(watcher) }
        watcher = nil
    }
}

enum EventView {
    static func event(_ entry: EventLog.Entry, _ node: isolated Node) -> Event {
        let event = entry.event
        var details: Event.Details? = [:]
        let kind = describe(event, &details)
        switch event.kind {
        case .message(let id):
            // An unreadable message is reported by its id only.
            if let client = event.client, let read = node.message(id, client: client),
                let conversation = try? node.conversation(client.description)
            {
                details = .message(MessageView.message(read, conversation, node))
            } else {
                details = ["message": .id(HexID(id))]
            }
        case .invited(let id, _):
            let from = node.peers.invitations().first { $0.id == id }?.from
            details = ["join": .text(id.description), "from": from.map { .text($0) } ?? .null]
        default: break
        }
        return Event(
            cursor: entry.cursor, event: kind, conversation: event.conversation.map { HexID($0) }, at: event.at,
            inbox: event.client?.description, details: details ?? [:])
    }

    /// Does not read the message or the conversation: most events have no subscriber.
    static func kind(of event: Messaging.Event) -> EventKind {
        var none: Event.Details?
        return describe(event, &none)
    }

    /// - Parameter details: replaced by the event's, unless it is `nil`.
    private static func describe(_ event: Messaging.Event, _ details: inout Event.Details?) -> EventKind {
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
