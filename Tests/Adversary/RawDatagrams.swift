import Glibc
import Transport

/// Nonblocking UDP sockets with many addresses, all connected to a node on this machine.
final class RawDatagrams {
    private var descriptors: [Int32] = []
    private var buffer = [UInt8](repeating: 0, count: 65_536)
    private(set) var sentByteCount = 0
    private(set) var receivedByteCount = 0
    private(set) var received = 0

    init(from numbers: Range<Int>, to address: NodeAddress) throws(Failure) {
        for number in numbers {
            let kind = Int32(SOCK_DGRAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue) | Int32(SOCK_NONBLOCK.rawValue)
            let descriptor = socket(AF_INET, kind, 0)
            guard descriptor >= 0 else { throw Failure.system("socket") }
            descriptors.append(descriptor)
            guard SocketName(Source(number).value, 0).withPointer({ bind(descriptor, $0, $1) }) == 0,
                SocketName(address.host, address.port).withPointer({ connect(descriptor, $0, $1) }) == 0
            else { throw Failure.system("UDP") }
        }
    }

    deinit { for descriptor in descriptors { close(descriptor) } }

    var count: Int { descriptors.count }

    func send(_ bytes: [UInt8], by index: Int) {
        let sent = bytes.withUnsafeBytes {
            Glibc.send(descriptors[index % count], $0.baseAddress, $0.count, Int32(MSG_NOSIGNAL))
        }
        if sent > 0 { sentByteCount += sent }
    }

    func receive(at index: Int) -> [UInt8]? {
        let length = recv(descriptors[index % count], &buffer, buffer.count, 0)
        guard length >= 0 else { return nil }
        receivedByteCount += length
        received += 1
        return Array(buffer[..<length])
    }

    func drain() { for index in descriptors.indices { while receive(at: index) != nil {} } }
}

struct SocketName {
    private var name = sockaddr_in()

    init(_ address: UInt32, _ port: UInt16) {
        name.sin_family = sa_family_t(AF_INET)
        name.sin_port = port.bigEndian
        name.sin_addr.s_addr = address.bigEndian
    }

    func withPointer<Result>(_ body: (UnsafePointer<sockaddr>, socklen_t) -> Result) -> Result {
        withUnsafePointer(to: name) { pointer in
            pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                body($0, socklen_t(MemoryLayout<sockaddr_in>.size))
            }
        }
    }
}
