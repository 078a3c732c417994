import Cryptography

package enum LinkCarrier: Hashable, Sendable { case tcp, udp }

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
        self != .unknownConnection && self != .cookieSent && self != .notAuthentic && self != .replayed
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
    /// ``LinkTransport/cancelDial(_:)`` or ``LinkTransport/close()``.
    case cancelled
    /// Any other system error, by `errno`; 0 if it has none.
    case system(Int32)

    package var reason: String {
        switch self {
        case .refused: "nothing listens at that port"
        case .timedOut: "no answer in time"
        case .unreachable: "there is no route to the host"
        case .unresolvable: "the name has no address"
        case .system(let code): "error \(code) of the system"
        case .closedBeforeActTwo, .authenticationFailed, .badAnswer, .cancelled: "the connection ended"
        }
    }
}

extension DialFailure {
    /// The failure of a dial whose connection was established.
    init(rejection: Rejection?) {
        switch rejection {
        case .timedOut: self = .timedOut
        case .handshake(let error): self = .authenticationFailed(error)
        case .shutDown: self = .cancelled
        case .unknownProtocol, .unknownToken, .tooManyHandshakes, .tooManyFromPrefix, .crowdedOut, .wrongPeer,
            .knockTooLong, .tooManyKnocks, .unknownConnection, .cookieSent, .notAuthentic, .replayed, .disconnected,
            nil:
            self = .closedBeforeActTwo
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
    /// No authentic packet came for ``DatagramLimits/silence``, or over TCP no act 2.
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

package enum LinkSendError: Error, Hashable {
    case closed
    /// More than 65,535 bytes.
    case tooLong
    /// More bytes are queued than the carrier's `outboundByteCount`. The link is closed with
    /// ``LinkCloseReason/outboundOverflow``.
    case outboundOverflow
}
