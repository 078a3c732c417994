import NIOCore

/// A bound UDP socket as the transport sees it. To be used on its event loop alone.
package protocol DatagramSocket: AnyObject {
    /// Where it is bound, with the port that the system chose for 0.
    var localAddress: SocketAddress { get }
    /// Takes a datagram to be sent at the next ``flush()``, or before. What the system refuses is lost, as on the way.
    func send(_ bytes: [UInt8], to address: DatagramAddress)
    func flush()
    /// Nothing comes or goes any more.
    func close()
}

/// Where datagrams come from. ``Sockets`` are the kernel's; a simulator has a network of its own, in memory.
package protocol DatagramNetwork: Sendable {
    /// Binds.
    /// - Parameters:
    ///   - endpoint: port 0 for one that the system chooses.
    ///   - number: the socket's name in the addresses of what it receives.
    ///   - receive: called on `loop` for each datagram, and with `nil` when those that had come together are through.
    /// - Returns: a future that fails with ``ListenFailure`` and nothing else.
    func bind(
        at endpoint: Endpoint, number: UInt32, on loop: any EventLoop,
        receive: @escaping @Sendable ((DatagramAddress, [UInt8])?) -> Void
    ) -> EventLoopFuture<NIOLoopBound<any DatagramSocket>>

    /// The machine's address from which it would send there; `nil` if that is not known, or there is no way.
    func source(toward address: SocketAddress) -> SocketAddress?
}

extension DatagramAddress {
    /// `nil` for what is no address of the Internet.
    package init?(_ address: SocketAddress, socket: UInt32) {
        switch address {
        case .v4(let address):
            let bytes = withUnsafeBytes(of: address.address) { Array($0) }
            // sockaddr_in: family 2, port 2, address 4.
            let v4 = bytes[4..<8].reduce(0) { $0 << 8 | UInt32($1) }
            self.init(v4: v4, port: UInt16(bytes[2]) << 8 | UInt16(bytes[3]), socket: socket)
        case .v6(let address):
            let bytes = withUnsafeBytes(of: address.address) { Array($0) }
            // sockaddr_in6: family 2, port 2, flow 4, address 16, scope 4 with the low byte first.
            self.init(
                high: bytes[8..<16].reduce(0) { $0 << 8 | UInt64($1) },
                low: bytes[16..<24].reduce(0) { $0 << 8 | UInt64($1) }, port: UInt16(bytes[2]) << 8 | UInt16(bytes[3]),
                scope: bytes[24..<28].reversed().reduce(0) { $0 << 8 | UInt32($1) }, socket: socket)
        case .unixDomainSocket: return nil
        }
    }

    /// As the rest of the node knows addresses.
    package var socketAddress: SocketAddress? {
        var bytes = ByteBuffer()
        if let v4 {
            bytes.writeInteger(v4)
        } else {
            bytes.writeInteger(high)
            bytes.writeInteger(low)
        }
        return try? SocketAddress(packedIPAddress: bytes, port: Int(port))
    }

    var isIPv4: Bool { v4 != nil }
    /// fe80::/10 (RFC 4291, section 2.5.6).
    var isLinkLocal: Bool { high >> 54 == 0xfe80 >> 6 }
    var isWildcard: Bool { v4 == 0 || (high == 0 && low == 0) }
}

extension DatagramAddress.Network {
    /// `nil` for what is no address of the Internet.
    init?(_ address: SocketAddress?) {
        guard let address = address.flatMap({ DatagramAddress($0, socket: 0) }) else { return nil }
        self.init(address)
    }
}

extension Endpoint {
    init?(_ address: DatagramAddress) {
        guard let address = address.socketAddress, let host = address.ipAddress, let port = address.port else {
            return nil
        }
        self.init(host: host, port: port)
    }
}
