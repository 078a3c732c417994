import Cryptography
import NIOCore

/// The backend of an open link: a stream link, or an endpoint's UDP link.
protocol LinkEnd: AnyObject {
    var isWritable: Bool { get }
    var roundTrip: TimeAmount? { get }
    func send(_ frame: [UInt8]) throws(LinkSendError)
    func flush()
    func pauseReading()
    func resumeReading()
    func welcome()
    func close(_ reason: LinkCloseReason)
    func abort(_ reason: LinkCloseReason)
}

/// An open, authenticated link. Use it only on the transport's event loop.
///
/// `@unchecked Sendable`: every entry point checks that it runs on the event loop, so the owner may be an actor whose
/// executor is that loop.
package final class PeerConnection: @unchecked Sendable {
    /// Identifies the link among all of its owner's; equals the number of the attempt that opened it.
    package let id: UInt64
    package let peer: AuthenticatedPeer
    /// The owner's identifier of the route, from ``RouteMatch`` or the dial.
    package let route: UInt64
    /// The token of the handshake, now used up.
    package let token: RoutingToken
    /// `initiator` if we dialled.
    package let role: Role
    package let localAddress: SocketAddress?
    /// Over UDP a peer may move.
    package internal(set) var remoteAddress: SocketAddress?
    /// For a relayed link, the carrier of the link to the rendezvous node.
    package let carrier: LinkCarrier
    /// Relayed by a rendezvous node; the remote address is that node's.
    package let isRelayed: Bool
    /// Made by hole punching.
    package internal(set) var isPunched = false
    /// By the event loop's clock.
    package let openedAt: NIODeadline
    /// Sealed bytes since the link was opened.
    package internal(set) var bytesIn: UInt64 = 0
    package internal(set) var bytesOut: UInt64 = 0

    package private(set) var isWelcome = false

    private let loop: any EventLoop
    /// `nil` once the link is closed.
    weak var end: (any LinkEnd)?

    init(
        id: UInt64, peer: AuthenticatedPeer, route: UInt64, token: RoutingToken, role: Role, carrier: LinkCarrier,
        localAddress: SocketAddress?, remoteAddress: SocketAddress?, isRelayed: Bool = false, loop: any EventLoop,
        end: (any LinkEnd)? = nil
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
        self.end = end
    }

    /// The peer's /24 (IPv4) or /48 (IPv6) network for counting, or `nil`.
    package var sourcePrefix: UInt64? { DatagramAddress.Network(remoteAddress)?.number }

    /// Seals a frame of 0…65,535 bytes. It leaves at the next ``flush()``, or earlier if much is queued.
    package func send(_ frame: [UInt8]) throws(LinkSendError) {
        loop.preconditionInEventLoop()
        guard let end else { throw .closed }
        try end.send(frame)
    }

    /// Writes the frames sent since the last flush. Call once at the end of a batch.
    package func flush() { end?.flush() }

    /// False above ``TransportLimits/outboundHighWater``, until `becameWritable`.
    package var isWritable: Bool { end?.isWritable ?? false }

    /// The transport's measurement; `nil` before it, and once the link is closed.
    package var roundTrip: TimeAmount? { end?.roundTrip }

    /// Stops delivering frames and reading from the socket.
    package func pauseReading() { end?.pauseReading() }
    package func resumeReading() { end?.resumeReading() }

    /// Trusts the peer: over UDP it may send more at once than a stranger, because we hold its bytes until gaps are
    /// filled. Over TCP the kernel handles this.
    package func welcome() {
        guard !isWelcome else { return }
        isWelcome = true
        end?.welcome()
    }

    /// Closes without losing a frame of either side. Queued frames leave, and frames in transit are still delivered,
    /// though none within this call. `linkClosed` follows the peer's end or ``TransportLimits/closeTimeout``.
    package func close(_ reason: LinkCloseReason = .requested) { end?.close(reason) }

    /// Closes at once; `linkClosed` comes before the return.
    package func abort(_ reason: LinkCloseReason = .requested) { end?.abort(reason) }
}

/// The transport's synchronous callbacks on its event loop. They may call the transport. They must hold the owner
/// weakly, because a connection may outlive the owner.
package struct TransportEvents {
    /// The route of a link's token; `nil` for one that only admits knocks (``RoutingTable/Match/isKnock``).
    package var route: (RoutingToken) -> RouteMatch? = { _ in nil }
    /// Whether `route` may find a route, cheaply. Called before a connection gets a channel.
    package var isKnown: (RoutingToken) -> Bool = { _ in true }
    package var acceptsKnock: (RoutingToken) -> Bool = { _ in false }
    /// A knock's sealed bytes and source network, as in ``PeerConnection/sourcePrefix``.
    /// - Returns: the answer, at most ``TransportLimits/knockByteCount`` bytes; `nil` for silence.
    package var knock: (RoutingToken, [UInt8], UInt64?) -> [UInt8]? = { _, _, _ in nil }
    /// Bytes of the first message after a code's greeting; `nil` if no such code is open.
    package var code: (RoutingToken) -> Int? = { _ in nil }
    /// A message of a code's exchange. The owner must answer or end it.
    package var codeMessage: (CodeConnection, [UInt8]) -> Void = { connection, _ in connection.close() }
    /// The last event of a code's connection.
    package var codeEnded: (CodeConnection) -> Void = { _ in }
    /// An incoming link is open; ``DialOwner`` hears of the others.
    package var linkOpened: (PeerConnection) -> Void = { _ in }
    /// One whole frame. May come after ``PeerConnection/close(_:)``, but not after `linkClosed`.
    package var frame: (PeerConnection, [UInt8]) -> Void = { _, _ in }
    /// All frames that arrived together were delivered: time to flush.
    package var batchEnded: (PeerConnection) -> Void = { _ in }
    package var becameWritable: (PeerConnection) -> Void = { _ in }
    /// The last event of a link.
    package var linkClosed: (PeerConnection, LinkCloseReason) -> Void = { _, _ in }
    /// An incoming connection failed. For counters only.
    package var rejected: (Rejection) -> Void = { _ in }

    package init() {}
}
