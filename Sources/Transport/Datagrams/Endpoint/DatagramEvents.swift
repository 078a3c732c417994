import Cryptography

package struct DatagramSource {
    package var randomBytes: (Int) -> [UInt8]
    /// A fresh key for each handshake.
    package var makeEphemeral: () -> SecretKey
    package var encapsulation: KeyEncapsulationSource
    /// The route of a 16-byte token, or `nil`. May derive a key: called only after `isKnown` and the load limits.
    package var route: ([UInt8]) -> RouteMatch?
    /// Whether `route` may find a route. An unknown token costs one dictionary lookup.
    package var isKnown: ([UInt8]) -> Bool
    /// Whether to read a knock with this token of 16 bytes. An unknown token costs one dictionary lookup.
    package var acceptsKnock: ([UInt8]) -> Bool

    package init(
        randomBytes: @escaping (Int) -> [UInt8], makeEphemeral: @escaping () -> SecretKey,
        encapsulation: KeyEncapsulationSource = KeyEncapsulationSource(),
        route: @escaping ([UInt8]) -> RouteMatch? = { _ in nil }, isKnown: @escaping ([UInt8]) -> Bool = { _ in false },
        acceptsKnock: @escaping ([UInt8]) -> Bool = { _ in false }
    ) {
        self.randomBytes = randomBytes
        self.makeEphemeral = makeEphemeral
        self.encapsulation = encapsulation
        self.route = route
        self.isKnown = isKnown
        self.acceptsKnock = acceptsKnock
    }

    func randomNumber() -> UInt64 { randomBytes(8).reduce(0) { $0 << 8 | UInt64($1) } }
}

package struct DatagramDial {
    package let address: DatagramAddress
    /// 16 bytes.
    package let token: [UInt8]
    package let identity: IdentityKey
    package let remote: PublicKey
    /// The owner's identifier of the route, returned with the link.
    package let route: UInt64
    /// The peer's NAT may not be open yet: sends act 1 more often, five times in all.
    package var isPunching = false

    package init(address: DatagramAddress, token: [UInt8], identity: IdentityKey, remote: PublicKey, route: UInt64) {
        self.address = address
        self.token = token
        self.identity = identity
        self.remote = remote
        self.route = route
    }
}

package struct DatagramOpening: Hashable, Sendable {
    /// Identifies the link within its endpoint; equals the dial's number.
    package let number: UInt64
    package let peer: AuthenticatedPeer
    package let route: UInt64
    package let token: [UInt8]
    package let role: Role
    package let address: DatagramAddress
}

extension LinkCloseReason {
    /// The code sent to the peer. The peer does not trust it: every code is just a close.
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

package enum DatagramDialFailure: Error, Hashable, Sendable {
    /// No answer to act 1: the node is down, is not the expected inbox, or does not know the token.
    case noAnswer
    /// Act 2 came, but no answer to act 3: the peer rejects us, or the path is gone.
    case noConfirmation
    case reflection
    case tooManyConnections
    case cancelled
}

/// An incoming knock, to be answered with ``DatagramEndpoint/answer(_:with:)``.
package struct DatagramKnock: Hashable, Sendable {
    package let token: [UInt8]
    package let sealed: [UInt8]
    package let address: DatagramAddress
    let asker: UInt64
}

package enum DatagramEvent: Hashable, Sendable {
    /// An authentic act 2 with this token arrived; act 3 is not sent yet.
    case answered(UInt64, token: [UInt8])
    case opened(DatagramOpening)
    case readable(UInt64)
    case writable(UInt64)
    /// The peer has a new, validated address.
    case pathChanged(UInt64, DatagramAddress)
    /// The last event of a link.
    case closed(UInt64, LinkCloseReason)
    /// The last event of a failed dial.
    case dialFailed(UInt64, DatagramDialFailure)
    case knocked(DatagramKnock)
    /// The last event of our knock: the answer, empty for none; `nil` if the knock did not arrive.
    case knockEnded(UInt64, [UInt8]?)
    /// The last event of an address query: our address as the peer sees it; `nil` without an answer.
    case observed(UInt64, DatagramAddress?)
    /// A punch packet of the peer arrived from this address.
    case punched(UInt64, DatagramAddress)
    /// For counters only.
    case rejected(Rejection)
}

package struct DatagramTransmit: Hashable, Sendable {
    package let address: DatagramAddress
    package let bytes: [UInt8]
}
