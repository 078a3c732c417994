import NIOCore

extension DatagramNetwork { package func source(toward address: SocketAddress) -> SocketAddress? { nil } }

extension Sockets {
    package func source(toward address: SocketAddress) -> SocketAddress? {
        LanAddress(address)?.source?.host(interface: 0).flatMap { try? SocketAddress(ipAddress: $0, port: 0) }
    }
}

extension DatagramAddress {
    /// Of our own sockets the one by which a dial to this address leaves: bound to the address that is the source of what
    /// goes there, or to all addresses. Any other would send from an address to which no answer may lead.
    /// - Parameters:
    ///   - sockets: where each is bound, with its name.
    ///   - source: as the system has it; `nil` if it is not known.
    func leaving(by sockets: [DatagramAddress], source: DatagramAddress?) -> UInt32? {
        let possible = sockets.filter { $0.isIPv4 == isIPv4 && ($0.isWildcard || $0.isLoopback == isLoopback) }
        let exact = possible.first { source == nil || isLoopback || ($0.high, $0.low) == (source?.high, source?.low) }
        return (exact ?? possible.first(where: \.isWildcard))?.socket
    }
}

/// The machine's addresses that datagrams have come to, on a socket that is bound to all of them: an answer leaves from the
/// one that was asked, which is the only one the other side takes it from. On the socket's event loop alone.
final class DatagramSources {
    /// More than a machine has in a process's life; beyond, the system chooses.
    private static let count = 4_096

    /// By name, which is the index and one.
    private var addresses: [DatagramAddress?] = []
    private var names: [DatagramAddress: UInt32] = [:]

    /// The name of the address that a datagram came to; 0 without one.
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

    /// Nothing can leave from there: for what bears the name the system chooses from now on.
    func forget(_ name: UInt32) {
        guard let address = address(name) else { return }
        addresses[Int(name) - 1] = nil
        names[address] = nil
    }
}
