import Glibc
import NIOCore
import NIOPosix

/// Answers one request, or throws a ``ControlError``. Called on the server's event loop; requests of one connection may be answered in any order.
package typealias ControlHandler =
    @Sendable (ControlRequest, ControlConnection) throws -> EventLoopFuture<JSONValue>

/// The node's end of the control socket: JSON-RPC 2.0, one object a line, on one event loop.
package final class ControlServer: Sendable {
    private let socket: ControlSocket
    private let identity: ControlSocket.FileIdentity?
    private let listener: any Channel
    private let connections: NIOLoopBound<Connections>

    /// The connections being served.
    final class Connections {
        var open: [ObjectIdentifier: any Channel] = [:]
        var nextNumber = 1
    }

    private init(
        socket: ControlSocket,
        identity: ControlSocket.FileIdentity?,
        listener: any Channel,
        connections: NIOLoopBound<Connections>
    ) {
        self.socket = socket
        self.identity = identity
        self.listener = listener
        self.connections = connections
    }

    /// Listens on the socket of `home` and serves it until ``close()``.
    ///
    /// - Parameters:
    ///   - home: the node's home directory; it must exist.
    ///   - loop: the loop on which everything happens, `handler` included.
    ///   - user: whose processes may command the node, besides root's.
    /// - Returns: fails with a ``ControlError``: "home in use" when a living node answers on the socket.
    package static func start(
        home: String,
        on loop: any EventLoop,
        user: UInt32 = geteuid(),
        handler: @escaping ControlHandler
    ) -> EventLoopFuture<ControlServer> {
        loop.submit { () -> EventLoopFuture<ControlServer> in
            let socket = ControlSocket(home: home)
            let descriptor = try socket.listen()
            let connections = NIOLoopBound(Connections(), eventLoop: loop)
            return ServerBootstrap(group: loop)
                .childChannelOption(.allowRemoteHalfClosure, value: true)
                .childChannelInitializer { channel in
                    channel.eventLoop.makeCompletedFuture {
                        try admit(channel, to: connections.value, user: user, handler: handler)
                    }
                }
                .withBoundSocket(descriptor)
                .map { listener in
                    ControlServer(
                        socket: socket,
                        identity: socket.fileIdentity,
                        listener: listener,
                        connections: connections
                    )
                }
        }.flatMap { $0 }
    }

    private static func admit(
        _ channel: any Channel,
        to connections: Connections,
        user: UInt32,
        handler: @escaping ControlHandler
    ) throws {
        let key = ObjectIdentifier(channel)
        let number = connections.nextNumber
        connections.nextNumber += 1
        let isFull = connections.open.count >= ControlLimits.connections
        if !isFull {
            connections.open[key] = channel
            let bound = NIOLoopBound(connections, eventLoop: channel.eventLoop)
            channel.closeFuture.whenComplete { _ in bound.value.open[key] = nil }
        }
        let connection = ControlConnection(number: number, channel: channel)
        let admission: ControlConnectionHandler.Admission = isFull ? .full : .onlyUser(user)
        try channel.pipeline.syncOperations.addHandler(
            ControlConnectionHandler(connection: connection, admission: admission, handler: handler)
        )
    }

    /// Removes the socket, then closes the listener and every connection.
    ///
    /// Responses already written are given to the kernel first; requests under way are dropped. When it completes, every
    /// subscription has ended and every ``ControlConnection/onClose(_:)`` was called.
    package func close() -> EventLoopFuture<Void> {
        let loop = listener.eventLoop
        return loop.flatSubmit { [self] in
            if let identity { socket.remove(identity) }
            // What hangs on the end of a channel is done with its closeFuture, a turn after its close.
            let closing = ([listener] + connections.value.open.values).map { channel in
                channel.close(promise: nil)
                return channel.closeFuture
            }
            return EventLoopFuture.whenAllComplete(closing, on: loop).map { _ in }
        }
    }
}
