import Crypto
import NIOCore

/// Where a token leads, as the owner of the routes has it.
package struct RouteMatch: Sendable {
    /// Our inbox that is dialled.
    package let identity: IdentityKey
    /// The owner's name for the route; handed back with the link.
    package let route: UInt64
    /// Who has to be at the other end; `nil` lets anyone in whom act 3 proves (joiners, holders of a card).
    package let remote: PublicKey?

    package init(identity: IdentityKey, route: UInt64, remote: PublicKey?) {
        self.identity = identity
        self.route = route
        self.remote = remote
    }
}

/// Why a connection to us came to nothing. The other side is told none of it.
package enum Rejection: Error, Hashable, Sendable {
    /// The first byte is not one of ours, or what looks like a datagram of ours is none.
    case unknownProtocol
    /// No route has this token.
    case unknownToken
    /// The next act did not come in time, or the whole handshake did not.
    case timedOut
    case tooManyHandshakes
    case tooManyFromPrefix
    /// Dropped for a newer connection before it had shown a token.
    case crowdedOut
    case handshake(HandshakeError)
    /// Act 3 proves a key that is not the one this route is for.
    case wrongPeer
    case knockTooLong
    /// More knocks than ``DatagramLimits/knocksPerSecond``.
    case tooManyKnocks
    /// A datagram for a connection that is not there.
    case unknownConnection
    /// Under load a dialer without a cookie is sent one.
    case cookieSent
    /// A packet that does not open.
    case notAuthentic
    /// A packet that was seen before.
    case replayed
    /// The other side closed, or the connection broke.
    case disconnected
    /// We closed everything.
    case shutDown

    /// `false` for a datagram that is no connection, or not yet turned away.
    var endsConnection: Bool {
        switch self {
        case .unknownConnection, .cookieSent, .notAuthentic, .replayed: false
        case .unknownProtocol, .unknownToken, .timedOut, .tooManyHandshakes, .tooManyFromPrefix, .crowdedOut,
            .handshake, .wrongPeer, .knockTooLong, .tooManyKnocks, .disconnected, .shutDown:
            true
        }
    }
}

/// Why a dial or a knock of ours came to nothing.
package enum DialFailure: Error, Hashable, Sendable {
    /// Nobody listens there.
    case refused
    /// No connection, or no next act, in time.
    case timedOut
    /// No way to that network or host.
    case unreachable
    /// The host has no address.
    case unresolvable
    /// The responder closed before act 2: not the inbox we expect, too busy, or it does not know the token. See
    /// ``DialTokens/failed(_:)``.
    case closedBeforeActTwo
    /// What came as act 2 is not from the inbox that we dialled.
    case authenticationFailed(HandshakeError)
    /// The answer to a knock is malformed.
    case badAnswer
    /// We gave up: ``TCPTransport/cancelDial(_:)`` or ``TCPTransport/close()``.
    case cancelled
    /// Anything else of the system's, by its `errno`; 0 if it has none.
    case system(Int32)
}

extension DialFailure {
    /// A dial whose connection came about.
    init(_ rejection: Rejection?) {
        switch rejection {
        case .timedOut: self = .timedOut
        case .handshake(let error): self = .authenticationFailed(error)
        case .shutDown: self = .cancelled
        case .disconnected, .unknownProtocol, .unknownToken, .tooManyHandshakes, .tooManyFromPrefix, .crowdedOut,
            .wrongPeer, .knockTooLong, .tooManyKnocks, .unknownConnection, .cookieSent, .notAuthentic, .replayed, nil:
            self = .closedBeforeActTwo
        }
    }
}

/// Why a link is no more.
package enum LinkCloseReason: Hashable, Sendable {
    /// ``PeerConnection/close(_:)`` or ``PeerConnection/abort(_:)`` without another reason.
    case requested
    /// Another link between the same inboxes is kept (simultaneous dialling).
    case duplicate
    /// What the peer sent, though authenticated, is against the protocol.
    case protocolViolation
    /// The node stops.
    case shutDown
    /// The peer closed.
    case closedByPeer
    /// Over UDP nothing authentic came for ``DatagramLimits/silence``.
    case silent
    /// Over UDP new keys did not come about in time.
    case rekeyOverdue
    /// Bytes that do not open with the link's keys.
    case notAuthentic
    /// More than ``TransportLimits/outboundByteCount`` bytes wait to be sent.
    case outboundOverflow
    /// The peer acknowledged nothing of what we sent for ``TransportLimits/silence``: it is gone, or the path drops large
    /// packets.
    case unacknowledged
    /// The connection broke, by `errno`; 0 if there is none.
    case connectionLost(Int32)
}

/// What a transport tells its owner. All of it is called on the transport's event loop, synchronously, and may call
/// back into the transport.
package struct TransportEvents {
    /// Where a token of a link leads; `nil` for one that is for knocks alone (``RoutingTable/Match/isKnock``).
    package var route: (RoutingToken) -> RouteMatch? = { _ in nil }
    /// Whether `route` may lead somewhere, by a probe of a table. Asked before a connection gets a channel.
    package var isKnown: (RoutingToken) -> Bool = { _ in true }
    /// Whether a knock with this token is to be read.
    package var acceptsKnock: (RoutingToken) -> Bool = { _ in false }
    /// A knock's sealed bytes, and the network that it came from, as of ``PeerConnection/sourcePrefix``.
    /// - Returns: the answer, at most ``TransportLimits/knockByteCount`` bytes; `nil` for silence.
    package var knock: (RoutingToken, [UInt8], UInt64?) -> [UInt8]? = { _, _, _ in nil }
    /// How many bytes the first message behind a code's greeting has; `nil` where no such code is open.
    package var code: (RoutingToken) -> Int? = { _ in nil }
    /// A message of a code's exchange. It waits for an answer, or an end.
    package var codeMessage: (CodeConnection, [UInt8]) -> Void = { connection, _ in connection.close() }
    /// The last that is heard of a code's connection; it has nothing more to say, and hears nothing.
    package var codeEnded: (CodeConnection) -> Void = { _ in }
    /// The responder has answered a dial of ours with an authentic act 2, and act 3 has not left yet. Over TCP `linkOpened`
    /// says so; this comes before it over UDP, where the link is not open before the responder has act 3.
    package var dialAnswered: (UInt64, RoutingToken) -> Void = { _, _ in }
    package var linkOpened: (PeerConnection) -> Void = { _ in }
    /// One whole frame. May still come after ``PeerConnection/close(_:)``, but not after `linkClosed`.
    package var frame: (PeerConnection, [UInt8]) -> Void = { _, _ in }
    /// The frames that had arrived together have all been handed over: the time to flush.
    package var batchEnded: (PeerConnection) -> Void = { _ in }
    /// A link that was not writable is so again.
    package var becameWritable: (PeerConnection) -> Void = { _ in }
    /// The last that is heard of a link.
    package var linkClosed: (PeerConnection, LinkCloseReason) -> Void = { _, _ in }
    /// The last that is heard of a dial that did not open a link. The number is ``TCPTransport/dial(_:)``'s.
    package var dialFailed: (UInt64, DialFailure) -> Void = { _, _ in }
    /// A connection to us came to nothing. For counting only.
    package var rejected: (Rejection) -> Void = { _ in }

    package init() {}
}
