import DequeModule
import NIOCore

/// A client of the control socket: its cleanup actions and its event stream.
package final class ControlSession: @unchecked Sendable {
    // @unchecked: mutable state is confined to the loop, which each entry point asserts.

    private let queue: ControlQueue
    let connection: ControlConnection
    private var closeActions: [UInt64: () -> Void] = [:]
    private var nextCloseAction: UInt64 = 1
    private var isClosed = false
    /// Ends the source of the stream.
    private var endSubscription: (() -> Void)?

    init(queue: ControlQueue, connection: ControlConnection) { (self.queue, self.connection) = (queue, connection) }

    package var eventLoop: any EventLoop { queue.loop }

    func clientHasGone() {
        isClosed = true
        stopStream()
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
        connection.dependentCount += 1
        return nextCloseAction
    }

    package func removeOnClose(_ number: UInt64) {
        eventLoop.assertInEventLoop()
        guard closeActions.removeValue(forKey: number) != nil else { return }
        connection.dependentCount -= 1
    }

    /// Starts delivery by ``notify(_:)``, for `subscribe`. A connection has one subscription; an earlier one ends.
    /// - Parameter whenEnded: runs once, when the stream ends: by `subscribe`, `unsubscribe`, a slow client or a
    ///   disconnect.
    package func startStream(whenEnded body: @escaping () -> Void = {}) {
        stopStream()
        guard !isClosed else { return body() }
        endSubscription = body
        connection.isStreaming = true
    }

    /// For `unsubscribe`.
    package func stopStream() {
        eventLoop.assertInEventLoop()
        connection.isStreaming = false
        let body = endSubscription
        endSubscription = nil
        body?()
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
    /// - Returns: false when the client reads too slowly, is not subscribed or has disconnected. The caller drops its
    ///   subscription.
    package func notify(_ line: ByteBuffer) -> Bool {
        guard connection.isStreaming, !isClosed else { return false }
        guard connection.backlogByteCount + line.readableBytes <= ControlLimits.eventBacklogByteCount else {
            stopStream()
            let error = ControlError(
                .failed, "events were read too slowly", hint: "subscribe again with `since` set to the last cursor seen"
            )
            var writer = JSONWriter()
            writer.notification(ControlResponse.droppedMethod, error.jsonValue)
            connection.add(writer.buffer, isCounted: false)
            queue.flushSoon(connection)
            return false
        }
        connection.add(line, isCounted: true)
        queue.flushSoon(connection)
        return true
    }

    func deliver(_ call: ControlCall) {
        connection.add(call)
        queue.flushSoon(connection)
    }
}

/// Calls that wait for their turn, and connections with lines of this turn. On the loop.
final class ControlQueue: @unchecked Sendable {
    // @unchecked: mutable state is confined to the loop, which is asserted.

    /// Bytes of requests executed between two polls of the loop's sockets. The rest is deferred, so that a busy client
    /// does not starve the links, and disk writes proceed meanwhile.
    private static let turnByteCount = 32 << 10
    /// A request counts at least as much: a short one may take as long as any.
    private static let requestByteCount = 256

    private enum Arrival {
        case call(ControlCall)
        /// The client disconnected; queued behind its calls.
        case end(ControlSession)
    }

    let loop: any EventLoop
    private let later: @Sendable (@escaping () -> Void) -> Void
    let service: any ControlService
    private var incoming: Deque<Arrival> = []
    private var isClosed = false
    /// Bytes executed since the last reset. A reset follows a poll, and only half a turn's bytes plan one: a single
    /// request needs no timer.
    private var spent = 0
    private var isResetPlanned = false
    private var unflushed: [ControlConnection] = []

    /// - Parameter later: runs its argument in a later turn of the loop.
    init(
        on loop: any EventLoop, later: @escaping @Sendable (@escaping () -> Void) -> Void, _ service: any ControlService
    ) { (self.loop, self.later, self.service) = (loop, later, service) }

    func submit(_ calls: [ControlCall]) { loop.execute { self.take(calls.lazy.map(Arrival.call)) } }

    /// Reports a disconnected client to the service.
    func end(_ session: ControlSession) {
        loop.execute { if self.isClosed { session.clientHasGone() } else { self.take(CollectionOfOne(.end(session))) } }
    }

    func close() {
        loop.assertInEventLoop()
        isClosed = true
        let dropped = incoming
        incoming = []
        for case .end(let session) in dropped { session.clientHasGone() }
        flush()
    }

    private func take(_ arrivals: some Collection<Arrival>) {
        guard !isClosed else { return }
        let isIdle = incoming.isEmpty
        incoming.append(contentsOf: arrivals)
        guard isIdle else { return }
        if spent < Self.turnByteCount { performSome() } else { later { self.performSome() } }
    }

    /// Executes the first queued calls, then ends the sessions that follow them.
    private func performSome() {
        var calls: [ControlCall] = []
        while spent < Self.turnByteCount, case .call(let call)? = incoming.first {
            spent += max(Self.requestByteCount, call.byteCount + (call.body?.readableBytes ?? 0))
            calls.append(call)
            incoming.removeFirst()
        }
        if spent >= Self.turnByteCount / 2, !isResetPlanned {
            isResetPlanned = true
            later { (self.spent, self.isResetPlanned) = (0, false) }
        }
        var ended: [ControlSession] = []
        while case .end(let session)? = incoming.first {
            ended.append(session)
            incoming.removeFirst()
        }
        if !calls.isEmpty { service.perform(calls) }
        for session in ended { session.clientHasGone() }
        if !incoming.isEmpty { later { self.performSome() } }
    }

    /// The lines of one turn leave with one write a connection.
    func flushSoon(_ connection: ControlConnection) {
        loop.assertInEventLoop()
        if unflushed.isEmpty { loop.execute { self.flush() } }
        if unflushed.last !== connection { unflushed.append(connection) }
    }

    private func flush() {
        let connections = unflushed
        unflushed = []
        // Only the first flush of a connection writes.
        for connection in connections { connection.flush() }
    }
}
