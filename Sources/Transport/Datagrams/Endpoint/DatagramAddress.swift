import Crypto

/// Source or destination of a datagram. The shell converts it from socket addresses.
package struct DatagramAddress: Hashable, Sendable {
    package let ip: IPAddress
    package let port: UInt16
    /// The shell's socket number: a reply leaves by the socket at which the datagram arrived.
    package let socket: UInt32
    /// The shell's number of the local address at which a datagram arrived, as the source of replies; 0 lets the system
    /// choose. A hint that takes no part in equality.
    package var local: UInt32 = 0

    package init(_ ip: IPAddress, port: UInt16, socket: UInt32 = 0) {
        self.ip = ip
        self.port = port
        self.socket = socket
    }

    package init(v4: UInt32, port: UInt16, socket: UInt32 = 0) {
        self.init(IPAddress(v4: v4), port: port, socket: socket)
    }

    package static func == (left: DatagramAddress, right: DatagramAddress) -> Bool {
        (left.ip, left.port, left.socket) == (right.ip, right.port, right.socket)
    }

    package func hash(into hasher: inout Hasher) {
        hasher.combine(ip)
        hasher.combine(port)
        hasher.combine(socket)
    }

    /// A /24 of IPv4 or a /48 of IPv6.
    package struct Network: Hashable, Sendable, Comparable {
        /// A different number for each network.
        let number: UInt64

        package init(_ address: DatagramAddress) { self.init(address.ip) }
        init(_ ip: IPAddress) { number = ip.v4.map { UInt64($0 >> 8) } ?? (ip.high >> 16 | 1 << 63) }

        package static func < (left: Network, right: Network) -> Bool { left.number < right.number }
    }

    /// The input of a cookie's MAC.
    var bytes: [UInt8] { ip.mappedBytes + bigEndian(UInt64(port) << 32 | UInt64(ip.zone)) + bigEndian(UInt64(socket)) }
}

extension [UInt8] {
    mutating func appendBigEndian(_ number: some FixedWidthInteger) {
        Swift.withUnsafeBytes(of: number.bigEndian) { append(contentsOf: $0) }
    }

    /// - Precondition: eight bytes follow from `index`.
    func bigEndian(at index: Int) -> UInt64 {
        var number: UInt64 = 0
        for offset in 0..<8 { number = number << 8 | UInt64(self[index + offset]) }
        return number
    }
}
