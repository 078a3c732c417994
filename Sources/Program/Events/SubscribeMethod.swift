import Control
import Messaging
import NIOCore
import NodeRuntime

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

enum EventMethods {
    static let all: [any ServedMethod] = [unsubscribe, subscribe]

    static let unsubscribe = NodeMethod<Nothing, Acknowledged>(
        ControlRequest.unsubscribe, "End the stream of events of this connection."
    ) { call, _, _ in
        call.session.stopStream()
        call.succeed(Acknowledged())
    }

    static let subscribe = NodeMethod<SubscribeParams, SubscribeResult>(
        ControlRequest.subscribe, "Start a stream of events on this connection.", waits: .always
    ) { call, node, _ in
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
        return kinds?.contains(EventKind(entry.event)) ?? true
    }

    func tell(_ gap: EventLog.Gap, _ node: isolated Node) {
        guard !hasEnded else { return }
        let marker = Event(
            cursor: gap.cursor, event: .gap, at: node.currentTime, values: [OrNull(wrappedValue: gap.lost)])
        _ = session.notify(ControlSession.line(of: marker))
    }

    func show(_ entry: EventLog.Entry, _ node: isolated Node) {
        guard !hasEnded, wants(entry), session.notify(ControlSession.line(of: Event(entry, node))) else { return }
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
