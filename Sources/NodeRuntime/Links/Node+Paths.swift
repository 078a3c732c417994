import Messaging
import NIOCore
import NIOPosix
import Noise
import Primitives
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

extension Node {
    /// How the members of a conversation are reached that have a link.
    package func paths(of machine: ConversationStateMachine) -> [PublicKey: LinkPath] {
        var result: [PublicKey: LinkPath] = [:]
        for member in machine.currentMembers {
            result[member.key] = machine.link(to: member.key).flatMap(path(of:))
        }
        return result
    }

    func path(of link: LinkID) -> LinkPath? {
        guard let connection = links[link]?.connection, let address = connection.remoteAddress else { return nil }
        let age = (loop.now - connection.openedAt).nanoseconds / 1_000_000
        return LinkPath(
            kind: kind(of: connection, at: address),
            carrier: connection.carrier,
            address: address,
            openedAt: now - age,
            rttMilliseconds: connection.roundTrip.map { Double($0.nanoseconds) / 1_000_000 },
            bytesIn: connection.bytesIn,
            bytesOut: connection.bytesOut
        )
    }

    private func kind(of connection: PeerConnection, at address: SocketAddress) -> LinkPath.Kind {
        if connection.isRelayed { return .relayed }
        if isNeighbour(address) { return .lan }
        return connection.isPunched ? .punched : .direct
    }

    /// Whether an address is of a network that this machine is on, other than its own loopback.
    private func isNeighbour(_ address: SocketAddress) -> Bool {
        guard let bytes = address.networkBytes else { return false }
        return addresses.devices.contains { device in
            guard let own = device.address?.networkBytes, let mask = device.netmask?.networkBytes,
                own.count == bytes.count, mask.count == bytes.count, device.address?.isLoopback == false
            else { return false }
            return zip(zip(own, bytes), mask).allSatisfy { ($0.0 ^ $0.1) & $1 == 0 }
        }
    }
}

extension SocketAddress {
    /// In the order of the network; `nil` for what is no address of the Internet.
    fileprivate var networkBytes: [UInt8]? {
        switch self {
        // sockaddr_in: family 2, port 2, address 4. sockaddr_in6: family 2, port 2, flow 4, address 16.
        case .v4(let address): withUnsafeBytes(of: address.address) { Array($0[4..<8]) }
        case .v6(let address): withUnsafeBytes(of: address.address) { Array($0[8..<24]) }
        case .unixDomainSocket: nil
        }
    }

    fileprivate var isLoopback: Bool {
        switch self {
        case .v4: networkBytes?.first == 127
        case .v6: ipAddress == "::1"
        case .unixDomainSocket: true
        }
    }
}
