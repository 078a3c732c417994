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
        if let address = try? SocketAddress(ipAddress: endpoint.host, port: endpoint.port) {
            self = address
            return
        }
        guard let address = try? SocketAddress.makeAddressResolvingHost(endpoint.host, port: endpoint.port) else {
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
