import Glibc
import NIOCore

extension IPAddress {
    /// Without the zone; `nil` for a Unix domain socket.
    package init?(_ address: SocketAddress) {
        guard let zoned = IPAddress(zoned: address) else { return nil }
        self = zoned.withoutZone
    }

    /// `nil` for a Unix domain socket.
    init?(zoned address: SocketAddress) {
        switch address {
        // sockaddr_in: family 2, port 2, address 4. sockaddr_in6: family 2, port 2, flow 4, address 16, zone 4.
        case .v4(let address): self.init(withUnsafeBytes(of: address.address) { Array($0[4..<8]) })
        case .v6(let address):
            self.init(withUnsafeBytes(of: address.address) { Array($0[8..<24]) })
            zone = withUnsafeBytes(of: address.address) { $0.loadUnaligned(fromByteOffset: 24, as: UInt32.self) }
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
    package static func elsewhere(isIPv4: Bool) -> IPAddress {
        isIPv4 ? IPAddress(192, 0, 2, 1) : IPAddress(high: 0x2001_0db8_0000_0000, low: 1)
    }

    /// Our source address toward this one, by the kernel's routes; `nil` without a route.
    package var source: IPAddress? {
        let type = CInt(SOCK_DGRAM.rawValue) | CInt(SOCK_CLOEXEC.rawValue)
        let descriptor = socket(isIPv4 ? AF_INET : AF_INET6, type, 0)
        guard descriptor >= 0 else { return nil }
        defer { close(descriptor) }
        // Connecting a UDP socket sends nothing.
        guard withSocketAddress(port: 9, zone: 0, { connect(descriptor, $0, $1) == 0 }) else { return nil }
        return SocketAddress(boundBy: descriptor).flatMap { IPAddress($0) }
    }

    /// Without an interface.
    var text: String { host(interface: 0).map { String($0.prefix { $0 != "%" }) } ?? "" }

    /// Calls `body` with a `sockaddr`. `zone`: the interface of a link-local IPv6 address.
    func withSocketAddress<Result>(port: UInt16, zone: UInt32, _ body: (UnsafePointer<sockaddr>, socklen_t) -> Result)
        -> Result
    {
        withUnsafeTemporaryAllocation(byteCount: Self.socketAddressByteCount, alignment: 8) { memory in
            memory.initializeMemory(as: UInt8.self, repeating: 0)
            let base = memory.baseAddress!
            let length = writeSocketAddress(port: port, zone: zone, to: base)
            return body(base.assumingMemoryBound(to: sockaddr.self), length)
        }
    }

    /// Of `sockaddr_in6`; `sockaddr_in` has 16.
    static let socketAddressByteCount = 28

    /// Writes a `sockaddr` into zeros, and returns its length.
    func writeSocketAddress(port: UInt16, zone: UInt32, to base: UnsafeMutableRawPointer) -> socklen_t {
        base.storeBytes(of: UInt16(isIPv4 ? AF_INET : AF_INET6), as: UInt16.self)
        base.storeBytes(of: port.bigEndian, toByteOffset: 2, as: UInt16.self)
        if let v4 {
            base.storeBytes(of: v4.bigEndian, toByteOffset: 4, as: UInt32.self)
            return 16
        }
        base.storeBytes(of: high.bigEndian, toByteOffset: 8, as: UInt64.self)
        base.storeBytes(of: low.bigEndian, toByteOffset: 16, as: UInt64.self)
        base.storeBytes(of: zone, toByteOffset: 24, as: UInt32.self)
        return socklen_t(Self.socketAddressByteCount)
    }
}
