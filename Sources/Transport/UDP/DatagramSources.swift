import NIOCore

extension DatagramNetwork { package func source(toward address: SocketAddress) -> SocketAddress? { nil } }

extension Sockets {
    package func source(toward address: SocketAddress) -> SocketAddress? {
        LanAddress(address)?.source?.host(interface: 0).flatMap { try? SocketAddress(ipAddress: $0, port: 0) }
    }
}

extension DatagramAddress {
    /// The own socket for a dial to this address: bound to the route's source address, or to all addresses. Any other
    /// would send from an address that answers may not reach.
    /// - Parameters:
    ///   - sockets: the bound address of each, with its number.
    ///   - source: from the system's routes; `nil` if unknown.
    func leaving(by sockets: [DatagramAddress], source: DatagramAddress?) -> UInt32? {
        let possible = sockets.filter { $0.isIPv4 == isIPv4 && ($0.isWildcard || $0.isLoopback == isLoopback) }
        let exact = possible.first { source == nil || isLoopback || ($0.high, $0.low) == (source?.high, source?.low) }
        return (exact ?? possible.first(where: \.isWildcard))?.socket
    }
}

/// The local addresses at which datagrams arrived on a wildcard socket. A reply must leave from the address that was
/// asked, because the peer ignores any other source. Use it only on the socket's event loop.
final class DatagramSources {
    /// More than a machine has in a process's life; beyond it the system chooses the source.
    private static let count = 4_096

    /// By number, which is the index plus one.
    private var addresses: [DatagramAddress?] = []
    private var names: [DatagramAddress: UInt32] = [:]

    /// The number of the address at which a datagram arrived; 0 without one.
    func name(of arrival: NIOPacketInfo) -> UInt32 {
        guard let plain = DatagramAddress(arrival.destinationAddress, socket: 0) else { return 0 }
        let scope = plain.isLinkLocal ? UInt32(clamping: arrival.interfaceIndex) : 0
        let address = DatagramAddress(high: plain.high, low: plain.low, port: 0, scope: scope)
        if let name = names[address] { return name }
        guard addresses.count < Self.count else { return 0 }
        addresses.append(address)
        let name = UInt32(addresses.count)
        names[address] = name
        return name
    }

    func address(_ name: UInt32) -> DatagramAddress? {
        name > 0 && name <= addresses.count ? addresses[Int(name) - 1] : nil
    }

    /// The address cannot send: the system chooses the source from now on.
    func forget(_ name: UInt32) {
        guard let address = address(name) else { return }
        addresses[Int(name) - 1] = nil
        names[address] = nil
    }
}
