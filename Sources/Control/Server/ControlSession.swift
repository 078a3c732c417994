import NIOCore
import Synchronization

/// A client of the control socket: its cleanup actions and its event stream.
///
/// Confined to the service's loop, which is asserted.
package final class ControlSession: @unchecked Sendable {
    // @unchecked: mutable state is confined to the service's loop, which each entry point asserts.

    private let bridge: ControlBridge
    let connection: ControlConnection
    /// Subscribed, and not dropped for reading too slowly.
    private var isStreaming = false
    private var closeActions: [UInt64: () -> Void] = [:]
    private var nextCloseAction: UInt64 = 1
    private var isClosed = false
    /// Ends the source of the stream.
    private var endSubscription: (() -> Void)?

    init(bridge: ControlBridge, connection: ControlConnection) {
        self.bridge = bridge
        self.connection = connection
    }

    package var eventLoop: any EventLoop { bridge.serviceLoop }

    func clientHasGone() {
        eventLoop.assertInEventLoop()
        isClosed = true
        endStream()
        let actions = closeActions
        closeActions = [:]
        for number in actions.keys.sorted() { actions[number]?() }
    }

    /// Runs `body` when the client disconnects, unless removed before; at once if it has disconnected.
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

    /// Starts delivery by ``notify(_:)``, for `subscribe`. A connection has one subscription; an earlier one ends.
    /// - Parameter whenEnded: runs once, when the stream ends: by `subscribe`, `unsubscribe`, a slow client or a
    ///   disconnect.
    package func startStream(whenEnded body: @escaping () -> Void = {}) {
        eventLoop.assertInEventLoop()
        endStream()
        guard !isClosed else { return body() }
        isStreaming = true
        endSubscription = body
        deliver(.streamBegan(connection))
    }

    /// For `unsubscribe`.
    package func stopStream() {
        eventLoop.assertInEventLoop()
        endStream()
    }

    private func endStream() {
        if isStreaming { deliver(.streamEnded(connection)) }
        isStreaming = false
        let body = endSubscription
        endSubscription = nil
        body?()
    }

    package enum NotifyOutcome: Hashable, Sendable {
        case queued
        /// The client reads too slowly, is not subscribed or has disconnected. The caller drops its subscription.
        case dropped
    }

    package static func line(of event: some JSONWritable) -> ByteBuffer {
        var writer = JSONWriter()
        writer.notification(ControlResponse.eventMethod, event)
        return writer.buffer
    }

    /// Sends one event, a line of ``line(of:)``.
    ///
    /// A client with more than ``ControlLimits/eventBacklogByteCount`` unread bytes gets a `subscription.dropped`
    /// notification. It gets no further events until it subscribes again, from its last cursor.
    package func notify(_ line: ByteBuffer) -> NotifyOutcome {
        eventLoop.assertInEventLoop()
        guard isStreaming, !isClosed else { return .dropped }
        let backlog = connection.backlogByteCount.load(ordering: .relaxed)
        guard backlog + line.readableBytes <= ControlLimits.eventBacklogByteCount else {
            endStream()
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
