import Glibc
import NIOCore
import NIOPosix

/// The server of the control socket: JSON-RPC 2.0, one object per line, on its own event loop.
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

    /// Serves the socket of `home` until ``close()``.
    ///
    /// - Parameters:
    ///   - home: the node's home directory; it must exist.
    ///   - loop: the control loop, which reads and writes lines.
    ///   - serviceLoop: the loop on which `service` runs calls.
    ///   - later: runs its argument in a later turn of the service's loop, after a poll of its sockets. Called on that
    ///     loop.
    ///   - user: processes of this user, and of root, may send commands.
    ///   - whenRead: runs on the control loop after requests were read.
    /// - Returns: fails with a ``ControlError``: "home in use" when a live node answers on the socket.
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
                // With a higher value, a connection that took the last descriptor would be followed by a failing
                // accept(2).
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
    /// Written answers are flushed first; requests in progress are dropped. On completion every subscription has ended
    /// and every ``ControlSession/onClose(_:)`` action has run.
    package func close() -> EventLoopFuture<Void> {
        let loop = listener.eventLoop
        // Flushes the answers made so far.
        return bridge.serviceLoop.submit { [bridge] in bridge.close() }.hop(to: loop).flatMap { [self] in
            if let identity { socket.remove(identity) }
            // Waits for closeFuture, because its callbacks run one turn after the close.
            let closing = ([listener] + connections.value.channels).map { channel in
                channel.close(promise: nil)
                return channel.closeFuture
            }
            // The sessions are notified by hops queued before this one.
            return EventLoopFuture.whenAllComplete(closing, on: loop).flatMap { [bridge] _ in
                bridge.serviceLoop.submit {}
            }
        }
    }
}
