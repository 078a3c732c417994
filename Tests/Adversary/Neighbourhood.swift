import Glibc

/// A LAN between a node and its attackers: two network namespaces joined by a cable.
package struct Neighbourhood: Sendable {
    /// File of the attackers' namespace; the node's is this process's.
    package var neighbour: String
    package var device: String
    /// First of the attackers' 1,024 addresses, in the node's network.
    package var first: UInt32

    /// - Parameter first: The first address as text.
    package init(neighbour: String, device: String, first: String) throws(Failure) {
        var address = in_addr()
        guard inet_pton(AF_INET, first, &address) == 1 else { throw Failure("\(first) is no address") }
        (self.neighbour, self.device) = (neighbour, device)
        self.first = UInt32(bigEndian: address.s_addr)
    }

    /// Moves this thread, and sockets it opens later, into a namespace. Needs root.
    static func enter(_ path: String) throws(Failure) {
        let descriptor = open(path, O_RDONLY | O_CLOEXEC)
        guard descriptor >= 0 else { throw Failure.system(path) }
        defer { close(descriptor) }
        // setns(2) is missing in Glibc's module; 0x4000_0000 is CLONE_NEWNET.
        guard let symbol = dlsym(nil, "setns") else { throw Failure("no setns") }
        let setns = unsafeBitCast(symbol, to: (@convention(c) (Int32, Int32) -> Int32).self)
        guard setns(descriptor, 0x4000_0000) == 0 else { throw Failure.system("setns") }
    }
}

/// Sockets with many addresses of one machine that send to the group of LAN discovery and receive from any sender.
final class LanSockets: UDPSockets {
    /// 239.255.109.102, and the port of the announcements.
    private static let group = SocketName(0xEFFF_6D66, 7_441)

    private(set) var addresses: [UInt32] = []
    private(set) var ports: [UInt16] = []
    /// Bytes sent by all of them.
    var replayed: [UInt8]?

    init(_ addresses: Range<UInt32>, device: String) throws(Failure) {
        super.init()
        let interface = if_nametoindex(device)
        guard interface > 0 else { throw Failure.system(device) }
        for address in addresses {
            let descriptor = try add(at: address)
            // struct ip_mreqn, for IP_MULTICAST_IF; and IP_MULTICAST_LOOP: ip(7).
            var request: (UInt32, UInt32, Int32) = (0, 0, Int32(interface))
            var off: Int32 = 0
            guard setsockopt(descriptor, Int32(IPPROTO_IP), 32, &request, 12) == 0,
                setsockopt(descriptor, Int32(IPPROTO_IP), 34, &off, 4) == 0
            else { throw Failure.system("a neighbour's socket") }
            self.addresses.append(address)
            ports.append(Self.port(of: descriptor))
        }
    }

    private static func port(of descriptor: Int32) -> UInt16 {
        var name = sockaddr_in()
        var size = socklen_t(MemoryLayout<sockaddr_in>.size)
        withUnsafeMutablePointer(to: &name) { pointer in
            pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) { _ = getsockname(descriptor, $0, &size) }
        }
        return UInt16(bigEndian: name.sin_port)
    }

    func announce(_ bytes: [UInt8], by index: Int) { send(bytes, by: index, to: Self.group) }
}
