import Glibc

/// Nonblocking UDP sockets, and what they have sent and received.
class UDPSockets {
    fileprivate(set) var descriptors: [Int32] = []
    private var buffer = [UInt8](repeating: 0, count: 65_536)
    private(set) var sentByteCount = 0
    private(set) var receivedByteCount = 0
    private(set) var received = 0

    func add(at address: UInt32) throws(Failure) -> Int32 {
        let kind = Int32(SOCK_DGRAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue) | Int32(SOCK_NONBLOCK.rawValue)
        let descriptor = socket(AF_INET, kind, 0)
        guard descriptor >= 0 else { throw Failure.system("socket") }
        descriptors.append(descriptor)
        guard SocketName(address, 0).withPointer({ bind(descriptor, $0, $1) }) == 0 else {
            throw Failure.system("bind")
        }
        return descriptor
    }

    deinit { for descriptor in descriptors { close(descriptor) } }

    func send(_ bytes: [UInt8], by index: Int, to name: SocketName? = nil) {
        let descriptor = descriptors[index % descriptors.count]
        let sent = bytes.withUnsafeBytes { bytes in
            guard let name else { return Glibc.send(descriptor, bytes.baseAddress, bytes.count, Int32(MSG_NOSIGNAL)) }
            return name.withPointer { sendto(descriptor, bytes.baseAddress, bytes.count, Int32(MSG_NOSIGNAL), $0, $1) }
        }
        if sent > 0 { sentByteCount += sent }
    }

    func receive(at index: Int) -> [UInt8]? {
        let length = recv(descriptors[index % descriptors.count], &buffer, buffer.count, 0)
        guard length >= 0 else { return nil }
        receivedByteCount += length
        received += 1
        return Array(buffer[..<length])
    }

    func drain() { for index in descriptors.indices { while receive(at: index) != nil {} } }
}

/// Sockets with many addresses, all connected to a node on this machine.
final class RawDatagrams: UDPSockets {
    init(from numbers: Range<Int>, to address: NodeAddress) throws(Failure) {
        super.init()
        for number in numbers {
            let descriptor = try add(at: Source(number).value)
            guard SocketName(address.host, address.port).withPointer({ connect(descriptor, $0, $1) }) == 0 else {
                throw Failure.system("UDP")
            }
        }
    }
}

struct SocketName {
    private var name = sockaddr_in()

    init(_ address: UInt32, _ port: UInt16) {
        name.sin_family = sa_family_t(AF_INET)
        name.sin_port = port.bigEndian
        name.sin_addr.s_addr = address.bigEndian
    }

    func withPointer<Result>(_ body: (UnsafePointer<sockaddr>, socklen_t) -> Result) -> Result {
        withSocketAddress(name, body)
    }
}

func withSocketAddress<Address, Result>(_ address: Address, _ body: (UnsafePointer<sockaddr>, socklen_t) -> Result)
    -> Result
{
    withUnsafePointer(to: address) { pointer in
        pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) { body($0, socklen_t(MemoryLayout<Address>.size)) }
    }
}
