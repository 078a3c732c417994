import Messaging
import NIOCore
import Transport

/// How another inbox is reached.
package struct LinkPath: Sendable {
    package enum Kind: String, Sendable {
        /// The other side is on a network that this machine is on.
        case lan
        case direct
        /// Through a rendezvous node; the address is that node's.
        case relayed
        /// Through ways that both sides have made through their NATs.
        case punched
    }

    package var kind: Kind
    package var carrier: PeerConnection.Carrier
    package var address: SocketAddress
    /// When the handshake ended.
    package var openedAt: Messaging.Timestamp
    /// As the transport measures it; `nil` before it has.
    package var rttMilliseconds: Double?
    /// Sealed bytes since then.
    package var bytesIn: UInt64
    package var bytesOut: UInt64

    /// `tcp` or `udp`.
    package var transport: String {
        switch carrier {
        case .tcp: "tcp"
        case .udp: "udp"
        }
    }
}

extension LinkPath {
    /// - Parameter now: of the node's clock.
    /// - Returns: `nil` for a link whose address is not known.
    init?(of connection: PeerConnection, addresses: OwnAddresses, now: Messaging.Timestamp, loop: any EventLoop) {
        guard let address = connection.remoteAddress else { return nil }
        let kind: Kind =
            connection.isRelayed
            ? .relayed : addresses.isNeighbour(address) ? .lan : connection.isPunched ? .punched : .direct
        self.init(
            kind: kind, carrier: connection.carrier, address: address,
            openedAt: now - (loop.now - connection.openedAt).nanoseconds / 1_000_000,
            rttMilliseconds: connection.roundTrip.map { Double($0.nanoseconds) / 1_000_000 },
            bytesIn: connection.bytesIn, bytesOut: connection.bytesOut)
    }
}
