import Crypto
import NIOCore

package struct RouteMatch: Sendable {
    package let identity: IdentityKey
    /// The owner's identifier of the route, returned with the link.
    package let route: UInt64
    /// The expected peer; `nil` accepts any key that act 3 proves (joiners, holders of a card).
    package let remote: PublicKey?

    package init(identity: IdentityKey, route: UInt64, remote: PublicKey?) {
        self.identity = identity
        self.route = route
        self.remote = remote
    }
}

/// Why an incoming connection failed. The peer is not told.
package enum Rejection: Error, Hashable, Sendable {
    /// The first byte is unknown, or a datagram with our first byte is malformed.
    case unknownProtocol
    case unknownToken
    /// The next act, or the whole handshake, took too long.
    case timedOut
    case tooManyHandshakes
    case tooManyFromPrefix
    /// Dropped for a newer connection before it showed a token.
    case crowdedOut
    case handshake(HandshakeError)
    /// Act 3 proves another key than the route's.
    case wrongPeer
    case knockTooLong
    /// More knocks than ``DatagramLimits/knocksPerSecond``.
    case tooManyKnocks
    case unknownConnection
    /// Under load a dialer without a cookie is sent one.
    case cookieSent
    case notAuthentic
    case replayed
    /// The peer closed, or the connection broke.
    case disconnected
    case shutDown

    /// `false` for a datagram without a connection, or one not rejected yet.
    var endsConnection: Bool {
        switch self {
        case .unknownConnection, .cookieSent, .notAuthentic, .replayed: false
        default: true
        }
    }
}

/// Why an outgoing dial or knock failed.
package enum DialFailure: Error, Hashable, Sendable {
    case refused
    /// No connection, or no next act, in time.
    case timedOut
    case unreachable
    case unresolvable
    /// The responder closed before act 2: it is another inbox, is too busy, or does not know the token.
    case closedBeforeActTwo
    /// Act 2 is not from the dialled inbox.
    case authenticationFailed(HandshakeError)
    case badAnswer
    /// ``TCPTransport/cancelDial(_:)`` or ``TCPTransport/close()``.
    case cancelled
    /// Any other system error, by `errno`; 0 if it has none.
    case system(Int32)
}

extension DialFailure {
    /// The failure of a dial whose connection was established.
    init(_ rejection: Rejection?) {
        switch rejection {
        case .timedOut: self = .timedOut
        case .handshake(let error): self = .authenticationFailed(error)
        case .shutDown: self = .cancelled
        default: self = .closedBeforeActTwo
        }
    }
}

package enum LinkCloseReason: Hashable, Sendable {
    /// ``PeerConnection/close(_:)`` or ``PeerConnection/abort(_:)`` without another reason.
    case requested
    /// Another link between the same inboxes is kept (simultaneous dialling).
    case duplicate
    /// An authenticated message of the peer violates the protocol.
    case protocolViolation
    case shutDown
    case closedByPeer
    /// Over UDP no authentic packet came for ``DatagramLimits/silence``.
    case silent
    /// Over UDP new keys were not established in time.
    case rekeyOverdue
    /// Bytes that do not open with the link's keys.
    case notAuthentic
    /// More than ``TransportLimits/outboundByteCount`` bytes are queued.
    case outboundOverflow
    /// No acknowledgement for ``TransportLimits/silence``: the peer is gone, or the path drops large packets.
    case unacknowledged
    /// The connection broke, by `errno`; 0 if there is none.
    case connectionLost(Int32)
}

/// A transport's synchronous callbacks on its event loop. They may call the transport.
package struct TransportEvents {
    /// The route of a link's token; `nil` for one that only admits knocks (``RoutingTable/Match/isKnock``).
    package var route: (RoutingToken) -> RouteMatch? = { _ in nil }
    /// Whether `route` may find a route, cheaply. Called before a connection gets a channel.
    package var isKnown: (RoutingToken) -> Bool = { _ in true }
    /// Whether to read a knock with this token.
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
    /// The responder answered a dial with an authentic act 2; act 3 is not sent yet. Only over UDP, where the link
    /// opens only once the responder has act 3. Over TCP `linkOpened` says it.
    package var dialAnswered: (UInt64, RoutingToken) -> Void = { _, _ in }
    package var linkOpened: (PeerConnection) -> Void = { _ in }
    /// One whole frame. May come after ``PeerConnection/close(_:)``, but not after `linkClosed`.
    package var frame: (PeerConnection, [UInt8]) -> Void = { _, _ in }
    /// All frames that arrived together were delivered: time to flush.
    package var batchEnded: (PeerConnection) -> Void = { _ in }
    package var becameWritable: (PeerConnection) -> Void = { _ in }
    /// The last event of a link.
    package var linkClosed: (PeerConnection, LinkCloseReason) -> Void = { _, _ in }
    /// The last event of a failed dial, with the number from ``TCPTransport/dial(_:)``.
    package var dialFailed: (UInt64, DialFailure) -> Void = { _, _ in }
    /// An incoming connection failed. For counters only.
    package var rejected: (Rejection) -> Void = { _ in }

    package init() {}
}
