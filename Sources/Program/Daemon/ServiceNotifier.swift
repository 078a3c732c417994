import CLinux
import Cryptography
import Dispatch
import Glibc
import NIOCore

/// Reports state to the service manager: sd_notify(3), without its library. No-op without NOTIFY_SOCKET.
enum ServiceNotifier {
    /// Interval of `WATCHDOG=1` pings in microseconds: half the watchdog timeout, as sd_watchdog_enabled(3) advises.
    /// `nil` without a watchdog for this process.
    static var watchdogInterval: Int64? {
        guard let limit = (try? environment("WATCHDOG_USEC")).flatMap(Int64.init), limit > 1 else { return nil }
        if let watched = try? environment("WATCHDOG_PID"), pid_t(watched) != getpid() { return nil }
        return limit / 2
    }

    /// The manager then waits for `READY=1`: `Type=notify-reload` of systemd.service(5).
    static func tellReloading() {
        var time = timespec()
        clock_gettime(CLOCK_MONOTONIC, &time)
        tell("RELOADING=1\nMONOTONIC_USEC=\(Int64(time.tv_sec) * 1_000_000 + Int64(time.tv_nsec) / 1_000)", waits: true)
    }

    static var isWanted: Bool { ((try? environment("NOTIFY_SOCKET")) ?? nil) != nil }

    /// - Parameters:
    ///   - state: such as `READY=1`; several lines are several values.
    ///   - waits: wait while the manager's queue is full, otherwise drop the message. Do not wait on an event loop.
    static func tell(_ state: String, waits: Bool = false) {
        guard let name = try? environment("NOTIFY_SOCKET") else { return }
        var address = sockaddr_un()
        address.sun_family = sa_family_t(AF_UNIX)
        var path = Array(name.utf8)
        guard path.count < MemoryLayout.size(ofValue: address.sun_path),
            path[0] == UInt8(ascii: "/") || name.hasPrefix("@")
        else { return }
        // A name in the abstract namespace: unix(7).
        let isAbstract = name.hasPrefix("@")
        if isAbstract { path[0] = 0 }
        withUnsafeMutableBytes(of: &address.sun_path) { $0.copyBytes(from: path) }
        let length = MemoryLayout<sa_family_t>.size + path.count + (isAbstract ? 0 : 1)
        let descriptor = socket(AF_UNIX, Int32(SOCK_DGRAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0)
        guard descriptor >= 0 else { return }
        defer { close(descriptor) }
        let bytes = Array(state.utf8)
        let flags = Int32(waits ? MSG_NOSIGNAL : MSG_NOSIGNAL | MSG_DONTWAIT)
        withUnsafePointer(to: &address) { pointer in
            pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                _ = sendto(descriptor, bytes, bytes.count, flags, $0, socklen_t(length))
            }
        }
    }
}

/// Overwrites the unused stack of the node's thread soon after each request and event. Swift keeps strings of up to 15
/// bytes inline, so copies stay on the stack.
///
/// When none has come for a while, what they took of memory is given back.
final class StackWiper: Sendable {
    private static let delay = TimeAmount.milliseconds(100)
    private static let quiet = TimeAmount.seconds(20)

    private let loop: any EventLoop
    private let state: NIOLoopBoundBox<(wipes: Bool, returns: Bool, isActive: Bool)>

    init(_ loop: any EventLoop) {
        self.loop = loop
        state = .makeBoxSendingValue((false, false, false), eventLoop: loop)
    }

    /// On the loop.
    func wipeSoon() {
        guard !state.value.wipes else { return }
        (state.value.wipes, state.value.isActive) = (true, true)
        // Run from the loop itself, where the stack is shallowest.
        loop.scheduleTask(in: Self.delay) { [state] in
            state.value.wipes = false
            wipeStack()
        }
        guard !state.value.returns else { return }
        state.value.returns = true
        giveBackWhenQuiet()
    }

    private func giveBackWhenQuiet() {
        loop.scheduleTask(in: Self.quiet) { [self] in
            state.value.returns = state.value.isActive
            guard !state.value.isActive else {
                state.value.isActive = false
                return giveBackWhenQuiet()
            }
            // The heap of a large node takes some milliseconds.
            DispatchQueue.global(qos: .utility).async { process_give_back() }
        }
    }
}
