import NIOCore

extension DatagramNetwork { package func source(toward address: IPAddress) -> IPAddress? { nil } }

extension Sockets { package func source(toward address: IPAddress) -> IPAddress? { address.source } }

extension DatagramAddress {
    /// The own socket for a dial to this address: bound to the route's source address, or to all addresses. Any other
    /// would send from an address that answers may not reach.
    /// - Parameters:
    ///   - sockets: the bound address of each, with its number.
    ///   - source: from the system's routes; `nil` if unknown.
    func leaving(by sockets: [DatagramAddress], source: IPAddress?) -> UInt32? {
        let possible = sockets.filter {
            $0.ip.isIPv4 == ip.isIPv4 && ($0.ip.isWildcard || $0.ip.isLoopback == ip.isLoopback)
        }
        let exact = possible.first { source == nil || ip.isLoopback || $0.ip.withoutZone == source?.withoutZone }
        return (exact ?? possible.first(where: \.ip.isWildcard))?.socket
    }
}

/// The local addresses at which datagrams arrived on a wildcard socket. A reply must leave from the address that was
/// asked, because the peer ignores any other source. Use it only on the socket's event loop.
final class DatagramSources {
    /// More than a machine has in a process's life; beyond it the system chooses the source.
    private static let count = 4_096

    /// By number, which is the index plus one.
    private var addresses: [IPAddress?] = []
    private var names: [IPAddress: UInt32] = [:]

    /// The number of the address at which a datagram arrived; 0 without one.
    func name(of arrival: NIOPacketInfo) -> UInt32 {
        guard var address = IPAddress(arrival.destinationAddress) else { return 0 }
        if address.isLinkLocal, !address.isIPv4 { address.zone = UInt32(clamping: arrival.interfaceIndex) }
        if let name = names[address] { return name }
        guard addresses.count < Self.count else { return 0 }
        addresses.append(address)
        let name = UInt32(addresses.count)
        names[address] = name
        return name
    }

    func address(_ name: UInt32) -> IPAddress? { name > 0 && name <= addresses.count ? addresses[Int(name) - 1] : nil }

    /// The address cannot send: the system chooses the source from now on.
    func forget(_ name: UInt32) {
        guard let address = address(name) else { return }
        addresses[Int(name) - 1] = nil
        names[address] = nil
    }
}
