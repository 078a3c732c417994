import Crypto
import Glibc
import NIOCore

extension LanAddress {
    /// `nil` for a Unix domain socket.
    package init?(_ address: SocketAddress) {
        switch address {
        // sockaddr_in: family 2, port 2, address 4. sockaddr_in6: family 2, port 2, flow 4, address 16.
        case .v4(let address): self.init(withUnsafeBytes(of: address.address) { Array($0[4..<8]) })
        case .v6(let address): self.init(withUnsafeBytes(of: address.address) { Array($0[8..<24]) })
        case .unixDomainSocket: return nil
        }
    }

    /// `nil` for a name.
    package init?(text: String) {
        guard let address = try? SocketAddress(ipAddress: text, port: 1) else { return nil }
        self.init(address)
    }

    /// The host to dial, with the index of the interface if it is a link-local IPv6 address.
    package func host(interface: UInt32) -> String? {
        var buffer = ByteBuffer()
        buffer.writeBytes(bytes)
        guard let text = (try? SocketAddress(packedIPAddress: buffer, port: 1))?.ipAddress else { return nil }
        return isLinkLocal && !isIPv4 ? "\(text)%\(interface)" : text
    }

    /// An address of another network, never sent to: TEST-NET-1 (RFC 5737), or documentation (RFC 3849).
    package static func elsewhere(isIPv4: Bool) -> LanAddress {
        isIPv4 ? LanAddress(192, 0, 2, 1) : LanAddress(high: 0x2001_0db8_0000_0000, low: 1)
    }

    /// Our source address toward this one, by the kernel's routes; `nil` without a route.
    package var source: LanAddress? {
        let type = CInt(SOCK_DGRAM.rawValue) | CInt(SOCK_CLOEXEC.rawValue)
        let descriptor = socket(isIPv4 ? AF_INET : AF_INET6, type, 0)
        guard descriptor >= 0 else { return nil }
        defer { close(descriptor) }
        // Connecting a UDP socket sends nothing.
        guard withSocketAddress(port: 9, scope: 0, { connect(descriptor, $0, $1) == 0 }) else { return nil }
        var bytes = [UInt8](repeating: 0, count: 28)
        var count = socklen_t(bytes.count)
        let result = bytes.withUnsafeMutableBytes { bytes in
            bytes.withMemoryRebound(to: sockaddr.self) { getsockname(descriptor, $0.baseAddress!, &count) }
        }
        guard result == 0 else { return nil }
        // sockaddr_in: family 2, port 2, address 4. sockaddr_in6: family 2, port 2, flow 4, address 16.
        return LanAddress(isIPv4 ? bytes[4..<8] : bytes[8..<24])
    }

    /// Without an interface.
    var text: String { host(interface: 0).map { String($0.prefix { $0 != "%" }) } ?? "" }

    /// Calls `body` with a `sockaddr`. `scope`: the interface of a link-local IPv6 address.
    func withSocketAddress<Result>(port: UInt16, scope: UInt32, _ body: (UnsafePointer<sockaddr>, socklen_t) -> Result)
        -> Result
    {
        let family = withUnsafeBytes(of: UInt16(isIPv4 ? AF_INET : AF_INET6)) { Array($0) }
        let head = family + bigEndian(port)
        // sockaddr_in: address, padding. sockaddr_in6: flow, address, scope.
        let whole =
            isIPv4
            ? head + bytes + [UInt8](repeating: 0, count: 8)
            : head + [0, 0, 0, 0] + bytes + withUnsafeBytes(of: scope) { Array($0) }
        return whole.withUnsafeBytes { bytes in
            bytes.withMemoryRebound(to: sockaddr.self) { body($0.baseAddress!, socklen_t(bytes.count)) }
        }
    }
}
