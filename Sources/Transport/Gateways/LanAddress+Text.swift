import Glibc

extension LanAddress {
    /// As people write it, without an interface.
    var text: String { host(interface: 0).map { String($0.prefix { $0 != "%" }) } ?? "" }

    /// Calls `body` with the address as the system has it.
    /// - Parameter interface: of a link-local address of IPv6.
    func withSystemAddress<Result>(
        port: UInt16,
        interface: UInt32,
        _ body: (UnsafePointer<sockaddr>, socklen_t) -> Result
    ) -> Result {
        if isIPv4 {
            var address = sockaddr_in()
            address.sin_family = sa_family_t(AF_INET)
            address.sin_port = port.bigEndian
            withUnsafeMutableBytes(of: &address.sin_addr) { $0.copyBytes(from: bytes) }
            return withUnsafeBytes(of: address) { bytes in
                bytes.withMemoryRebound(to: sockaddr.self) { body($0.baseAddress!, socklen_t(bytes.count)) }
            }
        }
        var address = sockaddr_in6()
        address.sin6_family = sa_family_t(AF_INET6)
        address.sin6_port = port.bigEndian
        address.sin6_scope_id = isLinkLocal ? interface : 0
        withUnsafeMutableBytes(of: &address.sin6_addr) { $0.copyBytes(from: bytes) }
        return withUnsafeBytes(of: address) { bytes in
            bytes.withMemoryRebound(to: sockaddr.self) { body($0.baseAddress!, socklen_t(bytes.count)) }
        }
    }
}
