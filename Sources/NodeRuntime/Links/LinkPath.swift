import Messaging
import NIOCore
import Transport

package struct LinkPath: Sendable {
    package enum Kind: String, Sendable {
        /// On a network shared with this machine.
        case lan
        case direct
        /// Through a rendezvous node, whose address is given.
        case relayed
        /// By NAT hole punching.
        case punched
    }

    package var kind: Kind
    package var carrier: PeerConnection.Carrier
    package var address: SocketAddress
    package var openedAt: Messaging.Timestamp
    /// Measured by the transport; `nil` before the first measurement.
    package var rttMilliseconds: Double?
    /// Sealed bytes since then.
    package var bytesIn: UInt64
    package var bytesOut: UInt64

    package var transport: String {
        switch carrier {
        case .tcp: "tcp"
        case .udp: "udp"
        }
    }
}

extension LinkPath {
    /// - Parameter now: the time of the node's clock.
    /// - Returns: `nil` for a link without a known address.
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
