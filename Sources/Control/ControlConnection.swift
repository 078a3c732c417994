import NIOCore

/// One client of the control socket, as the handler of requests sees it.
///
/// Used on the server's event loop only; that is checked.
package final class ControlConnection: @unchecked Sendable {
    // @unchecked: every mutable property is touched on the event loop alone, which each entry point asserts.

    /// Counts connections since the start of the server: a name for logs.
    package let number: Int
    private let channel: any Channel
    private var stream = Stream.none
    /// Bytes of events given to the channel and not yet to the kernel.
    private var backlogByteCount = 0
    private var isFlushScheduled = false
    private var closeActions: [UInt64: () -> Void] = [:]
    private var nextCloseAction: UInt64 = 1
    private var isClosed = false
    /// Ends what feeds the stream.
    private var endSubscription: (() -> Void)?
    /// Called when the client has been told that its stream was dropped. For the handler of the connection.
    var streamDropped: (() -> Void)?

    private enum Stream {
        /// Not subscribed. May go to `open`.
        case none
        /// Subscribed. May go to `none`, when the client unsubscribes, and to `dropped`.
        case open
        /// The client did not read fast enough and has been told so. May go to `open`.
        case dropped
    }

    init(number: Int, channel: any Channel) {
        self.number = number
        self.channel = channel
        channel.closeFuture.assumeIsolated().whenComplete { [self] _ in clientHasGone() }
    }

    private func clientHasGone() {
        isClosed = true
        streamDropped = nil
        endStream(as: .none)
        let actions = closeActions
        closeActions = [:]
        for number in actions.keys.sorted() { actions[number]?() }
    }

    package var eventLoop: any EventLoop { channel.eventLoop }

    /// Completes when the client has gone: waiting requests are to be dropped then.
    package var closed: EventLoopFuture<Void> { channel.closeFuture }

    /// Calls `body` when the client goes, unless it is taken back before; at once if it has gone. Unlike a callback on
    /// ``closed``, nothing of a request stays behind on a connection that lives long.
    package func onClose(_ body: @escaping () -> Void) -> UInt64 {
        eventLoop.assertInEventLoop()
        guard !isClosed else {
            body()
            return 0
        }
        defer { nextCloseAction += 1 }
        closeActions[nextCloseAction] = body
        return nextCloseAction
    }

    package func removeOnClose(_ number: UInt64) {
        eventLoop.assertInEventLoop()
        closeActions[number] = nil
    }

    /// Whether events are being sent.
    package var isStreaming: Bool {
        eventLoop.assertInEventLoop()
        return stream == .open
    }

    /// From now on ``notify(_:)`` delivers. For the handler of `subscribe`.
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
    }

    /// For the handler of `unsubscribe`.
    package func stopStream() {
        eventLoop.assertInEventLoop()
        endStream(as: .none)
    }

    private func endStream(as end: Stream) {
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

    /// Sends one event.
    ///
    /// A client that leaves more than ``ControlLimits/eventBacklogByteCount`` unread is told with a
    /// `subscription.dropped` notification and gets nothing more until it subscribes again, from its last cursor.
    package func notify(_ event: JSONValue) -> NotifyOutcome {
        eventLoop.assertInEventLoop()
        guard stream == .open, channel.isActive else { return .dropped }
        let line = ControlResponse.notification(method: ControlResponse.eventMethod, params: event).line
        guard backlogByteCount + line.count <= ControlLimits.eventBacklogByteCount else {
            endStream(as: .dropped)
            let error = ControlError(
                .failed,
                "events were read too slowly",
                hint: "subscribe again with `since` set to the last cursor seen"
            )
            let line = ControlResponse.notification(method: ControlResponse.droppedMethod, params: error.jsonValue).line
            write(line).whenComplete { [self] _ in streamDropped?() }
            return .dropped
        }
        backlogByteCount += line.count
        write(line).whenComplete { [self] _ in backlogByteCount -= line.count }
        return .queued
    }

    /// Writes a line; the future completes when the kernel has it, which gets all lines of one turn of the loop at once.
    @discardableResult
    func write(_ line: [UInt8]) -> EventLoopFuture<Void> {
        if !isFlushScheduled {
            isFlushScheduled = true
            eventLoop.assumeIsolated().execute { [self] in
                isFlushScheduled = false
                channel.flush()
            }
        }
        return channel.write(channel.allocator.buffer(bytes: line))
    }

    /// Writes a line, then closes.
    func writeAndClose(_ line: [UInt8]) {
        write(line).whenComplete { [channel] _ in channel.close(promise: nil) }
    }

    func close() {
        channel.close(promise: nil)
    }

    func resumeReading() {
        channel.read()
    }
}
