import Glibc
import NIOCore
import NIOPosix

/// The server of the control socket: JSON-RPC 2.0, one object per line.
///
/// It is on the service's loop, so that a request wakes no other thread.
package final class ControlServer: Sendable {
    private let socket: ControlSocket
    private let identity: ControlSocket.FileIdentity?
    private let listener: any Channel
    private let connections: NIOLoopBound<ControlConnections>
    private let queue: ControlQueue

    private init(
        _ socket: ControlSocket, _ identity: ControlSocket.FileIdentity?, _ listener: any Channel,
        _ connections: NIOLoopBound<ControlConnections>, _ queue: ControlQueue
    ) {
        (self.socket, self.identity, self.listener) = (socket, identity, listener)
        (self.connections, self.queue) = (connections, queue)
    }

    /// Serves the socket of `home` until ``close()``.
    ///
    /// - Parameters:
    ///   - home: the node's home directory; it must exist.
    ///   - loop: reads and writes lines, and runs the calls.
    ///   - later: runs its argument in a later turn of the loop, after a poll of its sockets. Called on the loop.
    ///   - user: processes of this user, and of root, may send commands.
    /// - Returns: fails with a ``ControlError``: "home in use" when a live node answers on the socket.
    package static func start(
        home: String, on loop: any EventLoop, later: @escaping @Sendable (@escaping () -> Void) -> Void,
        user: UInt32 = geteuid(), service: any ControlService
    ) -> EventLoopFuture<ControlServer> {
        let queue = ControlQueue(on: loop, later: later, service)
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
                            ControlAcceptHandler(connections.value), AcceptBackoffHandler.whenExhausted())
                    }
                }.childChannelOption(.allowRemoteHalfClosure, value: true).childChannelInitializer { channel in
                    channel.eventLoop.makeCompletedFuture {
                        try ControlConnection(
                            channel: channel, queue: queue, connections: connections.value, user: user
                        ).begin()
                    }
                }.withBoundSocket(descriptor).map { listener in
                    ControlServer(socket, socket.fileIdentity, listener, connections, queue)
                }
        }.flatMap { $0 }
    }

    /// Removes the socket, then closes the listener and every connection.
    ///
    /// Written answers are flushed first; requests in progress are dropped. On completion every subscription has ended
    /// and every ``ControlSession/onClose(_:)`` action has run.
    package func close() -> EventLoopFuture<Void> {
        let loop = listener.eventLoop
        return loop.flatSubmit { [self] in
            // Flushes the answers made so far.
            queue.close()
            if let identity { socket.remove(identity) }
            // Waits for closeFuture, because its callbacks run one turn after the close.
            let closing = ([listener] + connections.value.channels).map { channel in
                channel.close(promise: nil)
                return channel.closeFuture
            }
            // The sessions are notified by tasks queued before this one.
            return EventLoopFuture.whenAllComplete(closing, on: loop).flatMap { _ in loop.submit {} }
        }
    }
}

/// The open connections. One that is idle, or whose only call hangs, is closed to make room for a short call.
///
/// Used on the loop only.
final class ControlConnections {
    /// Grace period of a new client before its first request.
    private static let idleTime = TimeAmount.seconds(1)

    private var entries: [ObjectIdentifier: ControlConnection] = [:]
    private var spareDescriptors: [Int32] = []

    init() { keepSpareDescriptors() }

    deinit { for descriptor in spareDescriptors { close(descriptor) } }

    var channels: [any Channel] { entries.values.map(\.channel) }

    var waitingCount: Int { entries.values.count { $0.isWaiting } }

    /// Whether a connection can be accepted, perhaps by closing another.
    var hasRoom: Bool { entries.count < ControlLimits.connections || idlest != nil }

    func add(_ connection: ControlConnection) {
        if entries.count >= ControlLimits.connections { _ = closeIdlest() }
        entries[ObjectIdentifier(connection)] = connection
    }

    func remove(_ connection: ControlConnection) {
        entries[ObjectIdentifier(connection)] = nil
        keepSpareDescriptors()
    }

    /// Frees a descriptor for the next connection, when the process has none left.
    /// - Returns: whether one is free now.
    func freeDescriptor() -> Bool {
        if closeIdlest() { return true }
        guard let descriptor = spareDescriptors.popLast() else { return false }
        close(descriptor)
        return true
    }

    /// The longest idle connection; without one, that whose short call has had no answer for longest.
    private var idlest: ControlConnection? {
        let idle = entries.values.filter(\.isIdle).min { $0.activeAt < $1.activeAt }
        if let idle, idle.wasAnswered || idle.activeAt + Self.idleTime <= .now() { return idle }
        return entries.values.filter(\.isHung).min { $0.calledAt < $1.calledAt }
    }

    private func closeIdlest() -> Bool {
        guard let idlest else { return false }
        entries[ObjectIdentifier(idlest)] = nil
        idlest.giveUp()
        // Closes even if the client never reads.
        let channel = idlest.channel
        channel.eventLoop.assumeIsolated().scheduleTask(in: Self.idleTime) { channel.close(promise: nil) }
        return true
    }

    private func keepSpareDescriptors() {
        while spareDescriptors.count < ControlLimits.spareDescriptors {
            let descriptor = open("/dev/null", O_RDONLY | O_CLOEXEC)
            guard descriptor >= 0 else { return }
            spareDescriptors.append(descriptor)
        }
    }
}

/// Accepts connections while there is room, otherwise pauses: further ones wait in the kernel.
final class ControlAcceptHandler: ChannelDuplexHandler {
    typealias InboundIn = any Channel
    typealias OutboundIn = any Channel

    private static let pause = TimeAmount.milliseconds(50)

    private let connections: ControlConnections
    private var resumption: Scheduled<Void>?

    init(_ connections: ControlConnections) { self.connections = connections }

    func read(context: ChannelHandlerContext) {
        guard resumption == nil else { return }
        if connections.hasRoom { return context.read() }
        resumption = context.eventLoop.assumeIsolated().scheduleTask(in: Self.pause) { [self] in
            resumption = nil
            read(context: context)
        }
    }

    func errorCaught(context: ChannelHandlerContext, error: any Error) {
        if let error = error as? IOError, AcceptBackoffHandler.isExhaustion(error), connections.freeDescriptor() {
            return
        }
        context.fireErrorCaught(error)
    }

    func channelInactive(context: ChannelHandlerContext) {
        resumption?.cancel()
        resumption = nil
        context.fireChannelInactive()
    }
}

extension AcceptBackoffHandler {
    /// Pauses after accept(2) failed without a free descriptor: a retry would fail at once. Other errors concern a
    /// single connection that is already gone.
    package static func whenExhausted() -> AcceptBackoffHandler {
        AcceptBackoffHandler(shouldForwardIOErrorCaught: false) { isExhaustion($0) ? .milliseconds(50) : nil }
    }

    static func isExhaustion(_ error: IOError) -> Bool { [EMFILE, ENFILE, ENOBUFS, ENOMEM].contains(error.errnoCode) }
}
