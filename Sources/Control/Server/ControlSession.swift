import DequeModule
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

/// Moves batches between the two event loops: one hop per socket read for requests, one hop per turn of the service's
/// loop for answers.
final class ControlBridge: @unchecked Sendable {
    // @unchecked: mutable state is confined to the service's loop, which is asserted.

    /// Bytes of requests executed per turn of the service's loop. The rest is deferred, so that a busy client does not
    /// starve the links, and disk writes proceed meanwhile.
    private static let turnByteCount = 32 << 10

    /// Control loop to service.
    private enum Arrival {
        case call(ControlCall)
        /// The client disconnected; queued behind its calls.
        case end(ControlSession)
    }

    /// Service to control loop, in order.
    enum Delivery: Sendable {
        case answer(ControlCall)
        /// - Parameter isCounted: the line counts in the backlog of its connection.
        case event(ControlConnection, ByteBuffer, isCounted: Bool)
        case streamBegan(ControlConnection)
        case streamEnded(ControlConnection)
    }

    let controlLoop: any EventLoop
    let serviceLoop: any EventLoop
    private let later: @Sendable (@escaping () -> Void) -> Void
    let service: any ControlService
    /// A queue, in order of arrival.
    private var incoming: Deque<Arrival> = []
    private var isClosed = false
    /// The deliveries of this turn of the service's loop.
    private var outgoing: [Delivery] = []

    /// - Parameter later: runs its argument in a later turn of the service's loop.
    init(
        from controlLoop: any EventLoop, to serviceLoop: any EventLoop,
        later: @escaping @Sendable (@escaping () -> Void) -> Void, _ service: any ControlService
    ) {
        self.later = later
        self.controlLoop = controlLoop
        self.serviceLoop = serviceLoop
        self.service = service
    }

    /// Passes calls to the service. On the control loop.
    func submit(_ calls: [ControlCall]) {
        controlLoop.assertInEventLoop()
        serviceLoop.execute { self.take(calls.lazy.map(Arrival.call)) }
    }

    /// Reports a disconnected client to the service. On the control loop.
    func end(_ session: ControlSession) {
        controlLoop.assertInEventLoop()
        serviceLoop.execute {
            if self.isClosed { session.clientHasGone() } else { self.take(CollectionOfOne(.end(session))) }
        }
    }

    /// Drops queued and future calls. On the service's loop.
    func close() {
        serviceLoop.assertInEventLoop()
        isClosed = true
        let dropped = incoming
        incoming = []
        for case .end(let session) in dropped { session.clientHasGone() }
    }

    private func take(_ arrivals: some Collection<Arrival>) {
        guard !isClosed else { return }
        let isIdle = incoming.isEmpty
        incoming.append(contentsOf: arrivals)
        if isIdle { performSome() }
    }

    /// Executes the first queued calls, then ends the sessions that follow them.
    private func performSome() {
        var calls: [ControlCall] = []
        var byteCount = 0
        while byteCount < Self.turnByteCount, case .call(let call)? = incoming.first {
            byteCount += call.byteCount + (call.body?.readableBytes ?? 0)
            calls.append(call)
            incoming.removeFirst()
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

    /// On the service's loop.
    func deliver(_ delivery: Delivery) {
        serviceLoop.assertInEventLoop()
        outgoing.append(delivery)
        if outgoing.count == 1 { serviceLoop.execute { self.flush() } }
    }

    private func flush() {
        let deliveries = outgoing
        outgoing = []
        controlLoop.execute {
            for delivery in deliveries {
                switch delivery {
                case .answer(let call): call.session.connection.add(call)
                case .event(let connection, let line, let isCounted): connection.add(line, isCounted: isCounted)
                case .streamBegan(let connection): connection.isStreaming = true
                case .streamEnded(let connection): connection.isStreaming = false
                }
            }
            // Only the first flush of a connection writes.
            for case .answer(let call) in deliveries { call.session.connection.flush() }
            for case .event(let connection, _, _) in deliveries { connection.flush() }
        }
    }
}
