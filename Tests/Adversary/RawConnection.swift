import Glibc

package struct Failure: Error, CustomStringConvertible {
    package let description: String

    package init(_ description: String) { self.description = description }

    package static func system(_ what: String) -> Failure { Failure("\(what): \(String(cString: strerror(errno)))") }
}

/// An address of 127.0.0.0/8, so that attackers can have many in networks of their own.
package struct Source: Hashable, Sendable {
    let value: UInt32

    /// The `number`th address, each in its own /24, none in that of 127.0.0.1.
    package init(_ number: Int) {
        let network = UInt32(truncatingIfNeeded: number % 60_000) + 256
        let host = UInt32(truncatingIfNeeded: number / 60_000 % 250) + 1
        value = 0x7F00_0000 | network << 8 | host
    }
}

package struct NodeAddress: Hashable, Sendable {
    let host: UInt32
    let port: UInt16

    package init(host: String, port: UInt16) {
        self.host = UInt32(bigEndian: inet_addr(host))
        self.port = port
    }
}

package final class RawConnection {
    package private(set) var descriptor: Int32

    /// - Parameters:
    ///   - isAbrupt: Closing resets the connection, so that this machine keeps no state of it.
    ///   - isWaiting: Calls block; otherwise all are nonblocking, including the connect.
    package init(from source: Source? = nil, to address: NodeAddress, isAbrupt: Bool = true, isWaiting: Bool = true)
        throws(Failure)
    {
        let kind = Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue)
        descriptor = socket(AF_INET, isWaiting ? kind : kind | Int32(SOCK_NONBLOCK.rawValue), 0)
        guard descriptor >= 0 else { throw Failure.system("socket") }
        var on: Int32 = 1
        let size = socklen_t(MemoryLayout<Int32>.size)
        setsockopt(descriptor, Int32(IPPROTO_TCP), TCP_NODELAY, &on, size)
        if isAbrupt {
            var end = linger(l_onoff: 1, l_linger: 0)
            setsockopt(descriptor, SOL_SOCKET, SO_LINGER, &end, socklen_t(MemoryLayout<linger>.size))
        }
        if let source {
            // IP_BIND_ADDRESS_NO_PORT: the port is chosen when connecting.
            setsockopt(descriptor, Int32(IPPROTO_IP), 24, &on, size)
            guard SocketName(source.value, 0).withPointer({ bind(descriptor, $0, $1) }) == 0 else {
                throw closed("bind")
            }
        }
        let outcome = SocketName(address.host, address.port).withPointer { connect(descriptor, $0, $1) }
        guard outcome == 0 || (!isWaiting && errno == EINPROGRESS) else { throw closed("connect") }
    }

    /// A connection to a node's control socket.
    package init(control path: String) throws(Failure) {
        descriptor = socket(AF_UNIX, Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0)
        guard descriptor >= 0 else { throw Failure.system("socket") }
        var address = sockaddr_un()
        guard path.utf8.count < MemoryLayout.size(ofValue: address.sun_path) else {
            throw Failure("the path \(path) is too long for a socket: give a shorter --directory")
        }
        address.sun_family = sa_family_t(AF_UNIX)
        withUnsafeMutableBytes(of: &address.sun_path) { $0.copyBytes(from: path.utf8) }
        guard withSocketAddress(address, { connect(descriptor, $0, $1) }) == 0 else { throw closed("connect \(path)") }
    }

    deinit { end() }

    package func end() {
        if descriptor >= 0 { close(descriptor) }
        descriptor = -1
    }

    private func closed(_ what: String) -> Failure {
        let failure = Failure.system(what)
        end()
        return failure
    }

    @discardableResult package func write(_ bytes: [UInt8]) -> Bool {
        var sent = 0
        while sent < bytes.count {
            let count = bytes[sent...].withUnsafeBytes {
                send(descriptor, $0.baseAddress, $0.count, Int32(MSG_NOSIGNAL))
            }
            guard count > 0 else { return false }
            sent += count
        }
        return true
    }

    /// Reads exactly `count` bytes; `nil` when the peer closes or the time is over.
    package func read(_ count: Int, seconds: Double = 60) -> [UInt8]? {
        var bytes: [UInt8] = []
        while bytes.count < count {
            guard waitForBytes(seconds: seconds) else { return nil }
            var chunk = [UInt8](repeating: 0, count: count - bytes.count)
            let received = recv(descriptor, &chunk, chunk.count, 0)
            guard received > 0 else { return nil }
            bytes += chunk[..<received]
        }
        return bytes
    }

    /// Whether bytes or the end have arrived.
    package func waitForBytes(seconds: Double) -> Bool {
        var polled = pollfd(fd: descriptor, events: Int16(POLLIN), revents: 0)
        return poll(&polled, 1, Int32(seconds * 1_000)) > 0
    }

    /// Whether the socket accepts some kilobytes more.
    package var canWrite: Bool {
        var polled = pollfd(fd: descriptor, events: Int16(POLLOUT), revents: 0)
        return poll(&polled, 1, 0) > 0 && polled.revents & Int16(POLLOUT) != 0
    }

    /// Reads until the peer closes. Returns the number of bytes; `nil` if it does not close in time.
    package func readToEnd(seconds: Double) -> Int? {
        var chunk = [UInt8](repeating: 0, count: 4_096)
        var byteCount = 0
        let end = ContinuousClock.now + .seconds(seconds)
        while ContinuousClock.now < end {
            guard waitForBytes(seconds: max(0.001, (end - .now) / .seconds(1))) else { return nil }
            let count = recv(descriptor, &chunk, chunk.count, 0)
            if count <= 0 { return byteCount }
            byteCount += count
        }
        return nil
    }

    package func drain() {
        var chunk = [UInt8](repeating: 0, count: 65_536)
        while recv(descriptor, &chunk, chunk.count, Int32(MSG_DONTWAIT)) > 0 {}
    }

    package var hasEnded: Bool {
        var byte: UInt8 = 0
        let count = recv(descriptor, &byte, 1, Int32(MSG_DONTWAIT) | Int32(MSG_PEEK))
        return count == 0 || count < 0 && errno != EAGAIN && errno != EINTR
    }
}
