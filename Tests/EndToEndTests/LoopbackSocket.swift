import Glibc

enum LoopbackSocket {
    /// - Parameter port: 0 for one that the system chooses.
    /// - Returns: a bound socket and its port.
    static func bound(_ kind: __socket_type, at host: String, port: UInt16 = 0) throws -> (
        descriptor: Int32, port: UInt16
    ) {
        let descriptor = socket(AF_INET, Int32(kind.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0)
        var address = name(host, port)
        var length = socklen_t(MemoryLayout<sockaddr_in>.size)
        let isBound = withUnsafeMutablePointer(to: &address) { pointer in
            pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                bind(descriptor, $0, length) == 0 && getsockname(descriptor, $0, &length) == 0
            }
        }
        guard isBound else {
            defer { close(descriptor) }
            throw HarnessError("bind \(host):\(port): \(String(cString: strerror(errno)))")
        }
        return (descriptor, UInt16(bigEndian: address.sin_port))
    }

    static func connected(to host: String, port: UInt16) throws -> Int32 {
        let descriptor = socket(AF_INET, Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0)
        let isConnected = withUnsafePointer(to: name(host, port)) { pointer in
            pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                connect(descriptor, $0, socklen_t(MemoryLayout<sockaddr_in>.size)) == 0
            }
        }
        guard isConnected else {
            defer { close(descriptor) }
            throw HarnessError("connect \(host):\(port): \(String(cString: strerror(errno)))")
        }
        return descriptor
    }

    static func name(_ host: String, _ port: UInt16) -> sockaddr_in {
        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        address.sin_port = port.bigEndian
        address.sin_addr.s_addr = inet_addr(host)
        return address
    }
}

/// A client of another protocol.
final class LoopbackClient {
    private let descriptor: Int32

    init(host: String, port: UInt16) throws { descriptor = try LoopbackSocket.connected(to: host, port: port) }

    deinit { close(descriptor) }

    func send(_ bytes: [UInt8]) throws {
        guard Glibc.send(descriptor, bytes, bytes.count, Int32(MSG_NOSIGNAL)) == bytes.count else {
            throw HarnessError("send: \(errno)")
        }
    }

    /// The bytes that come until the server closes the connection.
    func readAll() -> String {
        var all: [UInt8] = []
        var bytes = [UInt8](repeating: 0, count: 65_536)
        while true {
            var polled = pollfd(fd: descriptor, events: Int16(POLLIN), revents: 0)
            guard poll(&polled, 1, 30_000) == 1 else { return "nothing in 30 s" }
            let count = recv(descriptor, &bytes, bytes.count, 0)
            guard count > 0 else { return String(decoding: all, as: UTF8.self) }
            all += bytes[..<count]
        }
    }
}
