import Glibc
import NIOCore

/// The connections of the control socket. An idle connection is closed for the next, so that a short call always gets in.
///
/// Used on the control loop only.
final class ControlConnections {
    /// A client that has connected may take so long to ask.
    private static let idleTime = TimeAmount.seconds(1)

    private struct Entry {
        let channel: any Channel
        let handler: ControlConnectionHandler
    }

    private var entries: [ObjectIdentifier: Entry] = [:]
    private var spareDescriptors: [Int32] = []

    init() { keepSpareDescriptors() }

    deinit { for descriptor in spareDescriptors { close(descriptor) } }

    var channels: [any Channel] { entries.values.map(\.channel) }

    var waitingCount: Int { entries.values.count { $0.handler.isWaiting } }

    /// Whether one more may be accepted: there is room, or a connection to be closed for it.
    var hasRoom: Bool { entries.count < ControlLimits.connections || idlest != nil }

    func add(_ channel: any Channel, _ handler: ControlConnectionHandler) {
        if entries.count >= ControlLimits.connections { _ = closeIdlest() }
        entries[ObjectIdentifier(channel)] = Entry(channel: channel, handler: handler)
    }

    func remove(_ key: ObjectIdentifier) {
        entries[key] = nil
        keepSpareDescriptors()
    }

    /// Frees a descriptor for the next connection, when the process has none left.
    /// - Returns: whether there is one now.
    func freeDescriptor() -> Bool {
        if closeIdlest() { return true }
        guard let descriptor = spareDescriptors.popLast() else { return false }
        close(descriptor)
        return true
    }

    /// The connection that has been idle for longest.
    private var idlest: (key: ObjectIdentifier, entry: Entry)? {
        let idle = entries.filter { $0.value.handler.isIdle }.min {
            $0.value.handler.activeAt < $1.value.handler.activeAt
        }
        guard let (key, entry) = idle else { return nil }
        guard entry.handler.wasAnswered || entry.handler.activeAt + Self.idleTime <= .now() else { return nil }
        return (key, entry)
    }

    private func closeIdlest() -> Bool {
        guard let (key, entry) = idlest else { return false }
        entries[key] = nil
        entry.handler.giveUp()
        // Its client may read nothing more.
        let channel = entry.channel
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

/// Accepts connections while there is room for them, and pauses otherwise: the next ones wait in the kernel.
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
        let code = (error as? IOError)?.errnoCode
        if code.map(AcceptPause.isExhaustion) ?? false, connections.freeDescriptor() { return }
        context.fireErrorCaught(error)
    }

    func channelInactive(context: ChannelHandlerContext) {
        resumption?.cancel()
        resumption = nil
        context.fireChannelInactive()
    }
}

/// accept(2) that fails for want of a descriptor would fail at once again, since the listener stays readable: it pauses.
package final class AcceptPause: ChannelInboundHandler {
    package typealias InboundIn = Channel

    private static let pause = TimeAmount.milliseconds(50)
    private var resumption: Scheduled<Void>?

    package init() {}

    package func errorCaught(context: ChannelHandlerContext, error: any Error) {
        guard let code = (error as? IOError)?.errnoCode, AcceptPause.isExhaustion(code), resumption == nil else {
            return
        }
        let options = context.channel.syncOptions
        try? options?.setOption(.autoRead, value: false)
        resumption = context.eventLoop.assumeIsolated().scheduleTask(in: Self.pause) { [self] in
            resumption = nil
            try? options?.setOption(.autoRead, value: true)
        }
    }

    /// Any other error is of that one connection, which is gone.
    static func isExhaustion(_ code: CInt) -> Bool { [EMFILE, ENFILE, ENOBUFS, ENOMEM].contains(code) }

    package func channelInactive(context: ChannelHandlerContext) {
        resumption?.cancel()
        resumption = nil
        context.fireChannelInactive()
    }
}
