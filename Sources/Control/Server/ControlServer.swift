import Glibc
import NIOCore
import NIOPosix

/// The node's end of the control socket: JSON-RPC 2.0, one object a line, on an event loop of its own.
package final class ControlServer: Sendable {
    private let socket: ControlSocket
    private let identity: ControlSocket.FileIdentity?
    private let listener: any Channel
    private let connections: NIOLoopBound<ControlConnections>
    private let bridge: ControlBridge

    private init(
        socket: ControlSocket, identity: ControlSocket.FileIdentity?, listener: any Channel,
        connections: NIOLoopBound<ControlConnections>, bridge: ControlBridge
    ) {
        self.bridge = bridge
        self.socket = socket
        self.identity = identity
        self.listener = listener
        self.connections = connections
    }

    /// Listens on the socket of `home` and serves it until ``close()``.
    ///
    /// - Parameters:
    ///   - home: the node's home directory; it must exist.
    ///   - loop: the control loop, on which lines are read and written.
    ///   - serviceLoop: the loop on which `service` performs calls.
    ///   - later: runs its argument in a later turn of the service's loop, when the loop has asked its sockets. Called on
    ///     the service's loop.
    ///   - user: whose processes may command the node, besides root's.
    ///   - whenRead: called on the control loop after requests were read.
    /// - Returns: fails with a ``ControlError``: "home in use" when a living node answers on the socket.
    package static func start(
        home: String, on loop: any EventLoop, for serviceLoop: any EventLoop,
        later: @escaping @Sendable (@escaping () -> Void) -> Void, user: UInt32 = geteuid(),
        whenRead: @escaping @Sendable () -> Void = {}, service: any ControlService
    ) -> EventLoopFuture<ControlServer> {
        let bridge = ControlBridge(from: loop, to: serviceLoop, later: later, service)
        return loop.submit { () -> EventLoopFuture<ControlServer> in
            let socket = ControlSocket(home: home)
            let descriptor = try socket.listen()
            let connections = NIOLoopBound(ControlConnections(), eventLoop: loop)
            return ServerBootstrap(group: loop)
                // Another accept(2) after the last connection would fail when that had the last descriptor.
                .serverChannelOption(.maxMessagesPerRead, value: 1).serverChannelInitializer { channel in
                    channel.eventLoop.makeCompletedFuture {
                        try channel.pipeline.syncOperations.addHandlers(
                            ControlAcceptHandler(connections.value), AcceptPause())
                    }
                }.childChannelOption(.allowRemoteHalfClosure, value: true).childChannelInitializer { channel in
                    channel.eventLoop.makeCompletedFuture {
                        try admit(channel, to: connections.value, user: user, bridge: bridge, whenRead: whenRead)
                    }
                }.withBoundSocket(descriptor).map { listener in
                    ControlServer(
                        socket: socket, identity: socket.fileIdentity, listener: listener, connections: connections,
                        bridge: bridge)
                }
        }.flatMap { $0 }
    }

    private static func admit(
        _ channel: any Channel, to connections: ControlConnections, user: UInt32, bridge: ControlBridge,
        whenRead: @escaping @Sendable () -> Void
    ) throws {
        let connection = ControlConnection(channel: channel)
        let session = ControlSession(bridge: bridge, connection: connection)
        let handler = ControlConnectionHandler(
            connection: connection, session: session, bridge: bridge, connections: connections, user: user,
            whenRead: whenRead)
        connections.add(channel, handler)
        let bound = NIOLoopBound(connections, eventLoop: channel.eventLoop)
        let key = ObjectIdentifier(channel)
        channel.closeFuture.whenComplete { _ in
            bound.value.remove(key)
            bridge.end(session)
        }
        try channel.pipeline.syncOperations.addHandler(handler)
    }

    /// Removes the socket, then closes the listener and every connection.
    ///
    /// Responses already written are given to the kernel first; requests under way are dropped. When it completes, every
    /// subscription has ended and every ``ControlSession/onClose(_:)`` was called.
    package func close() -> EventLoopFuture<Void> {
        let loop = listener.eventLoop
        // Answers that were made before this leave first.
        return bridge.serviceLoop.submit { [bridge] in bridge.close() }.hop(to: loop).flatMap { [self] in
            if let identity { socket.remove(identity) }
            // What hangs on the end of a channel is done with its closeFuture, a turn after its close.
            let closing = ([listener] + connections.value.channels).map { channel in
                channel.close(promise: nil)
                return channel.closeFuture
            }
            // The sessions learn of it in hops that were made before this one.
            return EventLoopFuture.whenAllComplete(closing, on: loop).flatMap { [bridge] _ in
                bridge.serviceLoop.submit {}
            }
        }
    }
}
