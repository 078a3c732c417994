import Control
import Messaging
import NIOCore
import NodeRuntime

/// `subscribe`: the node's events as a stream on one connection.
extension ControlHandlers {
    func addEvents(_ router: inout ControlRouter) {
        later(&router, UnsubscribeMethod.self) { node, _, connection in
            connection.stopStream()
            return node.loop.makeSucceededFuture(Acknowledged())
        }
        later(&router, SubscribeMethod.self) { node, params, connection in
            let conversation = try params.conversation.map { text throws(NodeError) in
                try Self.subscribed(text, node)
            }
            let kinds = params.events.map(Set.init)
            let log = node.eventLog
            let replay = params.since.map { log.since($0) }
            connection.startStream()
            // Whoever follows one conversation has it open.
            if let client = conversation.flatMap({ node.client(of: $0) }) {
                node.watching(client)
                connection.closed.whenComplete { [node] _ in node.assumeIsolated { $0.stoppedWatching(client) } }
            }
            let wanted: @Sendable (isolated Node, EventLog.Entry) -> Control.Event? = { node, entry in
                if let conversation, entry.event.conversation != conversation { return nil }
                let event = NodeView.event(entry, node)
                return kinds.map { $0.contains(event.event) } ?? true ? event : nil
            }
            let show: @Sendable (isolated Node, EventLog.Entry) -> Bool = { node, entry in
                guard let event = wanted(node, entry) else { return true }
                guard connection.notify(event.jsonValue) == .queued else { return false }
                if case .message(let id) = entry.event.kind, let client = entry.event.client {
                    node.markShown(id, client: client)
                }
                return true
            }
            let gap = params.since.flatMap { log.gap(since: $0) }
            let replayed = (replay?.entries ?? []).count { wanted(node, $0) != nil } + (gap == nil ? 0 : 1)
            // The answer goes out first, then what is replayed, then what happens.
            node.loop.execute {
                node.assumeIsolated { node in
                    if let gap {
                        let marker = Control.Event(
                            cursor: gap.cursor,
                            event: .gap,
                            at: NodeView.timestamp(node.currentTime),
                            details: ["lost": gap.lost.map { .integer($0) } ?? .null]
                        )
                        guard connection.notify(marker.jsonValue) == .queued else { return }
                    }
                    for entry in replay?.entries ?? [] where !show(node, entry) { return }
                    for entry in node.eventLog.since(log.cursor).entries where !show(node, entry) { return }
                    let number = NIOLoopBoundBox<UInt64>(0, eventLoop: node.loop)
                    number.value = node.watch { entry in
                        node.assumeIsolated { node in
                            if !show(node, entry) { node.unwatch(number.value) }
                        }
                    }
                    connection.closed.whenComplete { _ in
                        node.assumeIsolated { $0.unwatch(number.value) }
                    }
                }
            }
            return node.loop.makeSucceededFuture(
                SubscribeMethod.Result(
                    cursor: log.cursor,
                    missed: replay?.missed == true ? true : nil,
                    replayed: replayed == 0 ? nil : replayed
                )
            )
        }
    }

    /// A conversation to follow; one that has exploded still has its last events.
    private static func subscribed(_ text: String, _ node: isolated Node) throws(NodeError) -> ConversationID {
        do throws(NodeError) {
            return try node.conversation(text).conversation
        } catch {
            if case .exploded(let conversation) = error { return conversation }
            throw error
        }
    }
}
