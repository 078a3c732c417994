import NIOCore
import NIOPosix

/// Where connections come from. ``Sockets`` are the kernel's; the simulator has a network of its own, in memory.
package protocol Network: Sendable {
    /// Connects. Half of a connection may be closed.
    /// - Parameter endpoint: its port is 1…65,535.
    func connect(to endpoint: Endpoint, limits: TransportLimits, on loop: any EventLoop) -> EventLoopFuture<any Channel>
    /// Listens, and hands over each connection on `loop`.
    /// - Returns: a future that fails with ``ListenFailure`` and nothing else.
    func listen(
        at endpoint: Endpoint,
        limits: TransportLimits,
        on loop: any EventLoop,
        accept: @escaping @Sendable (any Channel) throws -> Void
    ) -> EventLoopFuture<TCPListener>
}

/// The kernel's TCP.
package struct Sockets: Network {
    package init() {}

    package func connect(to endpoint: Endpoint, limits: TransportLimits, on loop: any EventLoop)
        -> EventLoopFuture<any Channel>
    {
        guard let bootstrap = ClientBootstrap(validatingGroup: loop) else {
            preconditionFailure("a dial needs an event loop with sockets")
        }
        let configured =
            bootstrap
            .connectTimeout(limits.connectTimeout)
            .channelOption(.tcpOption(.tcp_nodelay), value: 1)
            .channelOption(.allowRemoteHalfClosure, value: true)
            .channelOption(.recvAllocator, value: limits.firstReads)
        if let address = try? SocketAddress(ipAddress: endpoint.host, port: endpoint.port) {
            return configured.connect(to: address)
        }
        return configured.connect(host: endpoint.host, port: endpoint.port)
    }

    package func listen(
        at endpoint: Endpoint,
        limits: TransportLimits,
        on loop: any EventLoop,
        accept: @escaping @Sendable (any Channel) throws -> Void
    ) -> EventLoopFuture<TCPListener> {
        // An address is taken as it is; a name is looked up, which waits: listeners are made when the node starts.
        guard (0...65_535).contains(endpoint.port),
            let address = try? SocketAddress.makeAddressResolvingHost(endpoint.host, port: endpoint.port)
        else { return loop.makeFailedFuture(ListenFailure.unresolvable(endpoint)) }
        guard let bootstrap = ServerBootstrap(validatingGroup: loop) else {
            preconditionFailure("a listener needs an event loop with sockets")
        }
        return
            bootstrap
            .serverChannelOption(.backlog, value: limits.backlog)
            .serverChannelOption(.socketOption(.so_reuseaddr), value: 1)
            .childChannelOption(.tcpOption(.tcp_nodelay), value: 1)
            .childChannelOption(.allowRemoteHalfClosure, value: true)
            .childChannelOption(.recvAllocator, value: limits.firstReads)
            .childChannelInitializer { channel in
                channel.eventLoop.makeCompletedFuture { try accept(channel) }
            }
            .bind(to: address)
            .flatMapThrowing { channel in
                guard let address = channel.localAddress else { throw ListenFailure.system(endpoint, 0) }
                return TCPListener(address: address, channel: channel)
            }
            .flatMapErrorThrowing { throw $0 as? ListenFailure ?? ListenFailure($0, endpoint) }
    }
}
