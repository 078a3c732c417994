import Crypto
import NIOCore

/// What an open link stands on: a connection's handler, or one of an endpoint's links over datagrams.
protocol LinkEnd: AnyObject {
    var isWritable: Bool { get }
    var roundTrip: TimeAmount? { get }
    func send(_ frame: [UInt8]) throws(PeerConnection.SendError)
    func flush()
    func pauseReading()
    func resumeReading()
    func welcome()
    func close(_ reason: LinkCloseReason)
    func abort(_ reason: LinkCloseReason)
}

/// An open link: who is there, and the way to talk to them. To be used on the transport's event loop alone.
///
/// `@unchecked Sendable`: its state is touched on the event loop alone, which every entry point checks, so that the owner
/// may be an actor whose executor is that loop.
package final class PeerConnection: @unchecked Sendable {
    package enum SendError: Error, Hashable {
        /// The link is closed or closing.
        case closed
        /// More than 65,535 bytes.
        case tooLong
        /// More than ``TransportLimits/outboundByteCount`` bytes wait already. The link is closed with
        /// ``LinkCloseReason/outboundOverflow``.
        case outboundOverflow
    }

    /// What a link runs over; a relayed one: what the link to the rendezvous node runs over.
    package enum Carrier: Hashable, Sendable { case tcp, udp }

    /// Names the link among all of its owner's; a dial has the same number.
    package let id: UInt64
    package let peer: AuthenticatedPeer
    /// The owner's name for the route, from ``RouteMatch`` or the dial.
    package let route: UInt64
    /// The token under which the handshake was made, to be used up.
    package let token: RoutingToken
    /// Our part in the handshake: `initiator` if we dialled.
    package let role: Role
    package let localAddress: SocketAddress?
    /// Over UDP a peer may move.
    package internal(set) var remoteAddress: SocketAddress?
    package let carrier: Carrier
    /// Its bytes go through a rendezvous node; the remote address is that node's.
    package let isRelayed: Bool
    /// It came through ways that both sides have made through their NATs.
    package internal(set) var isPunched = false
    /// By the event loop's clock.
    package let openedAt: NIODeadline
    /// Sealed bytes received and sent since the link was opened.
    package internal(set) var bytesIn: UInt64 = 0
    package internal(set) var bytesOut: UInt64 = 0

    package private(set) var isWelcome = false

    private let loop: any EventLoop
    /// Gone once the link is closed.
    weak var handler: (any LinkEnd)?

    init(
        id: UInt64, peer: AuthenticatedPeer, route: UInt64, token: RoutingToken, role: Role, carrier: Carrier,
        localAddress: SocketAddress?, remoteAddress: SocketAddress?, isRelayed: Bool = false, loop: any EventLoop,
        handler: (any LinkEnd)? = nil
    ) {
        self.id = id
        self.peer = peer
        self.route = route
        self.token = token
        self.role = role
        self.carrier = carrier
        self.isRelayed = isRelayed
        self.localAddress = localAddress
        self.remoteAddress = remoteAddress
        self.loop = loop
        self.openedAt = loop.now
        self.handler = handler
    }

    /// Stands for the network of the other side, a /24 of IPv4 or a /48 of IPv6, for counting; `nil` if it has none.
    package var sourcePrefix: UInt64? { DatagramAddress.Network(remoteAddress)?.number }

    /// Seals a frame. It leaves at the next ``flush()``, or before if much waits already.
    /// - Parameter frame: at most 65,535 bytes; none at all is a frame too.
    package func send(_ frame: [UInt8]) throws(SendError) {
        loop.preconditionInEventLoop()
        guard let handler else { throw .closed }
        try handler.send(frame)
    }

    /// Writes what has been sent since the last flush: once at the end of a batch.
    package func flush() { handler?.flush() }

    /// Whether there is room: false above ``TransportLimits/outboundHighWater``, until `becameWritable`.
    package var isWritable: Bool { handler?.isWritable ?? false }

    /// As the transport measures it; `nil` before it has, and once the link is closed.
    package var roundTrip: TimeAmount? { handler?.roundTrip }

    /// No frames until ``resumeReading()``; nothing more is read from the socket.
    package func pauseReading() { handler?.pauseReading() }
    package func resumeReading() { handler?.resumeReading() }

    /// The peer is one whom the owner knows: over UDP it may send more at once than a stranger, whose bytes we hold until
    /// the gaps between them are filled. Over TCP that is the kernel's affair.
    package func welcome() {
        guard !isWelcome else { return }
        isWelcome = true
        handler?.welcome()
    }

    /// Closes without losing a frame of either side: what has been sent leaves, frames on their way to us are still
    /// handed over, though none within this call, and after the peer's end, or ``TransportLimits/closeTimeout``,
    /// `linkClosed` comes.
    package func close(_ reason: LinkCloseReason = .requested) { handler?.close(reason) }

    /// Closes now; `linkClosed` comes before this returns.
    package func abort(_ reason: LinkCloseReason = .requested) { handler?.abort(reason) }
}
