import Crypto

/// Source or destination of a datagram. The shell converts it from socket addresses.
package struct DatagramAddress: Hashable, Sendable {
    /// The 16 bytes of the IPv6 or IPv4-mapped address, big-endian.
    package let high: UInt64
    package let low: UInt64
    package let port: UInt16
    /// The interface of a link-local address.
    package let scope: UInt32
    /// The shell's socket number: a reply leaves by the socket at which the datagram arrived.
    package let socket: UInt32
    /// The shell's number of the local address at which a datagram arrived, as the source of replies; 0 lets the system
    /// choose. A hint that takes no part in equality.
    package var local: UInt32 = 0

    package init(high: UInt64, low: UInt64, port: UInt16, scope: UInt32 = 0, socket: UInt32 = 0) {
        self.high = high
        self.low = low
        self.port = port
        self.scope = scope
        self.socket = socket
    }

    package init(v4: UInt32, port: UInt16, socket: UInt32 = 0) {
        self.init(high: 0, low: 0xffff_0000_0000 | UInt64(v4), port: port, socket: socket)
    }

    package static func == (left: DatagramAddress, right: DatagramAddress) -> Bool {
        (left.high, left.low, left.port, left.scope, left.socket) == (
            right.high, right.low, right.port, right.scope, right.socket
        )
    }

    package func hash(into hasher: inout Hasher) {
        hasher.combine(high)
        hasher.combine(low)
        hasher.combine(port)
        hasher.combine(scope)
        hasher.combine(socket)
    }

    package var v4: UInt32? { high == 0 && low >> 32 == 0xffff ? UInt32(truncatingIfNeeded: low) : nil }

    package var isLoopback: Bool { v4.map { $0 >> 24 == 127 } ?? (high == 0 && low == 1) }

    /// A /24 of IPv4 or a /48 of IPv6.
    package struct Network: Hashable, Sendable {
        /// A different number for each network.
        let number: UInt64

        package init(_ address: DatagramAddress) {
            number = address.v4.map { UInt64($0 >> 8) } ?? (address.high >> 16 | 1 << 63)
        }
    }

    /// The input of a cookie's MAC.
    var bytes: [UInt8] {
        bigEndian(high) + bigEndian(low) + bigEndian(UInt64(port) << 32 | UInt64(scope)) + bigEndian(UInt64(socket))
    }
}

extension [UInt8] {
    mutating func appendBigEndian(_ number: UInt64) {
        for shift in stride(from: 56 as UInt64, through: 0, by: -8) {
            append(UInt8(truncatingIfNeeded: number >> shift))
        }
    }

    mutating func appendBigEndian(_ number: UInt32) {
        for shift in stride(from: 24 as UInt32, through: 0, by: -8) {
            append(UInt8(truncatingIfNeeded: number >> shift))
        }
    }

    /// - Precondition: eight bytes follow from `index`.
    func bigEndian(at index: Int) -> UInt64 {
        var number: UInt64 = 0
        for offset in 0..<8 { number = number << 8 | UInt64(self[index + offset]) }
        return number
    }
}
