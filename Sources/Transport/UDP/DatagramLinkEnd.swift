import Crypto
import Glibc
import NIOCore

/// The UDP backend of a ``PeerConnection``.
final class DatagramLinkEnd: LinkEnd {
    private unowned let transport: LinkTransport
    let connection: PeerConnection
    private var isPaused = false
    private var isReading = false
    /// Frames wait for delivery in a later turn.
    private var hasRest = false

    init(_ connection: PeerConnection, transport: LinkTransport) {
        self.connection = connection
        self.transport = transport
        connection.end = self
    }

    private var number: UInt64 { connection.id }

    var isWritable: Bool { transport.endpoint.link(number)?.isWritable ?? false }

    var roundTrip: TimeAmount? { transport.endpoint.link(number).map { .microseconds($0.roundTripTime) } }

    func send(_ frame: [UInt8]) throws(LinkSendError) {
        do throws(LinkSendError) { try transport.endpoint.send(frame, on: number, at: transport.now) } catch {
            if error == .outboundOverflow { transport.pump() }
            throw error
        }
    }

    func flush() {
        update()
        transport.pump()
    }

    func pauseReading() { isPaused = true }

    func resumeReading() {
        guard isPaused else { return }
        isPaused = false
        read()
        transport.pump()
    }

    private func queueRest() {
        guard !hasRest else { return }
        hasRest = true
        transport.turns.add { [weak self] in
            guard let self else { return }
            hasRest = false
            read()
            transport.pump()
        }
    }

    func welcome() {
        transport.endpoint.welcome(number)
        transport.pump()
    }

    func close(_ reason: LinkCloseReason) {
        transport.endpoint.close(number, reason, at: transport.now)
        transport.pump()
        // Deliver unread frames after the owner's current work.
        if isPaused { transport.loop.assumeIsolated().execute { self.resumeReading() } }
    }

    func abort(_ reason: LinkCloseReason) {
        transport.endpoint.abort(number, reason, at: transport.now)
        transport.pump()
    }

    /// Delivers frames, within the owner's pause and the turn's limit. `all`: the link is closed, no turn follows.
    func read(all: Bool = false) {
        guard !isReading, !hasRest || all else { return }
        isReading = true
        defer { isReading = false }
        update()
        let limit = all ? .max : transport.limits.turnFrameCount
        var left = limit
        while !isPaused, left > 0, let frame = transport.endpoint.read(number, at: transport.now) {
            left -= 1
            transport.events.frame(connection, frame)
        }
        if left == 0 { queueRest() }
        if left < limit { transport.events.batchEnded(connection) }
    }

    func update() {
        guard let link = transport.endpoint.link(number) else { return }
        connection.bytesIn = link.bytesIn
        connection.bytesOut = link.bytesOut
    }
}

extension DialFailure {
    init(_ failure: DatagramDialFailure) {
        switch failure {
        case .noAnswer, .noConfirmation: self = .timedOut
        case .reflection: self = .authenticationFailed(.reflection)
        case .tooManyConnections: self = .system(EMFILE)
        case .cancelled: self = .cancelled
        }
    }
}
