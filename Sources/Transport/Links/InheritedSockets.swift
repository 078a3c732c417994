import Glibc
import NIOCore
import Synchronization

/// Bound sockets that the service manager has opened before this process: sd_listen_fds(3). They stay open while the
/// process is replaced, so that who dials meanwhile waits instead of being refused, and may have a port below 1024.
package enum InheritedSockets {
    private struct Entry {
        let descriptor: CInt
        let type: CInt
        let address: SocketAddress
    }

    /// SD_LISTEN_FDS_START
    private static let first: CInt = 3
    /// More are none of ours.
    private static let limit: CInt = 64
    private static let entries = Mutex<[Entry]>([])

    /// Takes over what `LISTEN_PID` and `LISTEN_FDS` say, and removes both: programs that this one starts inherit nothing.
    /// To be called once, before anything is opened.
    package static func adopt() {
        defer { for name in ["LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"] { unsetenv(name) } }
        guard let process = getenv("LISTEN_PID").flatMap({ pid_t(String(cString: $0)) }), process == getpid(),
            let count = getenv("LISTEN_FDS").flatMap({ CInt(String(cString: $0)) }), count > 0
        else { return }
        for descriptor in first..<(first + min(count, limit)) {
            // What is none is left alone: with a wrong count it may be a descriptor of this process.
            guard let entry = entry(descriptor), fcntl(descriptor, F_SETFD, FD_CLOEXEC) == 0 else { continue }
            _ = fcntl(descriptor, F_SETFL, fcntl(descriptor, F_GETFL) | O_NONBLOCK)
            entries.withLock { $0.append(entry) }
        }
    }

    /// `nil` for what is no TCP or UDP socket with an address of its own.
    private static func entry(_ descriptor: CInt) -> Entry? {
        var type: CInt = 0
        var size = socklen_t(MemoryLayout<CInt>.size)
        guard getsockopt(descriptor, SOL_SOCKET, SO_TYPE, &type, &size) == 0,
            [CInt(SOCK_STREAM.rawValue), CInt(SOCK_DGRAM.rawValue)].contains(type),
            let address = SocketAddress(boundBy: descriptor)
        else { return nil }
        return Entry(descriptor: descriptor, type: type, address: address)
    }

    /// A socket that is bound to exactly this address. It is the caller's from then on.
    static func take(_ type: __socket_type, at address: SocketAddress) -> CInt? {
        entries.withLock { entries in
            guard address.port != 0,
                let index = entries.firstIndex(where: { $0.type == CInt(type.rawValue) && $0.address == address })
            else { return nil }
            return entries.remove(at: index).descriptor
        }
    }

    /// Closes what nobody has taken, so that who dials there is refused.
    /// - Returns: where those are.
    package static func closeRest() -> [SocketAddress] {
        let rest = entries.withLock { entries in
            defer { entries = [] }
            return entries
        }
        for entry in rest { close(entry.descriptor) }
        return rest.map(\.address)
    }
}

extension SocketAddress {
    /// Where a socket of the Internet is bound.
    init?(boundBy descriptor: CInt) {
        var storage = sockaddr_storage()
        var size = socklen_t(MemoryLayout<sockaddr_storage>.size)
        let code = withUnsafeMutablePointer(to: &storage) { pointer in
            pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) { getsockname(descriptor, $0, &size) }
        }
        guard code == 0 else { return nil }
        switch CInt(storage.ss_family) {
        case AF_INET6: self = withUnsafeBytes(of: storage) { SocketAddress($0.load(as: sockaddr_in6.self)) }
        case AF_INET: self = withUnsafeBytes(of: storage) { SocketAddress($0.load(as: sockaddr_in.self)) }
        default: return nil
        }
    }
}
