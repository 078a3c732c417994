import DequeModule
import NIOCore

/// Carries requests from the control loop to the service's loop and answers back: one hop for all requests that one read
/// brought, one hop for all answers that one turn of the service's loop made.
final class ControlBridge: @unchecked Sendable {
    // @unchecked: every mutable property is touched on the service's loop alone, which is checked.

    /// Bytes of requests that the service performs in one turn of its loop. The rest waits, so that clients with many
    /// requests do not keep the loop from its links, and its disk works meanwhile.
    private static let turnByteCount = 32 << 10

    /// What the control loop has for the service.
    private enum Arrival {
        case call(ControlCall)
        /// The client has gone: behind its calls.
        case end(ControlSession)
    }

    /// What the service has for the control loop, in order.
    enum Delivery {
        case answer(ControlCall)
        /// - Parameter isCounted: the line is part of the backlog of its connection.
        case event(ControlConnection, ByteBuffer, isCounted: Bool)
        case streamBegan(ControlConnection)
        case streamEnded(ControlConnection)
    }

    let controlLoop: any EventLoop
    let serviceLoop: any EventLoop
    private let later: @Sendable (@escaping () -> Void) -> Void
    private let service: any ControlService
    /// What waits for its turn, in order.
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

    /// Gives calls to the service. On the control loop.
    func submit(_ calls: [ControlCall]) {
        controlLoop.assertInEventLoop()
        serviceLoop.execute { self.take(calls.lazy.map(Arrival.call)) }
    }

    /// Tells the service that a client has gone. On the control loop.
    func end(_ session: ControlSession) {
        controlLoop.assertInEventLoop()
        serviceLoop.execute {
            if self.isClosed { session.clientHasGone() } else { self.take(CollectionOfOne(.end(session))) }
        }
    }

    /// Drops what waits and what comes from now on. On the service's loop.
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

    /// Performs the first calls of what waits, and tells of sessions that end behind them.
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

    func makeCall(_ method: String, id: RequestID?, params: inout JSONReader, session: ControlSession)
        throws(ControlError) -> ControlCall
    { try service.call(method, id: id, params: &params, session: session) }

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

    /// What one turn of the service made.
    private struct Batch: @unchecked Sendable {
        // @unchecked: the service's loop gives it away.
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
