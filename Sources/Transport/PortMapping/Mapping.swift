import Cryptography

/// Limits of port mapping. Times are milliseconds unless stated otherwise.
package enum MappingLimits {
    /// The longest lease that is requested or accepted, in seconds.
    package static let lease: UInt32 = 3_600
    /// The shortest lease that is accepted, in seconds.
    package static let leaseLeast: UInt32 = 60
    /// The longest time to a renewal. It restores the mapping after a restart of the gateway, and shows its new
    /// address.
    package static let renewInterval: Int64 = 300_000
    /// The shortest pause before another renewal attempt.
    package static let retryLeast: Int64 = 10_000
    /// The pause after all methods have failed: the first, and the longest after doubling.
    package static let pause: Int64 = 60_000
    package static let pauseMost: Int64 = 900_000
    /// Our addresses for which an IPv6 gateway is asked for pinholes.
    package static let addressCount = 4
    /// How long a clean stop waits for the removal of mappings.
    package static let stopPatience: Int64 = 2_000
}

/// The protocols to ask a gateway, in the order of the attempts.
package enum MappingMethod: String, Sendable, CaseIterable {
    /// RFC 6887.
    case pcp
    /// RFC 6886.
    case natPMP = "nat-pmp"
    /// Internet Gateway Device, by the UPnP Forum.
    case upnp
}

/// A local listener to be mapped, and its gateway.
package struct MappingPlace: Hashable, Sendable {
    package let gateway: IPAddress
    package let interface: UInt32
    /// Our address on that interface.
    package let local: IPAddress
    /// The listener's port, for TCP and, if enabled, UDP. Not 0.
    package let port: UInt16
    package let hasDatagrams: Bool

    package init(gateway: IPAddress, interface: UInt32, local: IPAddress, port: UInt16, hasDatagrams: Bool) {
        self.gateway = gateway
        self.interface = interface
        self.local = local
        self.port = port
        self.hasDatagrams = hasDatagrams
    }

    /// NAT-PMP, and UPnP as it is used here, support only IPv4.
    package var methods: [MappingMethod] { local.isIPv4 ? MappingMethod.allCases : [.pcp] }

    package var carriers: [MappingCarrier] { hasDatagrams ? [.tcp, .udp] : [.tcp] }
}

/// Raw values are IANA protocol numbers.
package enum MappingCarrier: UInt8, Sendable, CaseIterable {
    case tcp = 6
    case udp = 17
}

/// A gateway's grant, not validated yet.
package struct MappingGrant: Hashable, Sendable {
    package var outer: IPAddress
    package var tcp: UInt16
    /// `nil` if UDP was not requested.
    package var udp: UInt16?
    /// In seconds: the shorter of the two.
    package var lifetime: UInt32
}

package struct Mapping: Hashable, Sendable {
    package let method: MappingMethod
    package let place: MappingPlace
    package var outer: IPAddress
    package var tcp: UInt16
    package var udp: UInt16?
    package var grantedAt: Int64
    package var expiresAt: Int64

    package init(_ grant: MappingGrant, _ method: MappingMethod, _ place: MappingPlace, now: Int64) {
        self.method = method
        self.place = place
        outer = grant.outer
        tcp = grant.tcp
        udp = grant.udp
        grantedAt = now
        expiresAt = now + Int64(min(grant.lifetime, MappingLimits.lease)) * 1_000
    }

    /// The outer ports: one, if both carriers have the same.
    package var ports: [UInt16] { udp == nil || udp == tcp ? [tcp] : [tcp, udp ?? tcp] }

    package func port(of carrier: MappingCarrier) -> UInt16 { carrier == .tcp ? tcp : udp ?? tcp }
}

/// Why there is no mapping, from the least to the most informative.
package enum MappingFailure: Hashable, Sendable {
    case unsupported
    case silent
    case malformed
    /// The gateway offers only mappings without an end, which are not requested.
    case permanentOnly
    /// The method's own code (RFC 6887, 7.4; RFC 6886, 3.5; UPnP's error codes).
    case refused(Int)
    /// The gateway is itself behind a NAT: its outer address.
    case notGlobal(IPAddress)

    private var rank: Int {
        switch self {
        case .unsupported: 0
        case .silent: 1
        case .malformed: 2
        case .permanentOnly: 3
        case .refused: 4
        case .notGlobal: 5
        }
    }

    package static func telling(_ failures: [MappingFailure]) -> MappingFailure {
        failures.max { $0.rank < $1.rank } ?? .silent
    }
}

/// A default gateway from the kernel's tables (proc(5), `/proc/net/route` and `/proc/net/ipv6_route`).
package struct DefaultRoute: Hashable, Sendable {
    package let gateway: IPAddress
    package let interface: String
    package let metric: UInt32
}

package enum RouteTable {
    private static let flagsUp: UInt32 = 0x1
    private static let flagsGateway: UInt32 = 0x2

    /// The best default route of `/proc/net/route`: Iface, Destination, Gateway, Flags, RefCnt, Use, Metric, Mask …,
    /// with addresses as numbers in the machine's byte order.
    package static func ipv4(_ text: String) -> DefaultRoute? {
        best(
            text.split(separator: "\n").dropFirst().compactMap { line in
                let fields = line.split { $0 == "\t" || $0 == " " }
                guard fields.count >= 8, UInt32(fields[1], radix: 16) == 0, UInt32(fields[7], radix: 16) == 0,
                    let gateway = UInt32(fields[2], radix: 16), isGateway(fields[3]),
                    let address = IPAddress(withUnsafeBytes(of: gateway) { Array($0) }), let metric = UInt32(fields[6])
                else { return nil }
                return DefaultRoute(gateway: address, interface: String(fields[0]), metric: metric)
            })
    }

    /// The best default route of `/proc/net/ipv6_route`: destination, its length, source, its length, next hop, metric,
    /// counts, flags, device; all hexadecimal.
    package static func ipv6(_ text: String) -> DefaultRoute? {
        best(
            text.split(separator: "\n").compactMap { line in
                let fields = line.split(separator: " ")
                guard fields.count >= 10, fields[0].allSatisfy({ $0 == "0" }), fields[1] == "00", fields[3] == "00",
                    isGateway(fields[8]), let bytes = Hex.decode(fields[4]), bytes.count == 16,
                    let address = IPAddress(bytes), let metric = UInt32(fields[5], radix: 16)
                else { return nil }
                return DefaultRoute(gateway: address, interface: String(fields[9]), metric: metric)
            })
    }

    private static func isGateway(_ flags: Substring) -> Bool {
        UInt32(flags, radix: 16).map { $0 & (flagsUp | flagsGateway) == flagsUp | flagsGateway } ?? false
    }

    private static func best(_ routes: [DefaultRoute]) -> DefaultRoute? {
        routes.filter { $0.gateway.isUnicast && !$0.gateway.isLoopback }.min { $0.metric < $1.metric }
    }
}
