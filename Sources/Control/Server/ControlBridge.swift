import DequeModule
import NIOCore

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
    enum Delivery {
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
    private var outgoing: [Delivery] = []
    private var isScheduled = false

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
        guard !isScheduled else { return }
        isScheduled = true
        serviceLoop.execute { self.flush() }
    }

    private func flush() {
        isScheduled = false
        let batch = Batch(deliveries: outgoing)
        outgoing = []
        controlLoop.execute { batch.deliver() }
    }

    /// The deliveries of one turn of the service's loop.
    private struct Batch: @unchecked Sendable {
        // @unchecked: the service's loop hands the batch over and keeps no reference.
        let deliveries: [Delivery]

        func deliver() {
            var touched: [ControlConnection] = []
            func touch(_ connection: ControlConnection) { if connection.touch() { touched.append(connection) } }
            for delivery in deliveries {
                switch delivery {
                case .answer(let call):
                    touch(call.session.connection)
                    call.session.connection.add(call)
                case .event(let connection, let line, let isCounted):
                    touch(connection)
                    connection.add(line, isCounted: isCounted)
                case .streamBegan(let connection): connection.isStreaming = true
                case .streamEnded(let connection): connection.isStreaming = false
                }
            }
            for connection in touched { connection.flush() }
        }
    }
}
