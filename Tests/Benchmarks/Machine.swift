import Adversary
import Dispatch
import Glibc
import TestSupport

enum Machine {
    /// Appends 256 bytes to a file of `directory` and calls fdatasync, `count` times. Microseconds each.
    static func synchronize(in directory: String, count: Int) throws -> [Double] {
        let path = "\(directory)/raw"
        let file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0o600)
        guard file >= 0 else { throw Failure.system("open \(path)") }
        defer {
            close(file)
            unlink(path)
        }
        let bytes = [UInt8](repeating: 0x6d, count: 256)
        return try (0..<count).map { _ in
            try microseconds {
                guard write(file, bytes, bytes.count) == bytes.count, fdatasync(file) == 0 else {
                    throw Failure.system("append to \(path)")
                }
            }
        }
    }

    /// 200 bytes over loopback TCP and back, `count` times. Microseconds each.
    static func pingPong(count: Int) throws -> [Double] {
        let listener = socket(AF_INET, Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0)
        guard listener >= 0 else { throw Failure.system("socket") }
        defer { close(listener) }
        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        address.sin_addr.s_addr = UInt32(0x7f00_0001).bigEndian
        var length = socklen_t(MemoryLayout<sockaddr_in>.size)
        try withAddress(&address) { pointer in
            guard bind(listener, pointer, length) == 0, listen(listener, 1) == 0,
                getsockname(listener, pointer, &length) == 0
            else { throw Failure.system("listen") }
        }
        let echoing = DispatchGroup()
        DispatchQueue.global().async(group: echoing) {
            let peer = accept(listener, nil, nil)
            withoutDelay(peer)
            var bytes = [UInt8](repeating: 0, count: 200)
            while receive(&bytes, from: peer), send(peer, bytes, bytes.count, Int32(MSG_NOSIGNAL)) == bytes.count {}
            close(peer)
        }
        let client = socket(AF_INET, Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0)
        try withAddress(&address) { pointer in
            guard connect(client, pointer, length) == 0 else { throw Failure.system("connect") }
        }
        withoutDelay(client)
        defer {
            close(client)
            echoing.wait()
        }
        var bytes = [UInt8](repeating: 0x6d, count: 200)
        return try (0..<count).map { _ in
            try microseconds {
                guard send(client, bytes, bytes.count, Int32(MSG_NOSIGNAL)) == bytes.count,
                    receive(&bytes, from: client)
                else { throw Failure.system("ping-pong") }
            }
        }
    }

    /// Runs `/bin/true`, `count` times. Microseconds each.
    static func spawn(count: Int) throws -> [Double] {
        try (0..<count).map { _ in try microseconds { _ = try Child.run(["/bin/true"]) } }
    }

    private static func withAddress(
        _ address: inout sockaddr_in, _ body: (UnsafeMutablePointer<sockaddr>) throws -> Void
    ) rethrows {
        try withUnsafeMutablePointer(to: &address) { pointer in
            try pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) { try body($0) }
        }
    }

    private static func withoutDelay(_ socket: Int32) {
        var on: Int32 = 1
        setsockopt(socket, Int32(IPPROTO_TCP), TCP_NODELAY, &on, socklen_t(MemoryLayout<Int32>.size))
    }

    private static func receive(_ bytes: inout [UInt8], from socket: Int32) -> Bool {
        recv(socket, &bytes, bytes.count, Int32(MSG_WAITALL)) == bytes.count
    }
}
