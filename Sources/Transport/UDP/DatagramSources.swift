import NIOCore

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
