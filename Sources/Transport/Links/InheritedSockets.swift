import Glibc
import NIOCore
import Synchronization

/// Bound sockets that the service manager passes to this process: sd_listen_fds(3). The manager keeps them open while
/// the node restarts, so that a dialling peer waits instead of being refused. They may have a port below 1024.
package enum InheritedSockets {
    private struct Entry {
        let descriptor: CInt
        let type: CInt
        let address: SocketAddress
    }

    /// SD_LISTEN_FDS_START
    private static let first: CInt = 3
    private static let limit: CInt = 64
    private static let entries = Mutex<[Entry]>([])

    /// Takes the sockets named by `LISTEN_PID` and `LISTEN_FDS`, and removes the variables, so that child processes do
    /// not inherit them. Call once, before the process opens descriptors.
    package static func adopt() {
        defer { for name in ["LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"] { unsetenv(name) } }
        guard let process = getenv("LISTEN_PID").flatMap({ pid_t(String(cString: $0)) }), process == getpid(),
            let count = getenv("LISTEN_FDS").flatMap({ CInt(String(cString: $0)) }), count > 0
        else { return }
        for descriptor in first..<(first + min(count, limit)) {
            // Other descriptors stay open: with a wrong count they may be the runtime's.
            guard let entry = entry(descriptor), fcntl(descriptor, F_SETFD, FD_CLOEXEC) == 0 else { continue }
            _ = fcntl(descriptor, F_SETFL, fcntl(descriptor, F_GETFL) | O_NONBLOCK)
            entries.withLock { $0.append(entry) }
        }
    }

    /// `nil` unless the descriptor is a bound TCP or UDP socket.
    private static func entry(_ descriptor: CInt) -> Entry? {
        var type: CInt = 0
        var size = socklen_t(MemoryLayout<CInt>.size)
        guard getsockopt(descriptor, SOL_SOCKET, SO_TYPE, &type, &size) == 0,
            [CInt(SOCK_STREAM.rawValue), CInt(SOCK_DGRAM.rawValue)].contains(type),
            let address = SocketAddress(boundBy: descriptor)
        else { return nil }
        return Entry(descriptor: descriptor, type: type, address: address)
    }

    /// Takes the socket that is bound to exactly this address.
    static func take(_ type: __socket_type, at address: SocketAddress) -> CInt? {
        entries.withLock { entries in
            guard address.port != 0,
                let index = entries.firstIndex(where: { $0.type == CInt(type.rawValue) && $0.address == address })
            else { return nil }
            return entries.remove(at: index).descriptor
        }
    }

    /// Closes the sockets that no listener has taken, so that peers are refused there. Returns their addresses.
    package static func closeRest() -> [SocketAddress] {
        let rest = entries.withLock { exchange(&$0, with: []) }
        for entry in rest { close(entry.descriptor) }
        return rest.map(\.address)
    }
}

extension SocketAddress {
    init?(boundBy descriptor: CInt, isPeer: Bool = false) {
        var storage = sockaddr_storage()
        var size = socklen_t(MemoryLayout<sockaddr_storage>.size)
        let code = withUnsafeMutablePointer(to: &storage) { pointer in
            pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                isPeer ? getpeername(descriptor, $0, &size) : getsockname(descriptor, $0, &size)
            }
        }
        guard code == 0 else { return nil }
        switch CInt(storage.ss_family) {
        case AF_INET6: self = withUnsafeBytes(of: storage) { SocketAddress($0.load(as: sockaddr_in6.self)) }
        case AF_INET: self = withUnsafeBytes(of: storage) { SocketAddress($0.load(as: sockaddr_in.self)) }
        default: return nil
        }
    }
}
