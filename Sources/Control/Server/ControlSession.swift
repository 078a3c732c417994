import NIOCore
import Synchronization

/// One client of the control socket, as the service sees it: what ends with the client, and its stream of events.
///
/// Used on the service's loop only; that is checked.
package final class ControlSession: @unchecked Sendable {
    // @unchecked: every mutable property is touched on the service's loop alone, which each entry point asserts.

    private let bridge: ControlBridge
    let connection: ControlConnection
    private var stream = Stream.none
    private var closeActions: [UInt64: () -> Void] = [:]
    private var nextCloseAction: UInt64 = 1
    private var isClosed = false
    /// Ends what feeds the stream.
    private var endSubscription: (() -> Void)?

    private enum Stream {
        /// Not subscribed. May go to `open`.
        case none
        /// Subscribed. May go to `none`, when the client unsubscribes, and to `dropped`.
        case open
        /// The client did not read fast enough and has been told so. May go to `open`.
        case dropped
    }

    init(bridge: ControlBridge, connection: ControlConnection) {
        self.bridge = bridge
        self.connection = connection
    }

    package var eventLoop: any EventLoop { bridge.serviceLoop }

    /// The connection is gone.
    func clientHasGone() {
        eventLoop.assertInEventLoop()
        isClosed = true
        endStream(as: .none)
        let actions = closeActions
        closeActions = [:]
        for number in actions.keys.sorted() { actions[number]?() }
    }

    /// Calls `body` when the client goes, unless it is taken back before; at once if it has gone.
    package func onClose(_ body: @escaping () -> Void) -> UInt64 {
        eventLoop.assertInEventLoop()
        guard !isClosed else {
            body()
            return 0
        }
        defer { nextCloseAction += 1 }
        closeActions[nextCloseAction] = body
        connection.dependentCount.add(1, ordering: .relaxed)
        return nextCloseAction
    }

    package func removeOnClose(_ number: UInt64) {
        eventLoop.assertInEventLoop()
        guard closeActions.removeValue(forKey: number) != nil else { return }
        connection.dependentCount.subtract(1, ordering: .relaxed)
    }

    // MARK: Events

    /// From now on ``notify(_:)`` delivers. For `subscribe`.
    ///
    /// A connection has one subscription: the one before ends.
    /// - Parameter whenEnded: called once, when the stream ends: by another subscription, by `unsubscribe`, because the
    ///   client reads too slowly, or because it goes.
    package func startStream(whenEnded body: @escaping () -> Void = {}) {
        eventLoop.assertInEventLoop()
        endStream(as: .none)
        guard !isClosed else { return body() }
        stream = .open
        endSubscription = body
        deliver(.streamBegan(connection))
    }

    /// For `unsubscribe`.
    package func stopStream() {
        eventLoop.assertInEventLoop()
        endStream(as: .none)
    }

    private func endStream(as end: Stream) {
        if stream == .open { deliver(.streamEnded(connection)) }
        stream = end
        let body = endSubscription
        endSubscription = nil
        body?()
    }

    /// What became of a notification.
    package enum NotifyOutcome: Hashable, Sendable {
        case queued
        /// The client reads too slowly, or is not subscribed, or has gone: the caller forgets its subscription.
        case dropped
    }

    /// The line of an event.
    package static func line(of event: some JSONWritable) -> ByteBuffer {
        var writer = JSONWriter()
        writer.notification(ControlResponse.eventMethod, event)
        return writer.buffer
    }

    /// Sends one event, of which ``line(of:)`` made the line.
    ///
    /// A client that leaves more than ``ControlLimits/eventBacklogByteCount`` unread is told with a
    /// `subscription.dropped` notification and gets nothing more until it subscribes again, from its last cursor.
    package func notify(_ line: ByteBuffer) -> NotifyOutcome {
        eventLoop.assertInEventLoop()
        guard stream == .open, !isClosed else { return .dropped }
        let backlog = connection.backlogByteCount.load(ordering: .relaxed)
        guard backlog + line.readableBytes <= ControlLimits.eventBacklogByteCount else {
            endStream(as: .dropped)
            let error = ControlError(
                .failed, "events were read too slowly", hint: "subscribe again with `since` set to the last cursor seen"
            )
            var writer = JSONWriter()
            writer.notification(ControlResponse.droppedMethod, error.jsonValue)
            deliver(.event(connection, writer.buffer, isCounted: false))
            return .dropped
        }
        connection.backlogByteCount.add(line.readableBytes, ordering: .relaxed)
        deliver(.event(connection, line, isCounted: true))
        return .queued
    }

    func deliver(_ delivery: ControlBridge.Delivery) {
        eventLoop.assertInEventLoop()
        bridge.deliver(delivery)
    }
}
