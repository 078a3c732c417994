import Crypto
import Glibc
import NIOCore

/// A link over UDP, as its ``PeerConnection`` uses it.
final class DatagramLinkEnd: LinkEnd {
    private unowned let transport: UDPTransport
    let connection: PeerConnection
    private var isPaused = false
    private var isReading = false

    init(_ connection: PeerConnection, transport: UDPTransport) {
        self.connection = connection
        self.transport = transport
        connection.handler = self
    }

    private var number: UInt64 { connection.id }

    var isWritable: Bool { transport.endpoint.link(number)?.isWritable ?? false }

    var roundTrip: TimeAmount? {
        transport.endpoint.link(number).map { .microseconds($0.roundTripTime) }
    }

    func send(_ frame: [UInt8]) throws(PeerConnection.SendError) {
        do throws(DatagramLink.SendError) {
            try transport.endpoint.send(frame, on: number, at: transport.now)
        } catch {
            switch error {
            case .closed: throw .closed
            case .tooLong: throw .tooLong
            case .outboundOverflow:
                transport.pump()
                throw .outboundOverflow
            }
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

    func welcome() {
        transport.endpoint.welcome(number)
        transport.pump()
    }

    func close(_ reason: LinkCloseReason) {
        transport.endpoint.close(number, reason, at: transport.now)
        transport.pump()
        // What has not been read yet comes after all that the owner is about to do.
        if isPaused { transport.loop.assumeIsolated().execute { self.resumeReading() } }
    }

    func abort(_ reason: LinkCloseReason) {
        transport.endpoint.abort(number, reason, at: transport.now)
        transport.pump()
    }

    /// Hands over as many frames as there are and as the owner wants.
    func read() {
        guard !isReading else { return }
        isReading = true
        defer { isReading = false }
        update()
        var hasRead = false
        while !isPaused, let frame = transport.endpoint.read(number, at: transport.now) {
            hasRead = true
            transport.events.frame(connection, frame)
        }
        if hasRead { transport.events.batchEnded(connection) }
    }

    /// The counters that others see.
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
