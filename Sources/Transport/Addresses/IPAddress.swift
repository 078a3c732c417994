import Cryptography

package struct IPAddress: Hashable, Sendable, Comparable {
    /// The 16 bytes of the IPv6 or IPv4-mapped address, big-endian.
    package let high: UInt64
    package let low: UInt64
    /// The interface of a link-local IPv6 address of a datagram (RFC 4007); otherwise 0.
    package var zone: UInt32

    package init(high: UInt64, low: UInt64, zone: UInt32 = 0) {
        self.high = high
        self.low = low
        self.zone = zone
    }

    package init(v4: UInt32) { self.init(high: 0, low: 0xffff_0000_0000 | UInt64(v4)) }

    package init(_ a: UInt8, _ b: UInt8, _ c: UInt8, _ d: UInt8) {
        self.init(v4: UInt32(a) << 24 | UInt32(b) << 16 | UInt32(c) << 8 | UInt32(d))
    }

    /// `nil` unless there are 4 bytes of IPv4 or 16 of IPv6.
    package init?(_ bytes: some Collection<UInt8>) {
        let number = bytes.suffix(8).reduce(0 as UInt64) { $0 << 8 | UInt64($1) }
        switch bytes.count {
        case 4: self.init(high: 0, low: 0xffff_0000_0000 | number)
        case 16: self.init(high: bytes.prefix(8).reduce(0) { $0 << 8 | UInt64($1) }, low: number)
        default: return nil
        }
    }

    package var v4: UInt32? { isIPv4 ? UInt32(truncatingIfNeeded: low) : nil }

    package var isIPv4: Bool { high == 0 && low >> 32 == 0xffff }

    /// 4 bytes of IPv4 or 16 of IPv6.
    package var bytes: [UInt8] { isIPv4 ? Array(mappedBytes.suffix(4)) : mappedBytes }

    package var mappedBytes: [UInt8] { bigEndian(high) + bigEndian(low) }

    /// `fe80::/10` or `169.254.0.0/16`: valid only on its own link.
    package var isLinkLocal: Bool { isIPv4 ? low >> 16 & 0xffff == 0xa9fe : high >> 54 == 0x3fa }

    package var isLoopback: Bool { isIPv4 ? low >> 24 & 0xff == 127 : high == 0 && low == 1 }

    var isWildcard: Bool { v4 == 0 || (high == 0 && low == 0) }

    var isMulticast: Bool { isIPv4 ? low >> 28 & 0xf == 0xe : high >> 56 == 0xff }

    var withoutZone: IPAddress { IPAddress(high: high, low: low) }

    func zoned(_ zone: UInt32) -> IPAddress { IPAddress(high: high, low: low, zone: zone) }

    /// Whether a machine can have it.
    package var isUnicast: Bool {
        if isIPv4 {
            let first = low >> 24 & 0xff
            return first != 0 && first < 224
        }
        return high >> 56 != 0xff && !(high == 0 && low == 0)
    }

    /// Whether the first `length` bits are equal: 0…32 for IPv4, 0…128 for IPv6.
    package func shares(_ length: Int, with other: IPAddress) -> Bool {
        guard isIPv4 == other.isIPv4 else { return false }
        let bits = min(max(0, length), isIPv4 ? 32 : 128) + (isIPv4 ? 96 : 0)
        let highMask: UInt64 = bits >= 64 ? .max : bits == 0 ? 0 : ~(.max >> UInt64(bits))
        let lowMask: UInt64 = bits <= 64 ? 0 : bits >= 128 ? .max : ~(.max >> UInt64(bits - 64))
        return (high ^ other.high) & highMask == 0 && (low ^ other.low) & lowMask == 0
    }

    package static func < (left: IPAddress, right: IPAddress) -> Bool {
        (left.high, left.low, left.zone) < (right.high, right.low, right.zone)
    }
}

extension IPAddress {
    /// Whether the address may be globally reachable: IANA has not reserved it (RFC 6890). Documentation addresses
    /// count as global, because no machine has them. A gateway with a non-global outer address is itself behind a NAT.
    package var isGlobal: Bool {
        guard isIPv4 else { return high >> 61 == 1 }  // 2000::/3
        let address = UInt32(truncatingIfNeeded: low)
        return !Self.setAside.contains { address >> (32 - $0.length) == $0.network >> (32 - $0.length) }
    }

    private static let setAside: [(network: UInt32, length: UInt32)] = [
        (0x0000_0000, 8),  // this host
        (0x0a00_0000, 8), (0xac10_0000, 12), (0xc0a8_0000, 16),  // private, RFC 1918
        (0x6440_0000, 10),  // behind a provider's NAT, RFC 6598
        (0x7f00_0000, 8),  // loopback
        (0xa9fe_0000, 16),  // link-local
        (0xc000_0000, 24),  // protocols, RFC 6890; DS-Lite among them
        (0xc612_0000, 15),  // benchmarks
        (0xe000_0000, 4), (0xf000_0000, 4),  // multicast, reserved, broadcast
    ]
}

/// Source or destination of a datagram. The shell converts it from socket addresses.
package struct DatagramAddress: Hashable, Sendable {
    package let ip: IPAddress
    package let port: UInt16
    /// The shell's socket number: a reply leaves by the socket at which the datagram arrived.
    package let socket: UInt32
    /// Our address at which a datagram arrived, with its interface as the zone; the source of replies. `nil` lets the
    /// system choose. A hint that takes no part in equality.
    package var local: IPAddress?

    package init(_ ip: IPAddress, port: UInt16, socket: UInt32 = 0, local: IPAddress? = nil) {
        self.ip = ip
        self.port = port
        self.socket = socket
        self.local = local
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
