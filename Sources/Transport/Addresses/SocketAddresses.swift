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
        guard withSocketAddress(port: 9, zone: zone, { connect(descriptor, $0, $1) == 0 }) else { return nil }
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

extension DatagramAddress {
    /// `nil` for a Unix domain socket.
    package init?(_ address: SocketAddress, socket: UInt32) {
        guard let ip = IPAddress(zoned: address), let port = address.port else { return nil }
        self.init(ip, port: UInt16(truncatingIfNeeded: port), socket: socket)
    }

    package var socketAddress: SocketAddress? {
        guard ip.zone != 0, !ip.isIPv4 else {
            return try? SocketAddress(packedIPAddress: ByteBuffer(bytes: ip.bytes), port: Int(port))
        }
        return ip.withSocketAddress(port: port, zone: ip.zone) { address, _ in
            SocketAddress(UnsafeRawPointer(address).loadUnaligned(as: sockaddr_in6.self))
        }
    }

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

extension DatagramAddress.Network {
    /// `nil` without an IP address.
    init?(_ address: SocketAddress?) {
        guard let ip = address.flatMap({ IPAddress($0) }) else { return nil }
        self.init(ip)
    }
}

extension Endpoint {
    init(_ address: DatagramAddress) {
        let ip = address.ip
        self.init(host: (ip.zone == 0 ? nil : ip.host(interface: ip.zone)) ?? ip.text, port: Int(address.port))
    }
}

extension SocketAddress {
    /// The address of a dial; `nil` for a name, and without a port.
    init?(reaching endpoint: Endpoint) {
        guard (1...65_535).contains(endpoint.port),
            let address = try? SocketAddress(ipAddress: endpoint.host, port: endpoint.port)
        else { return nil }
        self = address
    }

    /// The address to bind. Resolving a name blocks. A literal address is parsed, because on a single-family machine
    /// the system may return one of the other family.
    init?(at endpoint: Endpoint) {
        let literal = try? SocketAddress(ipAddress: endpoint.host, port: endpoint.port)
        guard let address = try? literal ?? .makeAddressResolvingHost(endpoint.host, port: endpoint.port) else {
            return nil
        }
        self = address
    }

    /// A bound, non-blocking socket. Refused `options` (level, name, value) are skipped.
    func bind(_ type: __socket_type, _ options: [(CInt, CInt, CInt)], for endpoint: Endpoint) throws(ListenFailure)
        -> CInt
    {
        let isIPv6 = if case .v6 = self { true } else { false }
        let flags = CInt(type.rawValue) | CInt(SOCK_NONBLOCK.rawValue) | CInt(SOCK_CLOEXEC.rawValue)
        let inherited = InheritedSockets.take(type, at: self)
        let descriptor = inherited ?? socket(isIPv6 ? AF_INET6 : AF_INET, flags, 0)
        guard descriptor >= 0 else { throw .system(endpoint, errno) }
        // Each family has a socket of its own, so both can use the same port.
        let separate: [(CInt, CInt, CInt)] = isIPv6 ? [(CInt(IPPROTO_IPV6), 26, 1)] : []  // IPV6_V6ONLY
        for (level, name, var value) in options + separate {
            _ = setsockopt(descriptor, level, name, &value, socklen_t(MemoryLayout<CInt>.size))
        }
        if inherited != nil { return descriptor }
        guard withSockAddr({ Glibc.bind(descriptor, $0, socklen_t($1)) }) == 0 else {
            let code = errno
            Glibc.close(descriptor)
            throw ListenFailure(IOError(errnoCode: code, reason: "bind"), endpoint)
        }
        return descriptor
    }
}
