import NIOCore

/// A bound UDP socket. Use it only on its event loop.
package protocol DatagramSocket: AnyObject {
    /// The bound address, with the port that the system chose for 0.
    var localAddress: SocketAddress { get }
    /// Queues a datagram until the next ``flush()`` at the latest. Best effort: a refused datagram is lost.
    func send(_ bytes: [UInt8], to address: DatagramAddress)
    func flush()
    func close()
}

/// Binds UDP sockets. ``Sockets`` uses the kernel; a simulator has a network in memory.
package protocol DatagramNetwork: Sendable {
    /// - Parameters:
    ///   - endpoint: port 0 lets the system choose.
    ///   - number: the socket's number in received addresses.
    ///   - receive: called on `loop` for each datagram, and with `nil` after each batch.
    /// - Returns: a future that fails only with ``ListenFailure``.
    func bind(
        at endpoint: Endpoint, number: UInt32, on loop: any EventLoop,
        receive: @escaping @Sendable ((DatagramAddress, [UInt8])?) -> Void
    ) -> EventLoopFuture<NIOLoopBound<any DatagramSocket>>

    /// Our source address toward `address`; `nil` if it is unknown or there is no route.
    func source(toward address: SocketAddress) -> SocketAddress?
}

extension DatagramAddress {
    /// `nil` for a Unix domain socket.
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
    /// `nil` without an IP address.
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
