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
    func source(toward address: IPAddress) -> IPAddress?
}

extension DatagramAddress {
    /// `nil` for a Unix domain socket.
    package init?(_ address: SocketAddress, socket: UInt32) {
        guard let ip = IPAddress(zoned: address), let port = address.port else { return nil }
        self.init(ip, port: UInt16(truncatingIfNeeded: port), socket: socket)
    }

    package var socketAddress: SocketAddress? {
        try? SocketAddress(packedIPAddress: ByteBuffer(bytes: ip.bytes), port: Int(port))
    }
}

extension DatagramAddress.Network {
    /// `nil` without an IP address.
    init?(_ address: SocketAddress?) {
        guard let ip = address.flatMap({ IPAddress($0) }) else { return nil }
        self.init(ip)
    }
}

extension Endpoint { init(_ address: DatagramAddress) { self.init(host: address.ip.text, port: Int(address.port)) } }
