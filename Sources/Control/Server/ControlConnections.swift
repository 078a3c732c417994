import Glibc
import NIOCore

/// The open connections. An idle one is closed to make room, so a short call always gets in.
///
/// Used on the control loop only.
final class ControlConnections {
    /// Grace period of a new client before its first request.
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

    /// Whether a connection can be accepted, perhaps by closing an idle one.
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
    /// - Returns: whether one is free now.
    func freeDescriptor() -> Bool {
        if closeIdlest() { return true }
        guard let descriptor = spareDescriptors.popLast() else { return false }
        close(descriptor)
        return true
    }

    /// The longest idle connection.
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
        // Closes even if the client never reads.
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

/// Pauses after accept(2) failed without a free descriptor. The listener stays readable, so a retry would fail at once.
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

    /// Other errors concern a single connection that is already gone.
    static func isExhaustion(_ code: CInt) -> Bool { [EMFILE, ENFILE, ENOBUFS, ENOMEM].contains(code) }

    package func channelInactive(context: ChannelHandlerContext) {
        resumption?.cancel()
        resumption = nil
        context.fireChannelInactive()
    }
}
