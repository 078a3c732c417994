import Crypto

/// What the core needs and must not make itself.
package struct DatagramSource {
    /// That many random bytes, for connection ids and challenges.
    package var randomBytes: (Int) -> [UInt8]
    /// A fresh key for each handshake.
    package var makeEphemeral: () -> SecretKey
    /// Where a token of 16 bytes leads; `nil` for one that leads nowhere. May derive a key: asked when `isKnown` has said so
    /// and the load allows it.
    package var route: ([UInt8]) -> RouteMatch?
    /// Whether `route` may lead somewhere. One probe of a dictionary.
    package var isKnown: ([UInt8]) -> Bool
    /// Whether a knock with this token of 16 bytes is to be read. One probe of a dictionary.
    package var acceptsKnock: ([UInt8]) -> Bool

    package init(
        randomBytes: @escaping (Int) -> [UInt8], makeEphemeral: @escaping () -> SecretKey,
        route: @escaping ([UInt8]) -> RouteMatch? = { _ in nil }, isKnown: @escaping ([UInt8]) -> Bool = { _ in false },
        acceptsKnock: @escaping ([UInt8]) -> Bool = { _ in false }
    ) {
        self.randomBytes = randomBytes
        self.makeEphemeral = makeEphemeral
        self.route = route
        self.isKnown = isKnown
        self.acceptsKnock = acceptsKnock
    }

    func randomNumber() -> UInt64 { randomBytes(8).reduce(0) { $0 << 8 | UInt64($1) } }
}

/// What a dial needs to know.
package struct DatagramDial {
    package let address: DatagramAddress
    /// 16 bytes.
    package let token: [UInt8]
    /// Our inbox, shown in act 3.
    package let identity: IdentityKey
    /// Whom we mean to reach.
    package let remote: PublicKey
    /// The owner's name for the route; handed back with the link.
    package let route: UInt64
    /// Through a NAT that may not let it in yet: asked more often, five times in all.
    package var isPunching = false

    package init(address: DatagramAddress, token: [UInt8], identity: IdentityKey, remote: PublicKey, route: UInt64) {
        self.address = address
        self.token = token
        self.identity = identity
        self.remote = remote
        self.route = route
    }
}

/// An open link, as its owner is told of it.
package struct DatagramOpening: Hashable, Sendable {
    /// Names the link within its endpoint; a dial has the same number.
    package let number: UInt64
    package let peer: AuthenticatedPeer
    package let route: UInt64
    package let token: [UInt8]
    package let role: Role
    package let address: DatagramAddress
}

extension LinkCloseReason {
    /// As the peer is told. It believes none of it: each is a close.
    var code: UInt8 {
        switch self {
        case .requested, .closedByPeer, .connectionLost, .unacknowledged: 0
        case .duplicate: 1
        case .protocolViolation, .notAuthentic: 2
        case .shutDown: 3
        case .silent: 4
        case .rekeyOverdue: 5
        case .outboundOverflow: 6
        }
    }
}

/// Why a dial of ours came to nothing.
package enum DatagramDialFailure: Error, Hashable, Sendable {
    /// No answer to act 1: nobody there, not the inbox we expect, or it does not know the token. Silence is all there is.
    case noAnswer
    /// Act 2 came, but after act 3 nothing: we are not welcome, or the way is gone.
    case noConfirmation
    /// We dialled ourselves.
    case reflection
    /// ``DatagramLimits/connectionCount`` is reached.
    case tooManyConnections
    /// We gave up.
    case cancelled
}

/// Somebody's knock, to be answered with ``DatagramEndpoint/answer(_:with:)``.
package struct DatagramKnock: Hashable, Sendable {
    package let token: [UInt8]
    package let sealed: [UInt8]
    package let address: DatagramAddress
    let asker: UInt64
}

/// What an endpoint tells its owner.
package enum DatagramEvent: Hashable, Sendable {
    /// The responder has answered a dial with this token; act 3 has not left yet.
    case answered(UInt64, token: [UInt8])
    case opened(DatagramOpening)
    /// There are messages to be read.
    case readable(UInt64)
    /// A link that was not writable is so again.
    case writable(UInt64)
    /// The peer's address has changed, and the new one is proved.
    case pathChanged(UInt64, DatagramAddress)
    /// The last that is heard of a link.
    case closed(UInt64, LinkCloseReason)
    /// The last that is heard of a dial that did not open a link.
    case dialFailed(UInt64, DatagramDialFailure)
    /// Somebody knocks.
    case knocked(DatagramKnock)
    /// The last that is heard of a knock of ours: the answer, empty for none; `nil` if nobody has heard it.
    case knockEnded(UInt64, [UInt8]?)
    /// From where the other side sees us; `nil` if it has not said so. The last that is heard of the question.
    case observed(UInt64, DatagramAddress?)
    /// A packet of the other side has come through, from there.
    case punched(UInt64, DatagramAddress)
    /// For counting only.
    case rejected(Rejection)
}

/// A datagram to be sent.
package struct DatagramTransmit: Hashable, Sendable {
    package let address: DatagramAddress
    package let bytes: [UInt8]
}
