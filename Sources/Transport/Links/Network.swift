import Glibc
import NIOCore
import NIOPosix

/// Opens TCP connections and listeners. ``Sockets`` uses the kernel; the simulator has a network in memory.
package protocol Network: Sendable {
    /// Connects, with half-closure allowed. The endpoint's port is 1…65,535.
    func connect(to endpoint: Endpoint, limits: TransportLimits, on loop: any EventLoop) -> EventLoopFuture<any Channel>
    /// Listens, and delivers each connection on `loop`. Fails only with ``ListenFailure``.
    func listen(at endpoint: Endpoint, limits: TransportLimits, on loop: any EventLoop, reception: Reception)
        -> EventLoopFuture<TCPListener>
}

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

extension DatagramNetwork { package func source(toward address: IPAddress) -> IPAddress? { nil } }

package struct Sockets: Network {
    package init() {}

    package func connect(to endpoint: Endpoint, limits: TransportLimits, on loop: any EventLoop) -> EventLoopFuture<
        any Channel
    > {
        guard let bootstrap = ClientBootstrap(validatingGroup: loop) else {
            preconditionFailure("a dial needs an event loop with sockets")
        }
        let configured = bootstrap.connectTimeout(limits.connectTimeout).channelOption(
            .tcpOption(.tcp_nodelay), value: 1
        ).channelOption(.allowRemoteHalfClosure, value: true).channelOption(.recvAllocator, value: limits.firstReads)
        // The SYN announces it to the peer, so one side is enough.
        let small = configured.channelOption(.tcpOption(.init(rawValue: TCP_MAXSEG)), value: limits.segmentByteCount)
        if let address = try? SocketAddress(ipAddress: endpoint.host, port: endpoint.port) {
            let isLoopback = IPAddress(address)?.isLoopback ?? false
            return (isLoopback ? configured : small).connect(to: address)
        }
        return small.resolver(SharedResolution(loop: loop)).connect(host: endpoint.host, port: endpoint.port)
    }

    package func listen(at endpoint: Endpoint, limits: TransportLimits, on loop: any EventLoop, reception: Reception)
        -> EventLoopFuture<TCPListener>
    {
        // Resolving a name blocks, which is acceptable at the node's start.
        guard (0...65_535).contains(endpoint.port), let address = SocketAddress(at: endpoint) else {
            return loop.makeFailedFuture(ListenFailure.unresolvable(endpoint))
        }
        do throws(ListenFailure) {
            let (descriptor, bound) = try Self.open(address, endpoint, limits)
            do {
                let door = try Acceptor(descriptor, limits: limits, loop: loop, reception: reception)
                return loop.makeSucceededFuture(TCPListener(address: bound, close: { door.close() }))
            } catch {
                Glibc.close(descriptor)
                throw ListenFailure(error, endpoint)
            }
        } catch { return loop.makeFailedFuture(error) }
    }

    /// A listening socket and its bound address. Accepted connections inherit its options.
    private static func open(_ address: SocketAddress, _ endpoint: Endpoint, _ limits: TransportLimits)
        throws(ListenFailure) -> (descriptor: CInt, bound: SocketAddress)
    {
        let descriptor = try address.bind(
            SOCK_STREAM, [(SOL_SOCKET, SO_REUSEADDR, 1), (CInt(IPPROTO_TCP), TCP_NODELAY, 1)], for: endpoint)
        let isListening = Glibc.listen(descriptor, limits.backlog) == 0
        let bound = isListening ? SocketAddress(boundBy: descriptor) : nil
        guard let bound else {
            let code = errno
            Glibc.close(descriptor)
            throw ListenFailure(IOError(errnoCode: code, reason: "listen"), endpoint)
        }
        return (descriptor, bound)
    }
}
